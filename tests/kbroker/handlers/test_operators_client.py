"""What kafka-python's admin client makes of the APIs for operators, and of those that are not served."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.errors import IncompatibleBrokerVersion

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def admin(shared_broker: BrokerProcess) -> Iterator[Any]:
    """Of a broker with the topic t, to which one producer has written."""
    speaker = Speaker(shared_broker.host, shared_broker.port)
    speaker.create("t")
    speaker.produce("t", batch(producer_id=7, producer_epoch=0, base_sequence=0))
    speaker.socket.close()
    admin = KafkaAdminClient(bootstrap_servers=shared_broker.address)
    yield admin
    admin.close()


def test_log_directories_are_described(admin: Any) -> None:
    [broker] = admin.describe_log_dirs()
    [directory] = broker["log_dirs"]
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    [topic] = directory["topics"]
    assert topic["partitions"][0]["partition_size"] > 60


def test_producers_are_described(admin: Any) -> None:
    found = admin.describe_producers([T0])
    assert [producer.producer_id for producer in found[T0].active_producers] == [7]


def test_resources_are_listed(admin: Any) -> None:
    assert admin.list_config_resources() == {"topic": ["t"], "broker": ["1"]}


def test_a_partition_that_is_where_it_should_be_is_left_there(admin: Any) -> None:
    admin.alter_partition_reassignments({T0: [1]})
    assert admin.list_partition_reassignments() == {}
    admin.elect_leaders(0, raise_errors=False)


def test_what_only_kraft_has_is_told_not_to_be_there(admin: Any) -> None:
    """As by Kafka before KRaft: the client finds no such API and says so, instead of waiting."""
    with pytest.raises(IncompatibleBrokerVersion, match="DescribeQuorum"):
        admin.describe_metadata_quorum()
