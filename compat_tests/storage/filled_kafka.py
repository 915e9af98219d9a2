"""Fills a real Kafka with everything that shows in its files, and notes what its clients then read.

    codecs        a partition per codec; out-of-order timestamps, headers, null keys and values
    stamped       LogAppendTime
    compacted     cleaned, with tombstones
    transactions  committed, aborted and interleaved, of three producers; two partitions
    cleaned       aborted and committed transactions in a compacted topic
    trimmed       DeleteRecords in the middle of a segment
    empty         nothing

Index sizes are set so that all of them roll every few kilobytes. The broker is stopped in between, so that
there are several leader epochs. A consumer group has committed offsets, some of them in a transaction.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import cramjam
import kafka.codec as kafka_codec
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

from compat_tests.apache_kafka import ApacheKafka
from storage.checkpoints import CLEANER_OFFSETS, read_offsets
from storage.files import Disk

# kafka-python asks for python-snappy, which would be one more package to install for two functions.
kafka_codec.snappy = SimpleNamespace(
    compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
    decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
)

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
WAIT_S = 60

SMALL = {"index.interval.bytes": "400", "segment.index.bytes": "240"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "segment.ms": "500",
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (len(CODECS), SMALL),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime", **SMALL}),
    "compacted": (1, {**COMPACT, **SMALL}),
    "transactions": (2, SMALL),
    "cleaned": (1, {**COMPACT, **SMALL}),
    "trimmed": (1, SMALL),
    "empty": (1, {}),
}
"""Partitions, and configuration."""

PROPERTIES = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 1000}


class ReadRecord(NamedTuple):
    """A record as a Kafka client read it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Seen:
    """What clients saw of one partition."""

    begin: int
    end: int
    last_stable_offset: int
    records: list[ReadRecord]
    committed: list[ReadRecord]
    times: dict[int, tuple[int, int]]
    """For a timestamp, offset and timestamp of the first record that is not older."""


NOTHING_FOUND = -1, -1

Partitions = dict[tuple[str, int], Seen]


def fill(kafka: ApacheKafka) -> None:
    """The first time."""
    with admin_of(kafka) as admin:
        admin.create_topics(
            [
                NewTopic(name, partitions, 1, topic_configs=settings)
                for name, (partitions, settings) in TOPICS.items()
            ]
        )
    for partition, codec in enumerate(CODECS):
        write_codec(kafka, partition, codec, 400)
    write_some(kafka, "stamped", 300)
    write_some(kafka, "trimmed", 300)
    write_transactions(kafka, "transactions", (0, 1), 12)
    write_compacted(kafka)
    write_transactions(kafka, "cleaned", (0,), 8)
    roll(kafka, "compacted")
    roll(kafka, "cleaned")
    commit_offsets(kafka)
    with admin_of(kafka) as admin:
        admin.delete_records({TopicPartition("trimmed", 0): 137})
    wait_for_cleaner(kafka)


def fill_again(kafka: ApacheKafka) -> None:
    """In another leader epoch."""
    for partition, codec in enumerate(CODECS):
        write_codec(kafka, partition, codec, 60)
    write_transactions(kafka, "transactions", (0, 1), 5)
    write_some(kafka, "stamped", 20)
    commit_offsets(kafka)


def write_codec(kafka: ApacheKafka, partition: int, codec: str | None, count: int) -> None:
    chance = random.Random(partition * 1000 + count)
    with producer_of(kafka, compression_type=codec, batch_size=900, linger_ms=2) as producer:
        for number in range(count):
            value = None if number % 50 == 7 else text(chance, 20 + chance.randrange(300))
            key = None if number % 10 == 3 else b"key-%d" % (number % 37)
            headers = [("trace", b"%d" % number), ("empty", b"")] if number % 9 == 0 else []
            timestamp = START_MS + 1000 * number - chance.randrange(20_000)
            producer.send("codecs", value, key, headers, partition, timestamp)


def write_some(kafka: ApacheKafka, topic: str, count: int) -> None:
    chance = random.Random(count)
    with producer_of(kafka, batch_size=500, linger_ms=1) as producer:
        for number in range(count):
            producer.send(topic, text(chance, 100), b"%d" % number, partition=0)


def write_compacted(kafka: ApacheKafka) -> None:
    chance = random.Random(3)
    with producer_of(kafka, batch_size=900, linger_ms=1, compression_type="lz4") as producer:
        for number in range(600):
            value = None if number % 11 == 5 else text(chance, 60)
            producer.send("compacted", value, b"key-%d" % chance.randrange(40), partition=0)


def roll(kafka: ApacheKafka, topic: str) -> None:
    """Only closed segments are cleaned, and one is closed when a record comes after its time."""
    directory = kafka.log_dir / f"{topic}-0"
    before = max(directory.glob("*.log"))
    with producer_of(kafka) as producer:

        def has_rolled() -> bool:
            producer.send(topic, b"late", b"late", partition=0).get(WAIT_S)
            return max(directory.glob("*.log")) > before

        wait_until(has_rolled, f"{topic} to roll")


