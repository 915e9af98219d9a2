"""DescribeClientQuotas: the quotas that are stored, of those that match every component of a filter.

- A component is about one entity type: this name (exact), the default, or any that was specified.
- Strict: of nobody who has other entity types beside these. So a strict filter without components finds
  nothing, and one that is not strict finds everything.
- An unknown entity type is UNSUPPORTED_VERSION; any other filter that makes no sense is INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from controller.quotas import ENTITY_TYPES, IP, Named
from kbroker.context import Context
from wire.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker


class Match(IntEnum):
    """How a component matches, with Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


def describe_client_quotas(
    broker: Broker, context: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=str(error), entries=None
        )
    components = {one.entity_type: one for one in request.components}
    return DescribeClientQuotasResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            entry(named, quotas)
            for named, quotas in broker.settings.quotas()
            if all(is_met(component, named) for component in components.values())
            and (not request.strict or named.keys() == components.keys())
        ],
    )


def check(components: Sequence[ComponentData]) -> None:
    types = [one.entity_type for one in components]
    for one in components:
        if one.entity_type and one.entity_type not in ENTITY_TYPES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas of entity type {one.entity_type!r}"
            )
        if one.match_type not in list(Match) or (one.match is None) == (one.match_type == Match.EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a name goes with an exact match, and no other")
    if "" in types or len(set(types)) < len(types) or (IP in types and len(types) > 1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "every entity type once at most, an ip alone")


def is_met(component: ComponentData, named: Named) -> bool:
    if component.entity_type not in named:
        return False
    return component.match_type == Match.SPECIFIED or named[component.entity_type] == component.match


def entry(named: Named, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in named.items()],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )
