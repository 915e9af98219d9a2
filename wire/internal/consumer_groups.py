"""Records of `__consumer_offsets`: consumer groups of the new protocol (KIP-848)."""

from __future__ import annotations

from wire.schema import byte_string, int8, int32, int64, message, since, string, struct, uuid


@message(key=3, versions="0")
class ConsumerGroupMetadataKey:
    group_id: string


@message(key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int32
    metadata_hash: int64 = since(default=0, tag=0)


@message(key=4, versions="0")
class ConsumerGroupPartitionMetadataKey:
    group_id: string


@message(key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata]


@struct
class TopicMetadata:
    topic_id: uuid
    topic_name: string
    num_partitions: int32
    partition_metadata: list[PartitionMetadata]


@struct
class PartitionMetadata:
    partition: int32
    racks: list[string]


@message(key=5, versions="0")
class ConsumerGroupMemberMetadataKey:
    group_id: string
    member_id: string


@message(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None
    rebalance_timeout_ms: int32 = -1
    server_assignor: string | None
    classic_member_metadata: ClassicMemberMetadata | None = since(default=None, tag=0)


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int32
    supported_protocols: list[ClassicProtocol]


@struct
class ClassicProtocol:
    name: string
    metadata: byte_string


@message(key=6, versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: string


@message(key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32
    assignment_timestamp: int64 = since(default=0, tag=0)


@message(key=7, versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: string
    member_id: string


@message(key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition]


@struct
class TopicPartition:
    topic_id: uuid
    partitions: list[int32]


@message(key=8, versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: string
    member_id: string


@message(key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@struct
class TopicPartitions:
    topic_id: uuid
    partitions: list[int32]
    assignment_epochs: list[int32] | None = since(default=[], tag=0)


@message(key=16, versions="0")
class ConsumerGroupRegularExpressionKey:
    group_id: string
    regular_expression: string


@message(key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[string]
    version: int64
    timestamp: int64
