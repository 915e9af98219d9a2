"""The pipeline is killed again and again, and its results are exact nevertheless.

Sensors tell which readings were acknowledged; that is the truth. The driver, the broker, or both are
killed with `kill -9` at seeded points (four; `make compat` takes ten) and started again. The pipeline has
its defaults, and one sensor's clock is a day behind, another's a day ahead. In the end every acknowledged
reading is in the Parquet files once, but for those from the future, which are refused; and the aggregates, in
Parquet and as the last value of each key of the topic, are those of exactly the readings that are not marked
as late.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from compat_tests.spark.driver import EXAMPLES, Driver
from kbroker.testing import Broker

SEED = int(os.environ.get("KBROKER_SEED", "1"))
KILLS = int(os.environ.get("KBROKER_KILLS", "4"))
DAY_S = 86_400
SENSORS = (("temp", "1", 0), ("hum", "3", 0), ("press", "3", -DAY_S))
FROM_THE_FUTURE = ("press", "4", DAY_S)
RATE = 5
WINDOW_S = 10
READINGS = "event_id STRING, device STRING, value DOUBLE, event_time TIMESTAMP, late BOOLEAN"
AGGREGATES = "device STRING, start TIMESTAMP, readings LONG, low DOUBLE, high DOUBLE"
ALERTS = "event_id STRING, device STRING"


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One that can be killed."""
    with Broker({"num.partitions": 2}) as broker:
        yield broker


