"""One measurement: the load generator runs, the broker's CPU time is read right before and right after."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.load.brokers import RunningBroker, built, cores, on_cores
from benchmarks.load.client import Client, Unexpected
from benchmarks.load.workloads import (
    FILLED_BYTES,
    SMALL_BYTES,
    TOPIC,
    Load,
    Row,
    batch,
    fetch_frame,
    prepared,
    produce_frame,
)

GIGABYTE = 1e9
MANY_REQUESTS = 100_000
LEAST_S = 0.2
FEW_ROUNDS = 5
CLEARLY = 0.95
SOME_OFFSET = 0x1122334455667788
SOME_BYTES = bytes(1 << 20)
USED_BYTES = 2 * FILLED_BYTES


class Measured(NamedTuple):
    """What one row took on one broker."""

    cpu_s: float
    """Per gigabyte of values, or per 100,000 requests: the least of all rounds."""
    rate: float
    """MB/s or requests/s: the most."""
    p50_ms: float
    p99_ms: float


def run_loadgen(broker: RunningBroker, *arguments: object) -> tuple[float, dict[str, Any]]:
    """The broker's CPU time while it ran, and what it found."""
    command = [str(built("loadgen")), str(arguments[0]), "-address", f"127.0.0.1:{broker.port}"]
    command += map(str, arguments[1:])
    pipe = subprocess.PIPE
    with on_cores(cores()[1]):
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise Unexpected(process.stderr.read())
            before = broker.cpu_s
            process.stdin.write("go\n")
            process.stdin.flush()
            line = process.stdout.readline()
            cpu_s = broker.cpu_s - before
            if not line:
                raise Unexpected(process.stderr.read())
            return cpu_s, json.loads(line)
        finally:
            process.kill()


class Terms(NamedTuple):
    """How long a broker is measured."""

    seconds: float
    """Of one round."""
    rounds: int
    warm_s: float
    """Before what counts."""
    most_warm_s: float = 0
    """Of a broker that compiles itself while it works: as long as it becomes better, at most so long."""


def measure(broker: RunningBroker, row: Row, terms: Terms) -> Measured:
    with broker.client() as client:

        def one_round(most_s: float) -> tuple[Measured, float]:
            with prepared(client, row) as load:
                if row.produces:
                    use_memory()
                return replay(broker, client, load, most_s)

        return best_of_rounds(one_round, terms)


def measure_bare(loop: RunningBroker, load: Load, terms: Terms) -> Measured:
    """What knows no messages, and so cannot be asked what has become of them."""

    def one_round(most_s: float) -> tuple[Measured, float]:
        use_memory()
        return replay(loop, None, load, most_s)

    return best_of_rounds(one_round, terms)


def best_of_rounds(one_round: Callable[[float], tuple[Measured, float]], terms: Terms) -> Measured:
    """The best of some rounds, after a broker had time to warm up."""
    warm_s, warming = 0.0, list[float]()
    while warm_s < terms.warm_s or (warm_s < terms.most_warm_s and becomes_better(warming)):
        one, took_s = one_round(min(terms.seconds, max(terms.warm_s - warm_s, LEAST_S)))
        warm_s += max(took_s, LEAST_S)
        warming.append(one.cpu_s)
    return best([one_round(terms.seconds)[0] for _ in range(terms.rounds)])


def becomes_better(cpu_s: Sequence[float]) -> bool:
    """Whether any of the last few rounds took clearly less than all before them."""
    before, last = cpu_s[:-FEW_ROUNDS], cpu_s[-FEW_ROUNDS:]
    return not before or min(last) < CLEARLY * min(before)


def use_memory() -> None:
    """Write as much to the page cache as a round does, and free it for whoever writes next.

    In a virtual machine memory that is new to the kernel, or was long unused, costs whoever gets it the work
    of the host: 1.5 CPU seconds per GB, where writing costs 0.2. Which broker gets such memory is chance.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(USED_BYTES // len(SOME_BYTES)):
            file.write(SOME_BYTES)


def replay(
    broker: RunningBroker, client: Client | None, load: Load, seconds: float
) -> tuple[Measured, float]:
    """`client` asks whether it was done; without one there is nobody to ask."""
    options: list[object] = ["-seconds", seconds, "-requests", load.most_requests]
    options += ["-connections", load.connections, "-in-flight", load.in_flight]
    with tempfile.NamedTemporaryFile(suffix=".frames") as file:
        file.write(b"".join(load.frames))
        file.flush()
        options += ["-frames", file.name, *(["-once"] if load.once else [])]
        cpu_s, result = run_loadgen(broker, "replay", *options)
    requests, took_s = result["requests"], result["seconds"]
    if load.records and client is not None:
        ends = client.end_offsets(TOPIC, load.partitions)
        if ends != [requests * load.records] * load.partitions:
            raise Unexpected(f"after {requests} times {load.records} records the partitions end at {ends}")
    if result["reply_bytes"] < requests * load.reply_bytes:
        raise Unexpected(f"{requests} requests brought only {result['reply_bytes']} bytes")
    times = result["p50_ms"], result["p99_ms"]
    if load.value_bytes:
        value_bytes = requests * load.value_bytes
        return Measured(cpu_s / value_bytes * GIGABYTE, value_bytes / took_s / 1e6, *times), took_s
    return Measured(cpu_s / requests * MANY_REQUESTS, requests / took_s, *times), took_s


def best(found: Sequence[Measured]) -> Measured:
    """Of every figure by itself: what disturbs a measurement makes it worse, never better."""
    return Measured(
        min(one.cpu_s for one in found),
        max(one.rate for one in found),
        min(one.p50_ms for one in found),
        min(one.p99_ms for one in found),
    )


def latency(broker: RunningBroker, rate: int, terms: Terms) -> Measured:
    """From the producer's write to the consumer's read, at a steady rate of single records."""
    one_batch = batch(SMALL_BYTES, 1)
    fetch = fetch_frame({0: SOME_OFFSET}, max_wait_ms=500)
    offset_at = fetch.index(SOME_OFFSET.to_bytes(8, "big"))
    with tempfile.TemporaryDirectory() as directory, broker.client() as client:
        produce_file, fetch_file = Path(directory, "produce"), Path(directory, "fetch")
        produce_file.write_bytes(produce_frame(one_batch))
        fetch_file.write_bytes(fetch)
        client.create_topic(TOPIC, 1)

        def one_round(duration: float) -> tuple[Measured, float]:
            options: list[object] = ["-produce", produce_file, "-fetch", fetch_file, "-rate", rate]
            options += ["-offset-at", offset_at, "-batch", len(one_batch), "-seconds", duration]
            options += ["-first-offset", client.end_offsets(TOPIC, 1)[0]]
            cpu_s, result = run_loadgen(broker, "latency", *options)
            requests, took_s = result["requests"], result["seconds"]
            times = result["p50_ms"], result["p99_ms"]
            return Measured(cpu_s / requests * MANY_REQUESTS, requests / took_s, *times), took_s

        found = best_of_rounds(one_round, terms)
        client.delete_topic(TOPIC)
    return found
