"""LeaveGroup (key 13): members leave a classic group.

v3 takes several members at once, v5 a reason.
"""

from __future__ import annotations

from wire.schema import int16, int32, message, since, string, struct


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: string
    member_id: string = since("0-2", default="")
    members: list[MemberIdentity] = since("3+", default=[])


@struct
class MemberIdentity:
    member_id: string
    group_instance_id: string | None = None
    reason: string | None = since("5+", default=None)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int32 = since("1+", default=0)
    error_code: int16
    members: list[MemberResponse] = since("3+", default=[])


@struct
class MemberResponse:
    member_id: string
    group_instance_id: string | None
    error_code: int16
