"""Topics that are created, grow and end; the worlds check store and brokers after every step."""

from __future__ import annotations

import json

import pytest

from controller import events, znodes
from controller.state import EntityType, ReplicaAssignment, ReplicaDeletion, TopicPartition
from controller.topic_names import LONGEST
from controller.transitions import step
from tests.controller.rules import DEFAULTS, SomeRules
from tests.controller.simulated_store import answer_of
from tests.controller.worlds import START, World, a_topic, at_once, nothing_changes, topic_id
from tests.steps import Steps
from wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from wire.api.create_topics import CreateTopicsRequest
from wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from wire.api.leader_and_isr import LeaderAndIsrRequest
from wire.api.update_metadata import UpdateMetadataRequest
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID


def codes(world: World, *topics: object, validate_only: bool = False) -> list[int]:
    reply = world.create(*topics, validate_only=validate_only)  # type: ignore[arg-type]
    return [topic.error_code for topic in reply.topics]


def grow(
    world: World, name: str, count: int, *assignments: tuple[int, ...], validate_only: bool = False
) -> int:
    topic = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[CreatePartitionsAssignment(broker_ids=list(one)) for one in assignments] or None,
    )
    return grow_all(world, topic, validate_only=validate_only)[0].error_code


def grow_all(
    world: World, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    results = world.step(events.CreatePartitions(request)).results
    assert isinstance(results, list)
    return results


def delete(world: World, *names: str | bytes) -> list[DeletableTopicResult]:
    """By name, or by id."""
    asked = [
        DeleteTopicState(name=None, topic_id=one)
        if isinstance(one, bytes)
        else DeleteTopicState(name=one, topic_id=ZERO_UUID)
        for one in names
    ]
    request = DeleteTopicsRequest(topics=asked, timeout_ms=1000)
    responses = world.step(events.DeleteTopics(request, 6)).responses
    assert isinstance(responses, list)
    return responses


def test_a_topic_comes_with_leaders_configuration_and_an_id() -> None:
    world = World(1, 2, 3)
    (topic,) = world.create(a_topic("t", 3, 2, configs={"retention.ms": "1000"})).topics
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 3, 2)
    assert topic.topic_id == world.state.topics["t"].topic_id != ZERO_UUID
    names = [config.name for config in topic.configs or []]
    assert names == sorted(names)
    values = {config.name: config.value for config in topic.configs or []}
    assert values == {**DEFAULTS, "retention.ms": "1000"}
    assert [world.assignment("t", p).replicas for p in range(3)] == [(1, 2), (2, 3), (3, 1)]
    assert [world.leader("t", p) for p in range(3)] == [1, 2, 3]
    node = answer_of(world.store.get(znodes.Config.path((EntityType.TOPIC, "t"))))
    assert json.loads(node.data) == {"version": 1, "config": {"retention.ms": "1000"}}
    replica = world.fakes[2].replicas[TopicPartition("t", 0)]
    assert (replica.is_new, replica.leader_epoch, replica.partition_epoch) == (True, 0, 0)


def test_each_broker_is_told_of_new_topics_in_two_messages() -> None:
    world = World(1, 2)
    world.create(a_topic("a", 30, 2), a_topic("b", 30, 2))
    for broker_id in (1, 2):
        assert world.messages(broker_id) == [LeaderAndIsrRequest, UpdateMetadataRequest]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * (LONGEST + 1), "a\n", "a:b"])
def test_an_illegal_name_is_refused(name: str) -> None:
    """conformance 12"""
    world = World(1)
    nothing_changes(world, lambda: codes(world, a_topic(name, 1, 1)))
    assert codes(world, a_topic(name, 1, 1)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "x" * LONGEST, "...", "__consumer_offsets", "-"])
