"""AddPartitionsToTxn (key 24): add partitions to a transaction.

v0-3 come from clients; v4 and later are batches from other brokers (KIP-890).
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, int64, message, since, string, struct


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = since("4+", default=[])
    v3_and_below_transactional_id: string = since("0-3", default="")
    v3_and_below_producer_id: int64 = since("0-3", default=0)
    v3_and_below_producer_epoch: int16 = since("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since("0-3", default=[])


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    verify_only: boolean = False
    topics: list[AddPartitionsToTxnTopic]


@struct
class AddPartitionsToTxnTopic:
    name: string
    partitions: list[int32]


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int32
    error_code: int16 = since("4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = since("4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since("0-3", default=[])


@struct
class AddPartitionsToTxnResult:
    transactional_id: string
    topic_results: list[AddPartitionsToTxnTopicResult]


@struct
class AddPartitionsToTxnTopicResult:
    name: string
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int32
    partition_error_code: int16
