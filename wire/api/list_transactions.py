"""ListTransactions (key 66): the transactions that a broker coordinates.

v1 filters by duration, v2 by a pattern of ids.
"""

from __future__ import annotations

from wire.schema import int16, int32, int64, message, since, string, struct


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[string]
    producer_id_filters: list[int64]
    duration_filter: int64 = since("1+", default=-1)
    transactional_id_pattern: string | None = since("2+", default=None)


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int32
    error_code: int16
    unknown_state_filters: list[string]
    transaction_states: list[TransactionState]


@struct
class TransactionState:
    transactional_id: string
    producer_id: int64
    transaction_state: string
