"""Every broker hears of every configuration, whoever sets it, and before it matters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from controller import events, znodes
from controller.config_changes import KEPT_MS, ConfigChanges
from controller.embedded import EmbeddedStore, EmbeddedTree
from controller.metadata_store import Stat, Watch, ensure
from controller.state import NO_LEADER, EntityType, ReplicaAssignment, TopicPartition
from tests.controller.clusters import Cluster
from tests.controller.questions import set_config
from tests.controller.virtual_time import in_virtual_time
from tests.controller.worlds import a_topic
from wire.api.delete_topics import DeleteTopicsRequest

T0 = TopicPartition("t", 0)


@in_virtual_time
async def test_a_broker_hears_how_a_topic_is_configured_before_it_is_told_to_lead_it() -> None:
    cluster = Cluster(is_near=True)
    broker = await cluster.start(1)
    broker.heard.clear()
    await cluster.create(a_topic("t", 1, 1, configs={"retention.ms": "5"}))
    assert broker.heard == ["topics/t", "LeaderAndIsrRequest", "UpdateMetadataRequest"]
    assert broker.configs["topics/t"] == {"retention.ms": "5"}
    await cluster.ask(set_config("t", "cleanup.policy", "compact"))
    assert broker.configs["topics/t"] == {"retention.ms": "5", "cleanup.policy": "compact"}
    await cluster.ask(events.DeleteTopics(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5))
    await asyncio.sleep(0.001)
    assert broker.configs["topics/t"] == {}
    await cluster.stop_all()


@in_virtual_time
async def test_all_brokers_hear_of_configurations_whoever_sets_them() -> None:
    cluster = Cluster(seed=14)
    first, second = await cluster.start(1), await cluster.start(2)
    await cluster.create(a_topic("t", assignments={0: (1, 2)}))
    await cluster.ask(set_config("t", "retention.ms", "5"))
    await cluster.until(lambda: second.configs.get("topics/t") == {"retention.ms": "5"})
    other = await cluster.connect()
    entity = (EntityType.TOPIC, "t")
    values = {"unclean.leader.election.enable": "true"}
    await other.set(znodes.Config.path(entity), znodes.Config.encode(values))
    await other.create("/config/users/u", znodes.Config.encode({"producer_byte_rate": "1"}))
    for path in ("topics/t", "users/u"):
        await other.create(znodes.CONFIG_CHANGE_PREFIX, znodes.ConfigChange(path).encode(), sequential=True)
    await cluster.until(lambda: first.configs.get("topics/t") == second.configs.get("topics/t") == values)
    await cluster.until(lambda: "users/u" in first.configs and "users/u" in second.configs)
    # The controller has taken it in as well: a replica that was not in sync may lead now.
    await second.stop()
    await cluster.settle()
    third = await cluster.start(2)
    await cluster.settle()
    await first.stop()
    await cluster.until(lambda: third.controller.is_active)
    await cluster.until(lambda: third.fake.known[T0].leader == 2)
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_starts_hears_of_every_configuration() -> None:
    cluster = Cluster(seed=15)
    await cluster.start(1)
    await cluster.create(a_topic("t", 1, 1, configs={"retention.ms": "5"}))
    other = await cluster.connect()
    nodes = ["/config/users/u", "/config/users/u/clients", "/config/users/u/clients/c", "/config/ips/1.2.3.4"]
    for path in nodes:
        is_config = not path.endswith("clients")
        await other.create(path, znodes.Config.encode({"a": path}) if is_config else b"")
    second = await cluster.start(2)
    assert second.configs == {
        "topics/t": {"retention.ms": "5"},
        "users/u": {"a": "/config/users/u"},
        "users/u/clients/c": {"a": "/config/users/u/clients/c"},
        "ips/1.2.3.4": {"a": "/config/ips/1.2.3.4"},
    }
    await cluster.stop_all()


@in_virtual_time
async def test_old_announcements_are_removed() -> None:
    cluster = Cluster(seed=16)
    await cluster.start(1)
    await cluster.create(a_topic("t", 1, 1))
    await cluster.ask(set_config("t", "retention.ms", "5"))
    await asyncio.sleep(20 * 60)
    await cluster.ask(set_config("t", "retention.ms", "6"))
    await cluster.settle()
    assert len(cluster.tree._node(znodes.CONFIG_CHANGES).children) == 1
    await cluster.stop_all()


@in_virtual_time
async def test_an_announcement_of_version_1_is_heard() -> None:
    """Kafka's `ZkConfigManager` knows both."""
    cluster = Cluster(seed=17)
    broker = await cluster.start(1)
    await cluster.create(a_topic("t", 1, 1))
    other = await cluster.connect()
    values = {"retention.ms": "7"}
    await other.set(znodes.Config.path((EntityType.TOPIC, "t")), znodes.Config.encode(values))
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    await other.create(znodes.CONFIG_CHANGE_PREFIX, old, sequential=True)
    await cluster.until(lambda: broker.configs.get("topics/t") == values)
    await cluster.stop_all()


