"""Apache Kafka 3.9 takes over a directory of ours with transactions in every state, and we take over Kafka's.

One ZooKeeper, one data directory, and one broker after the other with the same id, as an operator would go
over from one to the other. Whoever comes next has to see what the last one left, and goes on with it: a
producer whose transaction is open does not notice.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from compat_tests.apache_kafka import reason_to_skip
from compat_tests.znodes.zookeeper_mode import VERSION, KafkaOnZooKeeper
from tests import zookeeper
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.transacting import (
    GROUP,
    READ_COMMITTED,
    Transacting,
    committed_offset,
    committed_records,
    markers,
    settled,
)
from wire.errors import ErrorCode

WHY_NOT = reason_to_skip(VERSION) or zookeeper.reason_to_skip()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))]

LATEST = -1
PATIENCE_S = 30
PROPERTIES = {
    "broker.id": 1,
    "zookeeper.session.timeout.ms": 3000,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


class House:
    """Where one broker lives after the other."""

    def __init__(
        self, directory: Path, server: zookeeper.ZooKeeper, more: Mapping[str, object] | None = None
    ) -> None:
        self._directory = directory
        self._server = server
        self._properties = {**PROPERTIES, **(more or {})}

    @contextmanager
    def ours(self, end: signal.Signals) -> Iterator[Speaker]:
        self._wait_until_free()
        settings = {"zookeeper.connect": self._server.address, **self._properties}
        options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        log = self._directory / "broker.log"
        broker = BrokerProcess(log, *options)
        speaker = Speaker(broker.host, broker.port)
        try:
            yield speaker
        finally:
            speaker.socket.close()
            status = broker.stop(end)
        assert status in (0, -end)
        assert "Traceback" not in log.read_text()

    @contextmanager
    def kafkas(self, end: signal.Signals) -> Iterator[Speaker]:
        self._wait_until_free()
        properties = {**self._properties, "log.dirs": self._directory / "broker.data"}
        with KafkaOnZooKeeper(self._directory, self._server.address, properties) as kafka:
            host, _, port = kafka.bootstrap.partition(":")
            speaker = Speaker(host, int(port))
            yield speaker
            speaker.socket.close()
            assert " ERROR " not in kafka.output.read_text()
            kafka.close(end)

    def _wait_until_free(self) -> None:
        """A broker that was killed is registered until its session is over."""
        client = KazooClient(self._server.address)
        client.start()
        deadline = time.monotonic() + PATIENCE_S
        while client.exists("/brokers/ids/1"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        client.stop()
        client.close()


def stable(speaker: Speaker) -> int:
    return int(speaker.offset("t", LATEST, version=7, isolation_level=READ_COMMITTED).offset)


def view(speaker: Speaker, *producers: Transacting) -> dict[str, Any]:
    """All that a client can see of the topic and of transactions, once the coordinators have loaded."""
    for one in producers:
        one.speaker = speaker
        one.find()
        settled(lambda one=one: {"": ErrorCode.NOT_COORDINATOR}.get(one.state(), ErrorCode.NONE))  # type: ignore[misc]
    assert settled(lambda: committed_offset(speaker, "g", "t")[0]) == 0
    answer = speaker.fetch("t", 0, isolation_level=READ_COMMITTED)
    return {
        "last stable offset": stable(speaker),
        "high watermark": speaker.offset("t", LATEST, version=7).offset,
        "committed": [(record.offset, record.value) for record in committed_records(speaker, "t")],
        "aborted": sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions),
        "markers": markers(speaker, "t"),
        "offset": committed_offset(speaker, "g", "t"),
        "stable offset": committed_offset(speaker, "g", "t", require_stable=True),
        "states": {one.transactional_id: one.state() for one in producers},
    }


def leave(speaker: Speaker, name: str, version: int, offset: int) -> Transacting:
    """Three transactions with offsets of a group: one is committed, one aborted, and one stays open."""
    one = Transacting(speaker, name, version).initialized()
    one.find("g", GROUP)
    for is_commit in (True, False, None):
        one.begun("t", b"%s %s" % (name.encode(), str(is_commit).encode()))
        if version < 2:
            assert settled(lambda: one.add_offsets("g")) == 0
        wrong = int(is_commit is False)
        assert settled(lambda wrong=wrong: one.commit_offset("g", "t", offset + wrong)) == 0  # type: ignore[misc]
        if is_commit is not None:
            one.settled_end(is_commit=is_commit)
    return one


def go_on(one: Transacting, before: dict[str, Any], offset: int) -> None:
    """With the transaction that another broker has left open."""
    one.version = 1  # which every broker speaks
    assert one.send("t", b"later")[0] == 0
    assert stable(one.speaker) == before["last stable offset"]
    one.settled_end(is_commit=True)
    assert stable(one.speaker) == one.speaker.offset("t", LATEST, version=7).offset
    values = [record.value for record in committed_records(one.speaker, "t")]
    assert values == [value for _, value in before["committed"]] + [
        f"{one.transactional_id} None".encode(),
        b"plain",
        b"later",
    ]
    assert committed_offset(one.speaker, "g", "t", require_stable=True) == (0, offset)


@pytest.mark.parametrize(
    ("version", "end"),
    [pytest.param(1, signal.SIGKILL, id="killed"), pytest.param(2, signal.SIGTERM, id="stopped")],
)
def test_transactions_go_on_at_the_next_broker(version: int, end: signal.Signals, tmp_path: Path) -> None:
    """Conformance 34, 43, 44, 50, 51: from us to Kafka, and back to us."""
    with ExitStack() as stack:
        house = House(tmp_path, stack.enter_context(zookeeper.ZooKeeper(tmp_path / "zookeeper")))
        with house.ours(end) as speaker:
            speaker.create("t")
            first = leave(speaker, "first", version, 5)
            assert speaker.produce("t", batch(b"plain")).error_code == 0
            left = view(speaker, first)
            check_left(left, 1, 5)
        with house.kafkas(end) as speaker:
            assert view(speaker, first) == left
            go_on(first, left, 5)
            second = leave(speaker, "second", 1, 7)
            assert second.producer_id != first.producer_id
            assert speaker.produce("t", batch(b"plain")).error_code == 0
            left = view(speaker, first, second)
            check_left(left, 2, 7)
        with house.ours(end) as speaker:
            assert view(speaker, first, second) == left
            go_on(second, left, 7)
            third = leave(speaker, "third", version, 9)
            assert third.producer_id not in (first.producer_id, second.producer_id)


def check_left(left: dict[str, Any], count: int, offset: int) -> None:
    """There is something to agree on."""
    assert left["offset"] == (0, offset)
    assert left["last stable offset"] < left["high watermark"]
    assert left["stable offset"][0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert len(left["aborted"]) == count
    assert list(left["states"].values()) == ["CompleteCommit"] * (count - 1) + ["Ongoing"]


def names(prefix: str) -> list[str]:
    """Half of them have a negative hash."""
    return [f"{number * number} {prefix}" for number in range(20)]


def commit_as(speaker: Speaker, name: str, offset: int) -> None:
    """A group's offset, in a transaction of an id of the same name."""
    one = Transacting(speaker, name, 1).initialized()
    one.find(name, GROUP)
    assert settled(lambda: one.add_offsets(name)) == 0
    assert settled(lambda: one.commit_offset(name, "t", offset)) == 0
    one.settled_end(is_commit=True)


