"""Links that fail between living brokers, ZooKeeper and clients, and a ZooKeeper of three whose leader dies.

The records are written by kafka-python and librdkafka, and read by kafka-python, all the while.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from compat_tests.cluster.processes import Cluster
from compat_tests.cluster.proxies import CutCluster
from compat_tests.cluster.test_failures import create
from compat_tests.cluster.traffic import LibrdkafkaWriter, Watcher, Writer, check_nothing_is_lost, read_all
from kbroker.client import cluster as client
from kbroker.client.connection import Address, Connection
from tests import zookeeper
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.errors import ErrorCode
from wire.records import BatchBuilder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("networks"),
    pytest.mark.skipif(bool(zookeeper.reason_to_skip()), reason=zookeeper.reason_to_skip()),
]
WRITERS = pytest.mark.parametrize("kind", [Writer, LibrdkafkaWriter])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutCluster]:
    with CutCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
        cluster.until(lambda: cluster.live() == set(cluster.members), "everybody there")
    assert cluster.said("Traceback") == []


@contextmanager
def traffic(cluster: Cluster, topic: str, kind: type[Writer]) -> Iterator[Writer]:
    """Nothing of it is lost, doubled, out of order, or seen and taken back."""
    with Watcher(cluster.bootstrap, topic) as watcher:
        with kind(cluster.bootstrap, topic) as writer:
            writer.wait_for(50)
            yield writer
            cluster.until_in_sync(topic)
            writer.wait_for(50)
        assert writer.errors == []
        found = read_all(cluster.bootstrap, topic, after=writer)
        check_nothing_is_lost(writer, found)
        cluster.until(lambda: len(watcher.seen) >= len(found), "all of it read")
    watcher.check(found)


@WRITERS
def test_a_leader_without_zookeeper_does_not_lead_on(cluster: CutCluster, kind: type[Writer]) -> None:
    """conformance 91: it lives, and clients and followers reach it; but its session has ended."""
    topic = f"expired-{kind.__name__}"
    create(cluster, topic)
    with traffic(cluster, topic, kind) as writer:
        leader = cluster.leader(topic)
        with cluster.zookeeper_links[leader].cut():
            cluster.until(lambda: cluster.leader(topic) not in (-1, leader), "another leader")
            assert leader not in cluster.isr(topic)
            if kind is Writer:  # librdkafka goes on asking the broker that it has used last who leads
                writer.wait_for(50)
        cluster.until(lambda: cluster.live() == set(cluster.members), "it is registered again")


def asked(connection: Connection, topic: str, acks: int) -> tuple[int, int]:
    """The errors of a Produce and of a Fetch."""
    builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp_ms=1)
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=builder.build())]
    )
    produced = connection.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]))
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 16)
    fetched = connection.ask(
        FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    )
    return (
        produced.responses[0].partition_responses[0].error_code,
        fetched.responses[0].partitions[0].error_code,
    )


def test_a_leader_without_zookeeper_takes_nothing_that_would_be_lost(cluster: CutCluster) -> None:
    """Not even with acks=1, once another one leads, although it leads on in its own eyes."""
    create(cluster, "zombie")
    leader = cluster.leader("zombie")
    address = Address("127.0.0.1", cluster.links[leader].port)
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with closing(Connection(address, client_id="zombie", timeout_s=30)) as connection:
        assert asked(connection, "zombie", 1) == (0, 0)
        with cluster.zookeeper_links[leader].cut():
            cluster.until(lambda: cluster.leader("zombie") not in (-1, leader), "another leader")
            after = [asked(connection, "zombie", 1)]
            while after[-1] != refused:
                after.append(asked(connection, "zombie", 1))
            assert all(produced != ErrorCode.NONE for produced, _ in after)
        cluster.until_in_sync("zombie")
    count = len(read_all(cluster.bootstrap, "zombie"))
    assert count == 1


def test_nonsense_from_zookeeper_costs_a_broker_its_connection_and_no_more(tmp_path: Path) -> None:
    """It ends kazoo's thread: the broker's registration, its leadership and its controller go on."""
    with CutCluster(tmp_path) as cluster:
        create(cluster, "nonsense")
        owner = cluster.read(f"/brokers/ids/{cluster.leader('nonsense')}")
        victims = {cluster.leader("nonsense"), cluster.controller()}
        for broker_id in victims:
            cluster.zookeeper_links[broker_id].lies = 1
        cluster.until(lambda: victims <= set(cluster.said("with a new thread")), "new threads")
        with traffic(cluster, "nonsense", Writer):
            create(cluster, "after-nonsense", 3)
        assert cluster.read(f"/brokers/ids/{cluster.leader('nonsense')}") == owner


@WRITERS
def test_a_leader_that_nobody_reaches_leads_on_when_it_is_reached_again(
    cluster: CutCluster, kind: type[Writer]
) -> None:
    """conformance 20, 89: it has its session; who lacks something is not in sync, and alone is too few."""
    topic = f"unreachable-{kind.__name__}"
    create(cluster, topic)
    with traffic(cluster, topic, kind) as writer:
        leader = cluster.leader(topic)
        with cluster.links[leader].cut():
            time.sleep(5)  # longer than a follower may lag
            assert cluster.leader(topic) == leader
            assert leader in cluster.isr(topic)
        writer.wait_for(50)


def test_a_controller_without_zookeeper_steps_down(cluster: CutCluster) -> None:
    first, epoch = cluster.controller(), cluster.read("/controller_epoch")
    with cluster.zookeeper_links[first].cut():
        cluster.until(lambda: cluster.controller() not in (-1, first), "another controller")
        cluster.until(lambda: cluster.live() == set(cluster.members) - {first}, "it is not registered")
        assert cluster.read("/controller_epoch") > epoch
        others = [cluster.links[one].address for one in cluster.members if one != first]
        with client.Cluster(",".join(others)) as kafka:
            cluster.until(lambda: kafka.metadata([]).controller_id != first, "others know")
    cluster.until(lambda: cluster.live() == set(cluster.members), "it is registered again")
    create(cluster, "after-its-return", 3)


def test_zookeepers_leader_dies(tmp_path: Path) -> None:
    ensemble = zookeeper.Ensemble(tmp_path / "ensemble")
    with Cluster(tmp_path / "cluster", zookeeper=ensemble) as cluster:
        create(cluster, "voted")
        with traffic(cluster, "voted", LibrdkafkaWriter) as writer:
            ensemble.kill_leader()
            writer.wait_for(100)
            create(cluster, "with-two-of-three")
            ensemble.start()
            writer.wait_for(50)
        assert cluster.said("Traceback") == []
