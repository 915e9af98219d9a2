"""Replicas that are built anew when their broker stays away."""

from __future__ import annotations

import pytest

from controller import events
from controller.recovery import MOST_AT_ONCE
from controller.state import ReplicaAssignment, TopicPartition
from tests.controller.rules import SomeRules
from tests.controller.worlds import World

DELAY_MS = 1000


def a_world(*brokers: int, racks: str = "", delay_ms: int = DELAY_MS) -> World:
    return World(*brokers, racks=racks, rules=SomeRules(replica_recovery_delay_ms=delay_ms))


def check(world: World, now_ms: int) -> None:
    world.step(events.AbsenceChecked(now_ms))


@pytest.fixture
def world() -> World:
    """Broker 1 leads a partition that 2 and 3 follow; 4 and 5 have nothing."""
    world = a_world(1, 2, 3, 4, 5)
    world.topic("t", (1, 2, 3))
    return world


def test_a_replica_is_built_anew_when_its_broker_has_been_away_for_long_enough(world: World) -> None:
    world.leave(3)
    check(world, 0)
    check(world, DELAY_MS - 1)
    assert world.assignment("t") == ReplicaAssignment((1, 2, 3))
    check(world, DELAY_MS)
    assert world.assignment("t") == ReplicaAssignment((1, 2, 4, 3), adding=(4,), removing=(3,))
    assert world.leader("t") == 1
    world.set_isr("t", 1, 2, 4)
    assert world.assignment("t") == ReplicaAssignment((1, 2, 4))


def test_the_leader_that_is_lost_is_replaced_behind_the_others(world: World) -> None:
    world.leave(1)
    check(world, 0)
    check(world, DELAY_MS)
    assert world.assignment("t").target == (2, 3, 4)
    assert world.leader("t") == 2
    world.set_isr("t", 2, 3, 4)
    assert world.assignment("t") == ReplicaAssignment((2, 3, 4))


def test_who_comes_back_in_time_keeps_what_it_has(world: World) -> None:
    world.leave(3)
    check(world, 0)
    world.join(3)
    check(world, DELAY_MS)
    world.leave(3)
    check(world, DELAY_MS + 1)
    check(world, 2 * DELAY_MS)
    assert world.assignment("t") == ReplicaAssignment((1, 2, 3))
    check(world, 2 * DELAY_MS + 1)
    assert world.assignment("t").adding == (4,)


def test_a_broker_that_comes_back_late_has_nothing_to_do_any_more(world: World) -> None:
    world.leave(3)
    check(world, 0)
    check(world, DELAY_MS)
    world.set_isr("t", 1, 2, 4)
    world.join(3)
    check(world, DELAY_MS + 1)
    assert world.assignment("t") == ReplicaAssignment((1, 2, 4))
    assert TopicPartition("t", 0) not in world.fakes[3].replicas


def test_never_is_never() -> None:
    world = a_world(1, 2, 3, delay_ms=-1)
    world.topic("t", (1, 2))
    world.leave(2)
    check(world, 0)
    check(world, 1 << 60)
    assert world.assignment("t") == ReplicaAssignment((1, 2))


def test_the_broker_with_the_fewest_replicas_takes_it_in_a_new_rack_if_there_is_one() -> None:
    world = a_world(1, 2, 3, 4, 5, racks="abaab")
    world.topic("t", (1, 2))
    world.topic("load", (5, 4), (5, 4))
    world.leave(2)
    check(world, 0)
    check(world, DELAY_MS)
    assert world.assignment("t").target == (1, 5), "3 has fewer, and is in the rack of 1"
    world.leave(5)
    check(world, DELAY_MS)
    check(world, 2 * DELAY_MS)
    assert world.assignment("load", 0).target == (4, 3)


def test_what_cannot_be_completed_is_not_begun() -> None:
    """Too few brokers; nobody in sync; somebody else is moving the partition."""
    world = a_world(1, 2, 3, 4)
    world.topic("wide", (1, 2, 3))
    world.topic("alone", (3,))
    world.topic("behind", (3, 2))
    world.set_isr("behind", 3)
    world.leave(2, 3)
    check(world, 0)
    check(world, DELAY_MS)
    assert world.assignment("wide") == ReplicaAssignment((1, 2, 3))
    assert world.assignment("alone") == ReplicaAssignment((3,))
    assert world.assignment("behind") == ReplicaAssignment((3, 2))
    world.join(2)
    check(world, DELAY_MS + 1)
    assert world.assignment("wide").target == (1, 2, 4)


def test_a_broker_builds_some_replicas_at_a_time() -> None:
    world = a_world(1, 2, 3)
    count = MOST_AT_ONCE + 5
    world.topic("t", *[(1, 2)] * count)
    world.leave(2)
    check(world, 0)
    check(world, DELAY_MS)
    assert len(world.state.reassigning) == MOST_AT_ONCE
    for partition in list(world.state.reassigning):
        world.set_isr("t", 1, 3, partition=partition.partition)
    check(world, DELAY_MS + 1)
    assert len(world.state.reassigning) == 5
