"""DescribeLogDirs and AlterReplicaLogDirs, on a broker with two data directories.

What is answered was measured on Kafka 4.3.1 with two directories, too; it then moves logs, and we do not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.commands.start import make_broker
from kbroker.configuration.layers import Configuration
from kbroker.listeners import Listeners
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import Speaker, batch
from wire.api import ApiKey
from wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from wire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from wire.errors import ErrorCode

Two = tuple[Speaker, list[str]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """A broker with the topic t of three partitions in two directories, and these."""
    root = tmp_path_factory.mktemp("broker")
    other = root / "other"
    broker = BrokerProcess(root / "broker.log", "--data", str(other))
    speaker = Speaker(broker.host, broker.port)
    speaker.create("t", 3)
    yield speaker, [str(root / "broker.data"), str(other)]
    speaker.socket.close()
    assert broker.stop() == 0


def describe(speaker: Speaker, version: int = 5, **partitions: list[int]) -> Any:
    topics = [DescribableLogDirTopic(topic=name, partitions=those) for name, those in partitions.items()]
    return speaker.ask(DescribeLogDirsRequest(topics=topics or None), ApiKey.DESCRIBE_LOG_DIRS, version)


def found(reply: Any) -> dict[tuple[str, int], str]:
    """In which directory each log is."""
    return {
        (topic.name, log.partition_index): result.log_dir
        for result in reply.results
        for topic in result.topics
        for log in topic.partitions
    }


def sizes(reply: Any) -> dict[int, int]:
    return {
        log.partition_index: log.partition_size
        for result in reply.results
        for topic in result.topics
        for log in topic.partitions
    }


@pytest.mark.parametrize("version", range(6))
def test_every_directory_tells_its_logs_and_their_sizes(two: Two, version: int) -> None:
    speaker, directories = two
    data = batch(b"x" * 1000)
    before = sizes(describe(speaker))[1]
    assert speaker.produce("t", data, partition=1).error_code == 0
    reply = describe(speaker, version)
    assert [result.log_dir for result in reply.results] == directories
    assert {reply.error_code, *(result.error_code for result in reply.results)} == {0}
    assert sorted(found(reply)) == [("t", 0), ("t", 1), ("t", 2)]
    assert set(found(reply).values()) == set(directories)
    assert sizes(reply)[1] == before + len(data)
    logs = [log for result in reply.results for topic in result.topics for log in topic.partitions]
    assert all((log.offset_lag, log.is_future_key) == (0, False) for log in logs)


def test_the_volume_is_described_from_v4_on(two: Two) -> None:
    speaker, _ = two
    for result in describe(speaker, 4).results:
        assert result.total_bytes > result.usable_bytes > 0
    assert [result.total_bytes for result in describe(speaker, 3).results] == [-1, -1]


def test_only_what_is_asked_for_and_is_here_is_told(two: Two) -> None:
    speaker, _ = two
    assert set(found(describe(speaker, t=[0, 9], unknown=[0]))) == {("t", 0)}
    assert found(describe(speaker, t=[])) == {}
    reply = speaker.ask(DescribeLogDirsRequest(topics=[]), ApiKey.DESCRIBE_LOG_DIRS, 4)
    assert (len(reply.results), found(reply)) == (2, {})


def test_directories_are_named_from_the_root() -> None:
    """As Kafka names them, wherever the broker was started."""
    configuration = Configuration({"log.dirs": "here,/there"})
    broker = make_broker(configuration, Listeners.on("127.0.0.1", 0))
    assert [directory.path for directory in broker.logs.directories] == [os.path.abspath("here"), "/there"]


def test_a_directory_that_failed_says_so_and_nothing_else(tmp_path: Path) -> None:
    with Hosting(tmp_path / "data") as hosting:
        hosting.host()
        hosting.do(lambda: hosting.broker.logs.directories[0].fail(OSError(5, "gone")))
        request = DescribeLogDirsRequest(topics=None)
        [result] = hosting.ask(request, ApiKey.DESCRIBE_LOG_DIRS, 4).results
        assert (result.error_code, result.topics, result.total_bytes, result.usable_bytes) == (
            ErrorCode.KAFKA_STORAGE_ERROR,
            [],
            -1,
            -1,
        )


@pytest.mark.parametrize("version", [1, 2])
def test_logs_stay_where_they_are(two: Two, version: int) -> None:
    speaker, directories = two
    before = found(describe(speaker))
    here = before["t", 0]
    [there] = set(directories) - {here}

    def move(path: str, topic: str, *partitions: int) -> list[int]:
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        [result] = speaker.ask(request, ApiKey.ALTER_REPLICA_LOG_DIRS, version).results
        return [one.error_code for one in result.partitions]

    assert move("/nowhere", "t", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(here, "t", 0, 9) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert move(there, "t", 0) == [ErrorCode.INVALID_REQUEST]
    assert move(there, "unknown", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert found(describe(speaker)) == before
