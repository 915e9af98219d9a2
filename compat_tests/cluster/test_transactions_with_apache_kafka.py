"""Transactions in a cluster of Apache Kafka 3.9 and kbroker, at default settings, while brokers are killed.

Java clients of both versions of the protocol copy exactly once. Coordinators and leaders are on both brokers,
so markers, verifications and requests of clients go both ways.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from compat_tests.cluster.test_with_apache_kafka import KAFKA, KBROKER, PROPERTIES, WHY_NOT, Mixed
from compat_tests.java import launch
from compat_tests.transactions.test_java_copier import COUNT, PATIENCE_S, started
from kbroker.coordinators.key_partition import partition_of
from tests import zookeeper
from tests.kbroker.speaker import Speaker
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))]

REPLICATED = {
    **PROPERTIES,
    "offsets.topic.num.partitions": 6,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.num.partitions": 6,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    with ExitStack() as stack:
        server = stack.enter_context(zookeeper.ZooKeeper(tmp_path / "zookeeper"))
        yield Mixed(tmp_path, server, stack, REPLICATED)


def features(address: str) -> tuple[list[str], int]:
    """The names of the finalized ones, and their epoch."""
    host, _, port = address.partition(":")
    speaker = Speaker(host, int(port))
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    reply = speaker.ask(request, ApiKey.API_VERSIONS, 4)
    speaker.socket.close()
    return [one.name for one in reply.finalized_features], reply.finalized_features_epoch


def copied(mixed: Mixed, topic: str) -> list[int]:
    """As a reader of committed data gets them."""
    consumer: Any = KafkaConsumer(
        bootstrap_servers=mixed.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    found: list[int] = []
    end = consumer.end_offsets([place])[place]
    while consumer.position(place) < end:
        found += [int(record.value) for each in consumer.poll(timeout_ms=500).values() for record in each]
    consumer.close()
    return found


def wait_for(mixed: Mixed, topic: str, count: int, copier: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while copier.poll() is None and len(copied(mixed, topic)) < count:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("version", ["3.9.2", "4.4.0"])
@pytest.mark.parametrize("first", ["kafka", "kbroker"])
def test_copies_are_made_exactly_once_while_both_are_killed(mixed: Mixed, version: str, first: str) -> None:
    """Whoever starts first is the controller, and finds the cluster without the other."""
    if reason := launch.reason_to_skip(version):
        pytest.skip(reason)
    for start in (
        (mixed.start_kafka, mixed.start_kbroker)
        if first == "kafka"
        else (
            mixed.start_kbroker,
            mixed.start_kafka,
        )
    ):
        start()
    mixed.until_true(lambda: features(mixed.kafka.bootstrap) == features(mixed.kbroker.address))
    assert features(mixed.kbroker.address) == ([], int(first == "kbroker"))
    mixed.create()
    mixed.write("ours", COUNT)
    copier = started(version, ",".join(mixed.bootstrap), "ours", "kafkas")
    try:
        wait_for(mixed, "kafkas", 50, copier)
        mixed.kafka.close(signal.SIGKILL)
        mixed.until_gone(KAFKA)
        mixed.start_kafka()
        mixed.until("kafkas", KBROKER, {KAFKA, KBROKER})
        wait_for(mixed, "kafkas", 200, copier)
        mixed.kbroker.stop(signal.SIGKILL)
        mixed.until_gone(KBROKER)
        mixed.start_kbroker()
        output, _ = copier.communicate(timeout=PATIENCE_S)
        assert copier.returncode == 0, output
    finally:
        copier.kill()
        copier.communicate()
    assert copied(mixed, "kafkas") == list(range(COUNT))
    assert features(mixed.kbroker.address) == features(mixed.kafka.bootstrap)


def test_every_coordinator_reaches_every_leader(mixed: Mixed) -> None:
    """Ids of every partition of `__transaction_state`, and partitions that either broker leads."""
    mixed.start_kafka()
    mixed.start_kbroker()
    mixed.create()
    coordinators = set()
    for number in range(12):
        name = f"writer {number * number}"
        coordinators.add(partition_of(name, 6))
        producer: Any = KafkaProducer(bootstrap_servers=mixed.bootstrap, transactional_id=name)
        producer.init_transactions()
        for is_commit in (True, False):
            producer.begin_transaction()
            for topic in ("kafkas", "ours"):
                producer.send(topic, b"%d" % (number if is_commit else -1), partition=0)
            if is_commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.close()
    assert coordinators == set(range(6))
    for topic in ("kafkas", "ours"):
        mixed.until_true(lambda topic=topic: len(copied(mixed, topic)) == 12)  # type: ignore[misc]
        assert copied(mixed, topic) == list(range(12))
