"""DescribeClientQuotas (key 48): list quotas that match a filter."""

from __future__ import annotations

from wire.schema import boolean, float64, int8, int16, int32, message, string, struct


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData]
    strict: boolean


@struct
class ComponentData:
    entity_type: string
    match_type: int8
    match: string | None


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None
    entries: list[EntryData] | None


@struct
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@struct
class EntityData:
    entity_type: string
    entity_name: string | None


@struct
class ValueData:
    key: string
    value: float64
