"""The placement of replicas, compared with Kafka 3.9's own function on random clusters."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from controller.placement import Start, grow, place
from controller.state import LiveBroker

pytestmark = pytest.mark.slow

JARS = Path(__file__).parents[2] / ".cache" / "kafka-3.9.2"
PROGRAM = Path(__file__).parent / "java" / "PlacementCheck.java"
CASES = 500


class Case(NamedTuple):
    brokers: list[LiveBroker]
    partitions: int
    replication_factor: int
    start: int
    first_partition: int

    def as_line(self) -> str:
        brokers = [f"{b.broker_id}" if b.rack is None else f"{b.broker_id}:{b.rack}" for b in self.brokers]
        return " ".join([",".join(brokers), *map(str, self[1:])])


def random_case(chance: random.Random) -> Case:
    ids = sorted(chance.sample(range(30), chance.randint(1, 9)))
    with_racks = chance.random() < 0.6
    racks = [chance.choice("abcd") if with_racks else None for _ in ids]
    brokers = [LiveBroker(one, 1, (), rack) for one, rack in zip(ids, racks, strict=True)]
    first = chance.choice([0, 0, chance.randint(1, 20)])
    return Case(
        brokers, chance.randint(1, 25), chance.randint(1, len(ids)), chance.randint(0, len(ids) - 1), first
    )


def kafka_places(cases: list[Case]) -> list[dict[int, tuple[int, ...]]]:
    if not shutil.which("java") or not list(JARS.glob("kafka-server-common-*.jar")):
        pytest.skip("needs java and Kafka 3.9.2; `make setup-tests` fetches jars where Maven is installed")
    done = subprocess.run(
        ["java", "-cp", f"{JARS}/*", str(PROGRAM)],
        input="\n".join(case.as_line() for case in cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    placed = []
    for line in done.stdout.splitlines():
        parts = [one.partition("=") for one in line.split(";")]
        placed.append({int(p): tuple(int(r) for r in replicas.split(",")) for p, _, replicas in parts})
    return placed


def test_replicas_go_where_kafka_puts_them() -> None:
    chance = random.Random(39)
    cases = [random_case(chance) for _ in range(CASES)]
    for case, expected in zip(cases, kafka_places(cases), strict=True):
        start = Start(case.start, case.start)
        ours = place(case.brokers, case.partitions, case.replication_factor, start, case.first_partition)
        assert ours == expected, case


def test_topics_grow_as_kafkas_do() -> None:
    """Kafka starts at the first broker that is not below the first replica of partition 0."""
    chance = random.Random(40)
    cases, existing = [], []
    for _ in range(CASES):
        case = random_case(chance)
        before = place(case.brokers, chance.randint(1, 9), case.replication_factor, Start(3, 5))
        ids = [broker.broker_id for broker in case.brokers]
        existing.append(before)
        cases.append(case._replace(start=ids.index(before[0][0]), first_partition=len(before)))
    for case, before, expected in zip(cases, existing, kafka_places(cases), strict=True):
        assert grow(case.brokers, before, len(before) + case.partitions) == expected, case
