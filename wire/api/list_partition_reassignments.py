"""ListPartitionReassignments (key 46): the partitions that are moving."""

from __future__ import annotations

from wire.schema import int16, int32, message, string, struct


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@struct
class ListPartitionReassignmentsTopics:
    name: string
    partition_indexes: list[int32]


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None
    topics: list[OngoingTopicReassignment]


@struct
class OngoingTopicReassignment:
    name: string
    partitions: list[OngoingPartitionReassignment]


@struct
class OngoingPartitionReassignment:
    partition_index: int32
    replicas: list[int32]
    adding_replicas: list[int32]
    removing_replicas: list[int32]
