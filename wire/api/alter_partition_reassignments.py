"""AlterPartitionReassignments (key 45): start or cancel moving partitions to other brokers.

v1 may keep the replication factor from changing.
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, message, since, string, struct


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int32 = 60000
    allow_replication_factor_change: boolean = since("1+", default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignableTopic:
    name: string
    partitions: list[ReassignablePartition]


@struct
class ReassignablePartition:
    partition_index: int32
    replicas: list[int32] | None = None


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int32
    allow_replication_factor_change: boolean = since("1+", default=True)
    error_code: int16
    error_message: string | None
    responses: list[ReassignableTopicResponse]


@struct
class ReassignableTopicResponse:
    name: string
    partitions: list[ReassignablePartitionResponse]


@struct
class ReassignablePartitionResponse:
    partition_index: int32
    error_code: int16
    error_message: string | None
