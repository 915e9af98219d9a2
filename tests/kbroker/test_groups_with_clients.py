"""Classic groups end to end: a stock client in a group, and raw frames where a client cannot go."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kbroker.handlers.test_produce import produce
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import batch
from wire.api import ApiKey
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from wire.errors import ErrorCode
from wire.internal import CONSUMER_OFFSETS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

pytestmark = pytest.mark.slow


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    with Hosting(tmp_path / "data") as running:
        running.order(CONSUMER_OFFSETS, 50)
        running.order("t", 2)
        yield running


def address(hosting: Hosting) -> str:
    return ":".join(map(str, hosting.broker.address))


def consumer(hosting: Hosting, **options: object) -> KafkaConsumer:
    values = {"group_id": "g", "auto_offset_reset": "earliest", "consumer_timeout_ms": 20_000, **options}
    return KafkaConsumer("t", bootstrap_servers=address(hosting), **values)


def test_a_group_reads_commits_and_goes_on_where_it_was(hosting: Hosting) -> None:
    """conformance 71-76, 82"""
    producer = KafkaProducer(bootstrap_servers=address(hosting), enable_idempotence=False)
    for number in range(20):
        producer.send("t", b"%d" % number, partition=number % 2)
    producer.flush()
    producer.close()
    first = consumer(hosting)
    got = sorted(int(next(first).value) for _ in range(20))
    assert got == list(range(20))
    first.commit()
    first.close()
    produce(hosting, batch(b"next"))
    second = consumer(hosting)
    assert next(second).value == b"next"
    assert second.committed(TopicPartition("t", 0)) == 10
    second.close(autocommit=False)


def _any_topic(group_id: str) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group_id=group_id, topics=None)


def commit_request(offset: int, topic: str = "t", partition: int = 0) -> OffsetCommitRequest:
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata="m"
    )
    return OffsetCommitRequest(
        group_id="simple", topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])]
    )


def committed(hosting: Hosting, version: int = 5, topic: str = "t") -> tuple[int, int, str, int]:
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    reply = hosting.ask(OffsetFetchRequest(group_id="simple", topics=topics), ApiKey.OFFSET_FETCH, version)
    [one] = reply.topics[0].partitions
    return one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code


def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    """conformance 80, 82, 84"""
    with Hosting(tmp_path / "data") as before:
        before.order(CONSUMER_OFFSETS, 50)
        before.order("t")
        assert committed(before) == (-1, -1, "", 0)
        reply = before.ask(commit_request(7), ApiKey.OFFSET_COMMIT, 8)
        assert reply.topics[0].partitions[0].error_code == 0
    with Hosting(tmp_path / "data") as after:
        after.order(CONSUMER_OFFSETS, 50)
        assert committed(after) == (7, 3, "m", 0)


def test_commits_to_what_does_not_exist_are_refused_one_by_one(hosting: Hosting) -> None:
    """conformance 82"""
    request = commit_request(7)
    request.topics += commit_request(7, partition=9).topics + commit_request(7, topic="nowhere").topics
    reply = hosting.ask(request, ApiKey.OFFSET_COMMIT, 8)
    codes = {
        (topic.name, one.partition_index): one.error_code
        for topic in reply.topics
        for one in topic.partitions
    }
    assert codes == {("t", 0): 0, ("t", 9): 3, ("nowhere", 0): 3}


def test_a_broker_that_does_not_coordinate_a_group_says_so(tmp_path: Path) -> None:
    """conformance 84"""
    with Hosting(tmp_path / "data") as hosting:
        hosting.order("t")
        reply = hosting.ask(commit_request(7), ApiKey.OFFSET_COMMIT, 8)
        assert reply.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert committed(hosting, version=1)[3] == ErrorCode.NOT_COORDINATOR
        ask = OffsetFetchRequest(group_id="simple", topics=[], groups=[_any_topic("simple")])
        assert hosting.ask(ask, ApiKey.OFFSET_FETCH, 2).error_code == ErrorCode.NOT_COORDINATOR
        assert hosting.ask(ask, ApiKey.OFFSET_FETCH, 8).groups[0].error_code == ErrorCode.NOT_COORDINATOR
        reply = hosting.ask(FindCoordinatorRequest(key="g"), ApiKey.FIND_COORDINATOR, 2)
        assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_coordinator_is_the_leader_of_the_groups_partition(hosting: Hosting) -> None:
    for version in range(7):
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        reply = hosting.ask(request, ApiKey.FIND_COORDINATOR, version)
        found = reply.coordinators[0] if version >= 4 else reply
        assert (found.error_code, found.port) == (0, hosting.broker.address[1])
