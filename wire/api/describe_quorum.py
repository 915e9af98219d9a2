"""DescribeQuorum (key 55): the state of a KRaft metadata quorum."""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import int16, int32, int64, message, since, string, struct, uint16, uuid


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[TopicData]


@struct
class TopicData:
    topic_name: string
    partitions: list[PartitionData]


@struct
class PartitionData:
    partition_index: int32


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int16
    error_message: string | None = since("2+", default="")
    topics: list[TopicDataResponse]
    nodes: list[Node] = since("2+", default=[])


@struct
class TopicDataResponse:
    topic_name: string
    partitions: list[PartitionDataResponse]


@struct
class PartitionDataResponse:
    partition_index: int32
    error_code: int16
    error_message: string | None = since("2+", default="")
    leader_id: int32
    leader_epoch: int32
    high_watermark: int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class ReplicaState:
    replica_id: int32
    replica_directory_id: uuid = since("2+", default=ZERO_UUID)
    log_end_offset: int64
    last_fetch_timestamp: int64 = since("1+", default=-1)
    last_caught_up_timestamp: int64 = since("1+", default=-1)


@struct
class Node:
    node_id: int32
    listeners: list[Listener]


@struct
class Listener:
    name: string
    host: string
    port: uint16
