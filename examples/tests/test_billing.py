"""Tests of a small service that reads orders and writes bills, with kbroker's pytest fixtures.

    python -m pytest -p kbroker.testing.plugin examples/tests

(where kbroker is installed, pytest finds the plugin by itself). The service is at the end; kafka-python is
its client, any other would do.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer

from kbroker.testing import Broker


@pytest.fixture
def orders(kafka: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test: the broker is shared, and so ready in no time."""
    name = f"orders-{request.node.name}"
    kafka.create_topic(name, partitions=3)
    return name


def test_an_order_is_billed(kafka: Broker, orders: str) -> None:
    kafka.produce(orders, json.dumps({"items": 3, "price": 5}), key="customer-1")
    with Billing(kafka.bootstrap, orders, "bills"):
        kafka.wait_until(lambda: kafka.group("billing").lag == 0)
        [bill] = kafka.wait_until(lambda: kafka.records("bills"))
    assert (bill.key, json.loads(bill.value or b"")) == (b"customer-1", {"total": 15})


def test_billing_goes_on_after_the_broker_has_died(kafka_broker: Broker) -> None:
    kafka_broker.create_topic("orders")
    kafka_broker.produce("orders", json.dumps({"items": 1, "price": 2}))
    with Billing(kafka_broker.bootstrap, "orders", "bills"):
        kafka_broker.wait_until(lambda: len(kafka_broker.records("bills")) == 1)
        kafka_broker.kill()
        kafka_broker.restart()
        kafka_broker.produce("orders", json.dumps({"items": 1, "price": 7}))
        kafka_broker.wait_until(lambda: len(kafka_broker.records("bills")) == 2, timeout=30)
    assert json.loads(kafka_broker.records("bills")[-1].value or b"") == {"total": 7}


class Billing:
    """The service under test: runs until its `with` block ends."""

    def __init__(self, bootstrap: str, orders: str, bills: str) -> None:
        self._bootstrap, self._orders, self._bills = bootstrap, orders, bills
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Billing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap)
        for key, order in self._incoming():
            bill = {"total": order["items"] * order["price"]}
            producer.send(self._bills, json.dumps(bill).encode(), key=key).get(30)
        producer.close()

    def _incoming(self) -> Iterator[tuple[bytes | None, dict[str, int]]]:
        consumer = KafkaConsumer(
            self._orders,
            bootstrap_servers=self._bootstrap,
            group_id="billing",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
        )
        while not self._stopping.is_set():
            for records in consumer.poll(500).values():
                for record in records:
                    yield record.key, json.loads(record.value)
        consumer.close()
