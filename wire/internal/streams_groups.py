"""Records of `__consumer_offsets`: streams groups (KIP-1071)."""

from __future__ import annotations

from wire.schema import int8, int16, int32, int64, message, since, string, struct, uint16


@message(key=17, versions="0")
class StreamsGroupMetadataKey:
    group_id: string


@message(key=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: int32
    metadata_hash: int64
    validated_topology_epoch: int32 = since(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = since(default=[], tag=1)


@struct
class LastAssignmentConfig:
    key: string
    value: string


@message(key=19, versions="0")
class StreamsGroupMemberMetadataKey:
    group_id: string
    member_id: string


@message(key=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32
    process_id: string
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]


@struct
class Endpoint:
    host: string
    port: uint16


@struct
class KeyValue:
    key: string
    value: string


@message(key=20, versions="0")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: string


@message(key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32
    assignment_timestamp: int64 = since(default=0, tag=0)


@message(key=21, versions="0")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: string
    member_id: string


@message(key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@struct
class TaskIds:
    subtopology_id: string
    partitions: list[int32]


@message(key=22, versions="0")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: string
    member_id: string


@message(key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    active_tasks: list[TaskIdsStreamsGroupCurrentMemberAssignmentValue]
    standby_tasks: list[TaskIdsStreamsGroupCurrentMemberAssignmentValue]
    warmup_tasks: list[TaskIdsStreamsGroupCurrentMemberAssignmentValue]
    active_tasks_pending_revocation: list[TaskIdsStreamsGroupCurrentMemberAssignmentValue]
    standby_tasks_pending_revocation: list[TaskIdsStreamsGroupCurrentMemberAssignmentValue]
    warmup_tasks_pending_revocation: list[TaskIdsStreamsGroupCurrentMemberAssignmentValue]


@struct
class TaskIdsStreamsGroupCurrentMemberAssignmentValue:
    subtopology_id: string
    partitions: list[int32]
    assignment_epochs: list[int32] | None = since(default=[], tag=0)


@message(key=23, versions="0")
class StreamsGroupTopologyKey:
    group_id: string


@message(key=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: int32
    subtopologies: list[Subtopology]


@struct
class Subtopology:
    subtopology_id: string
    source_topics: list[string]
    source_topic_regex: list[string]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[string]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@struct
class TopicInfo:
    name: string
    partitions: int32
    replication_factor: int16
    topic_configs: list[TopicConfig]


@struct
class TopicConfig:
    key: string
    value: string


@struct
class CopartitionGroup:
    source_topics: list[int16]
    source_topic_regex: list[int16]
    repartition_source_topics: list[int16]
