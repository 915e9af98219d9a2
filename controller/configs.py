"""IncrementalAlterConfigs and AlterConfigs: what is stored for topics, brokers and groups.

What a key means, what a value may be, and how lists are appended to, the broker's configuration knows
(`Rules`); stored is what it answers. Each change is announced in `/config/changes`, in the same transaction:
so brokers hear of it (`controller.config_changes`).

- A resource named twice in a request is refused each time, with INVALID_REQUEST. So are other kinds of
  resources.
- The broker "" is all brokers; any other one has to be there now. A topic has to exist, a group need not.
- `validate_only` answers what would be done, and does nothing.
- Where a topic may have unclean leaders from now on, its partitions without a leader get one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from controller import znodes
from controller.partitions import settle
from controller.plan import Plan, announcement
from controller.rules import Stored
from controller.state import Entity, EntityConfig, EntityType
from controller.topic_names import objection_to
from wire.api import alter_configs, incremental_alter_configs
from wire.errors import ErrorCode, KafkaError
from wire.slices import InSlices


class ResourceType(IntEnum):
    """Of what can be configured, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class _Resource(Protocol):
    resource_type: int
    resource_name: str


R = TypeVar("R", bound=_Resource)


class Outcome(NamedTuple):
    """What becomes of one resource of a request."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode
    error_message: str | None


def alter(
    plan: Plan, request: incremental_alter_configs.IncrementalAlterConfigsRequest
) -> InSlices[incremental_alter_configs.IncrementalAlterConfigsResponse]:
    def changed(entity: Entity, resource: incremental_alter_configs.AlterConfigsResource) -> dict[str, str]:
        changes = [(config.name, config.config_operation, config.value) for config in resource.configs]
        return plan.rules.alter(entity, plan.state.config_of(entity), changes)

    outcomes = yield from _alter_each(plan, request.resources, changed, validate_only=request.validate_only)
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(**outcome._asdict())
            for outcome in outcomes
        ],
    )


def replace(
    plan: Plan, request: alter_configs.AlterConfigsRequest
) -> InSlices[alter_configs.AlterConfigsResponse]:
    def replaced(entity: Entity, resource: alter_configs.AlterConfigsResource) -> dict[str, str]:
        settings = [(config.name, config.value) for config in resource.configs]
        return plan.rules.replace(entity, plan.state.config_of(entity), settings)

    outcomes = yield from _alter_each(plan, request.resources, replaced, validate_only=request.validate_only)
    return alter_configs.AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[alter_configs.AlterConfigsResourceResponse(**outcome._asdict()) for outcome in outcomes],
    )


def _alter_each(
    plan: Plan,
    resources: Iterable[R],
    new_values: Callable[[Entity, R], dict[str, str]],
    *,
    validate_only: bool,
) -> InSlices[list[Outcome]]:
    resources = list(resources)
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes = []
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        code, message = ErrorCode.NONE, None
        try:
            if counts[key] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
            entity = _entity(plan, *key)
            values = new_values(entity, resource)
        except KafkaError as error:
            code, message = error.code, str(error)
        else:
            if not validate_only:
                store(plan, entity, values)
        outcomes.append(Outcome(*key, code, message))
        yield
    return outcomes


def _entity(plan: Plan, resource_type: int, name: str) -> Entity:
    match resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has a name")
            if (objection := objection_to(name)) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, objection)
            if name not in plan.state.topics or name in plan.state.deletions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return EntityType.TOPIC, name
        case ResourceType.BROKER:
            if name and not name.isdecimal():
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is not the number of a broker")
            if name and int(name) not in plan.state.brokers:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no broker {name}")
            return EntityType.BROKER, name or znodes.DEFAULT_ENTITY
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a group has a name")
            return EntityType.GROUP, znodes.sanitize(name)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no configuration stored here"
    )


def store(plan: Plan, entity: Entity, values: dict[str, str]) -> None:
    """Store a configuration, and tell the brokers where to look."""
    plan.write(plan.set_config(entity, values), announcement(entity))
    _elect_unclean(plan, entity, values)


def changed_elsewhere(plan: Plan, configs: dict[Entity, EntityConfig | None]) -> None:
    """Somebody else has stored these; None is a configuration that has gone."""
    for entity, config in configs.items():
        if config is None:
            plan.state.configs.pop(entity, None)
        else:
            plan.state.configs[entity] = config
            _elect_unclean(plan, entity, config.values)


def _elect_unclean(plan: Plan, entity: Entity, values: Stored) -> None:
    kind, name = entity
    if kind is EntityType.TOPIC and name in plan.state.topics and plan.rules.unclean_leader_election(values):
        settle(plan, list(plan.state.topics[name].partitions()))