@pytest.fixture
def driver(connector: list[Path], broker: Broker, tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(broker, tmp_path / "lake", tmp_path / "driver.log")
    yield driver
    driver.kill()


class Sensors:
    """Their processes, and what they know to be acknowledged."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._files: dict[str, Path] = {}
        self._processes = []
        for index, (kind, number, clock_off_s) in enumerate((*SENSORS, FROM_THE_FUTURE)):
            device = f"{kind}_{number}"
            self._files[device] = directory / f"{device}.acknowledged"
            options = ("--bootstrap", broker.bootstrap, "--seed", str(SEED + index), "--malformed", "0.02")
            command = [sys.executable, str(EXAMPLES / "sensor.py"), kind, number, str(RATE), *options]
            command += ["--acknowledged", str(self._files[device]), "--clock-off", str(clock_off_s)]
            self._processes.append(subprocess.Popen([*command, "--anomalies", "0.03"]))

    def finish(self) -> dict[str, set[str]]:
        """They end when everything is acknowledged: by device, the ids of its readings."""
        for process in self._processes:
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            assert process.wait(60) == 0
        return {device: set(file.read_text().splitlines()) for device, file in self._files.items()}

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def sensors(driver: Driver, broker: Broker, tmp_path: Path) -> Iterator[Sensors]:
    sensors = Sensors(broker, tmp_path)
    yield sensors
    sensors.kill()


def kill_something(chance: random.Random, driver: Driver, broker: Broker) -> str:
    """The driver, the broker, or both, at some moment of a micro-batch."""
    victim = chance.choice(["driver", "driver", "broker", "both"])
    batches = driver.batches + chance.randrange(2, 12)
    driver.wait_until(lambda: driver.batches >= batches)
    time.sleep(chance.random())  # anywhere in the next batch
    if victim != "broker":
        driver.kill()
    if victim != "driver":
        broker.kill()
        broker.restart()
    if victim != "broker":
        driver.start()
    return victim


# -- what must be true in the end


def stored(spark: Any, directory: Path, columns: str) -> list[Any]:
    """With these columns, so that a directory may still be empty."""
    rows = spark.read.schema(columns).parquet(str(directory)).collect()
    return [row for row in rows if row.device != "clock_1"]


def expected_windows(readings: list[Any]) -> dict[tuple[str, int], tuple[int, float, float]]:
    """By device and window: how many, the lowest and the highest, of those that are not late."""
    values = defaultdict(list)
    for row in readings:
        if row.late:
            continue
        start = int(row.event_time.timestamp()) // WINDOW_S * WINDOW_S
        values[row.device, start].append(row.value)
    return {key: (len(found), min(found), max(found)) for key, found in values.items()}


def windows_of_the_topic(broker: Broker) -> dict[tuple[str, int], tuple[int, float, float]]:
    latest = {record.key: json.loads(record.value or b"") for record in broker.records("aggregates")}
    return {
        (row["device"], int(datetime.fromisoformat(row["start"]).timestamp())): (
            row["readings"],
            row["low"],
            row["high"],
        )
        for row in latest.values()
        if row["device"] != "clock_1"
    }


class Lake:
    """What the pipeline has stored, and what it has written to its topics."""

    def __init__(self, spark: Any, directory: Path, broker: Broker) -> None:
        self._spark, self._directory, self._broker = spark, directory, broker

    def _rows(self, name: str, columns: str) -> list[Any]:
        return stored(self._spark, self._directory / name, columns)

    def readings(self) -> list[Any]:
        return self._rows("readings", READINGS)

    def windows(self) -> list[tuple[tuple[str, int], tuple[int, float, float]]]:
        return [
            ((row.device, int(row.start.timestamp())), (row.readings, row.low, row.high))
            for row in self._rows("aggregates", AGGREGATES)
        ]

    def alerts(self) -> list[str]:
        return [row.event_id for row in self._rows("alerts", ALERTS)]

    def alerts_of_topics(self) -> set[str]:
        return {(record.key or b"").decode() for record in self._broker.records("alerts")}

    def is_complete_in_time(self) -> bool:
        """The same, and time passes: windows end when later readings have come."""
        at = datetime.now(UTC).isoformat()
        reading = {"event_id": at, "device": "clock_1", "kind": "clock", "value": 0.0, "event_time": at}
        self._broker.produce("readings", json.dumps(reading))
        return self.is_complete()

    def is_complete(self) -> bool:
        """Whether everything has arrived that should; nothing of it may have arrived twice."""
        expected = expected_windows(self.readings())
        return (
            bool(expected)
            and windows_of_the_topic(self._broker) == expected
            and len(self.windows()) >= len(expected)
            and set(self.alerts()) == self.alerts_of_topics() != set()
        )


@pytest.mark.feature("broker restart")
def test_whatever_is_killed_the_results_are_exact(
    spark: Any, driver: Driver, broker: Broker, sensors: Sensors, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    victims = Counter(kill_something(chance, driver, broker) for _ in range(KILLS))
    acknowledged = sensors.finish()
    refused = acknowledged.pop("press_4")
    expected = set().union(*acknowledged.values())
    lake = Lake(spark, tmp_path / "lake", broker)
    driver.wait_until(lambda: len(lake.readings()) >= len(expected))
    driver.wait_until(lambda: lake.is_complete_in_time())
    driver.kill()

    readings = lake.readings()
    assert Counter(row.event_id for row in readings) == Counter(expected), victims
    assert acknowledged["press_3"] == {
        row.event_id for row in readings if row.device == "press_3" and row.late
    }
    windows = lake.windows()
    assert len(windows) == len(dict(windows))
    assert dict(windows) == expected_windows(readings)
    alerts = lake.alerts()
    assert len(alerts) == len(set(alerts))
    assert set(alerts) <= acknowledged["temp_1"] | acknowledged["hum_3"]
    assert refused_by_reason(broker) == {
        "not one JSON object": {b'{"event_id": "half a rea'},
        "event_time over 1 hour after arrival": refused,
    }


def refused_by_reason(broker: Broker) -> dict[str, set[Any]]:
    """The event ids of those that have one."""
    found: dict[str, set[Any]] = defaultdict(set)
    for record in broker.records("readings-dead"):
        value = record.value or b""
        why = (dict(record.headers)["why"] or b"").decode()
        found[why].add(json.loads(value)["event_id"] if value.endswith(b"}") else value)
    return found
