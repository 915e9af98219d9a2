"""AddOffsetsToTxn (key 25): add a group's offsets to a transaction."""

from __future__ import annotations

from wire.schema import int16, int32, int64, message, string


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int32
    error_code: int16
