"""Which transactions a cluster on ZooKeeper offers, with brokers of Apache Kafka 3.9 in it or without."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from controller.embedded import EmbeddedStore, EmbeddedTree
from controller.membership import prepare
from controller.znodes import BROKER_IDS, BrokerRegistration, Feature
from kbroker.cluster_features import SUPPORTED, UNKNOWN_EPOCH, ClusterFeatures

FEATURE = Feature.path()
KAFKAS = b'{"features":{},"version":2,"status":1}'
"""As Kafka 3.9.2 writes it."""
OURS = BrokerRegistration((), 0, features=SUPPORTED).encode()
KAFKA_3_9 = BrokerRegistration((), 0, features={}).encode()


class World:
    """What one broker hears, and a session of somebody else."""

    def __init__(self) -> None:
        self.tree = EmbeddedTree.open(None, now_ms=lambda: 0)
        self.heard: list[tuple[int, int]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def connect(self) -> EmbeddedStore:
        return self.tree.connect(asyncio.get_running_loop().call_soon)

    async def features(self, level: int = 2) -> ClusterFeatures:
        def spawn(work: Coroutine[Any, Any, None]) -> None:
            self._tasks.append(asyncio.get_running_loop().create_task(work))

        self.store = self.connect()
        self.other = self.connect()
        await prepare(self.store, "cluster")
        return ClusterFeatures(self.store, spawn, level, lambda *told: self.heard.append(told))

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert all(task.done() for task in self._tasks)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_nothing_is_offered_before_it_is_known() -> None:
    async def test() -> None:
        world = World()
        await world.features()
        assert world.heard == [(0, UNKNOWN_EPOCH)]

    run(test())


def test_a_cluster_of_kbrokers_offers_what_is_configured() -> None:
    async def test() -> None:
        for level in (2, 1, 0):
            world = World()
            features = await world.features(level)
            await world.other.create(f"{BROKER_IDS}/2", OURS, ephemeral=True)
            await features.read()
            assert world.heard[1:] == [(level, 0)]

    run(test())


def test_in_kafkas_cluster_kafkas_znode_holds() -> None:
    """With the version of the node as the epoch, which is what Kafka tells clients."""

    async def test() -> None:
        world = World()
        features = await world.features()
        await world.other.create(FEATURE, KAFKAS)
        await features.read()
        await world.other.set(FEATURE, KAFKAS)
        await world.settled()
        assert world.heard[1:] == [(0, 0), (0, 1)]
        assert (await world.other.get(FEATURE)).data == KAFKAS

    run(test())


def test_a_kafka_that_joins_kbrokers_lowers_the_level_for_good() -> None:
    """In a later epoch, or clients would not notice; and it must not rise while the Kafka restarts."""

    async def test() -> None:
        world = World()
        features = await world.features()
        await features.read()
        kafka = world.connect()
        await kafka.create(f"{BROKER_IDS}/3", KAFKA_3_9, ephemeral=True)
        await world.settled()
        assert world.heard[1:] == [(2, 0), (0, 1)]
        assert json.loads((await world.other.get(FEATURE)).data) == json.loads(KAFKAS)
        await kafka.close()
        await world.settled()
        assert world.heard[1:] == [(2, 0), (0, 1)]
        await world.other.delete(FEATURE)  # an operator's word that it is gone
        await world.settled()
        assert world.heard[1:] == [(2, 0), (0, 1), (2, 0)]

    run(test())


def test_a_session_that_has_ended_is_made_up_for() -> None:
    """Its watches are gone, and so is what happened meanwhile."""

    async def test() -> None:
        world = World()
        features = await world.features()
        await features.read()
        world.tree.expire(world.store.session_id)
        await world.other.create(FEATURE, KAFKAS)
        await world.settled()
        assert world.heard[-1] == (0, 0)

    run(test())


def test_what_makes_no_sense_lowers_the_level() -> None:
    async def test() -> None:
        world = World()
        features = await world.features()
        await world.other.create(f"{BROKER_IDS}/3", b"?", ephemeral=True)
        await features.read()
        assert world.heard[-1] == (0, 1)

    run(test())
