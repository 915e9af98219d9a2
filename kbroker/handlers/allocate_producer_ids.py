"""AllocateProducerIds: a broker of Apache Kafka asks the controller for producer ids to give out.

Between brokers. kbroker's own take theirs from the metadata store, out of the same range (conformance 41).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker


def allocate_producer_ids(
    broker: Broker, context: Context, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse | Parked:
    membership = broker.membership
    if membership is None or not membership.controller.is_active:
        return answer(ErrorCode.NOT_CONTROLLER, range(0))
    parked = Parked()
    membership.lend_producer_ids(
        request.broker_id,
        lambda block: parked.complete(
            answer(ErrorCode.NOT_CONTROLLER, range(0)) if block is None else answer(ErrorCode.NONE, block)
        ),
    )
    return parked


def answer(code: ErrorCode, block: range) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=code, producer_id_start=block.start, producer_id_len=len(block)
    )
