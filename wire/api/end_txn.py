"""EndTxn (key 26): commit or abort a transaction.

v5 answers with the producer's next epoch (KIP-890).
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, int64, message, since, string


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: boolean


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int32
    error_code: int16
    producer_id: int64 = since("5+", default=-1)
    producer_epoch: int16 = since("5+", default=-1)
