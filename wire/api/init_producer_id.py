"""InitProducerId (key 22): obtain a producer id, or the next epoch of one.

v3 lets a producer keep its id and raise the epoch; v6 prepares two-phase commit.
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, int64, message, since, string


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: string | None
    transaction_timeout_ms: int32
    producer_id: int64 = since("3+", default=-1)
    producer_epoch: int16 = since("3+", default=-1)
    enable2_pc: boolean = since("6+", default=False)
    keep_prepared_txn: boolean = since("6+", default=False)


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int32
    error_code: int16
    producer_id: int64 = -1
    producer_epoch: int16
    ongoing_txn_producer_id: int64 = since("6+", default=-1)
    ongoing_txn_producer_epoch: int16 = since("6+", default=-1)
