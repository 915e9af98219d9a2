"""A whole broker beside others: kbroker, Apache Kafka 4.3.1 and kfake under the same load, one after another.

    .venv/bin/python -m benchmarks.broker [--quick] [--only BROKER ...] [ROW ...]

The load is raw: frames made beforehand, so that the broker is the limit, which has one core to itself and the
load another. What counts is the broker's CPU time, as wall time says more about the machine: per gigabyte of
record values, or per 100,000 requests. All brokers get the same requests and must answer every one as asked:
end offsets and reply sizes are checked. kbroker runs without fsync (`kbroker.flush=never`), as Kafka does;
the second table has its default beside it, which makes every acknowledged batch durable.

ROW is a part of a row's name, such as `fetch` or "Produce, 5". With confluent-kafka installed, the stock
client produces and consumes as well. Needs Go for the load and kfake, and Java and Kafka's jars for Kafka.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

from benchmarks.load import brokers, stock_client
from benchmarks.load.brokers import BrokerFailed, RunningBroker
from benchmarks.load.client import Unexpected
from benchmarks.load.measuring import Measured, latency, measure
from benchmarks.load.workloads import ROWS

KAFKA = "Apache Kafka"
DURABLE = "kbroker, durable"
BROKERS: dict[str, Callable[[], AbstractContextManager[RunningBroker]]] = {
    "kbroker": brokers.kbroker,
    KAFKA: brokers.kafka,
    "kfake": brokers.kfake,
    DURABLE: partial(brokers.kbroker, flush="auto"),
}
RATES = (1_000, 10_000)
LATENCY = "latency, {} msg/s"
STOCK = "confluent-kafka, {}"


class Effort(NamedTuple):
    """How long everything takes; the JVM compiles while it warms up."""

    seconds: float
    rounds: int
    warm_s: float
    warm_jvm_s: float


THOROUGH = Effort(seconds=2, rounds=4, warm_s=0.5, warm_jvm_s=4)
QUICK = Effort(seconds=1, rounds=2, warm_s=0.2, warm_jvm_s=2)

Column = dict[str, Measured]


def column(name: str, wanted: Callable[[str], bool], effort: Effort) -> Column:
    """All rows of one broker."""
    found: Column = {}
    warm_s = effort.warm_jvm_s if name == KAFKA else effort.warm_s
    terms = {"seconds": effort.seconds, "warm_s": warm_s, "rounds": effort.rounds}
    with BROKERS[name]() as broker:
        for row in ROWS:
            if wanted(row.name) and (row.produces or name != DURABLE):
                try:
                    found[row.name] = measure(broker, row, **terms)
                except Unexpected as error:
                    print(f"{name}: {row.name} is left out: {error}", file=sys.stderr)
                else:
                    report(name, row.name, found[row.name])
        for rate in RATES:
            if wanted(row_name := LATENCY.format(f"{rate:,}")):
                found[row_name] = latency(broker, rate, **terms)
                report(name, row_name, found[row_name])
        if stock_client.is_installed():
            for what, one in stock_client.measure(broker, wanted=lambda text: wanted(STOCK.format(text))):
                found[STOCK.format(what)] = one
                report(name, STOCK.format(what), one)
        print(f"{name}: {broker.resident_mb:.0f} MB resident at the end", file=sys.stderr)
    return found


def report(broker: str, row: str, one: Measured) -> None:
    """As it goes along."""
    print(
        f"{broker}: {row}: {one.cpu_s:.3f} CPU-s, {one.rate:,.0f}/s, "
        f"p50 {one.p50_ms:.3f} ms, p99 {one.p99_ms:.3f} ms",
        file=sys.stderr,
        flush=True,
    )


def print_table(title: str, columns: dict[str, Column], mine: str) -> None:
    """CPU seconds, and ours as a share of the others': below 1 we need less."""
    others = [name for name in columns if name != mine and columns[name]]
    print(f"\n{title}\n")
    print(f"| CPU-s per GB or 100k requests | {' | '.join([mine, *others])} |", end="")
    print("".join(f" of {name} |" for name in others))
    print("|---" * (2 + 2 * len(others)) + "|")
    for row, one in columns.get(mine, {}).items():
        found = [columns[name].get(row) for name in others]
        cells = [f"{one.cpu_s:.2f}", *("" if cell is None else f"{cell.cpu_s:.2f}" for cell in found)]
        cells += ["" if cell is None else f"**{one.cpu_s / cell.cpu_s:.2f}**" for cell in found]
        print(f"| {row} | {' | '.join(cells)} |")


def print_rates(columns: dict[str, Column], rows: Iterable[str]) -> None:
    print("\n| MB/s or requests/s; p50/p99 ms | " + " | ".join(columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for row in rows:
        cells = []
        for found in columns.values():
            one = found.get(row)
            if one is None:
                cells.append("")
            elif row.startswith("latency"):
                cells.append(f"{one.p50_ms:.2f} / {one.p99_ms:.2f}")
            else:
                cells.append(f"{one.rate:,.0f}")
        print(f"| {row} | {' | '.join(cells)} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__.splitlines()[0])
    parser.add_argument("row", nargs="*", help="rows whose names have this in them; all, if none is named")
    parser.add_argument("--only", action="append", choices=BROKERS, metavar="BROKER", help=", ".join(BROKERS))
    parser.add_argument("--quick", action="store_true", help="a few seconds per row")
    options = parser.parse_args(arguments)

    def wanted(row: str) -> bool:
        return not options.row or any(part in row for part in options.row)

    columns: dict[str, Column] = {}
    for name in BROKERS:
        if not options.only or name in options.only:
            try:
                columns[name] = column(name, wanted, QUICK if options.quick else THOROUGH)
            except BrokerFailed as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
    durable = columns.pop(DURABLE, {})
    print_table("Without fsync on any side:", columns, "kbroker")
    if durable:
        print_table(
            "kbroker with its default, an fsync before each acknowledgement:",
            {DURABLE: durable, **columns},
            DURABLE,
        )
    every = {**columns, DURABLE: durable} if durable else columns
    print_rates(every, dict.fromkeys(row for found in every.values() for row in found))


if __name__ == "__main__":
    main()
