"""TxnOffsetCommit (key 28): store offsets as part of a transaction.

v2 has leader epochs, v3 fencing by generation, v6 topic ids.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import int16, int32, int64, message, since, string, struct, uuid


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id_or_member_epoch: int32 = since("3+", default=-1)
    member_id: string = since("3+", default="")
    group_instance_id: string | None = since("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitRequestTopic:
    name: string = since("0-5", default="")
    topic_id: uuid = since("6+", default=ZERO_UUID)
    partitions: list[TxnOffsetCommitRequestPartition]


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = since("2+", default=-1)
    committed_metadata: string | None


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int32
    topics: list[TxnOffsetCommitResponseTopic]


@struct
class TxnOffsetCommitResponseTopic:
    name: string = since("0-5", default="")
    topic_id: uuid = since("6+", default=ZERO_UUID)
    partitions: list[TxnOffsetCommitResponsePartition]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int32
    error_code: int16
