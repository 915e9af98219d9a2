"""Brokers in real processes that may open few files: `ulimit -n`."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.timestamps import LATEST
from tests.kbroker.harness import WAIT_S
from tests.kbroker.speaker import Speaker, batch
from wire.api import ApiKey
from wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from wire.api.metadata import MetadataRequest
from wire.errors import ErrorCode

LONG_S = 120


class LimitedBroker:
    """`kbroker start` with at most so many open files."""

    def __init__(self, directory: Path, most: int, *options: str) -> None:
        command = [sys.executable, "-m", "kbroker", "start", "--listener", "PLAINTEXT://127.0.0.1:0"]
        self.log = directory / "broker.log"
        with self.log.open("a") as stderr:
            self.process = subprocess.Popen(
                [*command, "--data", str(directory / "data"), *options],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, most)),
            )
        assert self.process.stdout is not None
        ready = re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert ready is not None, self.log.read_text()
        self.address = "127.0.0.1", int(ready[1])

    def speaker(self) -> Speaker:
        speaker = Speaker(*self.address)
        speaker.socket.settimeout(LONG_S)
        return speaker

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=LONG_S)
        return self.process.returncode


@contextmanager
def limited(directory: Path, most: int, *options: str) -> Iterator[LimitedBroker]:
    broker = LimitedBroker(directory, most, *options)
    try:
        yield broker
        assert broker.end(signal.SIGTERM) == 0
    finally:
        if broker.process.poll() is None:
            broker.end(signal.SIGKILL)


def create(speaker: Speaker, partitions: int, *names: str) -> None:
    """All topics in one request, waiting until each partition has a leader."""
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=LONG_S * 1000, validate_only=False)
    reply = speaker.ask(request, ApiKey.CREATE_TOPICS, 7)
    assert [topic.error_code for topic in reply.topics] == [0] * len(names), reply
    deadline = time.monotonic() + LONG_S
    while led(speaker) < partitions * len(names):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def led(speaker: Speaker) -> int:
    reply = speaker.ask(MetadataRequest(topics=None), ApiKey.METADATA, 12)
    return sum(
        one.leader_id >= 0 and not one.error_code for topic in reply.topics for one in topic.partitions
    )


def ends(speaker: Speaker, topic: str, partitions: int) -> Counter[int]:
    """How many partitions end at which offset."""
    return Counter(speaker.offset(topic, LATEST, partition).offset for partition in range(partitions))


@pytest.mark.slow
def test_fifteen_topics_need_no_more_than_64_files(tmp_path: Path) -> None:
    """Each is written to, read, and there after kill -9."""
    names = [f"t{number}" for number in range(15)]
    broker = LimitedBroker(tmp_path, 64)
    speaker = broker.speaker()
    create(speaker, 4, *names)
    for name in names:
        for partition in range(4):
            assert speaker.produce(name, batch(b"value"), partition=partition).error_code == 0
    assert broker.open_files() <= 64
    speaker.socket.close()
    broker.end(signal.SIGKILL)
    with limited(tmp_path, 64) as broker:
        speaker = broker.speaker()
        assert [ends(speaker, name, 4) for name in names] == [{1: 4}] * 15
        speaker.socket.close()
    assert "ERROR" not in broker.log.read_text()


def test_a_limit_that_is_too_low_is_one_line(tmp_path: Path) -> None:
    command = f"ulimit -n 40; exec {sys.executable} -m kbroker start --data {tmp_path / 'data'}"
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "kbroker: cannot start: ulimit -n is 40: a broker needs at least 64 open files"
    ]


@pytest.mark.slow
def test_two_thousand_partitions_work_with_1024_files(tmp_path: Path) -> None:
    """Made by one request, written to, recovered after kill -9, and closed cleanly."""
    many = 2000
    broker = LimitedBroker(tmp_path, 1024)
    speaker = broker.speaker()
    create(speaker, many, "t")
    for partition in range(0, many, 5):
        assert speaker.produce("t", partition=partition).error_code == 0
    assert broker.open_files() <= 1024
    speaker.socket.close()
    broker.end(signal.SIGKILL)
    with limited(tmp_path, 1024) as broker:
        speaker = broker.speaker()
        assert ends(speaker, "t", many) == {0: 1600, 1: 400}
        for partition in range(0, many, 50):
            assert speaker.produce("t", partition=partition).error_code == 0
        speaker.socket.close()
    with limited(tmp_path, 1024) as broker:
        speaker = broker.speaker()
        assert ends(speaker, "t", many) == {0: 1600, 1: 360, 2: 40}
        speaker.socket.close()
    assert "ERROR" not in broker.log.read_text()
    assert "recovering the log" not in broker.log.read_text()


def test_a_topic_for_which_there_is_no_descriptor_is_refused_with_a_reason() -> None:
    """In a process of its own, which has used them all up."""
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, timeout=LONG_S, check=False
    )
    code, message = done.stdout.split(maxsplit=1)
    assert int(code) == ErrorCode.POLICY_VIOLATION, done.stderr
    assert message == "No file can be opened for more partitions: 128 are open already (see ulimit -n)\n"


EXHAUSTED = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from kbroker.open_files import check_that_one_is_left
from storage.descriptors import Descriptors
from wire.errors import KafkaError
check_that_one_is_left(Descriptors())
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    pass
try:
    check_that_one_is_left(Descriptors())
except KafkaError as error:
    print(int(error.code), error)
"""

SCENARIO = """
import asyncio, os, resource, sys, time
from kbroker.broker import Broker
from kbroker.listeners import Listeners

async def scenario():
    broker = Broker(Listeners.on("127.0.0.1", 0))
    await broker.start()
    host, port = broker.address
    hoard = []
    try:
        while True:
            hoard.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    os.close(hoard.pop())  # for the client's own socket: none is left to accept it with
    reader, writer = await asyncio.open_connection(host, port)
    used, began = time.process_time(), time.monotonic()
    await asyncio.sleep(1.5)
    busy = (time.process_time() - used) / (time.monotonic() - began)
    for descriptor in hoard:
        os.close(descriptor)
    writer.close()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write((4 + 10).to_bytes(4, "big") + bytes([0, 18, 0, 0, 0, 0, 0, 7, 0, 4]) + b"test")
    size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 20), "big")
    reply = await asyncio.wait_for(reader.readexactly(size), 20)
    writer.close()
    await broker.stop()
    print(busy < 0.5, reply[:6] == bytes([0, 0, 0, 7, 0, 0]))

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
if sys.argv[1] == "uvloop":
    import uvloop
    loop_factory = uvloop.new_event_loop
else:
    loop_factory = asyncio.new_event_loop
with asyncio.Runner(loop_factory=loop_factory) as runner:
    runner.run(scenario())
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_without_a_descriptor_neither_stops_nor_spins_the_loop(loop: str) -> None:
    """Once there are some again, connections are accepted."""
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO, loop], capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert done.stdout.split() == ["True", "True"], done.stderr
