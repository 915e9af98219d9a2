"""Processes that die: real brokers, a real ZooKeeper, and kafka-python while it happens.

One cluster for all of these tests; each leaves it whole.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import NewTopic

from compat_tests.cluster.processes import Cluster
from compat_tests.cluster.traffic import Writer, check_nothing_is_lost, read_all
from kbroker.client import cluster as client
from kbroker.client.fetching import Reader
from kbroker.client.membership import GroupMember
from kbroker.client.offsets import LATEST, list_offsets
from kbroker.client.producing import Producer
from tests import zookeeper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(zookeeper.reason_to_skip()), reason=zookeeper.reason_to_skip()),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
    assert cluster.said("Traceback") == []


def create(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 3)])
    admin.close()
    cluster.until_in_sync(topic)


def test_no_acknowledged_record_is_lost_when_a_leader_is_killed(cluster: Cluster) -> None:
    """conformance 89, 91"""
    create(cluster, "killed")
    with Writer(cluster.bootstrap, "killed") as writer:
        writer.wait_for(100)
        victim = cluster.leader("killed")
        cluster.kill(victim)
        writer.wait_for(200)
        assert cluster.leader("killed") != victim
        assert victim not in cluster.isr("killed")
        cluster.start(victim)
        cluster.until_in_sync("killed")
        writer.wait_for(100)
    assert writer.errors == []
    check_nothing_is_lost(writer, read_all(cluster.bootstrap, "killed", after=writer))


def test_a_rolling_restart_is_not_noticed(cluster: Cluster) -> None:
    """conformance 92: not one error reaches a client that retries."""
    create(cluster, "rolled", 3)
    consumer: Any = KafkaConsumer(
        "rolled", bootstrap_servers=cluster.bootstrap, group_id="rolled", auto_offset_reset="earliest"
    )
    seen: set[bytes] = set()

    def consume() -> None:
        for records in consumer.poll(timeout_ms=50).values():
            seen.update(record.value for record in records)

    with Writer(cluster.bootstrap, "rolled", 3) as writer:
        for broker_id in cluster.members:
            writer.wait_for(50)
            consume()
            cluster.stop(broker_id)
            writer.wait_for(50)
            cluster.start(broker_id)
            cluster.until_in_sync("rolled")
            consume()
        writer.wait_for(50)
    assert writer.errors == []
    check_nothing_is_lost(writer, read_all(cluster.bootstrap, "rolled", 3, after=writer))
    deadline = time.monotonic() + 30
    while not {one.value for one in writer.acknowledged} <= seen and time.monotonic() < deadline:
        consume()
    consumer.close()
    assert {one.value for one in writer.acknowledged} <= seen


def test_another_controller_is_elected(cluster: Cluster) -> None:
    first = cluster.controller()
    epoch = cluster.read("/controller_epoch")
    cluster.kill(first)
    cluster.until(lambda: cluster.controller() not in (-1, first), "another controller")
    assert cluster.read("/controller_epoch") > epoch
    cluster.start(first)
    create(cluster, "later", 3)


def test_without_zookeeper_records_are_taken_and_given(cluster: Cluster) -> None:
    create(cluster, "steady")
    with Writer(cluster.bootstrap, "steady") as writer:
        writer.wait_for(20)
        cluster.zookeeper.kill()
        time.sleep(4)  # longer than a session lasts, if anybody could end it
        writer.wait_for(100)
        assert len(read_all(cluster.bootstrap, "steady")) > 100
        cluster.zookeeper.start()
        cluster.until(lambda: cluster.live() == {1, 2, 3} and cluster.controller() >= 0, "everybody back")
        writer.wait_for(20)
    assert writer.errors == []
    check_nothing_is_lost(writer, read_all(cluster.bootstrap, "steady", after=writer))
    create(cluster, "after")


def test_a_broker_that_was_frozen_finds_that_it_does_not_lead_any_more(cluster: Cluster) -> None:
    """conformance 91: its session has ended meanwhile."""
    create(cluster, "frozen")
    with Writer(cluster.bootstrap, "frozen") as writer:
        writer.wait_for(50)
        victim = cluster.leader("frozen")
        cluster.signal(victim, signal.SIGSTOP)
        try:
            cluster.until(lambda: cluster.leader("frozen") not in (-1, victim), "another leader")
            writer.wait_for(50)
        finally:
            cluster.signal(victim, signal.SIGCONT)
        cluster.until_in_sync("frozen")
        writer.wait_for(50)
    assert writer.errors == []
    check_nothing_is_lost(writer, read_all(cluster.bootstrap, "frozen", after=writer))


def test_the_client_of_the_commands_writes_and_reads_on_when_a_leader_and_coordinator_dies(
    cluster: Cluster,
) -> None:
    """Each record is there once and in order, and its group goes on."""
    create(cluster, "commands", 3)
    places = [("commands", number) for number in range(3)]
    with client.Cluster(",".join(cluster.bootstrap), timeout_s=10, patience_s=60) as kafka:
        member = GroupMember(kafka, "commands", ["commands"])
        assert member.join() == places
        producer = Producer(kafka, batch_bytes=2000)
        for number in range(9000):
            producer.send("commands", b"%d" % number, partition=number % 3)
            if number == 4500:
                coordinator = kafka.coordinator_address("commands").port
                victim = next(one for one in cluster.live() if cluster.members[one].port == coordinator)
                cluster.kill(victim)
        producer.flush()
        reader = Reader(kafka, dict.fromkeys(places, 0))
        read: dict[int, list[int]] = {0: [], 1: [], 2: []}
        ends = list_offsets(kafka, places, LATEST)
        while reader.positions != ends:
            for batch in reader.poll(500):
                for record in batch:
                    read[record.partition].append(int(record.value or b""))
        assert read == {first: list(range(first, 9000, 3)) for first in range(3)}
        assert member.commit({("commands", 0): 5}) or member.join() == places
        member.leave()
    cluster.start(victim)
    cluster.until_in_sync("commands")
