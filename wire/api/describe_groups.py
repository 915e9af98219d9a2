"""DescribeGroups (key 15): the state and members of classic groups.

v3 has authorized operations, v4 static members, v6 an error message, and an error for a group that is not
there.
"""

from __future__ import annotations

from wire.schema import boolean, byte_string, int16, int32, message, since, string, struct


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[string]
    include_authorized_operations: boolean = since("3+", default=False)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int32 = since("1+", default=0)
    groups: list[DescribedGroup]


@struct
class DescribedGroup:
    error_code: int16
    error_message: string | None = since("6+", default=None)
    group_id: string
    group_state: string
    protocol_type: string
    protocol_data: string
    members: list[DescribedGroupMember]
    authorized_operations: int32 = since("3+", default=-0x80000000)


@struct
class DescribedGroupMember:
    member_id: string
    group_instance_id: string | None = since("4+", default=None)
    client_id: string
    client_host: string
    member_metadata: byte_string
    member_assignment: byte_string
