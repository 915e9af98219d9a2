"""DescribeTopicPartitions (key 75): topics and partitions, a page at a time.

KIP-966.
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, message, string, struct, uuid


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest]
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


@struct
class TopicRequest:
    name: string


@struct
class Cursor:
    topic_name: string
    partition_index: int32


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int32
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int16
    name: string | None
    topic_id: uuid
    is_internal: boolean = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int32 = -0x80000000


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int16
    partition_index: int32
    leader_id: int32
    leader_epoch: int32 = -1
    replica_nodes: list[int32]
    isr_nodes: list[int32]
    eligible_leader_replicas: list[int32] | None = None
    last_known_elr: list[int32] | None = None
    offline_replicas: list[int32]
