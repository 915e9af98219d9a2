"""StreamsGroupHeartbeat (key 88): join, keep up with and leave a streams group.

KIP-1071.
"""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, int64, message, since, string, struct, uint16


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: string
    member_id: string
    member_epoch: int32
    endpoint_information_epoch: int32
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: string | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: boolean = False


@struct
class Topology:
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
    topic_configs: list[KeyValue]


@struct
class KeyValue:
    key: string
    value: string


@struct
class CopartitionGroup:
    source_topics: list[int16]
    source_topic_regex: list[int16]
    repartition_source_topics: list[int16]


@struct
class TaskIds:
    subtopology_id: string
    partitions: list[int32]


@struct
class Endpoint:
    host: string
    port: uint16


@struct
class TaskOffset:
    subtopology_id: string
    partition: int32
    offset: int64


@message(key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None = None
    member_id: string
    member_epoch: int32
    heartbeat_interval_ms: int32
    acceptable_recovery_lag_legacy: int32 = since("0", default=0)
    task_offset_interval_ms: int32
    acceptable_recovery_lag: int64 = since("1+", default=-1)
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    topology_description_required: boolean = since("1+", default=False)
    endpoint_information_epoch: int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


@struct
class Status:
    status_code: int8
    status_detail: string


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


@struct
class TopicPartition:
    topic: string
    partitions: list[int32]
