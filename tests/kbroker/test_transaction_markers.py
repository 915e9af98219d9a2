"""The writer of markers: who is asked, what is asked again, and what is given up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import Any, ClassVar

import pytest

from kbroker.coordinators.step import Markers, Step
from kbroker.transaction_markers import AGAIN_MOST_MS, AGAIN_MS, MarkerWriter
from wire.api.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from wire.errors import ErrorCode

Place = tuple[str, int]


class Due:
    """A call that is due at some time."""

    def __init__(self, at_ms: int, call: Callable[[], object]) -> None:
        self.at_ms = at_ms
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class World:
    """Time, leaders, the metadata store, what was sent, and a coordinator that listens."""

    leader_epoch: ClassVar[int] = 7

    def __init__(self) -> None:
        self.time_ms = 0
        self.due: list[Due] = []
        self.leaders: dict[Place, int] = {("t", 0): 1, ("t", 1): 2, ("u", 0): 1}
        self.stored: dict[str, set[int]] | None = {"t": {0, 1}, "u": {0}}
        """The partitions of each topic, or None while the store does not answer."""
        self.questions: list[str] = []
        """What the store was asked."""
        self.sent: list[tuple[int, WriteTxnMarkersRequest, int, Callable[[Any], object]]] = []
        self.written: list[Place] = []
        self.is_unloaded = False
        self.partition = self
        self.writer = MarkerWriter(self.send, self.leader_of, self.partitions_of, self)

    def now_ms(self) -> int:
        return self.time_ms

    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> Due:
        self.due.append(Due(self.time_ms + delay_ms, call))
        return self.due[-1]

    def leader_of(self, topic: str, index: int) -> int | None:
        return self.leaders.get((topic, index))

    def partitions_of(self, topic: str, told: Callable[[Collection[int] | None], object]) -> None:
        self.questions.append(topic)
        told(None if self.stored is None else self.stored.get(topic, ()))

    def send(self, broker_id: int, message: Any, version: int, told: Callable[[Any], object]) -> None:
        self.sent.append((broker_id, message, version, told))

    def decide(self, decide: Callable[[Any, int], Step]) -> None:
        decide(self, self.time_ms)

    def markers_written(self, markers: Markers, partitions: set[Place], now_ms: int) -> Step:
        self.written += sorted(partitions)
        return Step(now_ms)

    def pass_ms(self, delay_ms: int) -> None:
        end_ms = self.time_ms + delay_ms
        while now := [one for one in self.due if one.at_ms <= end_ms]:
            first = min(now, key=lambda one: one.at_ms)
            self.due.remove(first)
            self.time_ms = first.at_ms
            if not first.is_cancelled:
                first.call()
        self.time_ms = end_ms

    def write(self, *partitions: Place, producer_id: int = 5) -> None:
        markers = Markers("x", producer_id, 3, True, 2, frozenset(partitions))
        self.writer.write(self, markers)  # type: ignore[arg-type]
        self.pass_ms(0)

    def asked(self) -> list[tuple[int, list[list[Place]]]]:
        """Of each request its broker and, for each marker, the partitions."""
        return [
            (
                broker_id,
                [
                    [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
                    for marker in message.markers
                ],
            )
            for broker_id, message, _, _ in self.sent
        ]

    def answer(self, number: int = 0, **errors: ErrorCode) -> None:
        """To a request: everything written, but for errors named like t0."""
        _, message, _, told = self.sent.pop(number)
        told(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(
                                        partition_index=index,
                                        error_code=errors.get(f"{topic.name}{index}", ErrorCode.NONE),
                                    )
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in message.markers
                ]
            )
        )


@pytest.fixture
def world() -> World:
    return World()


def test_leaders_are_asked_in_the_order_of_their_partitions(world: World) -> None:
    """Not in that of a set: the same run has to do the same again."""
    world.leaders = {(f"t{number:02}", 0): number for number in range(1, 13)}
    world.write(*world.leaders)
    assert [broker_id for broker_id, *_ in world.sent] == list(range(1, 13))


def test_each_leader_gets_one_request_with_all_markers_of_a_turn(world: World) -> None:
    markers = [Markers("x", number, 3, True, 2, frozenset([("t", 0), ("t", 1)])) for number in (5, 6)]
    for one in markers:
        world.writer.write(world, one)  # type: ignore[arg-type]
    world.pass_ms(0)
    assert sorted(world.asked()) == [(1, [[("t", 0)]] * 2), (2, [[("t", 1)]] * 2)]
    _, request, version, _ = world.sent[0]
    assert version == 2
    marker = request.markers[0]
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (5, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (7, 2)


def test_what_a_leader_has_written_is_told(world: World) -> None:
    world.write(("t", 0), ("u", 0), ("t", 1))
    world.answer()
    world.answer()
    assert sorted(world.written) == [("t", 0), ("t", 1), ("u", 0)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_what_could_not_be_written_is_asked_of_the_next_leader(world: World, error: ErrorCode) -> None:
    """Conformance 50"""
    world.write(("t", 0), ("u", 0))
    world.answer(t0=error)
    assert world.written == [("u", 0)]
    world.leaders["t", 0] = 3
    world.pass_ms(AGAIN_MS)
    assert world.asked() == [(3, [[("t", 0)]])]


def test_a_request_that_nobody_answered_is_repeated(world: World) -> None:
    world.write(("t", 0))
    world.sent.pop()[3](None)
    world.pass_ms(AGAIN_MS)
    assert world.asked() == [(1, [[("t", 0)]])]
    assert world.written == []


def test_who_answers_nothing_is_asked_more_and_more_rarely(world: World) -> None:
    """A leader that does not know the request hangs up each time."""
    world.write(("t", 0))
    times = []
    for _ in range(8):
        world.sent.pop()[3](None)
        while not world.sent:
            world.pass_ms(10)
        times.append(world.time_ms)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == [200, 400, 800, AGAIN_MOST_MS, AGAIN_MOST_MS, AGAIN_MOST_MS, AGAIN_MOST_MS]


def test_a_partition_without_a_leader_is_waited_for(world: World) -> None:
    world.leaders["t", 0] = -1
    world.write(("t", 0))
    world.pass_ms(60_000)
    assert not world.sent
    world.leaders["t", 0] = 2
    world.pass_ms(AGAIN_MS)
    assert world.asked() == [(2, [[("t", 0)]])]


def test_a_partition_that_was_deleted_needs_no_marker(world: World) -> None:
    """It is not waited for: another topic of its name would get the marker."""
    del world.leaders["t", 0], world.leaders["t", 1]
    world.stored = {"u": {0}}
    world.write(("t", 0), ("t", 1), ("u", 0))
    assert world.written == [("t", 0), ("t", 1)]
    assert world.questions == ["t"]
    assert world.asked() == [(1, [[("u", 0)]])]


def test_a_topic_that_was_made_anew_with_fewer_partitions_needs_no_marker_in_the_others(world: World) -> None:
    del world.leaders["t", 1]
    world.stored = {"t": {0}}
    world.write(("t", 0), ("t", 1))
    assert world.written == [("t", 1)]
    assert world.asked() == [(1, [[("t", 0)]])]


@pytest.mark.parametrize("is_silent", [False, True])
def test_that_a_broker_has_not_been_told_of_a_topic_proves_nothing(world: World, is_silent: bool) -> None:
    """However long: its coordinator may have been loaded before it is told which topics there are."""
    world.pass_ms(60_000)
    leader = world.leaders.pop(("t", 0))
    if is_silent:
        world.stored = None
    world.write(("t", 0))
    world.pass_ms(60_000)
    assert not world.written
    world.leaders["t", 0] = leader
    world.pass_ms(AGAIN_MOST_MS)
    assert world.asked() == [(1, [[("t", 0)]])]


def test_the_store_is_asked_more_and_more_rarely(world: World) -> None:
    del world.leaders["t", 0]
    world.write(("t", 0))
    world.pass_ms(60_000)
    assert 60 < len(world.questions) < 65


@pytest.mark.parametrize("leader", [-1, 1])
def test_what_waits_for_its_leader_ends_with_its_topic(world: World, leader: int) -> None:
    world.leaders["t", 0] = leader
    world.write(("t", 0), ("u", 0))
    if leader == 1:
        world.answer(t0=ErrorCode.NOT_ENOUGH_REPLICAS)
    del world.leaders["t", 0]
    world.stored = {"u": {0}}
    world.writer.topics_ended({"t"})
    world.pass_ms(0)
    assert ("t", 0) in world.written
    world.leaders["t", 0] = 3
    world.pass_ms(60_000)
    assert 3 not in [broker_id for broker_id, *_ in world.sent]


def test_what_the_leader_of_a_deleted_partition_refuses_is_not_tried_again(world: World) -> None:
    world.write(("t", 0))
    del world.leaders["t", 0]
    world.stored = {}
    world.answer(t0=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    world.pass_ms(0)
    assert world.written == [("t", 0)]


def test_a_partition_that_knows_a_larger_epoch_needs_no_marker(world: World) -> None:
    world.write(("t", 0))
    world.answer(t0=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert world.written == [("t", 0)]


def test_a_coordinator_that_was_replaced_asks_no_more(world: World) -> None:
    world.write(("t", 0), ("u", 0))
    world.answer(t0=ErrorCode.TRANSACTION_COORDINATOR_FENCED, u0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.pass_ms(60_000)
    assert not world.sent


def test_a_coordinator_that_has_resigned_asks_no_more(world: World) -> None:
    world.write(("t", 0))
    world.is_unloaded = True
    world.answer(t0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.pass_ms(60_000)
    assert not world.sent
    assert not world.written
