"""Transactions, from outside: which there are, what they wait for; and an end to those that hang.

A transaction *hangs* in a partition if it is open there and no coordinator knows that it is: nobody will ever
end it, and readers of committed data wait for it. (It takes a producer of the old protocol and a broker that
does not ask the coordinator, `transaction.partition.verification.enable=false`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kbroker.client.cluster import Cluster
from kbroker.client.connection import check
from kbroker.client.errors import Refused
from kbroker.client.offsets import TopicPartition
from wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from wire.api.describe_transactions import DescribeTransactionsRequest
from wire.api.init_producer_id import InitProducerIdRequest
from wire.api.list_transactions import ListTransactionsRequest
from wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from wire.errors import ErrorCode

OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


class ListedTransaction(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class Transaction(NamedTuple):
    """A transactional id as its coordinator describes it."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]
    coordinator: int


class OpenTransaction(NamedTuple):
    """A transaction as a partition knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def list_transactions(cluster: Cluster, *states: str) -> list[ListedTransaction]:
    """All transactional ids, or those in one of these states, by name."""

    def ask() -> list[ListedTransaction]:
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=[])
        found = []
        for node_id in cluster.node_ids():
            response = cluster.broker(node_id).ask(request)
            check(response.error_code, "cannot list the transactions")
            found += [
                ListedTransaction(one.transactional_id, one.transaction_state, one.producer_id, node_id)
                for one in response.transaction_states
            ]
        return sorted(found)

    return cluster.patiently(ask)


def describe_transaction(cluster: Cluster, transactional_id: str) -> Transaction:
    """Refused where no broker knows the id."""

    def ask() -> Transaction:
        for node_id in cluster.node_ids():
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (one,) = cluster.broker(node_id).ask(request).transaction_states
            if one.error_code not in ELSEWHERE:
                check(one.error_code, f"cannot describe {transactional_id}")
                return _described(one, node_id)
        text = f"there is no transactional id {transactional_id}"
        raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name, text)

    return cluster.patiently(ask)


def _described(one: Any, node_id: int) -> Transaction:
    return Transaction(
        one.transactional_id,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        one.transaction_start_time_ms,
        tuple((topic.topic, index) for topic in one.topics for index in topic.partitions),
        node_id,
    )


def fence(cluster: Cluster, transactional_id: str) -> None:
    """Abort what is open, and shut out the producer that has it open."""
    found = describe_transaction(cluster, transactional_id)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=max(found.timeout_ms, 1)
    )

    def ask() -> None:
        coordinator = describe_transaction(cluster, transactional_id).coordinator
        response = cluster.broker(coordinator).ask(request)
        check(response.error_code, f"cannot abort the transaction of {transactional_id}")

    cluster.patiently(ask)


def hanging(cluster: Cluster, place: TopicPartition) -> list[OpenTransaction]:
    """What is open in a partition and known to no coordinator."""
    before = cluster.patiently(lambda: list(_open_in(cluster, place)))
    known = {
        one.producer_id
        for one in list_transactions(cluster, *OPEN)
        if place in describe_transaction(cluster, one.transactional_id).partitions
    }
    # What was open all the time, and so while coordinators were asked.
    still = cluster.patiently(lambda: list(_open_in(cluster, place)))
    offsets = {one.producer_id: one.start_offset for one in before}
    return [
        one
        for one in still
        if one.producer_id not in known and offsets.get(one.producer_id) == one.start_offset
    ]


def _open_in(cluster: Cluster, place: TopicPartition) -> Iterator[OpenTransaction]:
    topic, index = place
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    response = cluster.leader(topic, index).ask(request)
    (answer,) = response.topics[0].partitions
    check(answer.error_code, f"cannot see the producers of {topic}:{index}", answer.error_message)
    for one in answer.active_producers:
        if one.current_txn_start_offset >= 0:
            yield OpenTransaction(
                one.producer_id,
                one.producer_epoch,
                one.coordinator_epoch,
                one.current_txn_start_offset,
                one.last_timestamp,
            )


def abort_hanging(cluster: Cluster, place: TopicPartition, one: OpenTransaction) -> None:
    """Write the marker that no coordinator will write."""
    topic, index = place
    marker = WritableTxnMarker(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=max(one.coordinator_epoch, 0),
    )
    request = WriteTxnMarkersRequest(markers=[marker])

    def ask() -> None:
        (result,) = cluster.leader(topic, index).ask(request).markers
        code = result.topics[0].partitions[0].error_code
        check(code, f"cannot abort the transaction of producer {one.producer_id} in {topic}:{index}")

    cluster.patiently(ask)
