"""ShareGroupDescribe (key 77): the state and members of share groups.

KIP-932.
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, message, string, struct, uuid


@message(key=77, versions="0-1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[string]
    include_authorized_operations: boolean


@message(key=77, versions="0-1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int32
    groups: list[DescribedGroup]


@struct
class DescribedGroup:
    error_code: int16
    error_message: string | None = None
    group_id: string
    group_state: string
    group_epoch: int32
    assignment_epoch: int32
    assignor_name: string
    members: list[Member]
    authorized_operations: int32 = -0x80000000


@struct
class Member:
    member_id: string
    rack_id: string | None = None
    member_epoch: int32
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    assignment: Assignment


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@struct
class TopicPartitions:
    topic_id: uuid
    topic_name: string
    partitions: list[int32]
