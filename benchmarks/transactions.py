"""Commits per second, a commit's CPU time in the broker, and what readers of committed data wait for.

    .venv/bin/python -m benchmarks.transactions [--quick] [--version 1] [--rounds 5]

kbroker beside Apache Kafka 4.3.1 under the same load, taking turns; figures are medians over the rounds, and
ratios to Kafka's. Each producer writes some records of 100 bytes to a partition of its own and commits, again
and again, in raw frames and one request at a time, as a client does that waits for its commits; being told
that something is still being completed, it tries again 2 ms later. Producers are threads on one core, each
broker has the other. Before anything counts every broker has done 20,000 transactions, or two minutes of
them, so that the JVM has compiled what is measured; how many it were is said.

Version 2 is the protocol of new clients, version 1 that of old ones. kbroker runs without fsync
(`kbroker.flush=never`), as Kafka does, and once more with its default, which makes every step of a
transaction durable: those figures say how fast the disk is.

Added latency: two readers wait for the same record of a transaction, one for committed data and one for any.
By how much later does the first one get it, and how long after the first request of the transaction?
"""

from __future__ import annotations

import argparse
import math
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from benchmarks.load import brokers
from benchmarks.load.brokers import BrokerFailed, RunningBroker
from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.transacting import READ_COMMITTED, WAIT, Transacting

KAFKA, OURS, DURABLE = "Apache Kafka", "kbroker", "kbroker, durable"
WAITING = "committed data: later than any; from the first request"
LOADS = ((1, 1), (1, 10), (1, 1000), (8, 1), (8, 10), (8, 1000))
"""Producers, and records per transaction."""

WARM_AT_MOST_S = 120.0
PAUSE_S = 0.002
PARKED_S = 0.005
"""After it a reader's fetch waits in the broker."""
READS = 50
TOPIC = "t"
PARTITIONS = 8
SEGMENT_BYTES = 32 << 20
ANY = 0
LATEST = -1
CRC_AT, CRC_FROM, PRODUCER_AT = 17, 21, 43

BROKERS: dict[str, Callable[[], AbstractContextManager[RunningBroker]]] = {
    KAFKA: brokers.kafka,
    OURS: brokers.kbroker,
    DURABLE: partial(brokers.kbroker, flush="auto"),
}


class Effort(NamedTuple):
    """How long it takes."""

    warm: int
    """Transactions of each broker before anything counts."""
    rounds: int
    seconds: float
    """For each load, each time."""


THOROUGH = Effort(warm=20_000, rounds=5, seconds=4)
QUICK = Effort(warm=600, rounds=1, seconds=1)


class Row(NamedTuple):
    """What a broker did with a load, or how long its readers waited."""

    fast: float
    """Commits per second; milliseconds that committed data come later."""
    cost: float
    """The broker's milliseconds of CPU per commit; milliseconds of the whole transaction until it is read."""


class Producer:
    """Transactions of so many records, one after the other, in a partition of its own."""

    def __init__(self, port: int, number: int, version: int) -> None:
        self._one = Transacting(Speaker("127.0.0.1", port), f"x{number}", version).initialized()
        self._partition = number
        self._sequence = 0
        while self._one.speaker.offset(TOPIC, LATEST, number).error_code:
            time.sleep(PAUSE_S)  # it was just created

    def transact(self, template: bytearray, records: int) -> None:
        one, partition = self._one, self._partition
        if one.version < 2:
            patiently(lambda: one.add(TOPIC, partition)[0])
        before = one.producer_id, one.epoch
        struct.pack_into(">qhi", template, PRODUCER_AT, *before, self._sequence)
        struct.pack_into(">I", template, CRC_AT, crc32c(memoryview(template)[CRC_FROM:]))
        data = bytes(template)
        patiently(lambda: one.send_data(TOPIC, data, partition)[0])
        patiently(lambda: one.end(is_commit=True))
        self._sequence = self._sequence + records if before == (one.producer_id, one.epoch) else 0

    def close(self) -> None:
        self._one.speaker.socket.close()


def until(transactions: float, end: float) -> Callable[[int], bool]:
    """So many are done, or it is time."""
    return lambda done: done >= transactions or time.monotonic() > end


def patiently(ask: Callable[[], int]) -> None:
    while code := ask():
        assert code in WAIT, code
        time.sleep(PAUSE_S)


def template_of(records: int) -> bytearray:
    return bytearray(batch(*[b"x" * 100] * records, key=None, producer_id=0, transactional=True))


