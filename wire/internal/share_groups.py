"""Records of `__consumer_offsets`: share groups (KIP-932)."""

from __future__ import annotations

from wire.schema import int8, int32, int64, message, since, string, struct, uuid


@message(key=10, versions="0")
class ShareGroupMemberMetadataKey:
    group_id: string
    member_id: string


@message(key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]


@message(key=11, versions="0")
class ShareGroupMetadataKey:
    group_id: string


@message(key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int32
    metadata_hash: int64


@message(key=12, versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: string


@message(key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32
    assignment_timestamp: int64 = since(default=0, tag=0)


@message(key=13, versions="0")
class ShareGroupTargetAssignmentMemberKey:
    group_id: string
    member_id: string


@message(key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition]


@struct
class TopicPartition:
    topic_id: uuid
    partitions: list[int32]


@message(key=14, versions="0")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: string
    member_id: string


@message(key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]


@struct
class TopicPartitions:
    topic_id: uuid
    partitions: list[int32]


@message(key=15, versions="0")
class ShareGroupStatePartitionMetadataKey:
    group_id: string


@message(key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


@struct
class TopicPartitionsInfo:
    topic_id: uuid
    topic_name: string
    partitions: list[int32]


@struct
class TopicInfo:
    topic_id: uuid
    topic_name: string
