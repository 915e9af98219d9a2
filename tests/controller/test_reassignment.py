"""Partitions that move to other brokers, and change their minds."""

from __future__ import annotations

import pytest

from controller import events, znodes
from controller.state import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition
from tests.controller.simulated_store import answer_of
from tests.controller.test_isr import alter as alter_isr
from tests.controller.worlds import World, a_topic, at_once, nothing_changes
from wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.api.delete_topics import DeleteTopicsRequest
from wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from wire.errors import ErrorCode

T0 = TopicPartition("t", 0)


def reassign(
    world: World, *replicas: tuple[int, ...] | None, topic: str = "t", may_resize: bool = True
) -> list[int]:
    """Ask for these replicas of partitions 0, 1 and so on; None is to stop."""
    partitions = [
        ReassignablePartition(partition_index=index, replicas=None if one is None else list(one))
        for index, one in enumerate(replicas)
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=partitions)],
        allow_replication_factor_change=may_resize,
    )
    reply = world.step(events.AlterReassignments(request))
    assert reply.error_code == ErrorCode.NONE
    return [partition.error_code for topic in reply.responses for partition in topic.partitions]


def listed(world: World, topics: dict[str, list[int]] | None = None) -> list[tuple[str, int]]:
    asked = None
    if topics is not None:
        asked = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=partitions)
            for name, partitions in topics.items()
        ]
    reply = world.step(events.ListReassignments(ListPartitionReassignmentsRequest(topics=asked)))
    return [
        (topic.name, partition.partition_index) for topic in reply.topics for partition in topic.partitions
    ]


def test_a_partition_moves_when_its_new_replicas_are_in_sync() -> None:
    world = World(1, 2, 3, 4, 5)
    world.topic("t", (1, 2, 3))
    assert reassign(world, (4, 5, 3)) == [ErrorCode.NONE]
    assert world.assignment("t") == ReplicaAssignment((4, 5, 3, 1, 2), adding=(4, 5), removing=(1, 2))
    assert (world.leader("t"), world.isr("t")) == (1, (1, 2, 3))
    assert world.leadership("t").leader_epoch == 1
    assert world.fakes[4].replicas[T0].is_new
    assert not world.fakes[1].replicas[T0].is_new
    assert world.fakes[1].replicas[T0].adding_replicas == [4, 5]
    alter_isr(world, 1, 2, 3, 4)
    assert world.assignment("t").is_reassigning
    alter_isr(world, 1, 2, 3, 4, 5)
    assert world.assignment("t") == ReplicaAssignment((4, 5, 3))
    assert (world.leader("t"), world.isr("t")) == (4, (3, 4, 5))
    assert (T0, True) in world.fakes[1].stopped
    assert (T0, True) in world.fakes[2].stopped
    assert listed(world) == []


def test_a_leader_that_stays_goes_on_leading() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2))
    reassign(world, (3, 1))
    alter_isr(world, 1, 2, 3)
    assert (world.leader("t"), world.isr("t")) == (1, (1, 3))
    assert world.assignment("t") == ReplicaAssignment((3, 1))


def test_another_order_of_the_same_replicas_is_there_at_once() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2, 3))
    reassign(world, (3, 2, 1))
    assert world.assignment("t") == ReplicaAssignment((3, 2, 1))
    assert world.leader("t") == 1


def test_fewer_replicas_are_there_at_once() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2, 3))
    reassign(world, (2,))
    assert world.assignment("t") == ReplicaAssignment((2,))
    assert (world.leader("t"), world.isr("t")) == (2, (2,))
    assert (T0, True) in world.fakes[1].stopped
    assert (T0, True) in world.fakes[3].stopped


def test_a_reassignment_can_be_stopped() -> None:
    world = World(1, 2, 3, 4)
    world.topic("t", (1, 2))
    reassign(world, (3, 4))
    alter_isr(world, 1, 2, 3)
    assert reassign(world, None) == [ErrorCode.NONE]
    assert world.assignment("t") == ReplicaAssignment((1, 2))
    assert (world.leader("t"), world.isr("t")) == (1, (1, 2))
    assert (T0, True) in world.fakes[3].stopped
    assert listed(world) == []


def test_a_reassignment_can_be_replaced_and_what_is_not_wanted_any_more_goes() -> None:
    world = World(1, 2, 3, 4)
    world.topic("t", (1, 2))
    reassign(world, (3, 2))
    alter_isr(world, 1, 2)
    reassign(world, (4, 2))
    assert world.assignment("t") == ReplicaAssignment((4, 2, 1), adding=(4,), removing=(1,))
    assert (T0, True) in world.fakes[3].stopped
    alter_isr(world, 1, 2, 4)
    assert world.assignment("t") == ReplicaAssignment((4, 2))


def test_stopping_when_the_leader_is_a_new_replica_gives_leadership_back() -> None:
    world = World(1, 2, 3, 4)
    world.topic("t", (1, 2))
    reassign(world, (3, 4))
    alter_isr(world, 1, 2, 3)
    world.leave(1, 2)
    assert world.leader("t") == 3
    world.join(1)
    assert reassign(world, None) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    alter_isr(world, 3, 1, leader=3)
    assert reassign(world, None) == [ErrorCode.NONE]
    assert (world.leader("t"), world.isr("t")) == (1, (1,))


