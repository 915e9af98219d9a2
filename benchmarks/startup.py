"""Starting, and what many partitions and connections cost: each figure beside what it has to be.

    .venv/bin/python -m benchmarks.startup [DIRECTORY]

A broker in a process of its own, with its defaults. Wall-clock times: on a busy machine they grow with its
load, so every round also says how long Python alone takes to start. Each figure is the best of its rounds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.kbroker.harness import BrokerProcess, RawClient
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from wire.api.metadata import MetadataRequest, MetadataRequestTopic

ROUNDS = 5
PARTITIONS = 1000
CONNECTIONS = 2000
TOPIC = "many"


def resident_kib(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


@contextlib.contextmanager
def running(directory: Path, *options: str) -> Iterator[tuple[BrokerProcess, float]]:
    """A broker, and how many milliseconds passed from exec to its first reply."""
    started = time.monotonic()
    broker = BrokerProcess(directory / "broker.log", *options)
    try:
        client = RawClient(broker.host, broker.port)
        client.ask(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
        took_ms = (time.monotonic() - started) * 1e3
        client.socket.close()
        yield broker, took_ms
    finally:
        broker.stop()


def best(measure: Callable[[], float], rounds: int = ROUNDS) -> float:
    return min(measure() for _ in range(rounds))


def python_ms() -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
    return (time.monotonic() - started) * 1e3


def empty_start(directory: Path) -> tuple[float, float]:
    """Milliseconds to the first reply, and MB resident then."""
    times, sizes = [], []
    for number in range(ROUNDS):
        empty = directory / f"empty{number}"
        empty.mkdir()
        with running(empty) as (broker, took_ms):
            times.append(took_ms)
            sizes.append(resident_kib(broker.process.pid) / 1024)
        shutil.rmtree(empty)
    return min(times), min(sizes)


def create_many(client: RawClient) -> float:
    topic = CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    started = time.monotonic()
    reply = client.ask(
        CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=False), ApiKey.CREATE_TOPICS, 7
    )
    if reply.topics[0].error_code:
        raise RuntimeError(f"{reply.topics[0]}")
    while not all_led(describe_many(client)):
        pass
    return (time.monotonic() - started) * 1e3


def describe_many(client: RawClient) -> object:
    return client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), ApiKey.METADATA, 12)


def all_led(reply: object) -> bool:
    partitions = reply.topics[0].partitions  # type: ignore[attr-defined]
    return len(partitions) == PARTITIONS and not any(one.error_code for one in partitions)


def metadata_ms(client: RawClient) -> float:
    """Without decoding the reply."""
    request = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), ApiKey.METADATA, 12)
    started = time.monotonic()
    client.send(request)
    client.receive()
    return (time.monotonic() - started) * 1e3


def connections_mb(broker: BrokerProcess) -> float:
    before = resident_kib(broker.process.pid)
    sockets = [socket.create_connection((broker.host, broker.port)) for _ in range(CONNECTIONS)]
    body = RawClient.request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
    for one in sockets:
        one.sendall(len(body).to_bytes(4) + body)
    for one in sockets:
        one.recv(1 << 16)
    after = resident_kib(broker.process.pid)
    for one in sockets:
        one.close()
    return (after - before) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        directory = Path(name)
        print(
            f"Python with asyncio alone starts in {best(python_ms):.0f} ms; load {os.getloadavg()[0]:.1f}\n"
        )
        print("| | measured | at most |")
        print("|---|---|---|")
        took_ms, resident_mb = empty_start(directory)
        print(f"| exec to the first ApiVersions reply, empty directory | {took_ms:.0f} ms | 300 ms |")
        print(f"| resident, idle | {resident_mb:.0f} MB | 60 MB |", flush=True)
        with running(directory) as (broker, _):
            print(f"| {CONNECTIONS:,} idle connections | {connections_mb(broker):.1f} MB | 30 MB |")
            client = RawClient(broker.host, broker.port)
            took_ms = create_many(client)
            print(f"| create a topic of {PARTITIONS:,} partitions, all led | {took_ms:.0f} ms | 3,000 ms |")
            took_ms = best(lambda: metadata_ms(client), 20)
            print(f"| its Metadata | {took_ms:.1f} ms | 15 ms |")
            resident_mb = resident_kib(broker.process.pid) / 1024
            print(f"| resident with them | {resident_mb:.0f} MB | |", flush=True)
            client.socket.close()
        with running(directory) as (_, took_ms):
            print(f"| reopen them after a clean stop | {took_ms:.0f} ms | 3,000 ms |", flush=True)


if __name__ == "__main__":
    main()
