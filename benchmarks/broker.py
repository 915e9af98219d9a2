"""A whole broker beside others: kbroker, Apache Kafka 4.3.1 and kfake under the same load, taking turns.

    .venv/bin/python -m benchmarks.broker [--quick] [--only BROKER ...] [ROW ...]

The load is raw: frames made beforehand, so that the broker is the limit, which has one core to itself and the
load another. What counts is the broker's CPU time, as wall time says more about the machine: per gigabyte of
record values, or per 100,000 requests. All brokers get the same requests and must answer every one as asked:
end offsets and reply sizes are checked. kbroker runs without fsync (`kbroker.flush=never`), as Kafka does;
the second table has its default beside it, which makes every acknowledged batch durable.

ROW is a part of a row's name, such as `fetch` or "Produce, 5". With confluent-kafka installed, the stock
client produces and consumes as well. For bulk Produces there is a bare loop beside the brokers that receives
the same, computes its CRC and writes it to files: what nobody can do without. Needs Go for the load and
kfake, and Java and Kafka's jars for Kafka.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from benchmarks.load import brokers, stock_client
from benchmarks.load.brokers import BrokerFailed, RunningBroker
from benchmarks.load.client import Unexpected
from benchmarks.load.measuring import Measured, Terms, latency, measure, measure_bare
from benchmarks.load.workloads import ROWS, Row

KAFKA = "Apache Kafka"
DURABLE = "kbroker, durable"
BARE = "bare loop"
BROKERS: dict[str, Callable[[], AbstractContextManager[RunningBroker]]] = {
    "kbroker": brokers.kbroker,
    KAFKA: brokers.kafka,
    "kfake": brokers.kfake,
    BARE: brokers.bare,
    DURABLE: partial(brokers.kbroker, flush="auto"),
}
RATES = (1_000, 10_000)
LATENCY = "latency, {} msg/s"
STOCK = "confluent-kafka, {}"


class Effort(NamedTuple):
    """How long everything takes."""

    terms: Terms
    of_jvm: Terms


THOROUGH = Effort(Terms(seconds=1, rounds=4, warm_s=0.3), Terms(1, rounds=4, warm_s=4, most_warm_s=40))
QUICK = Effort(Terms(seconds=1, rounds=2, warm_s=0.2), Terms(1, rounds=2, warm_s=2))

Column = dict[str, Measured]


def measured(
    name: str, broker: RunningBroker, wanted: Callable[[str], bool], effort: Effort
) -> Iterator[tuple[str, Measured | Unexpected | None]]:
    """All rows of one broker, one by one; None for those that say nothing of it."""
    terms = effort.of_jvm if name == KAFKA else effort.terms
    for row in ROWS:
        if wanted(row.name):
            yield row.name, outcome_of(name, broker, row, terms)
    if name == BARE:
        return
    for rate in RATES:
        if wanted(row_name := LATENCY.format(f"{rate:,}")):
            yield row_name, outcome(partial(latency, broker, rate, terms))
    if stock_client.is_installed() and (wanted(STOCK.format("produce")) or wanted(STOCK.format("consume"))):
        for what, one in stock_client.measure(broker):
            yield STOCK.format(what), one


def outcome_of(name: str, broker: RunningBroker, row: Row, terms: Terms) -> Measured | Unexpected | None:
    if name == BARE:
        return None if row.bare is None else outcome(partial(measure_bare, broker, row.bare(), terms))
    return outcome(partial(measure, broker, row, terms)) if row.produces or name != DURABLE else None


def outcome(attempt: Callable[[], Measured]) -> Measured | Unexpected:
    try:
        return attempt()
    except Unexpected as error:
        return error


def measure_all(names: Sequence[str], wanted: Callable[[str], bool], effort: Effort) -> dict[str, Column]:
    """All brokers run side by side, and take turns: what else the machine does, it does to all of them."""
    columns: dict[str, Column] = {}
    with ExitStack() as stack:
        turns = []
        for name in names:
            try:
                broker = stack.enter_context(BROKERS[name]())
            except BrokerFailed as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
            else:
                columns[name] = {}
                turns.append((name, measured(name, broker, wanted, effort)))
        for rows in zip_longest(*(generator for _, generator in turns), fillvalue=("", None)):
            for (name, _), (row, one) in zip(turns, rows, strict=True):
                if isinstance(one, Measured):
                    columns[name][row] = one
                report(name, row, one)
    return columns


def report(broker: str, row: str, one: Measured | Unexpected | None) -> None:
    """As it goes along."""
    if one is None:
        return
    if isinstance(one, Unexpected):
        print(f"{broker}: {row} is left out: {one}", file=sys.stderr, flush=True)
        return
    print(
        f"{broker}: {row}: {one.cpu_s:.3f} CPU-s, {one.rate:,.0f}/s, "
        f"p50 {one.p50_ms:.3f} ms, p99 {one.p99_ms:.3f} ms",
        file=sys.stderr,
        flush=True,
    )


def print_table(title: str, columns: dict[str, Column], mine: str) -> None:
    """CPU seconds and latencies, and ours as a share of the others': below 1 we need less."""
    others = [name for name in columns if name != mine and columns[name]]
    print(f"\n{title}\n")
    print(f"| CPU-s per GB or 100k requests | {' | '.join([mine, *others])} |", end="")
    print("".join(f" of {name} |" for name in others))
    print("|---" * (2 + 2 * len(others)) + "|")
    for row, one in columns.get(mine, {}).items():
        found = [columns[name].get(row) for name in others]
        print_row(row, one.cpu_s, [cell and cell.cpu_s for cell in found])
        if row.startswith("latency"):
            print_row(f"{row}: p50, ms", one.p50_ms, [cell and cell.p50_ms for cell in found])
            print_row(f"{row}: p99, ms", one.p99_ms, [cell and cell.p99_ms for cell in found])


def print_row(name: str, mine: float, others: Sequence[float | None]) -> None:
    cells = [f"{mine:.2f}", *("" if other is None else f"{other:.2f}" for other in others)]
    cells += ["" if other is None else f"**{mine / other:.2f}**" for other in others]
    print(f"| {name} | {' | '.join(cells)} |")


def print_rates(columns: dict[str, Column], rows: Iterable[str]) -> None:
    print("\n| MB/s or requests/s | " + " | ".join(columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for row in rows:
        cells = []
        for found in columns.values():
            one = found.get(row)
            if one is None:
                cells.append("")
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

    names = [name for name in BROKERS if not options.only or name in options.only]
    effort = QUICK if options.quick else THOROUGH
    columns = measure_all([name for name in names if name != DURABLE], wanted, effort)
    if DURABLE in names:  # by itself: the disk that it waits for would make the others wait, too
        columns |= measure_all([DURABLE], wanted, effort)
    durable = columns.pop(DURABLE, {})
    print_table("Without fsync on any side:", columns, "kbroker")
    if durable:
        print_table(
            "kbroker with its default, an fsync before each acknowledgement:",
            {DURABLE: durable, **{name: found for name, found in columns.items() if name != BARE}},
            DURABLE,
        )
    every = {**columns, DURABLE: durable} if durable else columns
    print_rates(every, dict.fromkeys(row for found in every.values() for row in found))


if __name__ == "__main__":
    main()
