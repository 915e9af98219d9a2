"""DescribeProducers (key 61): the producers that wrote to partitions."""

from __future__ import annotations

from wire.schema import int16, int32, int64, message, string, struct


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest]


@struct
class TopicRequest:
    name: string
    partition_indexes: list[int32]


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int32
    topics: list[TopicResponse]


@struct
class TopicResponse:
    name: string
    partitions: list[PartitionResponse]


@struct
class PartitionResponse:
    partition_index: int32
    error_code: int16
    error_message: string | None = None
    active_producers: list[ProducerState]


@struct
class ProducerState:
    producer_id: int64
    producer_epoch: int32
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32
    current_txn_start_offset: int64 = -1
