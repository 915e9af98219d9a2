"""LeaderAndIsr (key 4): the controller tells a broker which partitions it leads and follows.

Between brokers with ZooKeeper only. v2 groups partitions by topic and has broker epochs, v5 topic ids.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import boolean, int8, int16, int32, int64, message, since, string, struct, uuid


@message(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrRequest:
    controller_id: int32
    is_kraft_controller: boolean = since("7+", default=False)
    controller_epoch: int32
    broker_epoch: int64 = since("2+", default=-1)
    type: int8 = since("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = since("0-1", default=[])
    topic_states: list[LeaderAndIsrTopicState] = since("2+", default=[])
    live_leaders: list[LeaderAndIsrLiveLeader]


@struct
class LeaderAndIsrPartitionState:
    topic_name: string = since("0-1", default="")
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    partition_epoch: int32
    replicas: list[int32]
    adding_replicas: list[int32] = since("3+", default=[])
    removing_replicas: list[int32] = since("3+", default=[])
    is_new: boolean = since("1+", default=False)
    leader_recovery_state: int8 = since("6+", default=0)


@struct
class LeaderAndIsrTopicState:
    topic_name: string
    topic_id: uuid = since("5+", default=ZERO_UUID)
    partition_states: list[LeaderAndIsrPartitionState]


@struct
class LeaderAndIsrLiveLeader:
    broker_id: int32
    host_name: string
    port: int32


@message(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrResponse:
    error_code: int16
    partition_errors: list[LeaderAndIsrPartitionError] = since("0-4", default=[])
    topics: list[LeaderAndIsrTopicError] = since("5+", default=[])


@struct
class LeaderAndIsrPartitionError:
    topic_name: string = since("0-4", default="")
    partition_index: int32
    error_code: int16


@struct
class LeaderAndIsrTopicError:
    topic_id: uuid
    partition_errors: list[LeaderAndIsrPartitionError]
