"""Committed offsets move with their partitions between Apache Kafka and kbroker, as docs/storage.md says.

Half of the groups have a negative hash. Each has to be found where the other broker looks for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.apache_kafka import VERSIONS, ApacheKafka, reason_to_skip
from kbroker.testing import Broker
from storage.checkpoints import CLEAN_SHUTDOWN
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import GROUP, Transacting, committed_offset, settled
from wire.api import ApiKey
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.internal import CONSUMER_OFFSETS

pytestmark = pytest.mark.slow

PARTITIONS = 10
PROPERTIES = {"offsets.topic.num.partitions": PARTITIONS}
GROUPS = {f"{number * number} readers of t": 100 + number for number in range(60)}


@pytest.fixture(params=VERSIONS)
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApacheKafka]:
    if reason := reason_to_skip(request.param):
        pytest.skip(reason)
    with ApacheKafka(request.param, tmp_path / "kafka", properties=PROPERTIES) as kafka:
        yield kafka


@contextmanager
def speaking(address: str) -> Iterator[Speaker]:
    host, _, port = address.partition(":")
    speaker = Speaker(host, int(port))
    yield speaker
    speaker.socket.close()


def prepare(address: str) -> None:
    """The topics, before their logs come."""
    with speaking(address) as speaker:
        speaker.create("t")
        Transacting(speaker, "").find("anybody", GROUP)


def commit_all(address: str) -> None:
    with speaking(address) as speaker:
        for group, offset in GROUPS.items():
            one = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=""
            )
            topics = [OffsetCommitRequestTopic(name="t", partitions=[one])]
            request = OffsetCommitRequest(group_id=group, topics=topics)

            def ask(request: OffsetCommitRequest = request) -> int:
                response = speaker.ask(request, ApiKey.OFFSET_COMMIT, 8)
                return int(response.topics[0].partitions[0].error_code)

            assert settled(ask) == 0


def found(address: str) -> dict[str, int]:
    with speaking(address) as speaker:
        for group in GROUPS:
            assert settled(lambda group=group: committed_offset(speaker, group, "t")[0]) == 0  # type: ignore[misc]
        return {group: committed_offset(speaker, group, "t")[1] for group in GROUPS}


def move(source: Path, target: Path) -> None:
    """Of stopped brokers."""
    for index in range(PARTITIONS):
        name = f"{CONSUMER_OFFSETS}-{index}"
        for path in (target / name).iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (source / name).iterdir():
            if path.name != "partition.metadata":
                shutil.copy2(path, target / name)
    (target / CLEAN_SHUTDOWN).unlink(missing_ok=True)


def test_from_kafka_to_us(kafka: ApacheKafka, tmp_path: Path) -> None:
    """Kafka was restarted: its logs are in later leader epochs than ours will be, and have to be written."""
    prepare(kafka.bootstrap)
    kafka.stop()
    kafka.start()
    commit_all(kafka.bootstrap)
    kafka.stop()
    with Broker(PROPERTIES, data=tmp_path / "ours") as broker:
        prepare(broker.bootstrap)
    move(kafka.log_dir, tmp_path / "ours")
    with Broker(PROPERTIES, data=tmp_path / "ours") as broker:
        assert found(broker.bootstrap) == GROUPS
        assert "earlier kbroker" not in broker.log
        commit_all(broker.bootstrap)
        assert found(broker.bootstrap) == GROUPS


def test_from_us_to_kafka(kafka: ApacheKafka, tmp_path: Path) -> None:
    with Broker(PROPERTIES, data=tmp_path / "ours") as broker:
        prepare(broker.bootstrap)
        commit_all(broker.bootstrap)
    prepare(kafka.bootstrap)
    kafka.stop()
    move(tmp_path / "ours", kafka.log_dir)
    kafka.start()
    assert found(kafka.bootstrap) == GROUPS