class Bench:
    """A broker that is measured, with its clients."""

    def __init__(self, broker: RunningBroker, version: int) -> None:
        self._broker = broker
        self._readers = [Speaker("127.0.0.1", broker.port) for _ in (ANY, READ_COMMITTED)]
        self._readers[0].create(TOPIC, partitions=PARTITIONS, segment_bytes=SEGMENT_BYTES)
        self._producers = [Producer(broker.port, number, version) for number in range(PARTITIONS)]

    def close(self) -> None:
        for reader in self._readers:
            reader.socket.close()
        for producer in self._producers:
            producer.close()

    def warm(self, transactions: int) -> None:
        """Mostly with single records: what has to be compiled is the transaction."""
        done = 0
        end = time.monotonic() + WARM_AT_MOST_S
        for records, share in ((1000, 0.05), (10, 0.25), (1, 0.7)):
            done += self._run(PARTITIONS, records, until(transactions * share, end))
        self.waiting()
        self._make_room()
        print(f"{self._broker.name} is warm after {done} transactions", file=sys.stderr, flush=True)

    def commits(self, producers: int, records: int, seconds: float) -> Row:
        end = time.monotonic() + seconds
        began, cpu_s = time.monotonic(), self._broker.cpu_s
        commits = self._run(producers, records, until(math.inf, end))
        row = Row(commits / (time.monotonic() - began), (self._broker.cpu_s - cpu_s) * 1000 / commits)
        self._make_room()
        return row

    def _make_room(self) -> None:
        """The disk need not hold more than one measurement."""
        for partition in range(PARTITIONS):
            self._readers[0].delete_records(TOPIC, -1, partition)

    def _run(self, producers: int, records: int, is_over: Callable[[int], bool]) -> int:
        """Transactions, until it is over after so many of them all."""
        counts = [0] * producers

        def work(number: int) -> None:
            template = template_of(records)
            while not is_over(sum(counts)):
                self._producers[number].transact(template, records)
                counts[number] += 1

        with ThreadPoolExecutor(producers) as pool:
            for done in [pool.submit(work, number) for number in range(producers)]:
                done.result()
        return sum(counts)

    def waiting(self) -> Row:
        template = template_of(1)
        added, whole = [], []
        with ThreadPoolExecutor(len(self._readers)) as pool:
            for _ in range(READS):
                end = self._readers[0].offset(TOPIC, LATEST).offset
                reading = [
                    pool.submit(first_seen, reader, end, isolation)
                    for isolation, reader in enumerate(self._readers)
                ]
                time.sleep(PARKED_S)
                began = time.monotonic()
                self._producers[0].transact(template, 1)
                by_any, by_committed = (one.result() for one in reading)
                added.append((by_committed - by_any) * 1000)
                whole.append((by_committed - began) * 1000)
        return Row(statistics.median(added), statistics.median(whole))


def first_seen(reader: Speaker, offset: int, isolation: int) -> float:
    """When a record at this offset or later was read."""
    while not reader.fetch(TOPIC, offset, isolation_level=isolation, max_wait_ms=1000).records:
        pass
    return time.monotonic()


Column = dict[str, list[Row]]


def measured(names: Iterable[str], version: int, effort: Effort) -> dict[str, Column]:
    """They run side by side, and take turns."""
    columns: dict[str, Column] = {}
    benches: dict[str, Bench] = {}
    with ExitStack() as stack:
        stack.enter_context(brokers.on_cores(brokers.cores()[1]))
        for name in names:
            try:
                benches[name] = stack.enter_context(
                    closing(Bench(stack.enter_context(BROKERS[name]()), version))
                )
            except BrokerFailed as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
        for name, bench in benches.items():
            bench.warm(effort.warm)
            columns[name] = {}
        for _ in range(effort.rounds):
            for producers, records in LOADS:
                for name, bench in benches.items():
                    row = bench.commits(producers, records, effort.seconds)
                    report(name, columns[name], f"{producers} x {records:,}", row)
            for name, bench in benches.items():
                report(name, columns[name], WAITING, bench.waiting())
    return columns


def report(name: str, column: Column, label: str, row: Row) -> None:
    """As it goes along."""
    column.setdefault(label, []).append(row)
    print(f"{name}: {label}: {row.fast:.1f}, {row.cost:.2f} ms", file=sys.stderr, flush=True)


def print_table(columns: dict[str, Column]) -> None:
    """In Markdown. Ratios are of each round, and kbroker's to Kafka's."""
    print("| producers x records | " + " | ".join(f"{name}, commits/s; CPU" for name in columns), end=" |")
    print(" commits/s, of Kafka's | CPU, of Kafka's |" if {KAFKA, OURS} <= columns.keys() else "")
    print("|---" * (len(columns) + (3 if {KAFKA, OURS} <= columns.keys() else 1)) + "|")
    for label in next(iter(columns.values())):
        cells = [cell(label, column[label]) for column in columns.values()]
        if {KAFKA, OURS} <= columns.keys():
            cells += ratios(columns[OURS][label], columns[KAFKA][label])
        print(f"| {label} | {' | '.join(cells)} |")


def cell(label: str, rows: list[Row]) -> str:
    fast, cost = (statistics.median(each) for each in zip(*rows, strict=True))
    return f"{fast:.1f} ms; {cost:.1f} ms" if label == WAITING else f"{fast:,.0f}; {cost:.2f} ms"


def ratios(ours: list[Row], theirs: list[Row]) -> list[str]:
    pairs = list(zip(ours, theirs, strict=True))
    return [
        f"**{statistics.median(mine[index] / other[index] for mine, other in pairs):.2f}**"
        for index in (0, 1)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="half a minute, with a JVM that is hardly warm")
    parser.add_argument("--version", type=int, default=2, choices=(1, 2))
    parser.add_argument("--rounds", type=int, help="instead of the usual number")
    options = parser.parse_args()
    effort = QUICK if options.quick else THOROUGH
    if options.rounds:
        effort = effort._replace(rounds=options.rounds)
    columns = measured([name for name in BROKERS if name != DURABLE], options.version, effort)
    columns |= measured([DURABLE], options.version, effort._replace(warm=QUICK.warm))
    print_table(columns)


if __name__ == "__main__":
    main()
