"""Asks a transaction's coordinator whether partitions that are being written to belong to the transaction.

A producer of transaction version 2 does not announce its partitions: the leader that gets its first batch
adds the partition on its behalf, and appends when the coordinator has agreed (KIP-890). An older producer has
announced it, and the leader makes sure: a late batch of a transaction that is over would otherwise begin one
that nobody ends (conformance 42).

The coordinator's errors become errors of Produce and TxnOffsetCommit that every client knows how to take:
90 is told as 47, and what is over in a moment as 19 to those that cannot wait for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kbroker.coordinator_runtime import Clock
from kbroker.inter_broker import Send
from wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from wire.errors import ErrorCode

VERSION = 5
NO_LEADER = -1
AGAIN_MS = 2
PATIENCE_MS = 60
"""The next attempt comes after 2 ms, then after twice as long each time, up to this."""

KNOWN_ERRORS: Mapping[int, ErrorCode] = {int(code): code for code in ErrorCode}

Told = Callable[[ErrorCode], object]

NOT_NOW = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    )
)


class Verifier:
    """The way of partition leaders to the coordinators of transactions."""

    def __init__(self, send: Send, coordinator_of: Callable[[str], int], clock: Clock) -> None:
        """`coordinator_of` gives the broker that coordinates a transactional id, or -1."""
        self._send = send
        self._coordinator_of = coordinator_of
        self._clock = clock

    def verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        places: Collection[tuple[str, int]],
        *,
        joins: bool,
        told: Told,
        pause_ms: int = AGAIN_MS,
    ) -> None:
        """`told` gets NONE once the partitions belong to the transaction; with `joins` they are added.

        CONCURRENT_TRANSACTIONS is waited out for a moment: the transaction before is about to be completed.
        """

        def answered(response: AddPartitionsToTxnResponse | None) -> None:
            error = error_of(response)
            if error == ErrorCode.CONCURRENT_TRANSACTIONS and joins and pause_ms <= PATIENCE_MS:
                self._clock.call_later_ms(
                    pause_ms,
                    lambda: self.verify(
                        transactional_id, producer, places, joins=joins, told=told, pause_ms=2 * pause_ms
                    ),
                )
            else:
                told(error)

        coordinator = self._coordinator_of(transactional_id)
        if coordinator == NO_LEADER:
            told(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    verify_only=not joins,
                    topics=[
                        AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in places
                    ],
                )
            ]
        )
        self._send(coordinator, request, VERSION, answered)


def error_of(response: AddPartitionsToTxnResponse | None) -> ErrorCode:
    """The first of all partitions; they were asked about together."""
    if response is None:
        return ErrorCode.NETWORK_EXCEPTION
    if response.error_code:
        return KNOWN_ERRORS.get(response.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
    for result in response.results_by_transaction:
        for topic in result.topic_results:
            for partition in topic.results_by_partition:
                if partition.partition_error_code:
                    return KNOWN_ERRORS.get(partition.partition_error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return ErrorCode.NONE


def produce_error(error: ErrorCode, *, joins: bool, knows_abortable: bool) -> ErrorCode:
    """What a producer is told. Those who do not join by themselves take 51 for an error of theirs."""
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error in NOT_NOW or (error == ErrorCode.CONCURRENT_TRANSACTIONS and not joins):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


def commit_error(error: ErrorCode, *, joins: bool, knows_abortable: bool) -> ErrorCode:
    """The same for TxnOffsetCommit."""
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.NETWORK_EXCEPTION or (error == ErrorCode.CONCURRENT_TRANSACTIONS and not joins):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error == ErrorCode.NOT_COORDINATOR:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
