"""DescribeTransactions: the state of transactional ids.

Each id has its own outcome: TRANSACTIONAL_ID_NOT_FOUND, or an error of its coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices, Parked
from kbroker.coordinators.transactions import describe_answer
from kbroker.transaction_coordinator import TransactionShard
from wire.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker


def describe_transactions(
    broker: Broker, context: Context, request: DescribeTransactionsRequest
) -> InSlices[Parked]:
    shards: set[TransactionShard] = set()
    described: dict[str, TransactionState] = {}
    for each in dict.fromkeys(request.transactional_ids):
        described[each] = describe(broker, each, shards)
        yield
    states = [described[each] for each in request.transactional_ids]
    return broker.transactions.answer(
        shards, DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)
    )


def describe(broker: Broker, transactional_id: str, shards: set[TransactionShard]) -> TransactionState:
    if not transactional_id:
        return describe_answer(transactional_id, ErrorCode.INVALID_REQUEST)
    try:
        shard = broker.transactions.shard_of(transactional_id)
    except KafkaError as error:
        return describe_answer(transactional_id, error.code)
    shards.add(shard)
    return shard.machine.describe(transactional_id)