def check_ids(speaker: Speaker, offsets: dict[str, int]) -> None:
    """Every group and every transactional id is known where it is looked for."""
    for name, offset in offsets.items():
        one = Transacting(speaker, name, 1)
        one.find()
        settled(lambda one=one: {"": ErrorCode.NOT_COORDINATOR}.get(one.state(), ErrorCode.NONE))  # type: ignore[misc]
        assert one.state() == "CompleteCommit", name
        one.find(name, GROUP)
        assert settled(lambda name=name: committed_offset(speaker, name, "t")[0]) == 0  # type: ignore[misc]
        assert committed_offset(speaker, name, "t") == (0, offset), name


def test_the_next_broker_looks_for_ids_where_the_last_one_has_put_them(tmp_path: Path) -> None:
    """Conformance 84"""
    with ExitStack() as stack:
        server = stack.enter_context(zookeeper.ZooKeeper(tmp_path / "zookeeper"))
        partitions = {"offsets.topic.num.partitions": 7, "transaction.state.log.num.partitions": 7}
        house = House(tmp_path, server, partitions)
        known: dict[str, int] = {}
        with house.ours(signal.SIGTERM) as speaker:
            speaker.create("t")
            for offset, name in enumerate(names("ours")):
                commit_as(speaker, name, offset)
                known[name] = offset
        with house.kafkas(signal.SIGTERM) as speaker:
            check_ids(speaker, known)
            for offset, name in enumerate(names("kafkas")):
                commit_as(speaker, name, offset)
                known[name] = offset
        with house.ours(signal.SIGTERM) as speaker:
            check_ids(speaker, known)
