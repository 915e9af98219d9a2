"""A log is made with the configuration that its topic has then, whoever stored it, and announced or not.

Kafka's brokers write `/config/topics/T`, then `/brokers/topics/T`, and announce neither (`AdminZkClient`).
Its controller deletes both without a word. Whoever makes a log reads the node (`Partition.createLog`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from controller import znodes
from controller.metadata_store import MetadataStore
from controller.state import EntityType, ReplicaAssignment
from tests.kbroker.cluster.in_process import Cluster, run, until
from wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

CONFIG = {"cleanup.policy": "compact", "max.message.bytes": "1000", "retention.ms": "2000"}
TOPIC = 2


def other(cluster: Cluster) -> MetadataStore:
    """Somebody else's session."""
    return cluster.tree.connect(asyncio.get_running_loop().call_soon)


def node_of(topic: str) -> str:
    return znodes.Config.path((EntityType.TOPIC, topic))


async def created_by_kafka(cluster: Cluster, topic: str, *replicas: int, **config: str) -> None:
    """As its `createTopicWithAssignment` does it."""
    store = other(cluster)
    await store.create(node_of(topic), znodes.Config.encode(CONFIG | config))
    node = znodes.Topic(b"i" * 16, {0: ReplicaAssignment(replicas)}).encode()
    await store.create(znodes.Topic.path(topic), node)
    await until(lambda: cluster.leader(topic) == replicas[0])
    await until(lambda: all(cluster.brokers[one].replicas.find(topic, 0) for one in replicas))


def test_every_replica_of_a_topic_that_kafka_has_created_knows_its_configuration(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await created_by_kafka(cluster, "t", 1, 2)
        for one in (1, 2):
            config = cluster.hosted(one).log.config
            assert (config.compacts, config.max_message_bytes, config.retention_ms) == (True, 1000, 2000)
            assert cluster.hosted(one).rules.require_keys

    run(test, tmp_path)


def test_a_broker_without_a_replica_describes_what_is_stored(tmp_path: Path) -> None:
    """Kafka 3.9 reads the node as well (`ZkConfigRepository`)."""

    async def test(cluster: Cluster) -> None:
        await created_by_kafka(cluster, "t", 1)
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"]
        )
        answer = await cluster.ask(3, DescribeConfigsRequest(resources=[resource]), 4)
        assert [config.value for config in answer.results[0].configs] == ["2000"]

    run(test, tmp_path)


def test_a_topic_does_not_inherit_what_was_stored_for_an_earlier_one_of_its_name(tmp_path: Path) -> None:
    """retention.ms=2000 would take its records after two seconds."""

    async def test(cluster: Cluster) -> None:
        store = other(cluster)
        await store.create(node_of("t"), znodes.Config.encode(CONFIG))
        change = znodes.ConfigChange("topics/t").encode()
        await store.create(znodes.CONFIG_CHANGE_PREFIX, change, sequential=True)
        brokers = cluster.brokers.values()
        await until(lambda: all(one.settings.topic("t").retention_ms == 2000 for one in brokers))
        await store.delete(node_of("t"))  # as Kafka's controller, which tells nobody
        await cluster.create("t", 1, 2, 3)
        for one in (1, 2, 3):
            assert not cluster.hosted(one).log.config.compacts
            assert cluster.hosted(one).log.config.retention_ms == 7 * 24 * 60 * 60 * 1000

    run(test, tmp_path)


def test_a_broker_that_has_lost_the_store_describes_what_it_knows(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3, retention_ms=5000)
        membership = cluster.brokers[3].membership
        assert membership is not None
        await membership._store.close()
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"]
        )
        answer = await cluster.ask(3, DescribeConfigsRequest(resources=[resource]), 4)
        assert [config.value for config in answer.results[0].configs] == ["5000"]

    run(test, tmp_path)
