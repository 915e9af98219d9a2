"""DeleteGroups (key 42): delete empty groups."""

from __future__ import annotations

from wire.schema import int16, int32, message, since, string, struct


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[string]


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int32
    results: list[DeletableGroupResult]


@struct
class DeletableGroupResult:
    group_id: string
    error_code: int16
    error_message: string | None = since("3+", default=None)
