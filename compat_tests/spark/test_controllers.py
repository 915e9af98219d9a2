"""Controllers, and what else of the pipeline needs no Spark: topics, the demo's devices, its guards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.partitioner.default import murmur2

from compat_tests.spark.driver import EXAMPLES
from kbroker.testing import Broker

SOON_S = 25
"""More than a controller's session and a rebalance take, and less than the default session of 45 s."""
ALERT = '{"device": "temp_1", "value": 40, "expected": 21.5, "number": %d}'
POISON: dict[str, bytes | None] = {
    "tombstone": None,
    "empty": b"",
    "not JSON": b"{nonsense",
    "not UTF-8": b"\xff\xfe",
    "null": b"null",
    "array": b"[1, 2]",
    "string": b'"device"',
    "without a device": b'{"value": 1, "expected": 2}',
    "device is an object": b'{"device": {}, "value": 1, "expected": 2}',
    "value is null": b'{"device": "temp_1", "value": null, "expected": 2}',
    "value is text": b'{"device": "temp_1", "value": "x", "expected": 2}',
    "value is NaN": b'{"device": "temp_1", "value": NaN, "expected": 2}',
    "value is infinite": b'{"device": "temp_1", "value": 1e999, "expected": 2}',
    "value is no double": b'{"device": "temp_1", "value": 1' + b"0" * 400 + b', "expected": 2}',
    "value of 10,000 digits": b'{"device": "temp_1", "value": ' + b"1" * 10_000 + b', "expected": 2}',
    "deeply nested": b"[" * 100_000,
}


class Controller:
    """The process, and the lines that it writes."""

    def __init__(self, broker: Broker, device: str) -> None:
        command = [sys.executable, str(EXAMPLES / "controller.py"), device, "--bootstrap", broker.bootstrap]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self.acts: list[str] = []
        self.complaints: list[str] = []
        self._readers = [
            threading.Thread(target=read, args=into)
            for into in ((self.process.stdout, self.acts), (self.process.stderr, self.complaints))
        ]
        for reader in self._readers:
            reader.start()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()


def read(stream: Any, into: list[str]) -> None:
    with stream:
        into.extend(stream)


@pytest.fixture
def controllers(broker: Broker) -> Iterator[Any]:
    started: list[Controller] = []

    def start(device: str) -> Controller:
        started.append(Controller(broker, device))
        return started[-1]

    yield start
    for controller in started:
        controller.end()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("alerts", partitions=3)
        yield broker


def test_a_record_that_is_no_alert_is_told_and_passed_over(broker: Broker, controllers: Any) -> None:
    [controller] = [controllers("temp_1")]
    for value in POISON.values():
        broker.produce("alerts", value, partition=0)
    broker.produce("alerts", ALERT % 1, partition=0)
    broker.wait_until(lambda: controller.acts, timeout=60)
    assert "temp_1: 40.0 instead of 21.5, turning it down" in controller.acts[0]
    broker.wait_until(lambda: broker.group("controllers-temp_1").lag == 0, timeout=60)
    complaints = [line for line in controller.complaints if "no alert in alerts 0 at" in line]
    assert len(complaints) == len(POISON)
    controller.process.send_signal(signal.SIGINT)
    assert controller.process.wait(30) == 0


def test_a_device_has_any_name(broker: Broker, controllers: Any) -> None:
    """The terminal gets no control characters of it."""
    controller = controllers("boiler\x1b room/1")
    broker.produce("alerts", ALERT % 1, '{"device": "boiler\\u001b room/1", "value": 1, "expected": 2}')
    broker.wait_until(lambda: controller.acts, timeout=60)
    broker.wait_until(lambda: broker.group("controllers-boiler\x1b room/1").lag == 0, timeout=60)
    assert [line.split("] ")[1].strip() for line in controller.acts] == [
        "boiler? room/1: 1.0 instead of 2.0, turning it up"
    ]


def test_the_work_of_a_dead_controller_is_taken_over_soon(broker: Broker, controllers: Any) -> None:
    group = broker.group("controllers-temp_1")
    first, second = controllers("temp_1"), controllers("temp_1")
    broker.wait_until(lambda: len(group.members) == 2 and group.state == "Stable", timeout=60)
    first.process.kill()
    first.process.wait()
    for partition in range(3):
        broker.produce("alerts", ALERT % partition, partition=partition)
    broker.wait_until(lambda: len(second.acts) == 3, timeout=SOON_S)


def test_the_demo_uses_every_partition() -> None:
    """By Kafka's own choice for their keys; what runs side by side in Spark is partitions."""
    from spark_examples.demo import SENSORS
    from spark_examples.topics import READINGS, TOPICS

    [partitions] = [topic.partitions for topic in TOPICS if topic.name == READINGS]
    keys = [f"{kind}_{number}".encode() for kind, number, _ in SENSORS]
    assert {(murmur2(key) & 0x7FFFFFFF) % partitions for key in keys} == set(range(partitions))


@pytest.mark.parametrize("name", ["readings", "aggregates", "alerts"])
def test_a_directory_without_its_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    """Spark would take new batches for ones that it has stored, and leave them out without a word."""
    from spark_examples.pipeline import Options, refuse_foreign_directories

    options = Options("127.0.0.1:1", str(tmp_path))
    refuse_foreign_directories(options)
    (tmp_path / name).mkdir()
    with pytest.raises(SystemExit, match=f"{name} is there, but not the checkpoint"):
        refuse_foreign_directories(options)
    (tmp_path / "checkpoints" / name).mkdir(parents=True)
    refuse_foreign_directories(options)
