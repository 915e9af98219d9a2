"""Leaders that are asked for."""

from __future__ import annotations

import pytest

from controller import events, znodes
from controller.state import NO_LEADER, TopicPartition
from tests.controller.simulated_store import answer_of
from tests.controller.worlds import World, at_once, nothing_changes
from wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from wire.errors import ErrorCode

PREFERRED, UNCLEAN = 0, 1


def elect(world: World, election_type: int, **topics: list[int]) -> dict[tuple[str, int], int]:
    """Ask for all partitions, or for these."""
    asked = [TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=asked or None)
    reply = world.step(events.ElectLeaders(request))
    assert reply.error_code == ErrorCode.NONE
    return {
        (topic.topic, result.partition_id): result.error_code
        for topic in reply.replica_election_results
        for result in topic.partition_result
    }


@pytest.fixture
def world() -> World:
    """Broker 1 prefers to lead both partitions of t, and has just come back."""
    world = World(1, 2)
    world.topic("t", (1, 2), (1, 2))
    world.topic("other", (2, 1))
    world.join(1)
    world.set_isr("t", 2, 1, partition=0)
    return world


def test_the_preferred_leader_is_elected_if_it_is_in_sync(world: World) -> None:
    outcome = elect(world, PREFERRED, t=[0, 1, 7], other=[0], none=[0])
    assert outcome == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("other", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [world.leader("t", p) for p in (0, 1)] == [1, 2]


def test_asked_for_all_the_reply_leaves_out_what_was_not_needed(world: World) -> None:
    assert elect(world, PREFERRED) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }


def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    """conformance 91"""
    world = World(1, 2, 3)
    world.topic("t", (1, 2), (1, 3), (2, 1))
    world.set_isr("t", 1, partition=0)
    world.set_isr("t", 1, partition=1)
    world.leave(1, 3)
    assert [world.leader("t", p) for p in range(3)] == [NO_LEADER, NO_LEADER, 2]
    assert elect(world, UNCLEAN, t=[0, 1, 2]) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ("t", 2): ErrorCode.ELECTION_NOT_NEEDED,
    }
    assert (world.leader("t"), world.isr("t")) == (2, (2,))


def test_an_unknown_kind_of_election_is_refused(world: World) -> None:
    request = ElectLeadersRequest(election_type=5, topic_partitions=None)
    assert world.step(events.ElectLeaders(request)).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_going_gets_no_leaders() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.leave(2)
    answer_of(world.store.create(znodes.DeleteTopic.path("t")))
    world.step(events.DeletionsRequested(["t"]))
    assert elect(world, PREFERRED, t=[0]) == {("t", 0): ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_request_through_the_store_is_done_and_removed(world: World) -> None:
    node = znodes.PreferredReplicaElection([TopicPartition("t", 0), TopicPartition("none", 0)])
    answer_of(world.store.create(node.path(), node.encode()))
    asked = at_once(world.reader.preferred_leaders())
    assert asked is not None
    world.step(events.PreferredLeadersRequested(*asked))
    assert world.leader("t") == 1
    assert at_once(world.reader.preferred_leaders()) is None


def test_preferred_leaders_come_back_when_a_broker_lacks_too_many() -> None:
    world = World(1, 2)
    world.topic("t", *[(1, 2)] * 10, *[(2, 1)] * 10)
    world.join(1)
    for partition in range(20):
        world.set_isr("t", 2, 1, partition=partition)
    elect(world, PREFERRED, t=list(range(9)))
    assert [world.leader("t", p) for p in range(20)] == [1] * 9 + [2] * 11
    nothing_changes(world, lambda: world.step(events.LeadersChecked(imbalance_percent=10)))
    world.step(events.LeadersChecked(imbalance_percent=9))
    assert [world.leader("t", p) for p in range(20)] == [1] * 10 + [2] * 10
