"""Client quotas: what is set for users, clients and addresses, and how it is stored.

    user                /config/users/U                rates, and what else is set for the user
    user and client     /config/users/U/clients/C      rates
    client              /config/clients/C              rates
    ip                  /config/ips/A                  connections in a second

Rules, as measured on Apache Kafka 4.3.1 unless it says otherwise:
- None instead of a name stands for all that have no quota of their own: `<default>` in the path.
- A quota is above 0. A rate in bytes, and that of connections, is a whole number. One that is not set may be
  removed.
- Each entry is judged on its own, and whatever is wrong with it is INVALID_REQUEST. Names of hosts are, where
  addresses belong: Kafka would look them up.
- What is stored at the same path for other purposes (passwords) stays as it is, and is not shown.
- Quotas are stored and told. Nobody is throttled yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address

from controller import znodes
from controller.configs import store
from controller.metadata_store import Create, Operation
from controller.plan import Plan
from controller.rules import Stored
from controller.state import Entity, EntityConfig, EntityType
from wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
    OpData,
)
from wire.errors import ErrorCode, KafkaError
from wire.slices import InSlices

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

Named = Mapping[str, str | None]
"""Whose quota it is: a name, or None for the default, for each of its entity types."""


def _whole(value: float) -> str:
    return str(int(value))


RATES: Mapping[str, Callable[[float], str]] = {
    "producer_byte_rate": _whole,
    "consumer_byte_rate": _whole,
    "request_percentage": str,
    "controller_mutation_rate": str,
}
CONNECTIONS: Mapping[str, Callable[[float], str]] = {"connection_creation_rate": _whole}
QUOTAS = {**RATES, **CONNECTIONS}
"""The keys, and how their values are written."""


def alter(plan: Plan, request: AlterClientQuotasRequest) -> InSlices[AlterClientQuotasResponse]:
    counts = Counter(_identity(entry) for entry in request.entries)
    answers = []
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            if counts[_identity(entry)] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the entity is named more than once")
            named = {part.entity_type: part.entity_name for part in entry.entity}
            entity = entity_of(named)
            values = _altered(plan.state.config_of(entity), CONNECTIONS if IP in named else RATES, entry.ops)
        except KafkaError as error:
            code, message = error.code, str(error)
        else:
            if not request.validate_only:
                plan.write(*_missing_above(plan, entity))
                store(plan, entity, values)
        entity_data = [EntityData(entity_type=p.entity_type, entity_name=p.entity_name) for p in entry.entity]
        answers.append(EntryDataResponse(error_code=code, error_message=message, entity=entity_data))
        yield
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=answers)


def _missing_above(plan: Plan, entity: Entity) -> list[Operation]:
    """What has to be created for the quotas of a user's client to have a place."""
    kind, name = entity
    user, slash, _ = name.partition("/")
    above = [(kind, user), (kind, f"{user}/clients")] if slash else []
    missing = [one for one in above if one not in plan.state.configs]
    plan.state.configs.update({one: EntityConfig({}, 0) for one in missing})
    return [Create(znodes.Config.path(one)) for one in missing]


def _identity(entry: EntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset({part.entity_type: part.entity_name for part in entry.entity}.items())


def entity_of(named: Named) -> Entity:
    """Where the quotas of these are stored."""
    if not named:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a quota is somebody's")
    for entity_type, name in named.items():
        if entity_type not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no quotas of a {entity_type!r}")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a {entity_type} has a name")
    if IP in named:
        if len(named) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an address stands alone")
        return EntityType.IP, _address(named[IP])
    if USER not in named:
        return EntityType.CLIENT, _in_path(named[CLIENT_ID])
    user = _in_path(named[USER])
    if CLIENT_ID not in named:
        return EntityType.USER, user
    return EntityType.USER, f"{user}/clients/{_in_path(named[CLIENT_ID])}"


def _address(name: str | None) -> str:
    if name is None:
        return znodes.DEFAULT_ENTITY
    try:
        return str(ip_address(name))
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is not an address") from None


def _in_path(name: str | None) -> str:
    return znodes.DEFAULT_ENTITY if name is None else znodes.sanitize(name)


def named_by(path: str) -> Named | None:
    """Whose quotas are stored at a path below `/config`; None where there are none."""
    match path.split("/"):
        case ["users", user]:
            return {USER: _from_path(user)}
        case ["users", user, "clients", client]:
            return {USER: _from_path(user), CLIENT_ID: _from_path(client)}
        case ["clients", client]:
            return {CLIENT_ID: _from_path(client)}
        case ["ips", address]:
            return {IP: _from_path(address)}
    return None


def _from_path(name: str) -> str | None:
    return None if name == znodes.DEFAULT_ENTITY else znodes.desanitize(name)


def quotas_in(values: Stored) -> dict[str, float]:
    """Those among what is stored at a path."""
    found = {}
    for key, text in values.items():
        if key in QUOTAS:
            try:
                found[key] = float(text)
            except ValueError:  # another tool has written it, and it limits nobody
                continue
    return found


def _altered(
    stored: Stored, keys: Mapping[str, Callable[[float], str]], operations: Iterable[OpData]
) -> dict[str, str]:
    """What is to be stored instead."""
    operations = list(operations)
    if len({one.key for one in operations}) < len(operations):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a quota is given more than once")
    values = dict(stored)
    for one in operations:
        if one.key not in keys:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no quota {one.key!r} for this entity")
        if one.remove:
            values.pop(one.key, None)
            continue
        if not 0 < one.value < float("inf"):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{one.key} has to be above 0")
        if keys[one.key] is _whole and not one.value.is_integer():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{one.key} has to be a whole number")
        values[one.key] = keys[one.key](one.value)
    return values
