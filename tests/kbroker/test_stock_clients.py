"""kafka-python as it comes: topics, records, groups, configuration, and what is there after a restart."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
    from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

pytestmark = pytest.mark.slow

CODECS = [None, "gzip", "lz4", "zstd"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "broker.log", "--set", "group.initial.rebalance.delay.ms=0")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    yield admin
    admin.close()


def consumer(broker: BrokerProcess, *topics: str, **options: Any) -> Any:
    values = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 20_000, **options}
    return KafkaConsumer(*topics, bootstrap_servers=broker.address, **values)


def take(reader: Any, count: int) -> list[Any]:
    """So many records, or fewer if no more come in time."""
    found: list[Any] = []
    for record in reader:
        found.append(record)
        if len(found) == count:
            break
    return found


def test_a_new_broker_has_no_topics(broker: BrokerProcess, admin: Any) -> None:
    assert admin.list_topics() == []
    reader = consumer(broker)
    assert reader.topics() == set()
    reader.close()


def test_topics_are_created_described_grown_and_deleted(broker: BrokerProcess, admin: Any) -> None:
    """conformance 15-17"""
    admin.create_topics([NewTopic("t", 2, 1, topic_configs={"retention.ms": "1000"})])
    assert admin.list_topics() == ["t"]
    [described] = admin.describe_topics(["t"])
    first_id = described["topic_id"]
    assert [one["leader_id"] for one in described["partitions"]] == [1, 1]
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("t", 1, 1)])
    admin.create_partitions({"t": NewPartitions(3)})
    assert len(admin.describe_topics(["t"])[0]["partitions"]) == 3
    admin.delete_topics(["t"])
    assert admin.list_topics() == []
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["t"])
    admin.create_topics([NewTopic("t", 1, 1)])
    assert admin.describe_topics(["t"])[0]["topic_id"] != first_id


def test_configurations_are_described_and_altered(broker: BrokerProcess, admin: Any) -> None:
    """conformance 18"""
    admin.create_topics([NewTopic("t", 1, 1)])
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")

    def retention() -> str:
        described = admin.describe_configs([topic], config_filter="all")
        text = str(described)
        assert "retention.ms" in text
        return text

    assert "604800000" in retention()
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "t", configs={"retention.ms": "4711"})])
    assert "4711" in retention()


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(broker: BrokerProcess, codec: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address, compression_type=codec, linger_ms=5)
    sent = [
        (None if n % 3 == 0 else b"k%d" % n, None if n % 3 and n % 5 == 0 else b"v" * n, [("h", b"%d" % n)])
        for n in range(200)
    ]
    for key, value, headers in sent:
        producer.send("t", key=key, value=value, headers=headers, partition=0)
    producer.flush()
    producer.close()
    reader = consumer(broker, "t")
    found = take(reader, len(sent))
    reader.close()
    assert [(r.key, r.value, list(r.headers)) for r in found] == sent
    assert [r.offset for r in found] == list(range(len(sent)))


def test_a_large_record_passes_and_a_too_large_one_is_refused(broker: BrokerProcess) -> None:
    """conformance 28"""
    producer = KafkaProducer(bootstrap_servers=broker.address, max_request_size=4 << 20)
    big = bytes(1_000_000)
    assert producer.send("t", big).get(20).offset == 0
    with pytest.raises(Exception, match=r"(?i)large"):
        producer.send("t", bytes(2_000_000)).get(20)
    producer.close()
    reader = consumer(broker, "t")
    [record] = take(reader, 1)
    assert record.value == big
    reader.close()


def test_order_is_kept_per_key(broker: BrokerProcess, admin: Any) -> None:
    admin.create_topics([NewTopic("t", 4, 1)])
    producer = KafkaProducer(bootstrap_servers=broker.address, linger_ms=2)
    for number in range(3000):
        producer.send("t", key=b"%d" % (number % 17), value=b"%d" % number)
    producer.flush()
    producer.close()
    reader = consumer(broker, "t")
    by_key: dict[bytes, list[int]] = {}
    for record in take(reader, 3000):
        by_key.setdefault(record.key, []).append(int(record.value))
    reader.close()
    assert by_key == {b"%d" % key: list(range(key, 3000, 17)) for key in range(17)}


def test_seeking_by_offset_and_by_time(broker: BrokerProcess) -> None:
    """conformance 63, 64"""
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for number in range(10):
        producer.send("t", b"%d" % number, timestamp_ms=1_000_000 + number * 1000, partition=0)
    producer.flush()
    producer.close()
    partition = TopicPartition("t", 0)
    reader = consumer(broker)
    reader.assign([partition])
    assert reader.beginning_offsets([partition]) == {partition: 0}
    assert reader.end_offsets([partition]) == {partition: 10}
    assert reader.offsets_for_times({partition: 1_004_500})[partition].offset == 5
    reader.seek(partition, 7)
    assert [record.value for record in take(reader, 3)] == [b"7", b"8", b"9"]
    reader.close()


class Worker:
    """A consumer with a thread of its own, as competing consumers have."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.share: frozenset[Any] = frozenset()
        self.got: list[int] = []
        self._reader = consumer(broker, "t", group_id="g")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._stopping.is_set():
            for records in self._reader.poll(200).values():
                self.got += [int(record.value) for record in records]
            self.share = frozenset(self._reader.assignment())
        self._reader.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_competing_consumers_share_the_work_and_one_takes_over(broker: BrokerProcess, admin: Any) -> None:
    """conformance 73, 76, 79: no record is lost on the way, and while nobody leaves none is read twice."""
    admin.create_topics([NewTopic("t", 4, 1)])
    producer = KafkaProducer(bootstrap_servers=broker.address)
    first, second = Worker(broker), Worker(broker)
    try:
        until(lambda: len(first.share) == len(second.share) == 2 and first.share.isdisjoint(second.share))
        for number in range(400):
            producer.send("t", b"%d" % number, partition=number % 4)
        until(lambda: len(first.got) + len(second.got) == 400)
        assert sorted(first.got + second.got) == list(range(400))
        assert len(first.got) == len(second.got) == 200
        second.stop()
        until(lambda: len(first.share) == 4)
        for number in range(400, 800):
            producer.send("t", b"%d" % number, partition=number % 4)
        until(lambda: set(range(400, 800)) <= set(first.got))
    finally:
        first.stop()
        second.stop()
        producer.close()


