"""Produce (key 0): append batches of records to partitions.

v3 is the first with record batches of format 2. v5 answers with the log start offset, v8 with errors per
record, v10 with the new leader's address (KIP-951). v12 joins a transaction by writing to it (KIP-890), v13
names topics by id (KIP-516).
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import int16, int32, int64, message, record_bytes, since, string, struct, uuid


@message(key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: string | None = since("3+", default=None)
    acks: int16
    timeout_ms: int32
    topic_data: list[TopicProduceData]


@struct
class TopicProduceData:
    name: string = since("0-12", default="")
    topic_id: uuid = since("13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData]


@struct
class PartitionProduceData:
    index: int32
    records: record_bytes | None


@message(key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse]
    throttle_time_ms: int32 = since("1+", default=0)
    node_endpoints: list[NodeEndpoint] = since("10+", default=[], tag=0)


@struct
class TopicProduceResponse:
    name: string = since("0-12", default="")
    topic_id: uuid = since("13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


@struct
class PartitionProduceResponse:
    index: int32
    error_code: int16
    base_offset: int64
    log_append_time_ms: int64 = since("2+", default=-1)
    log_start_offset: int64 = since("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since("8+", default=[])
    error_message: string | None = since("8+", default=None)
    current_leader: LeaderIdAndEpoch | None = since("10+", default=None, nullable="none", tag=0)


@struct
class BatchIndexAndErrorMessage:
    batch_index: int32
    batch_index_error_message: string | None = None


@struct
class LeaderIdAndEpoch:
    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class NodeEndpoint:
    node_id: int32
    host: string
    port: int32
    rack: string | None = None
