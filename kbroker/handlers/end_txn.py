"""EndTxn: commit or abort a transaction.

- The reply leaves when the decision is durable. Markers follow; until all are written the transactional id
  can begin nothing new and gets CONCURRENT_TRANSACTIONS.
- v5+ comes from producers of transaction version 2 and is answered with the epoch they go on with, if the
  cluster is at that version.
- Before v2 a producer that is fenced off is told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from kbroker.coordinators.transaction import EPOCH_BUMP_VERSION
from kbroker.coordinators.transactions import end_answer
from wire.api.end_txn import EndTxnRequest, EndTxnResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_EPOCH_BUMP = 5


def end_txn(broker: Broker, context: Context, request: EndTxnRequest) -> EndTxnResponse | Parked:
    if not request.transactional_id:
        return end_answer(ErrorCode.INVALID_REQUEST)
    level = broker.transactions.config.transaction_version
    bumps = context.api_version >= FIRST_VERSION_WITH_EPOCH_BUMP and level >= EPOCH_BUMP_VERSION
    if not bumps:
        parked = broker.transactions.ask(
            request.transactional_id,
            lambda transactions, token, now_ms: transactions.end(request, 0, -1, token, now_ms),
        )
    else:
        parked = broker.transactions.ask_with_id(
            request.transactional_id,
            lambda transactions, new_id, token, now_ms: transactions.end(
                request, EPOCH_BUMP_VERSION, new_id, token, now_ms
            ),
        )
    return (
        parked if context.api_version >= FIRST_VERSION_WITH_PRODUCER_FENCED else parked.then(for_old_clients)
    )


def for_old_clients(response: object) -> object:
    if isinstance(response, EndTxnResponse) and response.error_code == ErrorCode.PRODUCER_FENCED:
        response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return response