def test_groups_are_listed_described_and_deleted(broker: BrokerProcess, admin: Any) -> None:
    """conformance 80, 81"""
    admin.create_topics([NewTopic("t", 1, 1)])
    member = consumer(broker, "t", group_id="g")
    while not member.assignment():
        member.poll(100)
    member.commit()
    assert "g" in str(admin.list_groups())
    assert "Stable" in str(admin.describe_groups(["g"]))
    member.close()
    admin.delete_groups(["g"])
    assert "'g'" not in str(admin.list_groups())


def test_what_was_acknowledged_is_there_after_kill_nine(tmp_path: Path) -> None:
    """conformance 41, 88, 89: records, offsets of groups, topics, and producer ids that do not repeat."""
    broker = BrokerProcess(tmp_path / "broker.log")
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for number in range(500):
        producer.send("t", b"%d" % number).get(20)
    reader = consumer(broker, "t", group_id="g", enable_auto_commit=False, session_timeout_ms=6000)
    take(reader, 123)
    reader.commit()
    broker.stop(signal.SIGKILL)
    producer.close(timeout=0)
    reader.close(autocommit=False)
    broker = BrokerProcess(tmp_path / "broker.log")
    resumed = consumer(broker, "t", group_id="g", consumer_timeout_ms=30_000)
    assert [int(record.value) for record in take(resumed, 377)] == list(range(123, 500))
    resumed.close()
    assert broker.stop() == 0


def test_a_compacted_topic_keeps_the_last_value_of_each_key(tmp_path: Path) -> None:
    """conformance 68"""
    options = ("--set", "log.cleaner.backoff.ms=50", "--set", "log.cleaner.min.cleanable.ratio=0.01")
    broker = BrokerProcess(tmp_path / "broker.log", *options)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    settings = {"cleanup.policy": "compact", "segment.bytes": "2000", "segment.ms": "100"}
    admin.create_topics([NewTopic("t", 1, 1, topic_configs=settings)])
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for number in range(300):
        producer.send("t", key=b"%d" % (number % 10), value=b"%d" % number).get(20)

    def left() -> list[int]:
        reader = consumer(broker, "t", consumer_timeout_ms=1000)
        values = [int(record.value) for record in take(reader, 301)]
        reader.close()
        return values

    until(lambda: len(left()) < 50)
    values = left()
    assert set(range(290, 300)) <= set(values)
    assert values == sorted(values)
    producer.close()
    admin.close()
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()
