"""ConsumerGroupHeartbeat (key 68): join, keep up with and leave a consumer group of the new protocol.

KIP-848. v1 has the member choose its id, and subscribe by regular expression.
"""

from __future__ import annotations

from wire.schema import int16, int32, message, since, string, struct, uuid


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: string
    member_id: string
    member_epoch: int32
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[string] | None = None
    subscribed_topic_regex: string | None = since("1+", default=None)
    server_assignor: string | None = None
    topic_partitions: list[TopicPartitions] | None = None


@struct
class TopicPartitions:
    topic_id: uuid
    partitions: list[int32]


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
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
