"""Three brokers beside Apache Kafka 3.9's three, each with a ZooKeeper: every record is on all of them.

    .venv/bin/python -m benchmarks.cluster [--only CLUSTER ...] [--seconds 1] [PART ...]

PART is a part of a row's name, such as `produce` or `time`. The first rows are loads as in
benchmarks.broker, with acks=all and a replication factor of 3: CPU time is that of all three brokers, which
share a core. The others are times, the best of three: how long nobody's write is acknowledged when a leader
is killed, or leaves in order; how long 1,000 partitions take to be created; and, once, how long after a
controller is killed another one has given all of its 2,000 partitions new leaders. kbroker runs without
fsync, as Kafka does.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from benchmarks.load import clusters
from benchmarks.load.brokers import BrokerFailed
from benchmarks.load.client import Unexpected, check
from benchmarks.load.clusters import BROKERS, RunningCluster
from benchmarks.load.measuring import Terms, latency, measure
from benchmarks.load.workloads import ROWS, SMALL_BYTES, TOPIC, batch, produce_frame, produced
from wire.api import ApiKey
from wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

CLUSTERS: dict[str, Callable[[], AbstractContextManager[RunningCluster]]] = {
    "kbroker": clusters.kbroker,
    "Apache Kafka": clusters.kafka,
}
LOADS = ("produce 1 KB", "Produce, 1 in flight", "Produce, 5 in flight", "Produce, 50 connections")
RATE = 1_000
WARM_S = {"kbroker": (0.3, 0.0), "Apache Kafka": (4.0, 60.0)}
"""At least, and at most: three JVMs that share a core take their time."""
ROUNDS = 3
TIMES = 3
PATIENCE_S = 60
MANY, MORE = 1_000, 2_000
POLL_S = 0.002


class Figure(NamedTuple):
    """One cell of the table."""

    value: float
    unit: str


# -- loads


def loads(
    cluster: RunningCluster, wanted: Callable[[str], bool], seconds: float
) -> Iterator[tuple[str, Figure]]:
    terms = Terms(seconds, ROUNDS, *WARM_S[cluster.name])
    for row in ROWS:
        if row.name in LOADS and wanted(row.name):
            unit = "CPU-s per GB" if row.name[0] == "p" else "CPU-s per 100k"
            yield row.name, Figure(measure(cluster, row, terms).cpu_s, unit)
    if wanted(name := f"latency, {RATE:,} msg/s"):
        found = latency(cluster, RATE, terms)
        yield f"{name}, p50", Figure(found.p50_ms, "ms")
        yield f"{name}, p99", Figure(found.p99_ms, "ms")


# -- times


def times(cluster: RunningCluster, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Figure]]:
    parts = {
        "time to the next write after a kill": leader_killed,
        "time to the next write in a controlled shutdown": leader_stopped,
        f"time to create {MANY:,} partitions": partitions_created,
        f"time from a controller's kill to all leaders of {MORE:,} partitions": controller_killed,
    }
    for name, part in parts.items():
        if wanted(name):
            yield name, Figure(part(cluster), "s")


def leader_killed(cluster: RunningCluster) -> float:
    return min(without_a_leader(cluster, signal.SIGKILL) for _ in range(TIMES))


def leader_stopped(cluster: RunningCluster) -> float:
    return min(without_a_leader(cluster, signal.SIGTERM) for _ in range(TIMES))


def without_a_leader(cluster: RunningCluster, number: signal.Signals) -> float:
    """From the last write by the leader to the first one by another; the broker is there again afterwards."""
    frame = produce_frame(batch(SMALL_BYTES, 1))
    leader, *others = BROKERS
    with cluster.client(leader) as client:
        client.create_topic(TOPIC, 1)
        for _ in range(20):
            produced(client, frame)
        last = time.monotonic()
        cluster.members.end(leader, number)
        with suppress(OSError, Unexpected):
            while True:
                produced(client, frame)
                last = time.monotonic()
    deadline = time.monotonic() + PATIENCE_S
    pause_s = None
    while pause_s is None:
        for other in others:
            with suppress(OSError, Unexpected), cluster.client(other) as client:
                produced(client, frame)
                pause_s = time.monotonic() - last
                break
        if time.monotonic() > deadline:
            raise Unexpected("nobody leads")
        time.sleep(POLL_S)
    restart(cluster, leader)
    with cluster.client(others[0]) as client:
        client.delete_topic(TOPIC)
    return pause_s


def restart(cluster: RunningCluster, broker_id: int) -> None:
    """Returns when everybody knows of it."""
    cluster.members.await_end(broker_id)
    cluster.members.start(broker_id)
    until(lambda: all(len(metadata(cluster, one).brokers) == len(BROKERS) for one in BROKERS))


def partitions_created(cluster: RunningCluster) -> float:
    """Until each broker knows a leader of each partition."""
    began = time.monotonic()
    create(cluster, "many", MANY)
    until(lambda: all(leaders(cluster, "many", one).count(-1) == 0 for one in BROKERS))
    took_s = time.monotonic() - began
    with cluster.client() as client:
        client.delete_topic("many")
    return took_s


def controller_killed(cluster: RunningCluster) -> float:
    create(cluster, "more", MORE)
    until(lambda: all(leaders(cluster, "more", one).count(-1) == 0 for one in BROKERS))
    controller = metadata(cluster, BROKERS[0]).controller_id
    others = [one for one in BROKERS if one != controller]
    began = time.monotonic()
    cluster.members.end(controller, signal.SIGKILL)
    until(lambda: all({-1, controller}.isdisjoint(leaders(cluster, "more", one)) for one in others))
    took_s = time.monotonic() - began
    restart(cluster, controller)
    return took_s


def create(cluster: RunningCluster, topic: str, partitions: int) -> None:
    wanted = CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=len(BROKERS), assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=PATIENCE_S * 1000)
    with cluster.client() as client:
        check(client.administer(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse).topics)


def metadata(cluster: RunningCluster, broker_id: int, *topics: str) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
    with cluster.client(broker_id) as client:
        return client.ask(ApiKey.METADATA, request, MetadataResponse)


def leaders(cluster: RunningCluster, topic: str, broker_id: int) -> list[int]:
    """As that broker knows them; -1 where there is none, and where it does not know the topic."""
    (found,) = metadata(cluster, broker_id, topic).topics
    return [partition.leader_id for partition in found.partitions] or [-1]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Unexpected("it takes too long")
        time.sleep(POLL_S)


# -- the table


def measured(name: str, wanted: Callable[[str], bool], seconds: float) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    try:
        with CLUSTERS[name]() as cluster:
            for rows in (loads(cluster, wanted, seconds), times(cluster, wanted)):
                for row, figure in rows:
                    print(f"{name}: {row}: {figure.value:.3f} {figure.unit}", file=sys.stderr, flush=True)
                    found[row] = figure
    except (BrokerFailed, Unexpected, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
    return found


def print_table(columns: dict[str, dict[str, Figure]]) -> None:
    mine, *others = columns
    print(f"| | | {' | '.join(columns)} |" + "".join(f" of {name} |" for name in others))
    print("|---" * (2 + len(columns) + len(others)) + "|")
    for row, figure in columns[mine].items():
        theirs = [columns[name].get(row) for name in others]
        cells = [f"{figure.value:.2f}", *("" if one is None else f"{one.value:.2f}" for one in theirs)]
        cells += ["" if one is None else f"**{figure.value / one.value:.2f}**" for one in theirs]
        print(f"| {row} | {figure.unit} | {' | '.join(cells)} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help="rows whose names have this in them; all, if none is named")
    parser.add_argument(
        "--only", action="append", choices=CLUSTERS, metavar="CLUSTER", help=", ".join(CLUSTERS)
    )
    parser.add_argument("--seconds", type=float, default=1, help="per round of a load")
    options = parser.parse_args(arguments)

    def wanted(row: str) -> bool:
        return not options.part or any(part in row for part in options.part)

    names = [name for name in CLUSTERS if not options.only or name in options.only]
    print_table({name: measured(name, wanted, options.seconds) for name in names})


if __name__ == "__main__":
    main()
