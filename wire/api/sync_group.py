"""SyncGroup (key 14): hand out, and fetch, the assignment of a classic group.

v3 knows static members; v5 checks the protocol's type and name.
"""

from __future__ import annotations

from wire.schema import byte_string, int16, int32, message, since, string, struct


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = since("3+", default=None)
    protocol_type: string | None = since("5+", default=None)
    protocol_name: string | None = since("5+", default=None)
    assignments: list[SyncGroupRequestAssignment]


@struct
class SyncGroupRequestAssignment:
    member_id: string
    assignment: byte_string


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int32 = since("1+", default=0)
    error_code: int16
    protocol_type: string | None = since("5+", default=None)
    protocol_name: string | None = since("5+", default=None)
    assignment: byte_string
