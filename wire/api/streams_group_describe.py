"""StreamsGroupDescribe (key 89): the state and members of streams groups.

KIP-1071.
"""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, int64, message, since, string, struct, uint16


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: list[string]
    include_authorized_operations: boolean
    include_topology_description: boolean = since("1+", default=False)


@message(key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
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
    topology: Topology | None = None
    members: list[Member]
    authorized_operations: int32 = -0x80000000
    topology_description: TopologyDescription | None = since("1+", default=None)
    topology_description_status: int8 = since("1+", default=0)
    assignor_name: string | None = since("1+", default=None)


@struct
class Topology:
    epoch: int32
    subtopologies: list[Subtopology] | None = None


@struct
class Subtopology:
    subtopology_id: string
    source_topics: list[string]
    repartition_sink_topics: list[string]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


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
class Member:
    member_id: string
    member_epoch: int32
    instance_id: string | None = None
    rack_id: string | None = None
    client_id: string
    client_host: string
    topology_epoch: int32
    process_id: string
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: boolean


@struct
class Endpoint:
    host: string
    port: uint16


@struct
class TaskOffset:
    subtopology_id: string
    partition: int32
    offset: int64


@struct
class Assignment:
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@struct
class TaskIds:
    subtopology_id: string
    partitions: list[int32]


@struct
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology]
    global_stores: list[TopologyDescriptionGlobalStore]


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: string
    nodes: list[TopologyDescriptionNode]


@struct
class TopologyDescriptionNode:
    name: string
    node_type: int8
    source_topics: list[string]
    sink_topic: string | None = None
    stores: list[string]
    successors: list[string]


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode
