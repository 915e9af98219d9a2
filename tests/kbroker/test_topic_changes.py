"""Answers to CreateTopics, CreatePartitions and DeleteTopics leave when this broker has heard of the change.

As Kafka 3.9's DelayedCreatePartitions and DelayedDeleteTopics. That the time is over is Kafka's answer, and
what it says of a topic then: nothing but its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.context import Parked
from kbroker.metadata_cache import LEADER_DURING_DELETE, MetadataCache
from kbroker.topic_changes import TopicChanges
from tests.kbroker.handlers.test_produce import produce_request
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch, new_topic
from wire.api import ApiKey
from wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from wire.api.create_topics import CreatableTopicResult, CreateTopicsResponse
from wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from wire.errors import ErrorCode, KafkaError

LATE = ErrorCode.REQUEST_TIMED_OUT


class World:
    """What a broker has heard, and a clock that the test moves."""

    def __init__(self) -> None:
        self.metadata = MetadataCache()
        self.changes = TopicChanges(self.metadata, self)
        self.timers: dict[World.Timer, None] = {}

    class Timer:
        def __init__(self, world: World, at_ms: int, call: Callable[[], object]) -> None:
            self.world, self.at_ms, self.call = world, at_ms, call

        def cancel(self) -> None:
            del self.world.timers[self]

    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> Timer:
        timer = self.Timer(self, delay_ms, call)
        self.timers[timer] = None
        return timer

    def pass_time(self) -> None:
        for timer in list(self.timers):
            timer.cancel()
            timer.call()

    def hear(self, topic: str, *partitions: int, leader: int = 1) -> None:
        states = [
            UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=1,
                leader=leader,
                leader_epoch=0,
                isr=[1],
                zk_version=0,
                replicas=[1],
            )
            for index in partitions
        ]
        about = UpdateMetadataTopicState(topic_name=topic, topic_id=id_of(topic), partition_states=states)
        self.metadata.update(
            UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[about], live_brokers=[])
        )


def id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b"-")


def created(*topics: str, error: ErrorCode = ErrorCode.NONE) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic,
                topic_id=id_of(topic),
                error_code=error,
                num_partitions=2,
                replication_factor=1,
                configs=[],
            )
            for topic in topics
        ]
    )


def answered(response: object) -> Parked:
    parked = Parked()
    parked.complete(response)
    return parked


def said(parked: Parked) -> Any:
    """What was answered; None as long as nothing was."""
    outcomes: list[object] = []
    parked.when_done(outcomes.append)
    return outcomes[0] if outcomes else None


@pytest.fixture
def world() -> World:
    return World()


def test_a_topic_is_there_when_all_its_partitions_have_leaders(world: World) -> None:
    held = world.changes.created(answered(created("a", "b")), 1000)
    world.hear("a", 0, 1)
    world.hear("b", 0)
    world.hear("b", 1, leader=-1)
    assert said(held) is None
    world.hear("b", 1)
    assert [topic.error_code for topic in said(held).topics] == [0, 0]
    assert not world.timers


def test_what_is_not_there_in_time_gets_a_time_out(world: World) -> None:
    held = world.changes.created(answered(created("a", "b")), 1000)
    world.hear("a", 0, 1)
    world.pass_time()
    there, late = said(held).topics
    assert (there.error_code, there.num_partitions) == (0, 2)
    assert (late.error_code, late.num_partitions, late.topic_id) == (LATE, -1, bytes(16))
    world.hear("b", 0, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_time_nothing_is_waited_for(world: World, timeout_ms: int) -> None:
    [topic] = said(world.changes.created(answered(created("a")), timeout_ms)).topics
    assert topic.error_code == LATE
    assert not world.timers


def test_what_was_refused_is_not_waited_for(world: World) -> None:
    refused = created("a", error=ErrorCode.TOPIC_ALREADY_EXISTS)
    assert said(world.changes.created(answered(refused), 0)).topics[0].error_code == 36
    error = KafkaError(ErrorCode.NOT_CONTROLLER)
    assert said(world.changes.created(answered(error), 1000)) is error


def test_a_topic_has_grown_when_all_partitions_have_leaders(world: World) -> None:
    world.hear("a", 0)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=3, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    )
    result = CreatePartitionsTopicResult(name="a", error_code=0)
    response = CreatePartitionsResponse(throttle_time_ms=0, results=[result])
    held = world.changes.grown(answered(response), request)
    world.hear("a", 1)
    assert said(held) is None
    world.hear("a", 2)
    assert said(held).results[0].error_code == 0


@pytest.mark.parametrize("is_late", [False, True])
def test_a_deleted_topic_is_gone_when_it_is_not_known_any_more(world: World, is_late: bool) -> None:
    world.hear("a", 0, 1)
    result = DeletableTopicResult(name="a", topic_id=id_of("a"), error_code=0)
    held = world.changes.deleted(
        answered(DeleteTopicsResponse(throttle_time_ms=0, responses=[result])), timeout_ms=1000
    )
    world.hear("a", 0, leader=LEADER_DURING_DELETE)
    assert said(held) is None
    if is_late:
        world.pass_time()
    world.hear("a", 1, leader=LEADER_DURING_DELETE)
    assert said(held).responses[0].error_code == (LATE if is_late else 0)


def test_a_large_topic_can_be_used_when_its_creation_is_answered(shared_broker: BrokerProcess) -> None:
    """Its logs are made in a thread."""
    creator, other = (Speaker(shared_broker.host, shared_broker.port) for _ in range(2))
    [created] = creator.create_topics(new_topic("large", 100))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="large")], allow_auto_topic_creation=False)
    [known] = other.ask(asked, ApiKey.METADATA, 9).topics
    reply = other.ask(
        produce_request(*[("large", index, batch()) for index in range(100)]), ApiKey.PRODUCE, 9
    )
    deleted = creator.ask(
        DeleteTopicsRequest(topic_names=["large"], timeout_ms=10_000), ApiKey.DELETE_TOPICS, 5
    ).responses
    [unknown] = other.ask(asked, ApiKey.METADATA, 9).topics
    creator.socket.close()
    other.socket.close()
    assert (created.error_code, known.error_code, len(known.partitions)) == (0, 0, 100)
    assert {one.leader_id for one in known.partitions} == {1}
    [topic] = reply.responses
    assert {one.error_code for one in topic.partition_responses} == {0}
    assert (deleted[0].error_code, unknown.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_bug_in_what_one_request_waits_for_keeps_no_other_from_its_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests wait for one topic. Whoever sends the first one's answer hears of the bug."""
    looks = 0
    has_leaders = TopicChanges._has_leaders

    def fail_once(changes: TopicChanges, name: str, partitions: int) -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:  # each has looked in vain before
            raise LookupError("a bug")
        return has_leaders(changes, name, partitions)

    monkeypatch.setattr(TopicChanges, "_has_leaders", fail_once)
    first = world.changes.created(answered(created("a")), 1000)
    second = world.changes.created(answered(created("a")), 1000)
    world.hear("a", 0, 1)
    assert isinstance(said(first), LookupError)
    assert said(second).topics[0].error_code == 0
    assert not world.timers
