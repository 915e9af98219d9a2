"""AddPartitionsToTxn: make partitions part of a transaction, or ask whether they are.

- v0-3 come from clients, for one transaction. v4-5 come from partition leaders, for several: to verify what
  an older client writes, or to let a partition join on behalf of a newer one (KIP-890).
- If one of the partitions does not exist nothing is added: that one gets UNKNOWN_TOPIC_OR_PARTITION, the
  others OPERATION_NOT_ATTEMPTED (conformance 49).
- A client that begins before the markers of its last transaction are written is kept waiting for a moment;
  brokers that ask on behalf of a client wait by themselves.
- Before v2 a producer that is fenced off is told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices, Parked
from kbroker.coordinators.offsets import Place
from kbroker.coordinators.transaction import EPOCH_BUMP_VERSION, Identity
from kbroker.coordinators.transactions import add_answer
from wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_BETWEEN_BROKERS = 4


def add_partitions_to_txn(
    broker: Broker, context: Context, request: AddPartitionsToTxnRequest
) -> InSlices[Parked]:
    if context.api_version >= FIRST_VERSION_BETWEEN_BROKERS:
        return (yield from several(broker, request.transactions))
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    asked = yield from of_one(broker, one, client_version=0)
    return asked.then(lambda result: for_client(result, context.api_version))


def for_client(result: object, version: int) -> AddPartitionsToTxnResponse:
    if not isinstance(result, AddPartitionsToTxnResult):
        raise TypeError(f"not a result: {result!r}")
    if version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        for topic in result.topic_results:
            for partition in topic.results_by_partition:
                if partition.partition_error_code == ErrorCode.PRODUCER_FENCED:
                    partition.partition_error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=result.topic_results)


def several(broker: Broker, transactions: list[AddPartitionsToTxnTransaction]) -> InSlices[Parked]:
    """The results, in one response when the last is known."""
    parked = Parked()
    results: list[AddPartitionsToTxnResult] = []

    def known(result: object) -> None:
        if isinstance(result, AddPartitionsToTxnResult):
            results.append(result)
        if len(results) == len(transactions):
            parked.complete(AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results))

    for one in transactions:
        asked = yield from of_one(broker, one, client_version=EPOCH_BUMP_VERSION)
        asked.when_done(known, for_reply=parked)
    if not transactions:
        known(None)
    return parked


def of_one(broker: Broker, wanted: AddPartitionsToTxnTransaction, *, client_version: int) -> InSlices[Parked]:
    """Its AddPartitionsToTxnResult, in any case."""
    places = frozenset(places_of(wanted.topics))
    unknown = set()
    for place in places:
        if broker.metadata.partition(*place) is None:
            unknown.add(place)
        yield
    if unknown:
        return answered(
            wanted.transactional_id,
            {
                place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if place in unknown
                else ErrorCode.OPERATION_NOT_ATTEMPTED
                for place in places
            },
        )
    identity = Identity(wanted.producer_id, wanted.producer_epoch)
    try:
        if wanted.verify_only:
            return broker.transactions.ask(
                wanted.transactional_id,
                lambda transactions, token, now_ms: transactions.verify_partitions(
                    wanted.transactional_id, identity, places, token, now_ms
                ),
            )
        ask = (
            broker.transactions.ask
            if client_version >= EPOCH_BUMP_VERSION
            else broker.transactions.ask_to_join
        )
        return ask(
            wanted.transactional_id,
            lambda transactions, token, now_ms: transactions.add_partitions(
                wanted.transactional_id, identity, places, client_version, token, now_ms
            ),
        )
    except KafkaError as error:
        return answered(wanted.transactional_id, dict.fromkeys(places, error.code))


def places_of(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[Place]:
    return (Place(topic.name, index) for topic in topics for index in topic.partitions)


def answered(transactional_id: str, errors: dict[Place, ErrorCode]) -> Parked:
    parked = Parked()
    parked.complete(add_answer(transactional_id, errors, errors.__getitem__))
    return parked
