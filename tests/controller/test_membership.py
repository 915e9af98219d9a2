"""Brokers join a cluster: one life of an id at a time, and what is given out is given out once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller import znodes
from controller.embedded import EmbeddedTree
from controller.membership import DuplicateBrokerId, next_broker_id, prepare
from controller.producer_ids import next_block
from controller.state import Endpoint
from tests.controller import virtual_time
from tests.controller.clusters import Broker, Cluster
from tests.controller.simulated_store import SimulatedStore
from tests.controller.virtual_time import in_virtual_time
from tests.controller.worlds import a_topic


@in_virtual_time
async def test_a_second_broker_of_the_same_id_is_kept_out() -> None:
    cluster = Cluster(seed=17)
    await cluster.start(1)
    started = asyncio.get_running_loop().time()
    twin = Broker(cluster, 1, await cluster.connect())
    await twin.controller.learn()
    with pytest.raises(DuplicateBrokerId):
        await twin.controller.start()
    assert 60 <= asyncio.get_running_loop().time() - started < 61
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_was_killed_is_back_as_soon_as_its_old_session_has_ended() -> None:
    cluster = Cluster(seed=18)
    await cluster.start(1)
    second = await cluster.start(2)
    await cluster.create(a_topic("t", 4, 2))
    await second.die()
    started = asyncio.get_running_loop().time()
    again = await cluster.start(2)
    assert 5 < asyncio.get_running_loop().time() - started < 8
    await cluster.settle()
    assert len(again.fake.known) == 4
    assert again.fake.epoch > second.fake.epoch
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_waits_for_its_old_session_to_end_may_lose_its_connection_meanwhile() -> None:
    """And with it what it watches."""
    cluster = Cluster(seed=19)
    await cluster.start(1)
    second = await cluster.start(2)
    await second.die()
    started = asyncio.get_running_loop().time()
    store = SimulatedStore(cluster.tree, cluster.delay)
    starting = asyncio.create_task(cluster.start_on(store, 2))
    await asyncio.sleep(2)
    store.cut()
    await asyncio.sleep(1)
    store.restore()
    await starting
    assert asyncio.get_running_loop().time() - started < 8
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_listens_elsewhere_is_made_known() -> None:
    cluster = Cluster(seed=25)
    first, second = await cluster.start(1), await cluster.start(2)
    await cluster.settle()
    sent = len(first.heard)
    endpoint = Endpoint("PLAINTEXT", "elsewhere", 1)
    moved = znodes.BrokerRegistration((endpoint,), 0).encode()
    await second.store.set(znodes.BrokerRegistration.path(2), moved)
    await cluster.settle()
    assert first.heard[sent:] == ["UpdateMetadataRequest"] * 2
    assert first.fake.hosts == {1: "host1", 2: "elsewhere"}
    await cluster.stop_all()


# -- ids


@in_virtual_time
async def test_the_cluster_has_one_id_whoever_comes_first() -> None:
    cluster = Cluster(seed=22)
    stores = [await cluster.connect() for _ in range(3)]
    ids = await asyncio.gather(*(prepare(store, f"id {index}") for index, store in enumerate(stores)))
    assert len(set(ids)) == 1
    assert await prepare(stores[0], "another") == ids[0]


@in_virtual_time
async def test_broker_ids_and_producer_ids_are_given_out_once() -> None:
    """conformance 41"""
    cluster = Cluster(seed=23)
    stores = [await cluster.connect() for _ in range(4)]
    await prepare(stores[0], "id")
    broker_ids = await asyncio.gather(*(next_broker_id(store) for store in stores))
    assert sorted(broker_ids) == [1001, 1002, 1003, 1004]
    blocks = await asyncio.gather(*(next_block(store, 1) for store in stores * 3))
    ids = [one for block in blocks for one in block]
    assert sorted(ids) == list(range(12_000))


def test_producer_ids_do_not_repeat_after_a_restart(tmp_path: Path) -> None:
    """conformance 41"""
    seen: list[int] = []
    for _ in range(3):
        tree = EmbeddedTree.open(tmp_path / "metadata.db", now_ms=lambda: 0)
        store = tree.connect(lambda callback: None)
        virtual_time.run(prepare(store, "id"))
        seen += virtual_time.run(next_block(store, 1))
        tree.close()
    assert seen == list(range(3000))
