"""Groups of consumers that only commit, without members: what is left of them when their offsets go.

One story is told to Apache Kafka and to us, over several lives of the broker: offsets are deleted by clients,
with their topics, with aborted transactions and by retention, and after each the groups are listed and
described.

Kafka 4.3.1 keeps a group without offsets until its next round of expiration, also when it has read its log
again. Kafka 3.9 drops it with its last offset, and writes nothing of that into the log. So we keep it as
Kafka 4 does, but for what we read: there a group without offsets is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache_kafka import ApacheKafka, reason_to_skip
from compat_tests.differential.conversation import COUNT, Conversation, World, cluster_of, different
from compat_tests.differential.group_worlds import Kafka, read_group_log
from tests.kbroker.coordinators.driver import Driver
from tests.kbroker.harness import BrokerProcess

VERSION, OLDER = "4.3.1", "3.9.2"
WITHOUT_OFFSETS = {"all-deleted", "topic-deleted", "aborted"}
PROPERTIES = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
NEVER = {"offsets.retention.check.interval.ms": 3_600_000}
OFTEN: dict[str, object] = {"offsets.retention.check.interval.ms": 200}
WAIT_S = 30

pytestmark = pytest.mark.slow


def needs(version: str) -> pytest.MarkDecorator:
    reason = reason_to_skip(version)
    return pytest.mark.skipif(reason is not None, reason=str(reason))


Life = Callable[[Mapping[str, object]], World]
"""Starts the broker again, with these settings and what it has stored."""


class Group:
    """One simple group."""

    def __init__(self, talk: Conversation, name: str) -> None:
        self.talk = talk
        self.group_id = talk.name(name)

    def commit(self, topic: str, *partitions: int, retention_time_ms: int = -1) -> None:
        rows = [
            {"partition_index": one, "committed_offset": 5, "committed_metadata": ""} for one in partitions
        ]
        reply = self.talk.quietly(
            "OffsetCommit",
            4,
            group_id=self.group_id,
            retention_time_ms=retention_time_ms,
            topics=[{"name": self.talk.name(topic), "partitions": rows}],
        )
        assert {one.error_code for one in reply.topics[0].partitions} == {0}

    def delete(self, topic: str, *partitions: int) -> None:
        rows = [{"partition_index": one} for one in partitions]
        topics = [{"name": self.talk.name(topic), "partitions": rows}]
        assert self.talk.quietly("OffsetDelete", 0, group_id=self.group_id, topics=topics).error_code == 0

    def commit_in_transaction(self, topic: str, *, is_commit: bool | None) -> None:
        """And end the transaction, unless it is to stay open."""
        talk, transactional_id = self.talk, f"{self.group_id}-id"
        talk.until(is_done, "FindCoordinator", 3, key=transactional_id, key_type=1)
        asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 600_000}
        found = talk.until(is_done, "InitProducerId", 1, **asked)
        whose = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
        named = {"transactional_id": transactional_id, **whose}
        talk.until(is_done, "AddOffsetsToTxn", 1, group_id=self.group_id, **named)
        row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        topics = [{"name": talk.name(topic), "partitions": [row]}]
        reply = talk.quietly("TxnOffsetCommit", 2, group_id=self.group_id, topics=topics, **named)
        assert reply.topics[0].partitions[0].error_code == 0
        if is_commit is not None:
            assert talk.quietly("EndTxn", 1, committed=is_commit, **named).error_code == 0
            talk.until(
                lambda reply: reply.transaction_states[0].transaction_state.startswith("Complete"),
                "DescribeTransactions",
                0,
                transactional_ids=[transactional_id],
            )


def is_done(reply: Any) -> bool:
    return bool(reply.error_code == 0)


def look(talk: Conversation, label: str) -> None:
    """All groups of this story, as they are listed and described."""
    listed = talk.quietly("ListGroups", 5)
    listed.groups = talk.own(listed.groups, "group_id")
    talk.note(f"{label}: listed", listed)
    names = sorted(NAMES)
    talk.note(f"{label}: described", talk.quietly("DescribeGroups", 6, groups=list(map(talk.name, names))))
    groups = [{"group_id": talk.name(name), "topics": None} for name in names]
    talk.note(f"{label}: offsets", talk.quietly("OffsetFetch", 8, groups=groups))


NAMES = (
    "kept",
    "one-deleted",
    "all-deleted",
    "deleted-and-back",
    "topic-deleted",
    "one-topic-deleted",
    "group-deleted",
    "aborted",
    "committed",
    "open",
    "expired",
    "expired-beside-another",
)


def begin(talk: Conversation) -> None:
    """Groups come, and offsets go."""
    for topic in ("t", "gone"):
        talk.create(topic, 2)
    talk.until(is_done, "FindCoordinator", 3, key="any", key_type=0)
    talk.until(lambda reply: reply.error_code != 14, "ListGroups", 4)
    talk.until(
        lambda reply: reply.groups[0].error_code == 0,
        "OffsetFetch",
        8,
        groups=[{"group_id": talk.name("kept"), "topics": None}],
    )
    group = {name: Group(talk, name) for name in NAMES}
    for name in ("kept", "one-deleted", "all-deleted", "deleted-and-back", "group-deleted"):
        group[name].commit("t", 0, 1)
    for name in ("topic-deleted", "one-topic-deleted"):
        group[name].commit("gone", 0, 1)
    group["one-topic-deleted"].commit("t", 0)
    group["expired"].commit("t", 0, retention_time_ms=1)
    group["expired-beside-another"].commit("t", 0, retention_time_ms=1)
    group["expired-beside-another"].commit("t", 1)
    group["aborted"].commit_in_transaction("t", is_commit=False)
    group["committed"].commit_in_transaction("t", is_commit=True)
    group["open"].commit_in_transaction("t", is_commit=None)
    look(talk, "before")
    group["one-deleted"].delete("t", 0)
    group["all-deleted"].delete("t", 0, 1)
    group["deleted-and-back"].delete("t", 0, 1)
    group["deleted-and-back"].commit("t", 1)
    talk.quietly("DeleteGroups", 2, groups_names=[group["group-deleted"].group_id])
    talk.quietly("DeleteTopics", 5, topic_names=[talk.name("gone")], timeout_ms=10_000)
    talk.until(
        lambda reply: not reply.groups[0].topics,
        "OffsetFetch",
        8,
        groups=[{"group_id": group["topic-deleted"].group_id, "topics": None}],
    )
    look(talk, "after deletion")


def tell_story(life: Life) -> Conversation:
    """All of it."""
    talk = Conversation(life({}), "simple")
    begin(talk)
    for label, settings in LATER_LIVES.items():
        talk.close()
        talk.world = life(settings)
        wait_until_loaded(talk)
        if settings:
            gone = [{"group_id": talk.name("expired"), "topics": None}]
            talk.until(lambda reply: not reply.groups[0].topics, "OffsetFetch", 8, groups=gone)
            talk.until(lambda reply: not named(talk, reply) & WITHOUT_OFFSETS, "ListGroups", 4)
        look(talk, label)
    talk.close()
    return talk


LATER_LIVES: dict[str, dict[str, object]] = {
    "loaded": {},
    "expired": OFTEN,
    "loaded after expiration": {},
}


def named(talk: Conversation, listed: Any) -> set[str]:
    """The groups of this story in a list."""
    own = talk.own(listed.groups, "group_id")
    return {one.group_id.removeprefix(f"{talk.prefix}-") for one in own}


def wait_until_loaded(talk: Conversation) -> None:
    talk.until(
        lambda reply: reply.groups[0].error_code == 0 and bool(reply.groups[0].topics),
        "OffsetFetch",
        8,
        groups=[{"group_id": talk.name("kept"), "topics": None}],
    )


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Life]:
    broker = ApacheKafka(VERSION, tmp_path / "kafka")

    def live(settings: Mapping[str, object]) -> World:
        broker.stop()
        broker.properties = {**broker.properties, **PROPERTIES, **NEVER, **settings}
        broker.start()
        address = ("127.0.0.1", broker.ports[0])
        return World(address, cluster_of(address), {})

    try:
        yield live
    finally:
        broker.kill()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Life]:
    running: list[BrokerProcess] = []

    def live(settings: Mapping[str, object]) -> World:
        while running:
            assert running.pop().stop() == 0
        values = {**PROPERTIES, **NEVER, **settings}
        options = [option for key, value in values.items() for option in ("--set", f"{key}={value}")]
        running.append(BrokerProcess(tmp_path / "kbroker.log", *options))
        address = (running[0].host, running[0].port)
        return World(address, cluster_of(address), {})

    try:
        yield live
    finally:
        while running:
            running.pop().stop()


@needs(VERSION)
def test_simple_groups_come_and_go_as_in_kafka(kafka: Life, ours: Life) -> None:
    theirs, mine = tell_story(kafka), tell_story(ours)
    listed = f"groups.{COUNT}"
    for label in ("before", "after deletion", *LATER_LIVES):
        assert theirs.noted[f"{label}: listed"][listed], label
    found = different(theirs, mine)
    unexpected = [
        one
        for one in found
        if one.label not in ("loaded: listed", "loaded: described")
        or (one.path != listed and one.path.split(".")[1] not in WITHOUT_OFFSETS)
    ]
    assert not unexpected, "\n".join(map(str, unexpected))
    assert mine.noted["loaded: listed"][listed] == mine.noted["after deletion: listed"][listed] - 3  # type: ignore[operator]


@needs(OLDER)
def test_groups_that_kafka_3_has_dropped_are_not_found_in_its_log(tmp_path: Path) -> None:
    """Whoever takes over a partition of `__consumer_offsets` finds the tombstones of their offsets."""
    with ApacheKafka(OLDER, tmp_path, properties={**PROPERTIES, **NEVER}) as kafka:
        address = ("127.0.0.1", kafka.ports[0])
        talk = Conversation(World(address, cluster_of(address), {}), "simple")
        begin(talk)
        listed = named(talk, talk.quietly("ListGroups", 4))
        talk.close()
        reader = Kafka(kafka.bootstrap)
        entries = read_group_log(reader)
        reader.close()
    assert listed == set(NAMES) - WITHOUT_OFFSETS - {"group-deleted"}
    taken_over = Driver(log=entries)
    assert {group.group_id.removeprefix("simple-") for group in taken_over.groups} == listed
