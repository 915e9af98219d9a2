"""AddOffsetsToTxn: make a group's offsets part of a transaction.

- That is the partition of `__consumer_offsets` that the group belongs to; it is added like any other.
- Before v2 a producer that is fenced off is told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from kbroker.coordinators.offsets import Place
from kbroker.coordinators.transaction import Identity
from wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from wire.api.add_partitions_to_txn import AddPartitionsToTxnResult
from wire.errors import ErrorCode, KafkaError
from wire.internal import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from kbroker.broker import Broker

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


def add_offsets_to_txn(
    broker: Broker, context: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Parked:
    place = Place(CONSUMER_OFFSETS, broker.groups.partition_of(request.group_id))
    if broker.metadata.partition(*place) is None:
        broker.create_topics([CONSUMER_OFFSETS])
        return answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        parked = broker.transactions.ask_to_join(
            request.transactional_id,
            lambda transactions, token, now_ms: transactions.add_partitions(
                request.transactional_id,
                Identity(request.producer_id, request.producer_epoch),
                frozenset((place,)),
                0,
                token,
                now_ms,
            ),
        )
    except KafkaError as error:
        return answer(error.code)
    return parked.then(lambda result: for_client(result, context.api_version))


def for_client(result: object, version: int) -> AddOffsetsToTxnResponse:
    if not isinstance(result, AddPartitionsToTxnResult):
        raise TypeError(f"not a result: {result!r}")
    code = result.topic_results[0].results_by_partition[0].partition_error_code
    if code == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return answer(code)


def answer(code: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)
