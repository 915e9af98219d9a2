"""Equal shares: what the planner wants, and what the controller does about it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from controller import events
from controller.balance import Replicas, balanced
from controller.state import ReplicaAssignment, TopicPartition
from tests.controller.rules import SomeRules
from tests.controller.test_reassignment import listed, reassign
from tests.controller.worlds import World

Assignments = dict[TopicPartition, Replicas]


def a_topic(*replicas: Replicas, name: str = "t") -> Assignments:
    return {TopicPartition(name, index): one for index, one in enumerate(replicas)}


def spread(counts: Counter[int]) -> int:
    return max(counts.values()) - min(counts.values())


def loads(assignments: Assignments, brokers: dict[int, str | None]) -> Counter[int]:
    found = Counter(one for replicas in assignments.values() for one in replicas)
    return Counter({one: found[one] for one in brokers})


def leads(assignments: Assignments, brokers: dict[int, str | None]) -> Counter[int]:
    found = Counter(replicas[0] for replicas in assignments.values())
    return Counter({one: found[one] for one in brokers})


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    before = a_topic(*[((1, 2), (2, 1))[index % 2] for index in range(12)])
    brokers: dict[int, str | None] = {1: None, 2: None, 3: None}
    moves = balanced(before, brokers)
    after = {**before, **moves}
    assert loads(after, brokers) == {1: 8, 2: 8, 3: 8}
    assert leads(after, brokers) == {1: 4, 2: 4, 3: 4}
    assert sum(len(set(after[p]) - set(before[p])) for p in before) == 8, "more than it needs was copied"


def test_each_topic_is_spread() -> None:
    before = {**a_topic(*[(1,)] * 4, name="hot"), **a_topic(*[(1,)] * 4, name="cold")}
    moved = Counter(partition.topic for partition in balanced(before, {1: None, 2: None}))
    assert moved == {"hot": 2, "cold": 2}


def test_leaders_are_handed_on_where_nobody_can_take_them_directly() -> None:
    before = a_topic((1, 2), (1, 2), (2, 3), (2, 3), (3, 1), (1, 2), (3, 1), (1, 3), (1, 2))
    brokers: dict[int, str | None] = {1: None, 2: None, 3: None}
    moves = balanced(before, brokers)
    assert leads({**before, **moves}, brokers) == {1: 3, 2: 3, 3: 3}


def test_a_rack_that_has_a_replica_gets_no_second_one() -> None:
    before = a_topic(*[(1, 2)] * 6)
    brokers: dict[int, str | None] = {1: "a", 2: "b", 3: "b"}
    after = {**before, **balanced(before, brokers)}
    assert all(1 in replicas for replicas in after.values())
    assert loads(after, brokers) == {1: 6, 2: 3, 3: 3}


def test_what_is_fixed_stays_and_counts() -> None:
    before = a_topic(*[(1,)] * 4)
    fixed = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)]
    assert balanced(before, {1: None, 2: None}, fixed) == {TopicPartition("t", 3): (2,)}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Assignments, dict[int, str | None], list[TopicPartition]]:
    ids = list(range(draw(st.integers(2, 6))))
    rack = st.sampled_from(["a", "b", "c"]) if draw(st.booleans()) else st.none()
    brokers: dict[int, str | None] = {one: draw(rack) for one in ids}
    everybody = [*ids, 99]  # one that is away
    replicas = st.lists(st.sampled_from(everybody), min_size=1, max_size=3, unique=True).map(tuple)
    assignments = {
        TopicPartition(name, index): one
        for name in ("x", "y")
        for index, one in enumerate(draw(st.lists(replicas, max_size=12)))
    }
    some = st.lists(st.sampled_from(sorted(assignments)), max_size=3) if assignments else st.just([])
    return assignments, brokers, draw(some)


@given(clusters(), st.integers(1, 5))
def test_any_cluster_is_balanced_in_steps_that_harm_nobody(
    cluster: tuple[Assignments, dict[int, str | None], list[TopicPartition]], most: int
) -> None:
    before, brokers, fixed = cluster
    whole = {**before, **balanced(before, brokers, fixed)}
    assert balanced(whole, brokers, fixed) == {}, "moves that are not needed"
    for partition, replicas in whole.items():
        old = before[partition]
        assert len(replicas) == len(set(replicas)) == len(old)
        assert partition not in fixed or replicas == old
        assert (99 in replicas) == (99 in old), "what is on a broker that is away is left to recovery"
        racks = [{brokers.get(one) for one in some} - {None} for some in (replicas, old)]
        assert len(racks[0]) >= len(racks[1])
    if set(brokers.values()) == {None} and not fixed:
        assert spread(loads(whole, brokers)) <= 1
        copied = sum(len(set(whole[p]) - set(before[p])) for p in before)
        counts, targets = loads(before, brokers), loads(whole, brokers)
        assert copied == sum(max(targets[one] - counts[one], 0) for one in brokers), "not the fewest moves"
    assert len(balanced(before, brokers, fixed, most)) <= most


# -- the controller


def a_world(*brokers: int, auto_balance: bool = True, most: int = 2) -> World:
    return World(*brokers, rules=SomeRules(auto_balance=auto_balance, balance_max_moves=most))


def check(world: World) -> None:
    world.step(events.AbsenceChecked(0))


def finish(world: World) -> None:
    """Whoever is being added has caught up."""
    for topic, index in list(world.state.reassigning):
        replicas = world.assignment(topic, index).replicas
        world.set_isr(topic, *replicas, partition=index)


def test_the_controller_moves_some_at_a_time_to_a_new_broker() -> None:
    world = a_world(1, 2)
    world.topic("t", *[(1, 2)] * 3, *[(2, 1)] * 3)
    check(world)
    assert not world.state.reassigning
    world.join(3)
    check(world)
    assert len(listed(world)) == 2, "Kafka's tools see them"
    check(world)
    assert len(listed(world)) == 2
    for _ in range(10):
        finish(world)
        check(world)
    assert not world.state.reassigning
    replicas = [one for index in range(6) for one in world.assignment("t", index).replicas]
    assert Counter(replicas) == {1: 4, 2: 4, 3: 4}
    assert Counter(world.assignment("t", index).replicas[0] for index in range(6)) == {1: 2, 2: 2, 3: 2}


def test_nothing_moves_unless_it_is_wanted_and_everybody_is_there() -> None:
    for world in (a_world(1, 2, 3, auto_balance=False), a_world(1, 2, 3, 4)):
        world.topic("t", *[(1, 2)] * 4)
        world.topic("u", (1, 4 if 4 in world.fakes else 3))
        if 4 in world.fakes:
            world.leave(4)
        check(world)
        assert not world.state.reassigning


def test_a_partition_that_is_not_whole_or_is_moving_is_left_alone() -> None:
    world = a_world(1, 2, 3, most=5)
    world.topic("t", (1, 2), (1, 2))
    world.set_isr("t", 1, partition=0)
    assert reassign(world, (1, 2), (1, 3)) == [0, 0]
    check(world)
    assert world.assignment("t", 0) == ReplicaAssignment((1, 2))
    assert world.assignment("t", 1).target == (1, 3)
    assert reassign(world, (1, 2), None) == [0, 0], "and it can be cancelled"
