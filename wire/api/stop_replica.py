"""StopReplica (key 5): the controller tells a broker to stop, and perhaps delete, replicas.

Between brokers with ZooKeeper only. v0 lists partitions one by one, v1-2 by topic, v3 with leader epochs.
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, int64, message, since, string, struct


@message(key=5, versions="0-4", flexible="2+")
class StopReplicaRequest:
    controller_id: int32
    is_kraft_controller: boolean = since("4+", default=False)
    controller_epoch: int32
    broker_epoch: int64 = since("1+", default=-1)
    delete_partitions: boolean = since("0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = since("0", default=[])
    topics: list[StopReplicaTopicV1] = since("1-2", default=[])
    topic_states: list[StopReplicaTopicState] = since("3+", default=[])


@struct
class StopReplicaPartitionV0:
    topic_name: string
    partition_index: int32


@struct
class StopReplicaTopicV1:
    name: string
    partition_indexes: list[int32]


@struct
class StopReplicaTopicState:
    topic_name: string
    partition_states: list[StopReplicaPartitionState]


@struct
class StopReplicaPartitionState:
    partition_index: int32
    leader_epoch: int32 = -1
    delete_partition: boolean


@message(key=5, versions="0-4", flexible="2+")
class StopReplicaResponse:
    error_code: int16
    partition_errors: list[StopReplicaPartitionError]


@struct
class StopReplicaPartitionError:
    topic_name: string
    partition_index: int32
    error_code: int16