def test_a_legal_name_is_not(name: str) -> None:
    """conformance 12"""
    assert codes(World(1), a_topic(name, 1, 1)) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("existing", "name"), [("x.a", "x_a"), ("x_a", "x.a"), ("a.b_c", "a_b.c"), ("a..b", "a__b")]
)
def test_a_name_whose_metrics_would_be_anothers_is_refused(existing: str, name: str) -> None:
    """conformance 13"""
    world = World(1)
    assert codes(world, a_topic(existing, 1, 1), a_topic(name, 1, 1)) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert codes(world, a_topic(name, 1, 1)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert codes(world, a_topic("x-a", 1, 1), a_topic(existing + "2", 1, 1)) == [ErrorCode.NONE] * 2


def test_creating_topics_takes_steps_in_proportion_to_their_number() -> None:
    """Names with dots are compared with those of the topics that exist; not one by one."""

    def steps(number: int) -> int:
        world = World(1)
        names = [f"a.{index}" for index in range(number)]
        request = CreateTopicsRequest(topics=[a_topic(name, 1, 1) for name in names])
        ids = [topic_id(name) for name in names]
        with Steps() as counted:
            effects = step(world.state, events.CreateTopics(request, ids, [START] * number), world.rules)
        assert {topic.error_code for topic in effects.reply.topics} == {ErrorCode.NONE}  # type: ignore[attr-defined]
        return counted.number

    assert steps(1000) < 4 * 1.1 * steps(250)


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 3, ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_counts_that_cannot_be_are_refused(partitions: int, replication_factor: int, code: ErrorCode) -> None:
    """conformance 16"""
    world = World(1, 2)
    assert codes(world, a_topic("t", partitions, replication_factor)) == [code]
    assert world.state.topics == {}


def test_one_request_makes_no_more_partitions_than_a_controller_can_bear() -> None:
    """As in Kafka 4: all of such a request is refused, and at once."""
    world = World(1, 2)
    assert codes(world, a_topic("a", 9_999, 1), a_topic("b", 2, 1)) == [ErrorCode.POLICY_VIOLATION] * 2
    assert codes(world, a_topic("a", (1 << 31) - 1, 1)) == [ErrorCode.POLICY_VIOLATION]
    world.topic("t", (1, 2))
    assert grow(world, "t", 10_002) == ErrorCode.POLICY_VIOLATION
    assert grow(world, "t", 10_001, validate_only=True) == ErrorCode.NONE
    assert list(world.state.topics) == ["t"]
    assert (
        codes(world, a_topic("a", 9_999, 1), a_topic("b", 1, 1), validate_only=True) == [ErrorCode.NONE] * 2
    )


def test_minus_one_stands_for_the_brokers_defaults() -> None:
    """conformance 16"""
    world = World(1, 2, rules=SomeRules(num_partitions=4, default_replication_factor=2))
    (topic,) = world.create(a_topic("t")).topics
    assert (topic.num_partitions, topic.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    "configs", [{"no.such.key": "1"}, {"retention.ms": "soon"}, {"retention.ms": None}], ids=str
)
def test_a_configuration_that_cannot_be_is_refused(configs: dict[str, str | None]) -> None:
    """conformance 16"""
    world = World(1)
    assert codes(world, a_topic("t", 1, 1, configs=configs)) == [ErrorCode.INVALID_CONFIG]
    assert world.state.topics == {}


def test_an_existing_topic_is_refused_and_a_name_twice_too() -> None:
    """conformance 16"""
    world = World(1)
    assert codes(world, a_topic("t", 1, 1)) == [ErrorCode.NONE]
    assert codes(world, a_topic("t", 1, 1), a_topic("u", 1, 1)) == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
    ]
    assert codes(world, a_topic("v", 1, 1), a_topic("w", 1, 1), a_topic("v", 1, 1)) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert "v" not in world.state.topics


def test_validate_only_answers_what_would_be_and_does_nothing() -> None:
    """conformance 16"""
    world = World(1, 2)
    nothing_changes(world, lambda: codes(world, a_topic("t", 3, 2), validate_only=True))
    (topic,) = world.create(a_topic("t", 3, 2), validate_only=True).topics
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 3, 2)
    assert topic.topic_id == ZERO_UUID
    assert topic.configs
    assert codes(world, a_topic("t", 3, 3), validate_only=True) == [ErrorCode.INVALID_REPLICATION_FACTOR]


