"""InitProducerId: a producer id that nobody else was ever given, or the next epoch of a transactional id.

- Without a transactional id each call gives a fresh id and epoch 0, whatever came with it; but an id without
  an epoch, or an epoch without an id, is INVALID_REQUEST (conformance 40, 41).
- With one: `kbroker.coordinators.transactions`. v3+ may say who the producer was until now; before v4 a
  producer that is fenced off is told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from kbroker.coordinators.transactions import claimed_identity, init_answer
from wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

FIRST_VERSION_WITH_PRODUCER_FENCED = 4


def init_producer_id(
    broker: Broker, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Parked:
    try:
        claimed_identity(request)
    except KafkaError as error:
        return init_answer(error.code)
    transactional_id = request.transactional_id
    if transactional_id is None:
        return without_transactions(broker)
    if not transactional_id:
        return init_answer(ErrorCode.INVALID_REQUEST)
    parked = broker.transactions.ask_with_id(
        transactional_id,
        lambda transactions, new_id, token, now_ms: transactions.init_producer_id(
            request, new_id, token, now_ms
        ),
    )
    return (
        parked if context.api_version >= FIRST_VERSION_WITH_PRODUCER_FENCED else parked.then(for_old_clients)
    )


def without_transactions(broker: Broker) -> Parked:
    parked = Parked()
    broker.next_producer_id(
        lambda producer_id: parked.complete(
            InitProducerIdResponse(
                throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0
            )
        )
    )
    return parked


def for_old_clients(response: object) -> object:
    if isinstance(response, InitProducerIdResponse) and response.error_code == ErrorCode.PRODUCER_FENCED:
        response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return response