@in_virtual_time
async def test_unclean_elections_allowed_for_all_brokers_happen_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """conformance 91; Kafka's `enableDefaultUncleanLeaderElection`."""
    cluster = Cluster(seed=18)
    first, second = await cluster.start(1), await cluster.start(2)
    await cluster.create(a_topic("t", assignments={0: (2, 1)}))
    await cluster.settle()
    await first.stop()
    await cluster.settle()
    first = await cluster.start(1)
    await cluster.settle()
    await second.stop()
    await cluster.until(lambda: first.controller.is_active)
    await cluster.settle()
    assert T0 in first.fake.known
    assert first.fake.known[T0].leader == NO_LEADER
    cluster.rules.unclean = True
    entity = (EntityType.BROKER, znodes.DEFAULT_ENTITY)
    other = await cluster.connect()
    await other.create(
        znodes.Config.path(entity), znodes.Config.encode({"unclean.leader.election.enable": "true"})
    )
    change = znodes.ConfigChange(znodes.entity_path(entity)).encode()
    await other.create(znodes.CONFIG_CHANGE_PREFIX, change, sequential=True)
    assert first.controller.unclean_elections == 0
    await cluster.until(lambda: first.fake.known[T0].leader == 1)
    assert first.controller.unclean_elections == 1
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["1 partition is led by a replica that was not in sync, records may be lost: t-0"]
    await cluster.stop_all()


@in_virtual_time
async def test_partitions_that_are_added_in_the_store_are_noticed() -> None:
    cluster = Cluster(seed=19)
    broker = await cluster.start(1)
    await cluster.create(a_topic("t", 1, 1))
    await cluster.settle()
    other = await cluster.connect()
    for count in (2, 3):
        path = znodes.Topic.path("t")
        topic = znodes.Topic.decode((await other.get(path)).data)
        more = {number: ReplicaAssignment((1,)) for number in range(count)}
        await other.set(path, znodes.Topic(topic.topic_id, more).encode())
        added = TopicPartition("t", count - 1)
        await cluster.until(lambda added=added: added in broker.fake.known)  # type: ignore[misc]
    assert await cluster.ask(set_config("t", "retention.ms", "5")), "the state fits the store"
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_was_away_hears_of_what_is_configured_no_more() -> None:
    """The announcement came while it was not connected; the next topic of that name must inherit nothing."""
    cluster = Cluster(seed=20)
    broker = await cluster.start(1)
    store, other = broker.store, await cluster.connect()
    path = znodes.Config.path((EntityType.TOPIC, "t"))
    announced = znodes.ConfigChange("topics/t").encode()
    await other.create(path, znodes.Config.encode({"retention.ms": "2000"}))
    await other.create(znodes.CONFIG_CHANGE_PREFIX, announced, sequential=True)
    await cluster.until(lambda: broker.configs.get("topics/t") == {"retention.ms": "2000"})
    store.cut()
    await other.delete(path)
    await other.create(znodes.CONFIG_CHANGE_PREFIX, announced, sequential=True)
    store.restore()
    await cluster.until(lambda: broker.configs["topics/t"] == {})
    await cluster.stop_all()


@in_virtual_time
async def test_what_kafka_has_stored_for_a_topic_goes_with_the_topic() -> None:
    """Its brokers announce nothing; the controller reads the configuration with the topic."""
    cluster = Cluster(seed=21)
    await cluster.start(1)
    other = await cluster.connect()
    path = znodes.Config.path((EntityType.TOPIC, "t"))
    await other.create(path, znodes.Config.encode({"unclean.leader.election.enable": "true"}))
    topic = znodes.Topic(b"i" * 16, {0: ReplicaAssignment((1,))})
    await other.create(znodes.Topic.path("t"), topic.encode())
    await cluster.settle()
    await cluster.ask(events.DeleteTopics(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5))
    await cluster.settle()
    assert await other.exists(znodes.Topic.path("t")) is None
    assert await other.exists(path) is None
    await cluster.stop_all()


class Counted:
    """A store that counts how often it is asked whether something exists."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.asked = 0

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        self.asked += 1
        return self._store.exists(path, watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@in_virtual_time
async def test_a_change_does_not_cost_more_where_many_were_announced() -> None:
    """Thousands of topics are made within the quarter of an hour that announcements stay."""
    now_ms = [0]
    tree = EmbeddedTree.open(None, now_ms=lambda: now_ms[0])
    store = Counted(tree.connect(asyncio.get_running_loop().call_soon))
    await ensure(store, [znodes.CONFIG_CHANGES, *(f"/config/{one.value}" for one in EntityType)])
    changes = ConfigChanges(store, lambda *heard: None, lambda: None, lambda: now_ms[0])
    await changes.read_all()

    async def announce(count: int) -> int:
        for _ in range(count):
            await store.create(
                znodes.CONFIG_CHANGE_PREFIX, znodes.ConfigChange("topics/t").encode(), sequential=True
            )
        before = store.asked
        await changes.read_new()
        return store.asked - before

    assert await announce(500) <= 10
    now_ms[0] = 60_000
    assert await announce(1) <= 10
    now_ms[0] = KEPT_MS + 1
    await announce(1)
    assert len(await store.children(znodes.CONFIG_CHANGES)) == 2
