"""A controller: acts on the alerts of one device, beside as many other controllers as there are.

    python spark_examples/controller.py temp_1    # start it twice or more: they share the work

Controllers of a device are one consumer group, so each alert goes to one of them; when one ends, the
others take its share over. Nothing is asked for in turns: the broker holds the request until an alert is
there. An alert is committed after it was acted on, so one whose controller dies in between is acted on
again."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

PARTITIONS = 3
"""How many controllers of a device can work at a time."""
A_LONG_TIME_MS = 60_000


def topic_of(device: str) -> str:
    return f"alerts-{device}"


def create_topic(bootstrap: str, device: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    with suppress(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic_of(device), PARTITIONS, 1)])
    admin.close()


def act(device: str, alert: dict[str, Any]) -> str:
    direction = "down" if alert["value"] > alert["expected"] else "up"
    return f"{device}: {alert['value']:.1f} instead of {alert['expected']:.1f}, turning it {direction}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("device", help="for instance temp_1")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    create_topic(options.bootstrap, options.device)
    consumer = KafkaConsumer(
        topic_of(options.device),
        bootstrap_servers=options.bootstrap,
        group_id=f"controllers-{options.device}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    with suppress(KeyboardInterrupt):
        while True:
            for records in consumer.poll(timeout_ms=A_LONG_TIME_MS).values():
                for record in records:
                    print(f"[{os.getpid()}] {act(options.device, json.loads(record.value))}", flush=True)
                consumer.commit()
    consumer.close()


if __name__ == "__main__":
    main()
