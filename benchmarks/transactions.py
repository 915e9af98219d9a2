"""Commits per second, and a commit's CPU time in the broker: kbroker beside Apache Kafka 4.3.1.

    .venv/bin/python -m benchmarks.transactions [--seconds 5] [--version 1]

Each producer writes some records to a partition of its own and commits, again and again, in raw frames and
one request at a time, as a client does that waits for its commits; being told that something is still being
completed, it tries again 2 ms later. Producers are threads on one core, the broker has the other to itself;
with many producers the client may be the limit, so the CPU time says more. Version 2 is the protocol of new
clients, version 1 that of old ones. kbroker runs without fsync (`kbroker.flush=never`), as Kafka does, and
once more with its default, which makes every step of a transaction durable.

The last line is what a reader of committed data waits for: from the first request of a transaction of one
record to the moment in which the record is read.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

from benchmarks.load import brokers
from benchmarks.load.brokers import BrokerFailed, RunningBroker
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import READ_COMMITTED, WAIT, Transacting

LOADS = ((1, 1), (1, 10), (1, 1000), (8, 1), (8, 10))
"""Producers, and records per transaction."""

PAUSE_S = 0.002
WARM_S = 3.0
READS = 100
TOPIC = "t"
PARTITIONS = 8

BROKERS: dict[str, Callable[[], AbstractContextManager[RunningBroker]]] = {
    "Apache Kafka": brokers.kafka,
    "kbroker": brokers.kbroker,
    "kbroker, durable": partial(brokers.kbroker, flush="auto"),
}


class Row(NamedTuple):
    """What a broker did with a load."""

    commits_per_s: float
    cpu_ms: float
    """Of the broker, per commit."""


def patiently(ask: Callable[[], int]) -> None:
    while code := ask():
        assert code in WAIT, code
        time.sleep(PAUSE_S)


def transact(one: Transacting, partition: int, records: int) -> None:
    if one.version < 2:
        patiently(lambda: one.add(TOPIC, partition)[0])
    data = one.data(TOPIC, *[b"x" * 100] * records, partition=partition)
    patiently(lambda: one.send_data(TOPIC, data, partition)[0])
    one.sequences[TOPIC, partition] = one.sequences.get((TOPIC, partition), 0) + records
    patiently(lambda: one.end(is_commit=True))


def measured(broker: RunningBroker, producers: list[Transacting], records: int, seconds: float) -> Row:
    counts = [0] * len(producers)
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        while time.monotonic() < end:
            transact(producers[number], number, records)
            counts[number] += 1

    began, cpu_s = time.monotonic(), broker.cpu_s
    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(producers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    commits = sum(counts)
    return Row(commits / (time.monotonic() - began), (broker.cpu_s - cpu_s) * 1000 / commits)


def added_latency_ms(speaker: Speaker, one: Transacting) -> float:
    """The median, with a fetch that waits."""
    found = []
    for _ in range(READS):
        end = speaker.offset(TOPIC, -1).offset
        began = time.monotonic()
        transact(one, 0, 1)
        while not speaker.fetch(TOPIC, end, isolation_level=READ_COMMITTED, max_wait_ms=100).records:
            pass
        found.append((time.monotonic() - began) * 1000)
    return statistics.median(found)


def column(name: str, version: int, seconds: float) -> tuple[list[Row], float]:
    with BROKERS[name]() as broker, brokers.on_cores(brokers.cores()[1]):
        speaker = Speaker("127.0.0.1", broker.port)
        speaker.create(TOPIC, partitions=PARTITIONS)
        ones = [
            Transacting(Speaker("127.0.0.1", broker.port), f"x{number}", version).initialized()
            for number in range(PARTITIONS)
        ]
        wait_for_leaders(ones)
        measured(broker, ones, 1, WARM_S)
        rows = [measured(broker, ones[:producers], records, seconds) for producers, records in LOADS]
        latency_ms = added_latency_ms(speaker, ones[0])
        for each in (speaker, *(one.speaker for one in ones)):
            each.socket.close()
    return rows, latency_ms


def wait_for_leaders(ones: Iterable[Transacting]) -> None:
    """A topic that was just created may not be led yet."""
    for number, one in enumerate(ones):
        while one.speaker.offset(TOPIC, -1, number).error_code:
            time.sleep(PAUSE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--version", type=int, default=2, choices=(1, 2))
    options = parser.parse_args()
    found = {}
    for name in BROKERS:
        try:
            found[name] = column(name, options.version, options.seconds)
        except BrokerFailed as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    reference, _ = next(iter(found.values()))
    print(f"{'commits per second':24}" + "".join(f"{name:>28}" for name in found))
    for number, (producers, records) in enumerate(LOADS):
        print(f"{producers} x {records} records".ljust(24), end="")
        for rows, _ in found.values():
            row, other = rows[number], reference[number]
            ratio = row.commits_per_s / other.commits_per_s
            print(f"{row.commits_per_s:10.0f} ({ratio:.2f}) {row.cpu_ms:6.2f} ms CPU", end="")
        print()
    print("latency, median".ljust(24) + "".join(f"{latency_ms:25.1f} ms" for _, latency_ms in found.values()))


if __name__ == "__main__":
    main()
