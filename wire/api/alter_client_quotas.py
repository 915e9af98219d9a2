"""AlterClientQuotas (key 49): set and remove quotas."""

from __future__ import annotations

from wire.schema import boolean, float64, int16, int32, message, string, struct


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[EntryData]
    validate_only: boolean


@struct
class EntryData:
    entity: list[EntityData]
    ops: list[OpData]


@struct
class EntityData:
    entity_type: string
    entity_name: string | None


@struct
class OpData:
    key: string
    value: float64
    remove: boolean


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int32
    entries: list[EntryDataResponse]


@struct
class EntryDataResponse:
    error_code: int16
    error_message: string | None
    entity: list[EntityData]
