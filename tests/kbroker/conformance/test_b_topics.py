"""Conformance B: topics, by name and by id."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.kbroker.speaker import (
    APPEND,
    BROKER,
    DEADLINE_S,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    Speaker,
    batch,
    new_topic,
)
from wire.api import ApiKey
from wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.errors import ErrorCode

CREATED, UNKNOWN, INVALID = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
GROUP_COORDINATOR, TRANSACTIONS = 0, 1
NOT_NAMES = ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "a\0"]


def names(speaker: Speaker, asked: list[str] | None, version: int) -> set[str]:
    topics = None if asked is None else [MetadataRequestTopic(name=name) for name in asked]
    reply = speaker.ask(MetadataRequest(topics=topics), ApiKey.METADATA, version)
    return {one.name for one in reply.topics}


def test_null_is_every_topic_and_an_empty_list_none(speaker: Speaker, topic: str) -> None:
    """conformance 10"""
    speaker.create(topic)
    assert topic in names(speaker, None, 1)
    assert names(speaker, [], 1) == set()
    assert topic in names(speaker, [], 0)


def test_an_unknown_topic_is_created_only_where_the_client_allows_it(speaker: Speaker, topic: str) -> None:
    """conformance 11: reported on the first reply, then without error; with the flag off never."""
    for _ in range(3):
        assert speaker.metadata(topic).error_code == UNKNOWN
    assert speaker.metadata(topic, create=True).error_code in (UNKNOWN, ErrorCode.LEADER_NOT_AVAILABLE)
    deadline = time.monotonic() + DEADLINE_S
    while speaker.metadata(topic).error_code:
        assert time.monotonic() < deadline
    assert speaker.produce(topic).error_code == 0


@pytest.mark.parametrize("name", NOT_NAMES)
def test_what_cannot_be_a_name_is_neither_created_nor_auto_created(speaker: Speaker, name: str) -> None:
    """conformance 12"""
    assert speaker.create_topics(new_topic(name))[0].error_code == INVALID
    assert speaker.metadata(name, create=True).error_code == INVALID
    assert name not in names(speaker, None, 9)


def test_names_whose_metrics_would_collide_exclude_each_other(speaker: Speaker, topic: str) -> None:
    """conformance 13"""
    speaker.create(f"{topic}.a")
    assert speaker.create_topics(new_topic(f"{topic}_a"))[0].error_code == INVALID
    assert speaker.create_topics(new_topic(f"{topic}.a"))[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_unknown_topic_id_is_told_as_such(speaker: Speaker) -> None:
    """conformance 14: in Metadata, per partition in Fetch and Produce."""
    unknown = b"?" * 16
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=unknown)])
    code = ErrorCode.UNKNOWN_TOPIC_ID
    assert speaker.ask(asked, ApiKey.METADATA, 12).topics[0].error_code == code
    assert speaker.fetch("", topic_id=unknown, version=13).error_code == code
    assert speaker.produce("", topic_id=unknown, version=13).error_code == code


@pytest.mark.parametrize("version", [12, 13])
def test_the_newest_versions_of_produce_append_as_the_others_do(
    speaker: Speaker, topic: str, version: int
) -> None:
    """By id from 13 on, and the id comes back (conformance 14)."""
    topic_id = speaker.create(topic)
    by_id = topic_id if version >= 13 else bytes(16)
    outcome = speaker.produce("" if version >= 13 else topic, topic_id=by_id, version=version)
    assert (outcome.error_code, outcome.base_offset) == (0, 0)
    assert speaker.fetch("", topic_id=topic_id, version=18).high_watermark == 1


def test_a_topic_of_the_same_name_is_another_topic(speaker: Speaker, topic: str) -> None:
    """conformance 15"""
    old = speaker.create(topic)
    speaker.produce(topic, batch(b"a", b"b"))
    assert speaker.delete_topic(topic) == 0
    assert speaker.fetch(topic).error_code == UNKNOWN
    new = speaker.create(topic)
    assert new != old
    assert speaker.fetch("", topic_id=old, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert speaker.produce(topic, batch(b"c")).base_offset == 0
    assert [record.value for record in speaker.records(topic)] == [b"c"]


def test_a_deleted_topic_ends_a_session_that_reads_it_with_an_error(speaker: Speaker, topic: str) -> None:
    """conformance 15, 57"""
    topic_id = speaker.create(topic)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1}
    first = FetchRequest(
        session_id=0, session_epoch=0, topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])], **values
    )
    session_id = speaker.ask(first, ApiKey.FETCH, 13).session_id
    speaker.delete_topic(topic)
    following = FetchRequest(session_id=session_id, session_epoch=1, topics=[], **values)
    [answer] = speaker.ask(following, ApiKey.FETCH, 13).responses
    assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_topics_that_cannot_be_created_say_why(speaker: Speaker, topic: str) -> None:
    """conformance 16"""
    speaker.create(topic)
    asked = {
        topic: (new_topic(topic), ErrorCode.TOPIC_ALREADY_EXISTS),
        "x1": (new_topic("x1", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        "x2": (new_topic("x2", 0), ErrorCode.INVALID_PARTITIONS),
        "x3": (new_topic("x3", -2), ErrorCode.INVALID_PARTITIONS),
        "x4": (new_topic("x4", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
        "x5": (new_topic("x5", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    }
    outcomes = speaker.create_topics(*(one for one, _ in asked.values()))
    assert {one.name: one.error_code for one in outcomes} == {name: code for name, (_, code) in asked.items()}
    assert names(speaker, None, 9) & {"x1", "x2", "x3", "x4", "x5"} == set()


def test_minus_one_is_the_brokers_default_from_v4_on(speaker: Speaker, topic: str) -> None:
    """conformance 16; v5 and later tell what was created."""
    [created] = speaker.create_topics(new_topic(topic, -1, -1, {"retention.ms": "1000"}), version=5)
    assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 1, 1)
    shown = {config.name: (config.value, config.config_source) for config in created.configs}
    assert len(shown) == 33
    assert shown["retention.ms"] == ("1000", 1)
    assert speaker.create_topics(new_topic(f"{topic}-old", 2, 1), version=2)[0].error_code == 0


def test_what_is_only_validated_is_told_and_not_created(speaker: Speaker, topic: str) -> None:
    """conformance 16"""
    [would_be] = speaker.create_topics(new_topic(topic, 3), validate_only=True)
    assert (would_be.error_code, would_be.num_partitions, len(would_be.configs)) == (0, 3, 33)
    assert speaker.metadata(topic).error_code == UNKNOWN
    [refused] = speaker.create_topics(new_topic(topic, 0), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS


def test_partitions_are_added_and_each_topic_has_its_result(speaker: Speaker, topic: str) -> None:
    """conformance 17"""
    speaker.create(topic, 2)
    speaker.create(f"{topic}-2", 2)

    def grow(*counts: tuple[str, int], validate_only: bool = False) -> dict[str, int]:
        topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=validate_only)
        reply = speaker.ask(request, ApiKey.CREATE_PARTITIONS, 3)
        return {one.name: one.error_code for one in reply.results}

    assert grow((topic, 4), validate_only=True) == {topic: 0}
    assert grow((topic, 2), (f"{topic}-2", 1), ("unknown", 4)) == {
        topic: ErrorCode.INVALID_PARTITIONS,
        f"{topic}-2": ErrorCode.INVALID_PARTITIONS,
        "unknown": UNKNOWN,
    }
    assert len(speaker.metadata(topic).partitions) == 2
    assert grow((topic, 4)) == {topic: 0}
    assert speaker.produce(topic, partition=3).error_code == 0
    assert grow() == {}


def test_every_config_of_a_topic_is_described(speaker: Speaker, topic: str) -> None:
    """conformance 18"""
    speaker.create(topic, retention_ms=1000)
    described = speaker.describe(TOPIC, topic)
    by_name = {config.name: config for config in described.configs}
    assert (described.error_code, len(by_name)) == (0, 33)
    assert not any(config.read_only for config in by_name.values())
    assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("1000", 1)
    assert (by_name["segment.bytes"].value, by_name["segment.bytes"].config_source) == ("1073741824", 5)
    assert [config.name for config in speaker.describe(TOPIC, topic, "retention.ms", "no.key").configs] == [
        "retention.ms"
    ]
    assert speaker.describe(TOPIC, "no-such-topic").error_code == UNKNOWN
    assert speaker.describe(BROKER, "1").error_code == 0


def test_configs_are_set_deleted_appended_to_and_subtracted_from(speaker: Speaker, topic: str) -> None:
    """conformance 18"""
    speaker.create(topic)

    def policy(*changes: tuple[str, int, str | None]) -> str:
        assert speaker.alter(TOPIC, topic, *changes).error_code == 0
        [config] = speaker.describe(TOPIC, topic, "cleanup.policy").configs
        value: str = config.value
        return value

    key = "cleanup.policy"
    assert policy() == "delete"  # no entries at all is fine
    assert policy((key, APPEND, "compact")) == "delete,compact"
    assert policy((key, SUBTRACT, "delete")) == "compact"
    assert policy((key, SET, "delete")) == "delete"
    assert policy((key, SET, "compact"), ("retention.ms", SET, "5")) == "compact"
    assert policy((key, DELETE, None)) == "delete"
    assert speaker.alter(TOPIC, topic, ("retention.ms", APPEND, "5")).error_code == ErrorCode.INVALID_CONFIG
    assert speaker.alter(TOPIC, "no-such-topic", (key, SET, "delete")).error_code == UNKNOWN


def test_controller_and_leaders_are_in_the_list_of_brokers(speaker: Speaker, topic: str) -> None:
    """conformance 19; the address is one that this client has reached."""
    speaker.create(topic, 3)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    reply = speaker.ask(asked, ApiKey.METADATA, 9)
    listed = {broker.node_id for broker in reply.brokers}
    assert {reply.controller_id, *(one.leader_id for one in reply.topics[0].partitions)} <= listed
    assert [(broker.host, broker.port) for broker in reply.brokers] == [speaker.socket.getpeername()]


@pytest.mark.parametrize(
    ("name", "kind"), [("__consumer_offsets", GROUP_COORDINATOR), ("__transaction_state", TRANSACTIONS)]
)
def test_clients_do_not_write_to_internal_topics(speaker: Speaker, name: str, kind: int) -> None:
    """conformance 20"""
    # Not created by this test: a coordinator wants as many partitions as it was configured with.
    deadline = time.monotonic() + DEADLINE_S
    asked = FindCoordinatorRequest(key="k", key_type=kind)
    while speaker.ask(asked, ApiKey.FIND_COORDINATOR, 2).error_code:
        assert time.monotonic() < deadline
    before = speaker.offset(name, -1).offset
    assert speaker.produce(name).error_code == INVALID
    assert speaker.offset(name, -1).offset == before
