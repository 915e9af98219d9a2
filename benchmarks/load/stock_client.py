"""confluent-kafka, where it is installed: the broker's CPU time under a client that people use."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.load.brokers import RunningBroker, cores, on_cores
from benchmarks.load.client import Client, Unexpected
from benchmarks.load.measuring import GIGABYTE, Measured
from benchmarks.load.workloads import PARTITIONS, TOPIC, value

MESSAGES = 200_000
MESSAGE_BYTES = 1024
PATIENCE_S = 60
PER_PARTITION = 512
"""Messages in a row for one partition, so that batches fill."""


def is_installed() -> bool:
    return importlib.util.find_spec("confluent_kafka") is not None


def measure(broker: RunningBroker) -> Iterator[tuple[str, Measured]]:
    """Produce with acks=all and consume again, with the client's own batching."""
    with Client(broker.port) as client, on_cores(cores()[1]):
        client.create_topic(TOPIC, PARTITIONS)
        yield "produce", timed(broker, produce)
        yield "consume", timed(broker, consume)
        client.delete_topic(TOPIC)


def timed(broker: RunningBroker, work: Callable[[str], None]) -> Measured:
    cpu_s, begin_s = broker.cpu_s, time.monotonic()
    work(f"127.0.0.1:{broker.port}")
    cpu_s, took_s = broker.cpu_s - cpu_s, time.monotonic() - begin_s
    size = MESSAGES * MESSAGE_BYTES
    return Measured(cpu_s / size * GIGABYTE, size / took_s / 1e6, 0, 0)


def produce(bootstrap: str) -> None:
    from confluent_kafka import Producer

    failed = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(MESSAGES):
        partition = number // PER_PARTITION % PARTITIONS
        while True:
            try:
                producer.produce(TOPIC, value(MESSAGE_BYTES), partition=partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(PATIENCE_S) or failed:
        raise Unexpected(f"not every message was acknowledged: {failed[:1]}")


def consume(bootstrap: str) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "load", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    taken, deadline = 0, time.monotonic() + PATIENCE_S
    while taken < MESSAGES:
        for message in consumer.consume(5000, 0.5):
            if message.error() or message.value() != value(MESSAGE_BYTES):
                raise Unexpected(f"consumed something else: {message.error()}")
            taken += 1
        if time.monotonic() > deadline:
            raise Unexpected(f"only {taken} of {MESSAGES} messages came")
    consumer.close()
