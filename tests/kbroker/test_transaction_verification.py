"""What a partition leader asks a coordinator, how long it waits, and what clients are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.transaction_verification import Verifier, commit_error, produce_error
from wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from wire.errors import ErrorCode

PRODUCER = (5, 3)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


class World:
    """A coordinator that gives the answers that are put into it, and time that passes at once."""

    def __init__(self, *answers: ErrorCode | None, coordinator: int = 2) -> None:
        self.answers = list(answers)
        self.now = 0
        self.asked: list[tuple[int, AddPartitionsToTxnRequest]] = []
        self.told: list[ErrorCode] = []
        self.verifier = Verifier(self.send, lambda transactional_id: coordinator, self)

    def now_ms(self) -> int:
        return self.now

    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> World:
        self.now += delay_ms
        call()
        return self

    def cancel(self) -> None:
        """Nothing is under way."""

    def send(self, broker_id: int, message: Any, version: int, told: Callable[[Any], object]) -> None:
        self.asked.append((broker_id, message))
        error = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        told(None if error is None else response(error))

    def verify(self, *, joins: bool) -> ErrorCode:
        self.verifier.verify("x", PRODUCER, [("t", 0)], joins=joins, told=self.told.append)
        [told] = self.told
        return told


def response(error: ErrorCode) -> AddPartitionsToTxnResponse:
    partition = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=error)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[partition])
    result = AddPartitionsToTxnResult(transactional_id="x", topic_results=[topic])
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=[result])


@pytest.mark.parametrize("joins", [True, False])
def test_the_coordinator_is_asked_to_add_or_only_to_look(joins: bool) -> None:
    """Conformance 42"""
    world = World(ErrorCode.NONE)
    assert world.verify(joins=joins) == ErrorCode.NONE
    [(broker_id, request)] = world.asked
    assert broker_id == 2
    [one] = request.transactions
    assert (one.transactional_id, one.producer_id, one.producer_epoch) == ("x", *PRODUCER)
    assert one.verify_only is not joins
    assert [(topic.name, topic.partitions) for topic in one.topics] == [("t", [0])]


def test_the_transaction_before_is_waited_for_by_those_who_join() -> None:
    world = World(BUSY, BUSY, ErrorCode.NONE)
    assert world.verify(joins=True) == ErrorCode.NONE
    assert len(world.asked) == 3


def test_nobody_waits_for_long() -> None:
    world = World(BUSY)
    assert world.verify(joins=True) == BUSY
    assert 50 <= world.now <= 150


def test_who_announced_a_partition_does_not_wait() -> None:
    """The partition cannot belong to the next transaction yet."""
    world = World(BUSY, ErrorCode.NONE)
    assert world.verify(joins=False) == BUSY


def test_without_a_coordinator_or_an_answer_nobody_knows() -> None:
    assert World(ErrorCode.NONE, coordinator=-1).verify(joins=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert World(None).verify(joins=True) == ErrorCode.NETWORK_EXCEPTION


def test_an_error_of_the_whole_request_counts() -> None:
    world = World(ErrorCode.NONE)
    whole = AddPartitionsToTxnResponse(
        throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results_by_transaction=[]
    )

    def send(broker_id: int, message: Any, version: int, told: Callable[[Any], object]) -> None:
        told(whole)

    world.verifier = Verifier(send, lambda transactional_id: 1, world)
    assert world.verify(joins=True) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("error", "joins", "knows_abortable", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, True, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_COORDINATOR, True, True, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, False, False, ErrorCode.NOT_ENOUGH_REPLICAS),
        (BUSY, True, True, BUSY),
        (BUSY, False, True, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.TRANSACTION_ABORTABLE, False, True, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, False, False, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, True, True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_producers_are_told_what_they_know(
    error: ErrorCode, joins: bool, knows_abortable: bool, told: ErrorCode
) -> None:
    assert produce_error(error, joins=joins, knows_abortable=knows_abortable) == told


@pytest.mark.parametrize(
    ("error", "joins", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_COORDINATOR, True, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NETWORK_EXCEPTION, True, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (BUSY, False, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (BUSY, True, BUSY),
        (ErrorCode.TRANSACTION_ABORTABLE, False, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_committers_are_told_what_they_know(error: ErrorCode, joins: bool, told: ErrorCode) -> None:
    assert commit_error(error, joins=joins, knows_abortable=joins) == told