def write_transactions(kafka: ApacheKafka, topic: str, partitions: tuple[int, ...], rounds: int) -> None:
    """Three producers in turns, each with its own habit of ending transactions."""
    chance = random.Random(rounds)
    with (
        producer_of(kafka, transactional_id=f"{topic}-a", batch_size=400) as first,
        producer_of(kafka, transactional_id=f"{topic}-b", batch_size=400) as second,
        producer_of(kafka, batch_size=400) as third,
    ):
        first.init_transactions()
        second.init_transactions()
        for number in range(rounds):
            first.begin_transaction()
            second.begin_transaction()
            for producer in (first, second, third, first):
                for partition in partitions:
                    for key in range(3):
                        value = text(chance, 80)
                        producer.send(topic, value, b"key-%d" % (number % 5 * 10 + key), partition=partition)
                producer.flush()
            if number % 3 == 1:
                offsets = {TopicPartition(topic, 0): OffsetAndMetadata(number, "in a transaction", -1)}
                first.send_offsets_to_transaction(offsets, "readers")
            end(first, commit=number % 3 != 0)
            end(second, commit=number % 2 == 0)


def end(producer: KafkaProducer, *, commit: bool) -> None:
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def commit_offsets(kafka: ApacheKafka) -> None:
    with consumer_of(kafka, group_id="readers") as consumer:
        partition = TopicPartition("codecs", 0)
        consumer.assign([partition])
        for offset in (5, 10, 20):
            consumer.commit({partition: OffsetAndMetadata(offset, f"at {offset}", -1)})


def leave_transaction_open(kafka: ApacheKafka) -> None:
    """A producer that writes and is gone, without the abort that closing it in peace would bring."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id="never-ends")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(10):
        producer.send("transactions", b"pending", b"%d" % number, partition=1)
    producer.flush()
    producer.close(timeout=0)


def wait_for_cleaner(kafka: ApacheKafka) -> None:
    """Until the cleaner has got to the end of what it may clean, in both topics."""
    path = str(kafka.log_dir / CLEANER_OFFSETS)
    wanted = {("compacted", 0): 600, ("cleaned", 0): 100}

    def is_done() -> bool:
        offsets = read_offsets(Disk(), path)
        return all(offsets.get(partition, 0) >= offset for partition, offset in wanted.items())

    wait_until(is_done, "the cleaner to clean")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Another process is at work, and does not say when it is done."""
    deadline = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_S} s for {what}")
        pause.wait(0.05)


def read_all(kafka: ApacheKafka) -> Partitions:
    """Everything, as clients see it."""
    partitions = [(topic, number) for topic, (count, _) in TOPICS.items() for number in range(count)]
    return {partition: read_partition(kafka, *partition) for partition in partitions}


def read_partition(kafka: ApacheKafka, topic: str, number: int) -> Seen:
    partition = TopicPartition(topic, number)
    with consumer_of(kafka) as consumer:
        begin = consumer.beginning_offsets([partition])[partition]
        end = consumer.end_offsets([partition])[partition]
        records = read_up_to(consumer, partition, begin, end)
        times = look_up_times(consumer, partition, records)
    with consumer_of(kafka, isolation_level="read_committed") as consumer:
        stable = consumer.end_offsets([partition])[partition]
        committed = read_up_to(consumer, partition, begin, stable)
    return Seen(begin, end, stable, records, committed, times)


def look_up_times(
    consumer: KafkaConsumer, partition: TopicPartition, records: list[ReadRecord]
) -> dict[int, tuple[int, int]]:
    known = [record.timestamp for record in records[:: max(1, len(records) // 12)]]
    times = {}
    for timestamp in {0, *known, *(one + 1 for one in known), 1 << 44}:
        found = consumer.offsets_for_times({partition: timestamp})[partition]
        times[timestamp] = NOTHING_FOUND if found is None else (found.offset, found.timestamp)
    return times


def read_up_to(consumer: KafkaConsumer, partition: TopicPartition, begin: int, end: int) -> list[ReadRecord]:
    consumer.assign([partition])
    consumer.seek(partition, begin)
    found: list[ReadRecord] = []
    deadline = time.monotonic() + WAIT_S
    while consumer.position(partition) < end:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{partition} cannot be read up to {end}")
        for record in consumer.poll(100).get(partition, []):
            headers = tuple((key, value) for key, value in record.headers)
            found.append(
                ReadRecord(
                    record.offset, record.timestamp, record.timestamp_type, record.key, record.value, headers
                )
            )
    return found


def text(chance: random.Random, size: int) -> bytes:
    """Compressible, but not by much."""
    return "".join(chance.choices("abcdefghijklmnop ", k=size)).encode()


@contextmanager
def producer_of(kafka: ApacheKafka, **settings: object) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, **settings)
    try:
        yield producer
        producer.flush()
    finally:
        producer.close()


@contextmanager
def consumer_of(kafka: ApacheKafka, **settings: object) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, enable_auto_commit=False, **settings)
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def admin_of(kafka: ApacheKafka) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def kafka_for_filling(version: str, directory: Path) -> ApacheKafka:
    return ApacheKafka(version, directory, properties=PROPERTIES)
