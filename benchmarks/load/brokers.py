"""The brokers that are compared: kbroker, Apache Kafka, and kfake; each one a process pinned to one core.

`cpu_s` is what the kernel has charged the process with, all its threads, ended ones too, to the nanosecond.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.load.client import Client
from compat_tests.apache_kafka import ApacheKafka, reason_to_skip
from tests.processes import free_ports

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
KAFKA = "4.3.1"
STOP_TIMEOUT_S = 30

JVM = (
    "-server",
    "-Xms1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
)
"""How Kafka's own scripts start it."""

KAFKA_PROPERTIES = {
    "num.network.threads": 3,
    "num.io.threads": 8,
    "log.segment.delete.delay.ms": 1000,  # what one measurement wrote must not fill the disk for the next
}


class BrokerFailed(Exception):
    """A broker did not start."""


class RunningBroker:
    """A process that serves at `port` of 127.0.0.1."""

    def __init__(self, name: str, process_id: int, port: int) -> None:
        self.name = name
        self.port = port
        self._process_id = process_id

    @property
    def cpu_s(self) -> float:
        return cpu_s(self._process_id)

    def client(self) -> Client:
        return Client(self.port)

    @property
    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self._process_id}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_s(process_id: int) -> float:
    return time.clock_gettime((~process_id << 3) | 2)  # what clock_getcpuclockid gives


def cores() -> tuple[set[int], set[int]]:
    """For the broker and for the load: two different ones, where there are two."""
    available = sorted(os.sched_getaffinity(0))
    return {available[0]}, {available[-1]}


@contextmanager
def on_cores(wanted: set[int]) -> Iterator[None]:
    """Processes started here inherit the cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, wanted)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def kbroker(flush: str = "never") -> Iterator[RunningBroker]:
    with tempfile.TemporaryDirectory(prefix="kbroker-") as directory:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        command = [sys.executable, "-m", "kbroker", "start", "--listener", f"PLAINTEXT://{address}"]
        command += ["--data", directory, "--set", f"kbroker.flush={flush}"]
        command += ["--set", "log.segment.delete.delay.ms=1000"]
        with started("kbroker", command) as broker:
            yield broker


@contextmanager
def kfake() -> Iterator[RunningBroker]:
    port = free_ports(1)[0]
    with started("kfake", [str(built("kfake")), "-port", str(port)]) as broker:
        yield broker


@contextmanager
def bare() -> Iterator[RunningBroker]:
    """No broker at all: what `benchmarks.load.bare` says."""
    with tempfile.TemporaryDirectory(prefix="bare-") as directory:
        command = [sys.executable, "-m", "benchmarks.load.bare", directory]
        with started("the bare loop", command) as loop:
            yield loop


@contextmanager
def kafka() -> Iterator[RunningBroker]:
    if reason := reason_to_skip(KAFKA):
        raise BrokerFailed(reason)
    with ExitStack() as stack:
        stack.enter_context(on_cores(cores()[0]))
        broker = ApacheKafka(KAFKA, heap="1g", jvm=JVM, properties=KAFKA_PROPERTIES)
        stack.enter_context(broker)
        yield RunningBroker("Apache Kafka", broker.process_id, broker.ports[0])


@contextmanager
def started(name: str, command: list[str]) -> Iterator[RunningBroker]:
    """A process that says `ready on HOST:PORT` once it serves; ended by SIGTERM."""
    with on_cores(cores()[0]):
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    with process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            words = process.stdout.readline().rsplit(":", 1)
            if len(words) < 2:
                raise BrokerFailed(f"{name} did not start:\n{process.stderr.read()}")
            yield RunningBroker(name, process.pid, int(words[1].rstrip("]\n")))
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def built(program: str) -> Path:
    """A Go program of `benchmarks/`, built if need be into `.cache`."""
    source, target = ROOT / "benchmarks" / program, CACHE / program
    newest = max(path.stat().st_mtime for path in source.iterdir())
    if not target.exists() or target.stat().st_mtime < newest:
        if not shutil.which("go"):
            raise BrokerFailed(f"{program} has to be built, and there is no Go here")
        CACHE.mkdir(exist_ok=True)
        subprocess.run(["go", "build", "-o", str(target), "."], cwd=source, check=True)
    return target
