"""A controller: acts on the alerts of one device, beside as many other controllers as there are.

    python spark_examples/controller.py temp_1    # start it twice or more: they share the work

Controllers of a device are one consumer group over the topic of all alerts, so each alert goes to one of
them; when one ends, the others take its share over: at once, or within SESSION_TIMEOUT_MS where it was
killed. Nothing is asked for in turns: the broker holds the request until an alert is there. An alert is
committed after it was acted on, so one whose controller dies in between is acted on again. A record that is
no alert is told on stderr, and passed over: it would be no alert the next time either."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from contextlib import suppress
from typing import Any, NamedTuple

from kafka import KafkaConsumer
from kafka.errors import KafkaError
from topics import ALERTS, make_topics

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 2_000
A_LONG_TIME_MS = 60_000


class Alert(NamedTuple):
    device: str
    value: float
    expected: float


def alert_in(value: bytes | None) -> Alert:
    """ValueError where there is none."""
    try:
        found = json.loads(value or b"")
        alert = Alert(found["device"], float(found["value"]), float(found["expected"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not isinstance(alert.device, str) or not all(map(math.isfinite, alert[1:])):
        raise ValueError("a field is not what it should be")
    return alert


def act(alert: Alert) -> str:
    """What comes as data may hold anything, so the terminal gets no control characters of it."""
    device = "".join(letter if letter.isprintable() else "?" for letter in alert.device)
    direction = "down" if alert.value > alert.expected else "up"
    return f"{device}: {alert.value:.1f} instead of {alert.expected:.1f}, turning it {direction}"


def handle(record: Any, device: str) -> None:
    try:
        alert = alert_in(record.value)
    except ValueError as error:
        place = f"{record.topic} {record.partition} at {record.offset}"
        print(f"[{os.getpid()}] no alert in {place}: {str(error)[:100]!r}", file=sys.stderr, flush=True)
        return
    if alert.device == device:
        print(f"[{os.getpid()}] {act(alert)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("device", help="for instance temp_1")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    make_topics(options.bootstrap)
    consumer = KafkaConsumer(
        ALERTS,
        bootstrap_servers=options.bootstrap,
        group_id=f"controllers-{options.device}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
    )
    with suppress(KeyboardInterrupt):
        while True:
            for records in consumer.poll(timeout_ms=A_LONG_TIME_MS).values():
                for record in records:
                    handle(record, options.device)
            with suppress(KafkaError):  # whoever has the partition by now acts on them again
                consumer.commit()
    consumer.close()


if __name__ == "__main__":
    main()
