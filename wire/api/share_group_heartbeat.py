"""ShareGroupHeartbeat (key 76): join, keep up with and leave a share group.

KIP-932.
"""

from __future__ import annotations

from wire.schema import int16, int32, message, string, struct, uuid


@message(key=76, versions="0-1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: string
    member_id: string
    member_epoch: int32
    rack_id: string | None = None
    subscribed_topic_names: list[string] | None = None


@message(key=76, versions="0-1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: int32
    heartbeat_interval_ms: int32
    assignment: Assignment | None = None


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@struct
class TopicPartitions:
    topic_id: uuid
    partitions: list[int32]
