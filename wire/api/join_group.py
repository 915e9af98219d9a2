"""JoinGroup (key 11): join a classic group, or join it again.

v1 has the rebalance timeout, v4 the round trip for a member id, v5 static members, v7 the protocol's name,
v8 a reason, v9 the leader's leave to skip the assignment.
"""

from __future__ import annotations

from wire.schema import boolean, byte_string, int16, int32, message, since, string, struct


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: string
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = since("1+", default=-1)
    member_id: string
    group_instance_id: string | None = since("5+", default=None)
    protocol_type: string
    protocols: list[JoinGroupRequestProtocol]
    reason: string | None = since("8+", default=None)


@struct
class JoinGroupRequestProtocol:
    name: string
    metadata: byte_string


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int32 = since("2+", default=0)
    error_code: int16
    generation_id: int32 = -1
    protocol_type: string | None = since("7+", default=None)
    protocol_name: string | None = since(nullable="7+")
    leader: string
    skip_assignment: boolean = since("9+", default=False)
    member_id: string
    members: list[JoinGroupResponseMember]


@struct
class JoinGroupResponseMember:
    member_id: string
    group_instance_id: string | None = since("5+", default=None)
    metadata: byte_string