def test_a_reassignment_waits_for_a_target_that_can_lead() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1,))
    reassign(world, (2, 3))
    world.leave(2)
    alter_isr(world, 1, 3)
    assert world.assignment("t").is_reassigning
    world.join(2)
    assert world.fakes[2].replicas[T0].is_new
    alter_isr(world, 1, 3, 2)
    assert world.assignment("t") == ReplicaAssignment((2, 3))


def test_the_death_of_all_others_leaves_a_new_replica_in_charge() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2))
    reassign(world, (3, 2))
    world.leave(1, 2)
    assert world.leader("t") == NO_LEADER
    world.join(2)
    assert world.leader("t") == 2


def test_a_new_controller_goes_on_with_a_reassignment() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1,), (2,))
    reassign(world, (2,), (3,))
    world.take_over()
    assert listed(world) == [("t", 0), ("t", 1)]
    alter_isr(world, 1, 2)
    assert world.assignment("t") == ReplicaAssignment((2,))
    assert listed(world) == [("t", 1)]


def test_a_new_controller_completes_what_only_had_to_be_completed() -> None:
    world = World(1, 2)
    world.topic("t", (1,))
    reassign(world, (2,))
    old = world.leadership("t")
    new = LeaderAndIsr(1, (1, 2), old.leader_epoch, 0, old.controller_epoch)
    path = znodes.PartitionState.path(T0)
    answer_of(world.store.set(path, znodes.PartitionState.encode(new), old.partition_epoch))
    world.state = world.read()
    world.step(events.ControllerStarted([]))
    assert world.assignment("t") == ReplicaAssignment((2,))
    assert world.leader("t") == 2


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_cannot_be_is_refused(replicas: tuple[int, ...] | None, code: ErrorCode) -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    nothing_changes(world, lambda: reassign(world, replicas))
    assert reassign(world, replicas) == [code]


def test_a_broker_that_is_away_may_stay_a_replica_but_not_become_one() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2))
    world.leave(2)
    assert reassign(world, (1, 2, 3)) == [ErrorCode.NONE]
    world.leave(3)
    world.topic("u", (1,))
    assert reassign(world, (1, 3), topic="u") == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_the_replication_factor_may_be_kept() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2))
    assert reassign(world, (1, 2, 3), may_resize=False) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert reassign(world, (1, 3), may_resize=False) == [ErrorCode.NONE]
    assert reassign(world, None, may_resize=False) == [ErrorCode.NONE]


def test_each_partition_is_judged_on_its_own() -> None:
    world = World(1, 2)
    world.topic("t", (1,), (1,))
    codes = reassign(world, (2,), (9,), (1,))
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert reassign(world, (1,), topic="none") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert listed(world) == [("t", 0)]
    assert listed(world, {"t": [1], "none": [0]}) == []
    assert listed(world, {"t": [0, 1]}) == [("t", 0)]


def test_many_partitions_of_a_topic_are_one_write_of_its_node() -> None:
    world = World(1, 2)
    world.create(a_topic("t", assignments={partition: (1,) for partition in range(50)}))
    version = world.state.topics["t"].version
    assert reassign(world, *[(2,)] * 50) == [ErrorCode.NONE] * 50
    assert world.state.topics["t"].version == version + 1


def test_a_topic_that_moves_does_not_grow() -> None:
    world = World(1, 2)
    world.topic("t", (1,))
    reassign(world, (2,))
    topic = CreatePartitionsTopic(name="t", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False)
    reply = world.step(events.CreatePartitions(request))
    assert [result.error_code for result in reply.results] == [ErrorCode.REASSIGNMENT_IN_PROGRESS]


def test_a_topic_that_moves_can_be_deleted_with_all_its_replicas() -> None:
    world = World(1, 2)
    world.topic("t", (1,))
    reassign(world, (2,))
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
    world.step(events.DeleteTopics(request, 5))
    assert world.state.topics == {}
    assert world.state.reassigning == {}
    assert (T0, True) in world.fakes[1].stopped
    assert (T0, True) in world.fakes[2].stopped
    assert reassign(world, (1,)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def request_in_store(world: World, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
    node = znodes.ReassignPartitions(targets)
    answer_of(world.store.create(node.path(), node.encode()))
    asked = at_once(world.reader.reassignments())
    assert asked is not None
    world.step(events.ReassignmentsRequested(*asked))


def left_in_store(world: World) -> dict[TopicPartition, tuple[int, ...]] | None:
    left = at_once(world.reader.reassignments())
    return None if left is None else left.targets


def test_a_request_through_the_store_stays_there_until_it_is_done() -> None:
    world = World(1, 2)
    world.topic("t", (1,), (1,))
    first, second, unknown = T0, TopicPartition("t", 1), TopicPartition("none", 0)
    request_in_store(world, {first: (2,), second: (2,), unknown: (1,)})
    assert left_in_store(world) == {first: (2,), second: (2,)}
    alter_isr(world, 1, 2)
    assert left_in_store(world) == {second: (2,)}
    world.take_over()
    asked = at_once(world.reader.reassignments())
    assert asked is not None
    world.step(events.ReassignmentsRequested(*asked))
    assert reassign(world, (1,), None) == [ErrorCode.NONE, ErrorCode.NONE]
    assert left_in_store(world) is None


def test_a_request_through_the_store_for_what_is_there_already_is_done() -> None:
    world = World(1, 2)
    world.topic("t", (1,))
    request_in_store(world, {T0: (1,)})
    assert left_in_store(world) is None
