"""Clients that write and read while brokers come and go, and what must hold of what they saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import confluent_kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

PATIENCE_S = 60


class Acknowledged(NamedTuple):
    """A record that the cluster has promised to keep."""

    partition: int
    offset: int
    value: bytes


class InBackground:
    """Works in a thread while its `with` block lasts."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._close()

    def _work(self) -> None:
        """Until `_stopping` is set."""
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class Writer(InBackground):
    """A producer: numbered records, one after the other, acks=all."""

    def __init__(self, bootstrap: Sequence[str], topic: str, partitions: int = 1, rate: float = 300) -> None:
        super().__init__()
        self.acknowledged: list[Acknowledged] = []
        self.errors: list[BaseException] = []
        self._topic = topic
        self._partitions = partitions
        self._interval_s = 1 / rate
        self._connect(list(bootstrap))

    def _work(self) -> None:
        number = 0
        while not self._stopping.wait(self._interval_s):
            self._send(b"%d" % number, number % self._partitions)
            number += 1

    def _connect(self, bootstrap: list[str]) -> None:
        self._producer: Any = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            retry_backoff_ms=50,
            request_timeout_ms=4_000,
            delivery_timeout_ms=PATIENCE_S * 1000,
            metadata_max_age_ms=3000,
        )

    def _send(self, value: bytes, partition: int) -> None:
        future = self._producer.send(self._topic, value, partition=partition)
        future.add_callback(lambda metadata: self._succeeded(metadata.partition, metadata.offset, value))
        future.add_errback(self.errors.append)

    def _close(self) -> None:
        self._producer.flush(PATIENCE_S)
        self._producer.close()

    def _succeeded(self, partition: int, offset: int, value: bytes) -> None:
        self.acknowledged.append(Acknowledged(partition, offset, value))

    def wait_for(self, more: int) -> None:
        """Until that many more records have been acknowledged."""
        wanted = len(self.acknowledged) + more
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.acknowledged)} of {wanted}; errors: {self.errors[:3]}")
            time.sleep(0.01)


class LibrdkafkaWriter(Writer):
    """The same with confluent-kafka."""

    def _connect(self, bootstrap: list[str]) -> None:
        self._producer: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": ",".join(bootstrap),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "retry.backoff.ms": 50,
                "request.timeout.ms": 4_000,
                "socket.timeout.ms": 4_000,
                "delivery.timeout.ms": PATIENCE_S * 1000,
                "topic.metadata.refresh.interval.ms": 3000,
            }
        )

    def _send(self, value: bytes, partition: int) -> None:
        self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        self._producer.poll(0)

    def _close(self) -> None:
        if left := self._producer.flush(PATIENCE_S):
            self.errors.append(TimeoutError(f"{left} records were neither acknowledged nor refused"))

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(confluent_kafka.KafkaException(error))
        else:
            self._succeeded(message.partition(), message.offset(), message.value())


class Watcher(InBackground):
    """A consumer, from the beginning of every partition on."""

    def __init__(self, bootstrap: Sequence[str], topic: str, partitions: int = 1) -> None:
        super().__init__()
        self.seen: list[Acknowledged] = []
        self._consumer: Any = KafkaConsumer(
            bootstrap_servers=list(bootstrap),
            enable_auto_commit=False,
            auto_offset_reset="none",
            request_timeout_ms=4_000,
            metadata_max_age_ms=3000,
        )
        assigned = [TopicPartition(topic, index) for index in range(partitions)]
        self._consumer.assign(assigned)
        for one in assigned:
            self._consumer.seek(one, 0)
        self._errors: list[Exception] = []

    def _close(self) -> None:
        self._consumer.close()

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                for records in self._consumer.poll(timeout_ms=50).values():
                    self.seen += [Acknowledged(one.partition, one.offset, one.value) for one in records]
        except Exception as error:
            self._errors.append(error)

    def check(self, found: Sequence[Acknowledged]) -> None:
        """It saw a beginning of what is there at the end: nothing left out, doubled or taken back."""
        assert self._errors == []
        for partition in {one.partition for one in found}:
            seen = [one for one in self.seen if one.partition == partition]
            there = [one for one in found if one.partition == partition]
            assert seen == there[: len(seen)], f"partition {partition}"


def read_all(
    bootstrap: Sequence[str], topic: str, partitions: int = 1, after: Writer | None = None
) -> list[Acknowledged]:
    """Everything that is committed now. What a writer was told is, a new leader may know a moment later."""
    acknowledged = [] if after is None else list(after.acknowledged)
    consumer: Any = KafkaConsumer(
        bootstrap_servers=list(bootstrap), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        assigned = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        found: list[Acknowledged] = []
        deadline = time.monotonic() + PATIENCE_S
        while any(one.offset >= ends[assigned[one.partition]] for one in acknowledged):
            if time.monotonic() > deadline:
                break  # they are lost: whoever compares will say which
            ends = consumer.end_offsets(assigned)
        while any(consumer.position(one) < ends[one] for one in assigned):
            if time.monotonic() > deadline:
                raise TimeoutError(f"read {len(found)} records of {ends}")
            for records in consumer.poll(timeout_ms=200).values():
                found += [Acknowledged(one.partition, one.offset, one.value) for one in records]
        return found
    finally:
        consumer.close()


def check_nothing_is_lost(writer: Writer, found: Sequence[Acknowledged]) -> None:
    """Every acknowledged record is where it was said to be, once, and each partition is in order."""
    missing = set(writer.acknowledged) - set(found)
    assert not missing, f"{len(missing)} of {len(writer.acknowledged)} lost, such as {sorted(missing)[:5]}"
    values = [one.value for one in found]
    assert len(values) == len(set(values)), "an idempotent producer's record is there twice"
    for partition in {one.partition for one in found}:
        numbers = [int(one.value) for one in found if one.partition == partition]
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
