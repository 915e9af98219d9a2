"""kafka-python as it comes finds a cluster of one broker without topics."""

from __future__ import annotations

from kafka import KafkaAdminClient, KafkaConsumer

from tests.kbroker.harness import BrokerProcess


def test_kafka_python_consumer_bootstraps_and_sees_no_topics(shared_broker: BrokerProcess) -> None:
    consumer = KafkaConsumer(bootstrap_servers=shared_broker.address)
    try:
        assert consumer.topics() == set()
        assert not consumer.partitions_for_topic("unknown")
    finally:
        consumer.close()


def test_kafka_python_admin_sees_the_cluster(shared_broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=shared_broker.address)
    try:
        assert admin.list_topics() == []
    finally:
        admin.close()
