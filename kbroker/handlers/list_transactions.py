"""ListTransactions: the transactional ids that this broker coordinates.

- v1+: only transactions that have run for longer than so long. v2 (a pattern of ids) is not served.
- States that do not exist are reported and match nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from kbroker.coordinators.transaction import State
from wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

KAFKAS_OTHER_STATES = frozenset(("Dead", "PrepareEpochFence"))
"""States of Kafka's that nothing is ever found in."""

STATES = frozenset(state.shown for state in State) | KAFKAS_OTHER_STATES


def list_transactions(broker: Broker, context: Context, request: ListTransactionsRequest) -> Parked:
    unknown = [state for state in request.state_filters if state not in STATES]
    shards = broker.transactions.loaded()
    found = []
    if not request.state_filters or len(unknown) < len(request.state_filters):
        for shard in shards:
            found += shard.machine.list_transactions(
                frozenset(request.state_filters),
                frozenset(request.producer_id_filters),
                request.duration_filter,
                broker.now_ms(),
            )
    response = ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown,
        transaction_states=found,
    )
    return broker.transactions.answer(shards, response)
