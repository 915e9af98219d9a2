"""InitProducerId: a producer id that nobody else was ever given (conformance 40, 41).

Without a transactional id each call gives a fresh id and epoch 0, whatever came with it; but an id without
an epoch, or an epoch without an id, is INVALID_REQUEST. An empty
transactional id is INVALID_REQUEST. Transactions are not served yet: a transactional id gets
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients report and do not retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker


def init_producer_id(
    broker: Broker, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Parked:
    if request.transactional_id is not None:
        empty = not request.transactional_id
        code = ErrorCode.INVALID_REQUEST if empty else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return answer(code, -1)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return answer(ErrorCode.INVALID_REQUEST, -1)
    parked = Parked()
    broker.next_producer_id(lambda producer_id: parked.complete(answer(ErrorCode.NONE, producer_id)))
    return parked


def answer(code: ErrorCode, producer_id: int) -> InitProducerIdResponse:
    epoch = 0 if code == ErrorCode.NONE else -1
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=code, producer_id=producer_id, producer_epoch=epoch
    )
