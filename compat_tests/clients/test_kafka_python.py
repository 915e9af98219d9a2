"""kafka-python: the scenarios, and what else its classes offer."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.clients.program import python_program
from compat_tests.clients.scenarios import Scenarios
from tests.kbroker.harness import BrokerProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka import (
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
        errors,
    )
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, MemberToRemove, OffsetSpec

CLIENT = "kafka-python 3.0.12"


class TestKafkaPython(Scenarios):
    command = python_program("kafka_python")
    lacks = {"null headers": "its producer takes only bytes as the value of a header"}  # noqa: RUF012


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    yield admin
    admin.close()


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=broker.address)
    yield producer
    producer.close()


@pytest.fixture
def ten_records(producer: Any, topic: str) -> Any:
    """A partition with the values 0 to 9, a second of time apart."""
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_000_000 + number * 1000)
    producer.flush()
    return TopicPartition(topic, 0)


def consumer(broker: BrokerProcess, *topics: str, **options: Any) -> Any:
    values = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 20_000, **options}
    return KafkaConsumer(*topics, bootstrap_servers=broker.address, **values)


def take(reader: Any, count: int) -> list[bytes]:
    """The values of so many records, or of fewer if no more come in time."""
    return [record.value for _, record in zip(range(count), reader, strict=False)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.feature("fetch from offsets")
def test_a_consumer_moves_about_in_what_it_has_assigned_itself(
    broker: BrokerProcess, ten_records: Any
) -> None:
    reader = consumer(broker)
    reader.assign([ten_records])
    assert reader.assignment() == {ten_records}
    assert reader.partitions_for_topic(ten_records.topic) == {0}
    assert ten_records.topic in reader.topics()
    reader.seek_to_end(ten_records)
    assert reader.position(ten_records) == 10
    reader.seek_to_beginning(ten_records)
    assert reader.position(ten_records) == 0
    reader.seek(ten_records, 7)
    assert take(reader, 3) == [b"7", b"8", b"9"]
    assert reader.highwater(ten_records) == 10
    reader.pause(ten_records)
    reader.seek(ten_records, 0)
    assert reader.paused() == {ten_records}
    assert reader.poll(200) == {}
    reader.resume(ten_records)
    assert take(reader, 10) == [b"%d" % number for number in range(10)]
    assert reader.metrics()
    reader.close()


@pytest.mark.feature("offsets by time")
def test_a_consumer_asks_for_offsets(broker: BrokerProcess, ten_records: Any) -> None:
    """conformance 63, 64"""
    reader = consumer(broker)
    assert reader.beginning_offsets([ten_records]) == {ten_records: 0}
    assert reader.end_offsets([ten_records]) == {ten_records: 10}
    found = reader.offsets_for_times({ten_records: 1_004_500})[ten_records]
    assert (found.offset, found.timestamp) == (5, 1_005_000)
    assert reader.offsets_for_times({ten_records: 2_000_000})[ten_records] is None
    reader.close()


@pytest.mark.feature("offsets by time")
def test_the_admin_client_asks_for_offsets(admin: Any, ten_records: Any) -> None:
    for spec, offset in ((OffsetSpec.EARLIEST, 0), (OffsetSpec.LATEST, 10), (OffsetSpec.MAX_TIMESTAMP, 9)):
        assert admin.list_partition_offsets({ten_records: spec})[ten_records].offset == offset


@pytest.mark.feature("commit and resume")
def test_a_consumer_commits_with_metadata(broker: BrokerProcess, ten_records: Any, topic: str) -> None:
    reader = consumer(broker, group_id=topic, enable_auto_commit=False)
    reader.assign([ten_records])
    assert reader.committed(ten_records) is None
    reader.commit({ten_records: OffsetAndMetadata(4, "why", -1)})
    found = reader.committed(ten_records, metadata=True)
    assert (found.offset, found.metadata) == (4, "why")
    done: list[Any] = []
    reader.commit_async({ten_records: OffsetAndMetadata(6, "", -1)}, callback=lambda *told: done.append(told))
    while not done:
        reader.poll(50)
    assert reader.committed(ten_records) == 6
    reader.close()


@pytest.mark.feature("consumer groups")
def test_a_consumer_subscribes_anew(broker: BrokerProcess, ten_records: Any, topic: str) -> None:
    reader = consumer(broker, group_id=topic)
    reader.subscribe([topic])
    assert reader.subscription() == {topic}
    assert len(take(reader, 10)) == 10
    assert reader.assignment() == {ten_records}
    assert reader.group_metadata().generation_id > 0
    reader.unsubscribe()
    assert reader.subscription() is None or reader.subscription() == set()
    reader.close()


@pytest.mark.feature("topics")
def test_a_producer_knows_its_partitions(producer: Any, admin: Any, topic: str) -> None:
    admin.create_topics({topic: {"num_partitions": 3, "replication_factor": 1}}, wait_for_metadata=True)
    assert producer.partitions_for(topic) == {0, 1, 2}
    assert producer.metrics()


@pytest.mark.feature("topics")
def test_topics_can_be_validated_waited_for_and_described_by_page(admin: Any, topic: str) -> None:
    """conformance 16"""
    wanted = {topic: {"num_partitions": 2, "replication_factor": 1}}
    admin.create_topics(wanted, validate_only=True)
    assert topic not in admin.list_topics()
    admin.create_topics(wanted)
    admin.wait_for_topics([topic])
    admin.create_partitions({topic: 5}, validate_only=True)
    [described] = admin.describe_topic_partitions([topic])["topics"]
    assert [one["partition_index"] for one in described["partitions"]] == [0, 1]
    topic_id = described["topic_id"]
    admin.delete_topics([topic_id])
    assert topic not in admin.list_topics()


@pytest.mark.feature("configs")
def test_configurations_are_appended_subtracted_and_reset(admin: Any, topic: str) -> None:
    """conformance 18"""
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})

    def alter(**configs: Any) -> None:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=dotted)])

    def modified() -> dict[str, str]:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
        return {name: one["value"] for name, one in found.items()}

    alter(cleanup_policy=(AlterConfigOp.APPEND, "compact"), retention_ms="4711")
    assert modified() == {"cleanup.policy": "delete,compact", "retention.ms": "4711"}
    alter(cleanup_policy=(AlterConfigOp.SUBTRACT, "delete"))
    assert modified()["cleanup.policy"] == "compact"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": None})])
    assert modified() == {"cleanup.policy": "compact"}
    [broker] = admin.describe_configs(
        [ConfigResource(ConfigResourceType.BROKER, "1")], config_filter="all"
    ).values()
    assert broker["1"]["log.retention.hours"]["value"] == "168"


@pytest.mark.feature("group offsets")
def test_offsets_of_a_group_are_reset_and_deleted(
    broker: BrokerProcess, admin: Any, ten_records: Any, topic: str
) -> None:
    admin.alter_group_offsets(topic, {ten_records: OffsetAndMetadata(4, "", -1)})
    assert admin.list_group_offsets(topic)[topic][ten_records].offset == 4
    assert admin.reset_group_offsets(topic, {ten_records: OffsetSpec.LATEST})[ten_records]["offset"] == 10
    assert admin.list_group_offsets({topic: [ten_records]})[topic][ten_records].offset == 10
    admin.delete_group_offsets(topic, [ten_records])
    assert admin.list_group_offsets(topic)[topic] == {}


@pytest.mark.feature("groups")
def test_groups_are_filtered_and_members_removed(
    broker: BrokerProcess, admin: Any, ten_records: Any, topic: str
) -> None:
    member = consumer(broker, topic, group_id=topic, group_instance_id="one")
    assert len(take(member, 10)) == 10
    assert topic in {one["group_id"] for one in admin.list_groups(states_filter=["Stable"])}
    assert topic not in {one["group_id"] for one in admin.list_groups(states_filter=["Empty"])}
    with pytest.raises(errors.GroupSubscribedToTopicError):
        raise admin.delete_group_offsets(topic, [ten_records])[ten_records]
    admin.remove_group_members(topic, [MemberToRemove(group_instance_id="one")])
    assert admin.describe_groups([topic])[topic]["group_state"] == "Empty"
    member.close(autocommit=False)


@pytest.mark.feature("cluster")
def test_the_broker_tells_what_it_is(broker: BrokerProcess, admin: Any) -> None:
    described = admin.describe_cluster()
    assert [(one["broker_id"], one["port"]) for one in described["brokers"]] == [(1, broker.port)]
    assert described["cluster_id"]
    assert admin.get_broker_version_data(1).broker_version >= (4, 0)
    assert admin.api_versions()


@pytest.mark.feature("topics")
def test_a_new_broker_has_no_topics(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker.log")
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    assert admin.list_topics() == []
    admin.close()
    assert broker.stop() == 0


@pytest.mark.feature("broker restart")
def test_what_was_acknowledged_is_there_after_kill_nine(tmp_path: Path) -> None:
    """conformance 41, 88, 89: records, offsets of groups, topics, and producer ids that do not repeat."""
    broker = BrokerProcess(tmp_path / "broker.log")
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for number in range(200):
        producer.send("t", b"%d" % number).get(20)
    reader = consumer(broker, "t", group_id="g", enable_auto_commit=False, session_timeout_ms=6000)
    take(reader, 123)
    reader.commit()
    broker.stop(signal.SIGKILL)
    producer.close(timeout=0)
    reader.close(autocommit=False)
    broker = BrokerProcess(tmp_path / "broker.log")
    resumed = consumer(broker, "t", group_id="g", consumer_timeout_ms=30_000)
    assert take(resumed, 77) == [b"%d" % number for number in range(123, 200)]
    resumed.close()
    assert broker.stop() == 0


@pytest.mark.feature("configs")
def test_a_compacted_topic_keeps_the_last_value_of_each_key(tmp_path: Path) -> None:
    """conformance 68"""
    options = ("--set", "log.cleaner.backoff.ms=50", "--set", "log.cleaner.min.cleanable.ratio=0.01")
    broker = BrokerProcess(tmp_path / "broker.log", *options)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    settings = {"cleanup.policy": "compact", "segment.bytes": "1500", "segment.ms": "100"}
    admin.create_topics({"t": {"num_partitions": 1, "replication_factor": 1, "configs": settings}})
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for number in range(200):
        producer.send("t", key=b"%d" % (number % 10), value=b"%d" % number).get(20)

    def left() -> list[int]:
        reader = consumer(broker, "t", consumer_timeout_ms=1000)
        values = [int(value) for value in take(reader, 201)]
        reader.close()
        return values

    until(lambda: len(left()) < 50)
    values = left()
    assert set(range(190, 200)) <= set(values)
    assert values == sorted(values)
    producer.close()
    admin.close()
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()
