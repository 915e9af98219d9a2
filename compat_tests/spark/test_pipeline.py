"""The pipeline is killed again and again, and its results are exact nevertheless.

Sensors tell which readings were acknowledged; that is the truth. The driver, the broker, or both are
killed with `kill -9` at seeded points (four; `make compat` takes ten) and started again. In the end every
acknowledged reading is in the Parquet files once, and the aggregates, in Parquet and as the last value of
each key of the topic, are those of exactly these readings.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kbroker.testing import Broker

CLIENT = "Spark 4.0.0"
EXAMPLES = Path(__file__).parents[2] / "spark_examples"
SEED = int(os.environ.get("KBROKER_SEED", "1"))
KILLS = int(os.environ.get("KBROKER_KILLS", "4"))
SENSORS = (("temp", "1"), ("hum", "1"))
RATE = 15
WINDOW_S = 10
PATIENCE_S = 240
READINGS = "event_id STRING, device STRING, value DOUBLE, event_time TIMESTAMP"
AGGREGATES = "device STRING, start TIMESTAMP, readings LONG, low DOUBLE, high DOUBLE"
ALERTS = "event_id STRING, device STRING"
FAST_DRIVER = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Driver:
    """`kbroker spark submit pipeline.py`, and what it says of its progress."""

    def __init__(self, broker: Broker, lake: Path, log: Path) -> None:
        self._command = [
            *(sys.executable, "-P", "-m", "kbroker", "spark", "submit", "--master", "local[2]"),
            *(
                "--conf",
                "spark.ui.enabled=false",
                "--conf",
                FAST_DRIVER,
                "--conf",
                "spark.sql.shuffle.partitions=2",
            ),
            *(str(EXAMPLES / "pipeline.py"), "--bootstrap", broker.bootstrap, "--into", str(lake)),
            *("--lateness", "10 minutes", "--trigger", "100 milliseconds", "--progress"),
        ]
        self._log = log
        self.batches = 0
        self.start()

    def start(self) -> None:
        self.batches = 0
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if process is self._process and line.startswith("{") and json.loads(line)["rows"]:
                self.batches += 1

    def check(self) -> None:
        if self._process.poll() is not None:
            raise AssertionError(f"the driver has ended:\n{self.log_end()}")

    def log_end(self) -> str:
        return self._log.read_text()[-3000:]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One that can be killed."""
    with Broker({"num.partitions": 2}) as broker:
        yield broker


@pytest.fixture
def driver(connector: list[Path], broker: Broker, tmp_path: Path) -> Iterator[Driver]:
    broker.create_topic("readings", partitions=2)
    broker.create_topic("aggregates", partitions=1, configs={"cleanup.policy": "compact"})
    driver = Driver(broker, tmp_path / "lake", tmp_path / "driver.log")
    yield driver
    driver.kill()


class Sensors:
    """Their processes, and what they know to be acknowledged."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._files = [directory / f"{kind}_{number}.acknowledged" for kind, number in SENSORS]
        self._processes = []
        for index, (kind, number) in enumerate(SENSORS):
            options = ("--bootstrap", broker.bootstrap, "--seed", str(SEED + index), "--malformed", "0.02")
            command = [sys.executable, str(EXAMPLES / "sensor.py"), kind, number, str(RATE), *options]
            file = str(self._files[index])
            self._processes.append(
                subprocess.Popen([*command, "--anomalies", "0.02", "--acknowledged", file])
            )

    def finish(self) -> set[str]:
        """They end when everything is acknowledged: the ids of all readings."""
        for process in self._processes:
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            assert process.wait(60) == 0
        return {line for file in self._files for line in file.read_text().splitlines()}

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
    wait_until(lambda: driver.batches >= batches, driver)
    time.sleep(chance.random())  # anywhere in the next batch
    if victim != "broker":
        driver.kill()
    if victim != "driver":
        broker.kill()
        broker.restart()
    if victim != "broker":
        driver.start()
    return victim


def wait_until(condition: Any, driver: Driver) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        driver.check()
        assert time.monotonic() < deadline, driver.log_end()
        time.sleep(0.3)


def close_windows(broker: Broker) -> None:
    """Two readings from the future, one after the other: all windows before them are over then."""
    for number in (1, 2):
        at = datetime.now(UTC) + timedelta(days=number)
        closing = {"event_id": f"closing-{number}", "device": "clock_1", "kind": "clock", "value": 0.0}
        broker.produce("readings", json.dumps(closing | {"event_time": at.isoformat()}), partition=0)


# -- what must be true in the end


def stored(spark: Any, directory: Path, columns: str) -> list[Any]:
    """With these columns, so that a directory may still be empty."""
    rows = spark.read.schema(columns).parquet(str(directory)).collect()
    return [row for row in rows if row.device != "clock_1"]


def expected_windows(readings: list[Any]) -> dict[tuple[str, int], tuple[int, float, float]]:
    """By device and window: how many, the lowest and the highest."""
    values = defaultdict(list)
    for row in readings:
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
        names = [f"alerts-{kind}_{number}" for kind, number in SENSORS]
        return {(record.key or b"").decode() for name in names for record in self._broker.records(name)}

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
    close_windows(broker)
    lake = Lake(spark, tmp_path / "lake", broker)
    wait_until(lambda: len(lake.readings()) >= len(acknowledged), driver)
    wait_until(lake.is_complete, driver)
    driver.kill()

    readings = lake.readings()
    assert Counter(row.event_id for row in readings) == Counter(acknowledged), victims
    windows = lake.windows()
    assert len(windows) == len(dict(windows))
    assert dict(windows) == expected_windows(readings)
    alerts = lake.alerts()
    assert len(alerts) == len(set(alerts))
    assert set(alerts) <= acknowledged
    dead = {record.value for record in broker.records("readings-dead")}
    assert dead == {b'{"event_id": "half a rea'}
