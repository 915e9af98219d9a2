"""DescribeTransactions (key 65): the state of transactions by id."""

from __future__ import annotations

from wire.schema import int16, int32, int64, message, string, struct


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[string]


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int32
    transaction_states: list[TransactionState]


@struct
class TransactionState:
    error_code: int16
    transactional_id: string
    transaction_state: string
    transaction_timeout_ms: int32
    transaction_start_time_ms: int64
    producer_id: int64
    producer_epoch: int16
    topics: list[TopicData]


@struct
class TopicData:
    topic: string
    partitions: list[int32]
