"""A coordinator's runtime: decisions are carried out when they are safe, by who leads the partition then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.bugs import Bugs
from kbroker.context import Parked
from kbroker.coordinator_runtime import PATIENCE_MS, SAFE_YET_MS, Shard
from kbroker.coordinators.offsets import Place
from kbroker.coordinators.step import Markers
from kbroker.coordinators.transaction import State, Transaction
from kbroker.coordinators.transactions import COMPLETE_AGAIN_MS, TransactionConfig, Transactions
from kbroker.log_limits import LogLimits
from storage.appending import Appended
from storage.log_config import LogConfig
from wire.api.end_txn import EndTxnRequest
from wire.errors import ErrorCode, KafkaError
from wire.internal import TRANSACTION_STATE
from wire.internal.transaction_state import TransactionLogKey

Told = Callable[[KafkaError | None], object]


class World:
    """A partition whose promise is kept when the test says so, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000
        self.log_limits = LogLimits(self.now_ms)
        self.bugs = Bugs(self.log_limits)
        self.due: list[tuple[int, Callable[[], object]]] = []
        self.waiting: list[Told] = []
        self.carried_out: list[Markers] = []
        self.appended = 0
        self.machine = Transactions(TransactionConfig())
        self.refusal: KafkaError | None = None
        partition: Any = SimpleNamespace(leader_epoch=0, log=SimpleNamespace(config=LogConfig()))
        self.shard: Shard[Transactions] = Shard(
            TRANSACTION_STATE,
            partition,
            self.machine,
            self,  # type: ignore[arg-type]
            self,
            lambda shard, markers: self.carried_out.append(markers),
        )

    def now_ms(self) -> int:
        return self.now

    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> World:
        self.due.append((self.now + delay_ms, call))
        return self

    def cancel(self) -> None:
        """Timers of this test never fire by themselves."""

    def append(self, partition: object, batch: bytes, **terms: object) -> Appended | KafkaError:
        if self.refusal is not None:
            return self.refusal
        self.appended += 1
        return Appended(self.appended, self.appended, -1, 0)

    def when_promised(self, partition: object, acks: int, told: Told) -> None:
        assert acks == -1
        self.waiting.append(told)

    def promise(self, error: KafkaError | None = None) -> None:
        """Keep the promise to everybody who waits, or break it."""
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told(error)

    def pass_ms(self, delay_ms: int) -> None:
        self.now += delay_ms
        due = [call for at, call in self.due if at <= self.now]
        self.due = [(at, call) for at, call in self.due if at > self.now]
        for call in due:
            call()

    def decide(self) -> Parked:
        """EndTxn of an open transaction."""
        one = Transaction("x", 5, 0, 60_000, 0, State.ONGOING, frozenset([Place("t", 0)]), start_ms=0)
        self.machine.replay(TransactionLogKey(transactional_id="x"), one.to_record(1), 0)
        request = EndTxnRequest(transactional_id="x", producer_id=5, producer_epoch=0, committed=True)
        parked = Parked()
        self.shard.decide(lambda machine, now_ms: machine.end(request, 0, -1, parked, now_ms))
        return parked


def code(parked: Parked) -> int:
    outcomes: list[Any] = []
    parked.when_done(outcomes.append)
    [outcome] = outcomes
    return int(outcome.error_code)


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_is_told_or_carried_out_before_it_is_safe(world: World) -> None:
    """Conformance 50: whoever takes over must come to the same outcome."""
    parked = world.decide()
    assert world.appended == 1
    assert not parked.is_done
    assert not world.carried_out
    world.promise()
    assert code(parked) == ErrorCode.NONE
    [markers] = world.carried_out
    assert (markers.transactional_id, markers.is_commit) == ("x", True)


def test_a_decision_is_carried_out_although_replicas_were_too_few_for_a_while(world: World) -> None:
    """The client may have given up; the transaction must not hang."""
    parked = world.decide()
    world.promise(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    assert code(parked) == ErrorCode.NOT_COORDINATOR
    assert not world.carried_out
    world.pass_ms(SAFE_YET_MS)
    world.promise(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    world.pass_ms(SAFE_YET_MS)
    world.promise()
    assert len(world.carried_out) == 1


def test_what_was_decided_before_is_carried_out_although_nothing_can_be_appended_now(world: World) -> None:
    """Loading finds a decision that lacks its markers, and one that lacks only the record of its end."""
    for transactional_id, places in (("x", [Place("t", 0)]), ("y", [])):
        one = Transaction(
            transactional_id, 5, 0, 60_000, 0, State.PREPARE_COMMIT, frozenset(places), start_ms=0
        )
        world.machine.replay(TransactionLogKey(transactional_id=transactional_id), one.to_record(1), 0)
    world.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.shard.decide(lambda machine, now_ms: machine.loaded(now_ms))
    world.promise()
    assert [markers.transactional_id for markers in world.carried_out] == ["x"]
    world.refusal = None
    world.pass_ms(COMPLETE_AGAIN_MS)
    assert world.appended == 1


def test_a_decision_that_cannot_be_appended_is_not_carried_out(world: World) -> None:
    world.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    parked = world.decide()
    world.promise()
    assert code(parked) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.carried_out


def test_decisions_that_cannot_be_appended_by_the_hundred_are_one_line_of_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    for _ in range(300):
        world.decide()
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_a_decision_is_left_to_the_next_leader(world: World) -> None:
    parked = world.decide()
    world.promise(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    world.shard.unload()
    world.pass_ms(SAFE_YET_MS)
    world.promise()
    assert code(parked) == ErrorCode.NOT_COORDINATOR
    assert not world.carried_out


def test_who_waits_for_replicas_too_long_is_told_to_come_again(world: World) -> None:
    """As in Kafka; what was decided is carried out once it is safe."""
    first = world.decide()
    world.pass_ms(PATIENCE_MS - 1)
    second = world.decide()
    assert not first.is_done
    world.pass_ms(1)
    assert code(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not second.is_done
    world.promise()
    assert code(second) == ErrorCode.NONE
    assert len(world.carried_out) == 2
    world.pass_ms(PATIENCE_MS)
    third = world.decide()
    world.pass_ms(PATIENCE_MS)
    assert code(third) == ErrorCode.COORDINATOR_NOT_AVAILABLE, "once nobody waited, nobody was looked after"


def test_who_waits_is_told_when_the_partition_goes(world: World) -> None:
    """Conformance 84"""
    parked = world.decide()
    world.shard.unload()
    assert code(parked) == ErrorCode.NOT_COORDINATOR
    world.promise()
    assert not world.carried_out
