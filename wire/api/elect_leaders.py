"""ElectLeaders (key 43): elect leaders for partitions.

v1 chooses between preferred and unclean elections.
"""

from __future__ import annotations

from wire.schema import int8, int16, int32, message, since, string, struct


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int8 = since("1+", default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: int32 = 60000


@struct
class TopicPartitions:
    topic: string
    partitions: list[int32]


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int32
    error_code: int16 = since("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]


@struct
class ReplicaElectionResult:
    topic: string
    partition_result: list[PartitionResult]


@struct
class PartitionResult:
    partition_id: int32
    error_code: int16
    error_message: string | None
