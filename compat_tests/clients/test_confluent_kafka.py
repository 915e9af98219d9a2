"""confluent-kafka for Python, which is librdkafka: the scenarios, and what else its classes offer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
)

from compat_tests.clients.program import python_program
from compat_tests.clients.scenarios import Scenarios
from compat_tests.differential.scripts_records import KINDS
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch
from wire.compression import Codec

CLIENT = "confluent-kafka 2.16.1"
REFUSED = ("length-", "junk", "cut-short", "bytes-after", "not-compressed", "one-too", "header-key")
"""Kinds of records that are wrong in every codec, or do not decompress."""
AUTO_OFFSET_RESET = -140
"""What librdkafka calls an offset out of range, to users."""


class TestConfluentKafka(Scenarios):
    command = python_program("confluent")
    out_of_range_codes = (AUTO_OFFSET_RESET,)


@pytest.fixture
def admin(broker: BrokerProcess) -> Any:
    return AdminClient({"bootstrap.servers": broker.address})


@pytest.fixture
def ten_records(broker: BrokerProcess, topic: str) -> str:
    """A topic with one partition and the values 0 to 9, a second of time apart."""
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_000_000 + number * 1000)
    assert producer.flush(30) == 0
    assert topic in producer.list_topics(topic, 30).topics
    return topic


def consumer(broker: BrokerProcess, group: str, **options: Any) -> Consumer:
    settings = {"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "earliest"}
    return Consumer({**settings, "enable.auto.commit": False, **options})


def values(reader: Consumer, count: int) -> list[bytes | None]:
    return [message.value() for message in reader.consume(count, 20)]


def result(futures: Any) -> Any:
    """Of the only thing that was asked for."""
    [future] = futures.values()
    return future.result()


@pytest.mark.feature("fetch from offsets")
def test_a_consumer_moves_about_in_what_it_has_assigned_itself(
    broker: BrokerProcess, ten_records: str
) -> None:
    reader = consumer(broker, "unused")
    reader.assign([TopicPartition(ten_records, 0, 7)])
    assert values(reader, 3) == [b"7", b"8", b"9"]
    assert reader.get_watermark_offsets(TopicPartition(ten_records, 0)) == (0, 10)
    reader.seek(TopicPartition(ten_records, 0, 2))
    assert values(reader, 2) == [b"2", b"3"]
    assert reader.position([TopicPartition(ten_records, 0)])[0].offset == 4
    reader.pause([TopicPartition(ten_records, 0)])
    assert reader.consume(1, 0.3) == []
    reader.resume([TopicPartition(ten_records, 0)])
    assert values(reader, 6) == [b"%d" % number for number in range(4, 10)]
    reader.incremental_unassign([TopicPartition(ten_records, 0)])
    assert reader.assignment() == []
    reader.close()


@pytest.mark.feature("codecs")
def test_a_consumer_is_not_stopped_by_what_nobody_can_read(broker: BrokerProcess, ten_records: str) -> None:
    """conformance 23, 25: librdkafka waits in front of a stored batch that it cannot decompress, for good."""
    speaker = Speaker(broker.host, broker.port)
    labels = [label for label in KINDS if label.startswith(REFUSED)]
    for label in labels:
        for codec in list(Codec)[1:]:
            assert speaker.produce(ten_records, KINDS[label](codec), version=11).error_code, (label, codec)
        assert speaker.produce(ten_records, batch(label.encode())).error_code == 0
    speaker.socket.close()
    reader = consumer(broker, "unused")
    reader.assign([TopicPartition(ten_records, 0, 10)])
    assert values(reader, len(labels)) == [label.encode() for label in labels]
    reader.close()


@pytest.mark.feature("offsets by time")
def test_a_consumer_and_the_admin_client_ask_for_offsets(
    broker: BrokerProcess, admin: Any, ten_records: str
) -> None:
    """conformance 63, 64"""
    reader = consumer(broker, "unused")
    assert reader.offsets_for_times([TopicPartition(ten_records, 0, 1_004_500)], 20)[0].offset == 5
    reader.close()
    found = result(admin.list_offsets({TopicPartition(ten_records, 0): OffsetSpec.max_timestamp()}))
    assert (found.offset, found.timestamp) == (9, 1_009_000)


@pytest.mark.feature("commit and resume")
def test_a_consumer_commits_with_metadata_and_stores_offsets(broker: BrokerProcess, ten_records: str) -> None:
    reader = consumer(broker, ten_records, **{"enable.auto.offset.store": False})
    reader.subscribe([ten_records])
    assert len(values(reader, 10)) == 10
    reader.commit(offsets=[TopicPartition(ten_records, 0, 4, "why")], asynchronous=False)
    [found] = reader.committed([TopicPartition(ten_records, 0)], 20)
    assert (found.offset, found.metadata) == (4, "why")
    reader.store_offsets(offsets=[TopicPartition(ten_records, 0, 6)])
    reader.commit(asynchronous=False)
    assert reader.committed([TopicPartition(ten_records, 0)], 20)[0].offset == 6
    reader.close()


@pytest.mark.feature("configs")
def test_configurations_are_appended_subtracted_and_deleted(admin: Any, topic: str) -> None:
    """conformance 18"""
    result(admin.create_topics([NewTopic(topic, 1, 1)]))

    def alter(name: str, operation: AlterConfigOpType, value: str | None) -> None:
        change = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
        result(admin.incremental_alter_configs([resource]))

    def policy() -> Any:
        return result(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]))[
            "cleanup.policy"
        ]

    alter("cleanup.policy", AlterConfigOpType.APPEND, "compact")
    assert policy().value == "delete,compact"
    alter("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")
    assert (policy().value, policy().source) == ("compact", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    alter("cleanup.policy", AlterConfigOpType.DELETE, None)
    assert (policy().value, policy().source) == ("delete", ConfigSource.DEFAULT_CONFIG.value)


@pytest.mark.feature("configs")
def test_the_broker_describes_its_own_configuration(admin: Any) -> None:
    found = result(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]))
    assert found["log.retention.hours"].value == "168"
    assert found["group.initial.rebalance.delay.ms"].source == ConfigSource.STATIC_BROKER_CONFIG.value


@pytest.mark.feature("topics")
def test_topics_can_be_validated(admin: Any, topic: str) -> None:
    """conformance 16"""
    result(admin.create_topics([NewTopic(topic, 2, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=20).topics
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        result(admin.create_topics([NewTopic(topic, 1, 3)]))


@pytest.mark.feature("groups")
def test_groups_are_filtered_by_state(broker: BrokerProcess, admin: Any, ten_records: str) -> None:
    reader = consumer(broker, ten_records)
    reader.subscribe([ten_records])
    assert len(values(reader, 10)) == 10

    def listed(state: ConsumerGroupState) -> set[str]:
        return {one.group_id for one in admin.list_consumer_groups(states={state}).result().valid}

    assert ten_records in listed(ConsumerGroupState.STABLE)
    assert ten_records not in listed(ConsumerGroupState.EMPTY)
    described = result(admin.describe_consumer_groups([ten_records]))
    [member] = described.members
    assert [(one.topic, one.partition) for one in member.assignment.topic_partitions] == [(ten_records, 0)]
    assert described.partition_assignor == "range"
    reader.close()
    assert ten_records in listed(ConsumerGroupState.EMPTY)


@pytest.mark.feature("group offsets")
def test_all_offsets_of_a_group_are_listed(admin: Any, ten_records: str) -> None:
    wanted = ConsumerGroupTopicPartitions(ten_records, [TopicPartition(ten_records, 0, 4)])
    result(admin.alter_consumer_group_offsets([wanted]))
    found = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(ten_records)]))
    assert [(one.topic, one.partition, one.offset) for one in found.topic_partitions] == [(ten_records, 0, 4)]


@pytest.mark.feature("cluster")
def test_the_cluster_has_an_id(broker: BrokerProcess, admin: Any) -> None:
    described = admin.describe_cluster().result()
    assert described.cluster_id == admin.list_topics(timeout=20).cluster_id
