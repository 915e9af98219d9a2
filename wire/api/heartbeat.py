"""Heartbeat (key 12): a member of a classic group is still there.

v3 knows static members.
"""

from __future__ import annotations

from wire.schema import int16, int32, message, since, string


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = since("3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int32 = since("1+", default=0)
    error_code: int16
