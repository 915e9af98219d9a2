"""`controller.znodes` against a real Kafka 3.9 on a real ZooKeeper: each reads what the other wrote.

Kafka is filled through its clients and tools; then every node in ZooKeeper is decoded, encoded again, and
compared by value. In the other direction nodes of ours are put there, and Kafka's clients see their effect.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kazoo.client import KazooClient

from compat_tests.apache_kafka import reason_to_skip, run_java_tool
from compat_tests.znodes.zookeeper_mode import VERSION, KafkaOnZooKeeper
from controller import znodes
from controller.state import Endpoint, EntityType, ReplicaAssignment, TopicPartition
from tests.zookeeper import ZooKeeper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(reason_to_skip(VERSION) is not None, reason=reason_to_skip(VERSION) or ""),
]

WAIT_S = 30
USER = "a b*~+ü"
ABSENT_BROKER = 7

Nodes = dict[str, tuple[bytes, int]]


class Cluster:
    """Kafka and ZooKeeper, with a client to each."""

    def __init__(self, kafka: KafkaOnZooKeeper, zookeeper: KazooClient, admin: KafkaAdminClient) -> None:
        self.kafka = kafka
        self.zookeeper = zookeeper
        self.admin = admin

    def nodes(self, path: str = "/") -> Nodes:
        data, stat = self.zookeeper.get(path)
        found = {path: (data or b"", stat.version)}
        for name in self.zookeeper.get_children(path):
            if name != "zookeeper":
                found |= self.nodes(f"{path.rstrip('/')}/{name}")
        return found

    def eventually(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, "Kafka did not take it in"
            time.sleep(0.1)

    def configure(self, *arguments: object) -> None:
        tool = "kafka.admin.ConfigCommand"
        options = ["--bootstrap-server", self.kafka.bootstrap, "--alter", *arguments]
        done = run_java_tool(tool, options, VERSION)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("kafka-on-zookeeper")
    with (
        ZooKeeper(directory / "zookeeper") as zookeeper,
        KafkaOnZooKeeper(directory, zookeeper.address, {"broker.rack": "rack-1"}) as kafka,
    ):
        client = KazooClient(zookeeper.address)
        client.start()
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        try:
            yield Cluster(kafka, client, admin)
        finally:
            admin.close()
            client.stop()
            client.close()


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Nodes:
    """What Kafka has written, of every kind that it writes when asked nicely."""
    configs = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    cluster.admin.create_topics(
        [NewTopic("plain", 3, 1), NewTopic("configured", 1, 1, topic_configs=configs)]
    )
    with KafkaProducer(bootstrap_servers=cluster.kafka.bootstrap, enable_idempotence=True) as producer:
        producer.send("plain", b"takes a producer id").get(WAIT_S)
    cluster.configure(
        *("--entity-type", "users", "--entity-name", USER, "--entity-type", "clients", "--entity-name", "c"),
        *("--add-config", "producer_byte_rate=1024"),
    )
    cluster.configure("--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=2000")
    # A reassignment to a broker that never comes stays in the topic's node.
    target = znodes.ReassignPartitions({TopicPartition("configured", 0): (ABSENT_BROKER, 1)})
    cluster.zookeeper.create(target.path(), target.encode())
    cluster.eventually(
        lambda: str(ABSENT_BROKER).encode() in cluster.nodes()["/brokers/topics/configured"][0]
    )
    return cluster.nodes()


def same_json(ours: bytes, theirs: bytes) -> None:
    assert json.loads(ours) == json.loads(theirs)


def without_state(nodes: Nodes) -> dict[str, bytes]:
    return {path: data for path, (data, _) in nodes.items() if data}


def test_every_node_with_data_is_decoded_and_encoded_to_the_same_value(nodes: Nodes) -> None:
    left = without_state(nodes)
    codecs: dict[str, Callable[[bytes], bytes]] = {
        znodes.ControllerEpoch.path(): lambda data: znodes.ControllerEpoch.decode(data).encode(),
        znodes.Controller.path(): lambda data: znodes.Controller.decode(data).encode(),
        znodes.BrokerRegistration.path(1): lambda data: znodes.BrokerRegistration.decode(data).encode(),
        znodes.Topic.path(""): lambda data: znodes.Topic.decode(data).encode(),
        "/config/changes/": lambda data: znodes.ConfigChange.decode(data).encode(),
        "/config/": lambda data: znodes.Config.encode(znodes.Config.decode(data)),
        znodes.ReassignPartitions.path(): lambda data: znodes.ReassignPartitions.decode(data).encode(),
        znodes.ClusterId.path(): lambda data: znodes.ClusterId.decode(data).encode(),
        znodes.ProducerIdBlock.path(): lambda data: znodes.ProducerIdBlock.decode(data).encode(),
        znodes.Feature.path(): lambda data: znodes.Feature.decode(data).encode(),
    }
    states = [path for path in left if path.endswith("/state")]
    assert len(states) >= 4
    for path in states:
        data, version = nodes[path]
        same_json(znodes.PartitionState.encode(znodes.PartitionState.decode(data, version)), left.pop(path))
    for prefix, codec in codecs.items():
        paths = [path for path in left if path.startswith(prefix)]
        assert paths, f"Kafka wrote nothing at {prefix}"
        for path in paths:
            same_json(codec(left[path]), left.pop(path))
    assert left == {}


def test_the_meaning_of_what_kafka_wrote_is_understood(cluster: Cluster, nodes: Nodes) -> None:
    data = without_state(nodes)
    broker = znodes.BrokerRegistration.decode(data["/brokers/ids/1"])
    port = int(cluster.kafka.bootstrap.partition(":")[2])
    assert broker.endpoints[0] == Endpoint("PLAINTEXT", "127.0.0.1", port)
    assert (broker.endpoints[1].listener, broker.endpoints[1].host) == ("OTHER", "::1")
    assert broker.rack == "rack-1"
    topic = znodes.Topic.decode(data["/brokers/topics/configured"])
    assert topic.assignments == {0: ReplicaAssignment((ABSENT_BROKER, 1), adding=(ABSENT_BROKER,))}
    assert topic.topic_id is not None
    (described,) = cluster.admin.describe_topics(["configured"])
    assert UUID(str(described["topic_id"])).bytes == topic.topic_id
    state = znodes.PartitionState.decode(*nodes["/brokers/topics/configured/partitions/0/state"])
    assert (state.leader, state.isr, state.controller_epoch) == (1, (1,), 1)
    block = znodes.ProducerIdBlock.decode(data["/latest_producer_id_block"])
    assert (block.first, block.last) == (0, 999)
    assert znodes.Config.decode(data["/config/topics/configured"])["retention.ms"] == "1000"


def test_paths_are_kafkas(nodes: Nodes) -> None:
    expected = {
        *znodes.PERSISTENT_PATHS,
        znodes.Topic.partitions_path("plain"),
        znodes.PartitionState.parent_path(TopicPartition("plain", 2)),
        znodes.PartitionState.path(TopicPartition("plain", 2)),
        znodes.Config.path((EntityType.TOPIC, "plain")),
        znodes.Config.path((EntityType.BROKER, znodes.DEFAULT_ENTITY)),
        znodes.Config.path((EntityType.USER, f"{znodes.sanitize(USER)}/clients/c")),
    }
    # With ZooKeeper, Kafka has no configurations of groups.
    assert expected - nodes.keys() == {"/config/groups"}
    assert znodes.desanitize(znodes.sanitize(USER)) == USER
    changes = [path for path in nodes if path.startswith(znodes.CONFIG_CHANGE_PREFIX)]
    assert {znodes.ConfigChange.decode(nodes[path][0]).entity_path for path in changes} == {
        znodes.entity_path((EntityType.BROKER, znodes.DEFAULT_ENTITY)),
        znodes.entity_path((EntityType.USER, f"{znodes.sanitize(USER)}/clients/c")),
    }


def test_kafka_takes_in_a_broker_that_we_register(cluster: Cluster, nodes: Nodes) -> None:
    registration = znodes.BrokerRegistration((Endpoint("PLAINTEXT", "127.0.0.1", 9),), 0, rack="rack-2")
    path = znodes.BrokerRegistration.path(2)
    cluster.zookeeper.create(path, registration.encode(), ephemeral=True)

    def brokers() -> dict[int, Any]:
        return {broker["broker_id"]: broker for broker in cluster.admin.describe_cluster()["brokers"]}

    cluster.eventually(lambda: 2 in brokers())
    assert (brokers()[2]["port"], brokers()[2]["rack"]) == (9, "rack-2")
    cluster.zookeeper.delete(path)
    cluster.eventually(lambda: 2 not in brokers())


def test_kafka_takes_in_a_configuration_that_we_change(cluster: Cluster, nodes: Nodes) -> None:
    entity = (EntityType.TOPIC, "plain")
    cluster.zookeeper.set(znodes.Config.path(entity), znodes.Config.encode({"retention.ms": "7777"}))
    change = znodes.ConfigChange(znodes.entity_path(entity))
    cluster.zookeeper.create(znodes.CONFIG_CHANGE_PREFIX, change.encode(), sequence=True)
    resource = ConfigResource(ConfigResourceType.TOPIC, "plain")
    cluster.eventually(lambda: "7777" in str(cluster.admin.describe_configs([resource])))


def test_kafka_deletes_the_topic_that_we_mark(cluster: Cluster, nodes: Nodes) -> None:
    cluster.admin.create_topics([NewTopic("going", 1, 1)])
    cluster.zookeeper.create(znodes.DeleteTopic.path("going"))
    cluster.eventually(lambda: cluster.zookeeper.exists(znodes.Topic.path("going")) is None)
    cluster.eventually(lambda: cluster.zookeeper.exists(znodes.DeleteTopic.path("going")) is None)


def test_kafka_serves_a_topic_that_we_write(cluster: Cluster, nodes: Nodes) -> None:
    topic_id = bytes(range(16))
    topic = znodes.Topic(topic_id, {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((1,))})
    cluster.zookeeper.create(znodes.Topic.path("ours"), topic.encode())
    cluster.eventually(lambda: "ours" in cluster.admin.list_topics())
    (described,) = cluster.admin.describe_topics(["ours"])
    assert len(described["partitions"]) == 2
    election = znodes.PreferredReplicaElection([TopicPartition("ours", 0)])
    cluster.zookeeper.create(election.path(), election.encode())
    cluster.eventually(lambda: cluster.zookeeper.exists(election.path()) is None)
