"""AllocateProducerIds (key 67): a broker asks the controller for producer ids to give out.

Between brokers.
"""

from __future__ import annotations

from wire.schema import int16, int32, int64, message


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: int32
    broker_epoch: int64 = -1


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int32
    error_code: int16
    producer_id_start: int64
    producer_id_len: int32
