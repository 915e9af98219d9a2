"""A sensor: readings of one device into a topic, keyed by the device, each resent until it is acknowledged.

    python spark_examples/sensor.py temp 1 5      # temp_1, five readings a second, until Ctrl-C

A reading is JSON: {"event_id", "device", "kind", "value", "event_time"}. Now and then one is far off
(`--anomalies`) or not JSON at all (`--malformed`), as with real devices; its clock is `--clock-off` seconds
ahead. What was acknowledged is written to `--acknowledged FILE`, an event id a line. A reading whose fate is
unknown is sent again under the same event id: readers see it at least once, and know by the id when they
see it twice."""

from __future__ import annotations

import argparse
import json
import math
import random
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime

from kafka import KafkaProducer
from kafka.errors import KafkaError
from topics import READINGS, make_topics

LEVELS = {"temp": (21.0, 3.0, 0.3), "hum": (55.0, 8.0, 1.0), "press": (1013.0, 5.0, 0.5)}
"""By kind: the usual value, how far it swings, and its noise."""
PERIOD_S = 60


class Sensor:
    def __init__(
        self,
        kind: str,
        number: str,
        chance: random.Random,
        anomalies: float,
        malformed: float,
        clock_off_s: float,
    ) -> None:
        self._clock_off_s = clock_off_s
        self.kind, self.device = kind, f"{kind}_{number}"
        self._chance, self._anomalies, self._malformed = chance, anomalies, malformed
        self._phase = chance.uniform(0, 2 * math.pi)

    def reading(self, now_s: float) -> tuple[str, bytes]:
        """An event id and what is sent under it; a malformed reading has no id."""
        if self._chance.random() < self._malformed:
            return "", b'{"event_id": "half a rea'
        level, swing, noise = LEVELS.get(self.kind, (0.0, 1.0, 0.1))
        value = level + swing * math.sin(2 * math.pi * now_s / PERIOD_S + self._phase)
        value += self._chance.gauss(0, noise)
        if self._chance.random() < self._anomalies:
            value += self._chance.choice([-1, 1]) * 12 * swing
        event_id = str(uuid.UUID(int=self._chance.getrandbits(128)))
        at = datetime.fromtimestamp(now_s + self._clock_off_s, UTC)
        event = {
            "event_id": event_id,
            "device": self.device,
            "kind": self.kind,
            "value": round(value, 3),
            "event_time": at.isoformat(timespec="milliseconds"),
        }
        return event_id, json.dumps(event).encode()


class Uplink:
    """Sends until everything is acknowledged, however long the broker is away."""

    def __init__(self, bootstrap: str, device: str, acknowledged: object) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
        self._key = device.encode()
        self._acknowledged = acknowledged
        self._failed: deque[tuple[str, bytes]] = deque()
        self._waiting = 0

    def send(self, event_id: str, payload: bytes) -> None:
        self._waiting += 1
        try:
            future = self._producer.send(READINGS, payload, key=self._key)
        except KafkaError:
            self._fail(event_id, payload)
            return
        future.add_callback(lambda _: self._confirm(event_id))
        future.add_errback(lambda _: self._fail(event_id, payload))

    def _confirm(self, event_id: str) -> None:
        self._waiting -= 1
        if event_id and self._acknowledged is not None:
            print(event_id, file=self._acknowledged, flush=True)  # type: ignore[call-overload]

    def _fail(self, event_id: str, payload: bytes) -> None:
        self._waiting -= 1
        self._failed.append((event_id, payload))

    def resend(self) -> None:
        for _ in range(len(self._failed)):
            self.send(*self._failed.popleft())

    def finish(self) -> None:
        while self._waiting or self._failed:
            self.resend()
            with suppress(KafkaError):
                self._producer.flush(timeout=5)
        self._producer.close()


def ticks(rate: float, count: int | None) -> Iterator[float]:
    """The times at which a reading is due; a sensor that fell behind catches up."""
    start = time.time()
    number = 0
    while count is None or number < count:
        due = start + number / rate
        time.sleep(max(0.0, due - time.time()))
        yield due
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", help="temp, hum, press or another word")
    parser.add_argument("id", help="the number of the device")
    parser.add_argument("rate", type=float, help="readings a second")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--count", type=int, help="stop after so many readings")
    parser.add_argument("--anomalies", type=float, default=0.01, help="share of readings that are far off")
    parser.add_argument("--malformed", type=float, default=0.005, help="share of readings that are no JSON")
    parser.add_argument("--clock-off", type=float, default=0, help="seconds that its clock is ahead")
    parser.add_argument("--acknowledged", metavar="FILE", help="write acknowledged event ids there")
    parser.add_argument("--seed", type=int, help="the same readings every time")
    options = parser.parse_args()
    sensor = Sensor(
        options.kind,
        options.id,
        random.Random(options.seed),
        options.anomalies,
        options.malformed,
        options.clock_off,
    )
    make_topics(options.bootstrap)
    with ExitStack() as stack:
        file = stack.enter_context(open(options.acknowledged, "a")) if options.acknowledged else None
        uplink = Uplink(options.bootstrap, sensor.device, file)
        with suppress(KeyboardInterrupt):
            for now_s in ticks(options.rate, options.count):
                uplink.resend()
                uplink.send(*sensor.reading(now_s))
        uplink.finish()


if __name__ == "__main__":
    main()
