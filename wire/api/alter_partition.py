"""AlterPartition (key 56): a leader asks the controller to change its in-sync replicas.

Between brokers. v1 has the leader recovery state, v2 topic ids, v3 broker epochs.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import int8, int16, int32, int64, message, since, string, struct, uuid


@message(key=56, versions="0-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: int32
    broker_epoch: int64 = -1
    topics: list[TopicData]


@struct
class TopicData:
    topic_name: string = since("0-1", default="")
    topic_id: uuid = since("2+", default=ZERO_UUID)
    partitions: list[PartitionData]


@struct
class PartitionData:
    partition_index: int32
    leader_epoch: int32
    new_isr: list[int32] = since("0-2", default=[])
    new_isr_with_epochs: list[BrokerState] = since("3+", default=[])
    leader_recovery_state: int8 = since("1+", default=0)
    partition_epoch: int32


@struct
class BrokerState:
    broker_id: int32
    broker_epoch: int64 = -1


@message(key=56, versions="0-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int32
    error_code: int16
    topics: list[TopicDataResponse]


@struct
class TopicDataResponse:
    topic_name: string = since("0-1", default="")
    topic_id: uuid = since("2+", default=ZERO_UUID)
    partitions: list[PartitionDataResponse]


@struct
class PartitionDataResponse:
    partition_index: int32
    error_code: int16
    leader_id: int32
    leader_epoch: int32
    isr: list[int32]
    leader_recovery_state: int8 = since("1+", default=0)
    partition_epoch: int32
