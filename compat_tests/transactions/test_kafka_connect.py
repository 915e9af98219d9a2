"""Kafka Connect copies a file into a topic, exactly once; the worker is killed, and then the broker.

A distributed worker of Apache Kafka 4.3.1 with its own FileStreamSource, and everything it is made of: topics
of its own that are written in transactions, a producer for each task, and the fencing of those of a dead
worker. A source writes records and its offsets in the file in one transaction.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache_kafka import CACHE, java_command, reason_to_skip
from compat_tests.transactions.freezing import frozen_in_a_transaction
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import markers, read_committed
from tests.processes import END_WITH_US, free_ports

KAFKA = "4.3.1"
CLIENT = f"Kafka Connect {KAFKA}"
FILE_SOURCE = CACHE / "kafka" / f"connect-file-{KAFKA}.jar"
WHY_NOT = reason_to_skip(KAFKA) or ("" if FILE_SOURCE.exists() else "`make setup-tests` fetches Connect")
PATIENCE_S = 120
STEP = 300
"""Lines that are copied between one event and the next."""

SETTINGS = (
    *("--set", "group.initial.rebalance.delay.ms=0"),
    *("--set", "group.min.session.timeout.ms=1000"),
    *("--set", "transaction.abort.timed.out.transaction.cleanup.interval.ms=300"),
)
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
WORKER = {
    "group.id": "connect",
    "exactly.once.source.support": "enabled",
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "plugin.discovery": "only_scan",
    "session.timeout.ms": 3000,
    "heartbeat.interval.ms": 500,
    "scheduled.rebalance.max.delay.ms": 0,
    "producer.transaction.timeout.ms": 5000,  # so long a new worker waits for the offsets of one that died
    **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("offset", "config", "status")},
    **{f"{kind}.storage.replication.factor": 1 for kind in ("offset", "config", "status")},
    **{f"{kind}.storage.partitions": 1 for kind in ("offset", "status")},
}
SOURCE = {
    "connector.class": "FileStreamSource",
    "tasks.max": 1,
    "topic": "lines",
    "exactly.once.support": "required",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.feature("transactions"),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]


class Worker:
    """A process, and its REST interface."""

    def __init__(self, directory: Path, address: str) -> None:
        [port] = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self._log = directory / "worker.log"
        properties = {**WORKER, "bootstrap.servers": address, "listeners": self._url}
        path = directory / "worker.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = java_command(KAFKA, directory, level="WARN")
        command[-1] += os.pathsep + str(FILE_SOURCE)
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [*END_WITH_US, *command, main, str(path)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def check(self) -> None:
        assert self.process.poll() is None, self._log.read_text()[-4000:]

    def configure(self, name: str, config: dict[str, Any]) -> None:
        """As soon as it listens, and has become the leader of its group."""
        body = json.dumps(config).encode()
        request = urllib.request.Request(f"{self._url}/connectors/{name}/config", body, method="PUT")
        request.add_header("Content-Type", "application/json")

        def done() -> bool:
            self.check()
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_S):
                    return True
            except OSError:  # an HTTP error, too: its group is rebalancing
                return False

        until(done)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Lines:
    """A file of numbers that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def grow(self) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{number}\n" for number in range(self.count, self.count + 20))
        self.count += 20


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def copied(speaker: Speaker) -> list[int]:
    return [int(value or b"-1") for value in read_committed(speaker, "lines")]


def copy_more(speaker: Speaker, lines: Lines, worker: Worker) -> None:
    wanted = len(copied(speaker)) + STEP

    def is_copied() -> bool:
        worker.check()
        lines.grow()
        return len(copied(speaker)) >= wanted

    until(is_copied)


def freeze_in_a_transaction(speaker: Speaker, lines: Lines, worker: Worker) -> None:
    def is_frozen() -> bool:
        worker.check()
        lines.grow()
        return frozen_in_a_transaction(worker.process, speaker, "lines")

    until(is_frozen)


@contextmanager
def working(directory: Path, address: str) -> Iterator[Worker]:
    worker = Worker(directory, address)
    try:
        yield worker
    finally:
        worker.kill()


def test_a_file_is_copied_exactly_once_although_worker_and_broker_are_killed(tmp_path: Path) -> None:
    """Conformance 44, 47, 49, 89"""
    log = tmp_path / "broker.log"
    broker = BrokerProcess(log, *SETTINGS)
    speaker = Speaker(broker.host, broker.port)
    speaker.create("lines")
    lines = Lines(tmp_path / "lines.txt")
    lines.grow()
    with working(tmp_path, broker.address) as first:
        first.configure("file", {**SOURCE, "file": str(lines.path)})
        copy_more(speaker, lines, first)
        freeze_in_a_transaction(speaker, lines, first)
    with working(tmp_path, broker.address) as second:
        copy_more(speaker, lines, second)
        speaker.socket.close()
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(log, *SETTINGS, listener=f"PLAINTEXT://{broker.address}")
        speaker = Speaker(broker.host, broker.port)
        copy_more(speaker, lines, second)
        until(lambda: len(copied(speaker)) >= lines.count)
    assert copied(speaker) == list(range(lines.count))
    assert {outcome for _, _, outcome in markers(speaker, "lines")} == {"COMMIT", "ABORT"}
    speaker.socket.close()
    assert broker.stop() == 0
    assert "Traceback" not in log.read_text()