def test_a_manual_assignment_is_kept_as_it_is() -> None:
    world = World(1, 2, 3)
    assert codes(world, a_topic("t", assignments={1: (2, 3), 0: (3, 1)})) == [ErrorCode.NONE]
    assert world.state.topics["t"].assignments == {0: ReplicaAssignment((3, 1)), 1: ReplicaAssignment((2, 3))}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (a_topic("t", assignments={0: (1, 9)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_topic("t", assignments={0: (1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_topic("t", assignments={0: ()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_topic("t", assignments={0: (1,), 2: (2,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_topic("t", assignments={1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_topic("t", assignments={0: (1,), 1: (1, 2)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (a_topic("t", 1, assignments={0: (1,)}), ErrorCode.INVALID_REQUEST),
        (a_topic("t", -1, 1, assignments={0: (1,)}), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_manual_assignment_that_cannot_be_is_refused(topic: object, code: ErrorCode) -> None:
    assert codes(World(1, 2), topic) == [code]


def test_a_manual_assignment_may_name_a_broker_that_is_away() -> None:
    """As in Kafka; one that was never there is refused, where Kafka 3.9 takes any number."""
    world = World(1, 2, 3)
    world.topic("old", (1, 3))
    world.leave(3)
    assert codes(world, a_topic("t", assignments={0: (3, 1)})) == [ErrorCode.NONE]
    assert (world.leader("t"), world.isr("t")) == (1, (1,))
    assert grow(world, "t", 2, (3, 1)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partitions_that_somebody_else_has_added_get_leaders() -> None:
    """Kafka's older tools and AdminZkClient write them into the topic's node."""
    world = World(1, 2)
    world.topic("t", (1, 2))
    topic = world.state.topics["t"]
    more = {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))}
    path = znodes.Topic.path("t")
    version = answer_of(world.store.set(path, znodes.Topic(topic.topic_id, more).encode()))
    event = at_once(world.reader.topic_written("t"))
    assert event == events.TopicWritten("t", more, version)
    world.step(event)
    assert (world.leader("t", 0), world.leader("t", 1)) == (1, 2)
    assert grow(world, "t", 3) == ErrorCode.NONE
    assert at_once(world.reader.topic_written("none")) is None


def test_a_topic_that_the_controller_has_written_is_no_news() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    grow(world, "t", 3)
    event = at_once(world.reader.topic_written("t"))
    assert event is not None
    nothing_changes(world, lambda: world.step(event))


def test_partitions_are_added_after_the_existing_ones() -> None:
    world = World(1, 2, 3)
    world.topic("t", (2, 3))
    before = world.leadership("t")
    assert grow(world, "t", 3) == ErrorCode.NONE
    assert [world.assignment("t", p).replicas for p in range(3)] == [(2, 3), (3, 2), (1, 3)]
    assert [world.leader("t", p) for p in range(3)] == [2, 3, 1]
    assert world.leadership("t") == before
    assert grow(world, "t", 5, (3, 1), (1, 2)) == ErrorCode.NONE
    assert [world.assignment("t", p).replicas for p in (3, 4)] == [(3, 1), (1, 2)]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("none", 2, [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, [], ErrorCode.INVALID_PARTITIONS),
        ("t", 1, [], ErrorCode.INVALID_PARTITIONS),
        ("t", 0, [], ErrorCode.INVALID_PARTITIONS),
        ("t", -1, [], ErrorCode.INVALID_PARTITIONS),
        ("t", 3, [(1, 9)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [(1,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 4, [(1, 2)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [(1, 2), (2, 1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    name: str, count: int, assignments: list[tuple[int, ...]], code: ErrorCode
) -> None:
    """conformance 17"""
    world = World(1, 2)
    world.topic("t", (1, 2), (2, 1))
    nothing_changes(world, lambda: grow(world, name, count, *assignments))
    assert grow(world, name, count, *assignments) == code


def test_every_topic_has_one_result_also_when_only_validating() -> None:
    """conformance 17"""
    world = World(1)
    world.topic("a", (1,))
    world.topic("b", (1,))
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("a", "none", "b", "b")]
    results = grow_all(world, *topics, validate_only=True)
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.NONE),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.INVALID_REQUEST),
    ]
    assert len(world.state.topics["a"].assignments) == 1


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    world = World(1, 2)
    before = nodes(world)
    world.create(a_topic("t", 3, 2, configs={"retention.ms": "1"}))
    topic_id = world.state.topics["t"].topic_id
    (result,) = delete(world, "t")
    assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, ErrorCode.NONE)
    assert world.state.topics == {}
    assert world.state.deletions == {}
    left = [path for path in nodes(world) if not path.startswith(znodes.CONFIG_CHANGE_PREFIX)]
    assert left == before
    for fake in world.fakes.values():
        assert (fake.replicas, fake.known) == ({}, {})
        assert sorted(fake.stopped) == [(TopicPartition("t", p), True) for p in range(3)]


def nodes(world: World, path: str = "/") -> list[str]:
    found = [path]
    for name in answer_of(world.store.children(path)):
        found += nodes(world, f"{path.rstrip('/')}/{name}")
    return found


def test_a_deleted_topic_can_be_created_again_with_another_id() -> None:
    """conformance 15"""
    world = World(1)
    world.create(a_topic("t", 1, 1, configs={"retention.ms": "1"}))
    first = world.state.topics["t"].topic_id
    delete(world, "t")
    world.create(a_topic("t", 1, 1))
    assert world.state.topics["t"].topic_id != first
    assert first not in world.state.topic_names
    assert world.leadership("t").leader_epoch == 0
    assert world.state.config_of((EntityType.TOPIC, "t")) == {}


def test_topics_are_deleted_by_name_or_by_id() -> None:
    """conformance 14, 15"""
    world = World(1)
    for name in "abcd":
        world.topic(name, (1,))
    topic_id = world.state.topics["b"].topic_id
    results = delete(world, "a", topic_id, "none", b"no such topic id", "c", "c")
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("c", ErrorCode.INVALID_REQUEST),
    ]
    assert list(world.state.topics) == ["c", "d"]
    request = DeleteTopicsRequest(topic_names=["c", "none"], timeout_ms=1)
    reply = world.step(events.DeleteTopics(request, 5))
    assert [response.error_code for response in reply.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_is_named_by_one_of_name_and_id() -> None:
    world = World(1)
    world.topic("t", (1,))
    topic_id = world.state.topics["t"].topic_id
    asked = [DeleteTopicState(name="t", topic_id=topic_id), DeleteTopicState(name=None, topic_id=ZERO_UUID)]
    reply = world.step(events.DeleteTopics(DeleteTopicsRequest(topics=asked, timeout_ms=1), 6))
    assert [response.error_code for response in reply.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_deletion_can_be_switched_off() -> None:
    world = World(1, rules=SomeRules(delete_topic_enable=False))
    world.topic("t", (1,))
    assert [one.error_code for one in delete(world, "t")] == [ErrorCode.TOPIC_DELETION_DISABLED]


def test_a_topic_waits_for_the_replicas_of_a_broker_that_is_away() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.leave(2)
    assert delete(world, "t")[0].error_code == ErrorCode.NONE
    assert world.state.deletions["t"].replicas == {
        (0, 1): ReplicaDeletion.SUCCESSFUL,
        (0, 2): ReplicaDeletion.INELIGIBLE,
    }
    assert codes(world, a_topic("t", 1, 1)) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert delete(world, "t")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(world, "t", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.join(2)
    assert world.state.topics == {}
    assert (TopicPartition("t", 0), True) in world.fakes[2].stopped
    assert codes(world, a_topic("t", 1, 1)) == [ErrorCode.NONE]


def test_a_broker_that_dies_before_it_has_deleted_its_replica_is_asked_again() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.deaf.add(2)
    delete(world, "t")

    def progress() -> ReplicaDeletion:
        return world.state.deletions["t"].replicas[0, 2]

    assert progress() is ReplicaDeletion.STARTED
    world.leave(2)
    assert progress() is ReplicaDeletion.INELIGIBLE
    world.deaf.clear()
    world.join(2)
    assert world.state.topics == {}
    assert (TopicPartition("t", 0), True) in world.fakes[2].stopped


def test_a_topic_waits_for_a_replica_that_could_not_be_deleted() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.fakes[2].failed_disks.add(TopicPartition("t", 0))
    delete(world, "t")
    assert world.state.deletions["t"].replicas[0, 2] is ReplicaDeletion.INELIGIBLE
    world.join(2)
    assert world.state.topics == {}


def test_a_new_controller_goes_on_with_a_deletion() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2), (2, 1))
    world.leave(2)
    delete(world, "t")
    world.take_over()
    assert world.state.deletions.keys() == {"t"}
    world.join(2)
    assert world.state.topics == {}
    assert answer_of(world.store.children(znodes.DELETE_TOPICS)) == []


@pytest.mark.parametrize("done", range(9))
def test_a_new_controller_goes_on_wherever_the_last_one_stopped_deleting(done: int) -> None:
    world = World(1)
    world.topic("t", (1,), (1,), (1,))
    path = znodes.Topic.path("t")
    answer_of(world.store.create(znodes.DeleteTopic.path("t")))
    doomed = [f"{path}/partitions/{p}{below}" for p in range(3) for below in ("/state", "")]
    for one in [*doomed, f"{path}/partitions", znodes.Config.path((EntityType.TOPIC, "t"))][:done]:
        answer_of(world.store.delete(one))
    world.state = world.read()
    world.step(events.ControllerStarted(["t"]))
    assert not any("topics/t" in one for one in nodes(world))
    assert (world.fakes[1].replicas, world.fakes[1].known) == ({}, {})


def test_a_mark_for_a_topic_that_is_not_there_is_removed() -> None:
    world = World(1)
    answer_of(world.store.create(znodes.DeleteTopic.path("none")))
    world.step(events.DeletionsRequested(at_once(world.reader.deletions())))
    assert answer_of(world.store.children(znodes.DELETE_TOPICS)) == []


def test_a_topic_marked_by_somebody_else_is_deleted() -> None:
    world = World(1)
    world.topic("t", (1,))
    answer_of(world.store.create(znodes.DeleteTopic.path("t")))
    world.step(events.DeletionsRequested(at_once(world.reader.deletions())))
    assert world.state.topics == {}


def test_a_topic_going_is_no_longer_in_the_metadata_and_has_no_elections() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.leave(2)
    delete(world, "t")
    assert world.fakes[1].known == {}
    world.join(1)
    assert world.fakes[1].known == {}
    assert world.messages(1) == [UpdateMetadataRequest]


def test_a_topic_without_an_id_gets_one() -> None:
    """Kafka before 2.8 wrote none."""
    world = World(1)
    data = b'{"version":1,"partitions":{"0":[1]}}'
    answer_of(world.store.create(znodes.Topic.path("old"), data))
    world.step(events.TopicsAppeared(at_once(world.reader.topics()).states))
    stored = znodes.Topic.decode(answer_of(world.store.get(znodes.Topic.path("old"))).data)
    assert stored.topic_id == world.state.topics["old"].topic_id == b"new topic id ..."
    assert world.leader("old") == 1


@pytest.mark.parametrize("starts", [False, True])
def test_a_mark_is_removed_where_topics_may_not_be_deleted(starts: bool) -> None:
    """Kafka's `processTopicDeletion`, and its `TopicDeletionManager` at the start of a controller."""
    world = World(1, 2, rules=SomeRules(delete_topic_enable=False))
    world.topic("t", (1, 2))
    answer_of(world.store.create(znodes.DeleteTopic.path("t")))
    if starts:
        world.take_over()
    else:
        world.step(events.DeletionsRequested(at_once(world.reader.deletions())))
    assert answer_of(world.store.children(znodes.DELETE_TOPICS)) == []
    assert world.leader("t") == 1


def test_a_deletion_that_has_begun_goes_on_where_topics_may_not_be_deleted_any_more() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.deaf.add(2)
    delete(world, "t")
    world.rules.delete_topic_enable = False
    world.step(events.DeletionsRequested(at_once(world.reader.deletions())))
    assert answer_of(world.store.children(znodes.DELETE_TOPICS)) == ["t"]
