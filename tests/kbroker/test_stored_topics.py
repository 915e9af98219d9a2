"""Which partitions there are, by the word of the metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from controller.embedded import EmbeddedStore, EmbeddedTree
from controller.membership import prepare
from controller.metadata_store import ensure
from controller.state import ReplicaAssignment
from controller.znodes import DeleteTopic, Topic
from kbroker.stored_topics import StoredTopics

TOPIC = Topic(None, {index: ReplicaAssignment((1,)) for index in (0, 1, 2)})


class World:
    """A store, and what it has said."""

    def __init__(self) -> None:
        tree = EmbeddedTree.open(None, now_ms=lambda: 0)
        self.store: EmbeddedStore = tree.connect(asyncio.get_running_loop().call_soon)
        self.tasks: list[asyncio.Task[None]] = []
        self.topics = StoredTopics(self.store, self.spawn)
        self.said: list[Collection[int] | None] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def ask(self, topic: str = "t", times: int = 1) -> list[list[int] | None]:
        for _ in range(times):
            self.topics.partitions_of(topic, self.said.append)
        await asyncio.gather(*self.tasks)
        said, self.said = self.said, []
        return [None if one is None else sorted(one) for one in said]


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def play() -> None:
        world = World()
        await prepare(world.store, "cluster")
        await ensure(world.store, ["/brokers/topics", "/admin/delete_topics"])
        await test(world)

    asyncio.run(asyncio.wait_for(play(), 20))


def test_a_topic_has_the_partitions_that_its_node_names() -> None:
    async def test(world: World) -> None:
        await world.store.create(Topic.path("t"), TOPIC.encode())
        assert await world.ask() == [[0, 1, 2]]

    run(test)


def test_a_topic_without_a_node_has_none() -> None:
    async def test(world: World) -> None:
        assert await world.ask() == [[]]

    run(test)


def test_a_topic_whose_deletion_has_been_asked_for_has_none_any_more() -> None:
    """Its node stays until all its replicas are gone, some perhaps on a broker that never comes back."""

    async def test(world: World) -> None:
        await world.store.create(Topic.path("t"), TOPIC.encode())
        await world.store.create(DeleteTopic.path("t"))
        assert await world.ask() == [[]]

    run(test)


def test_a_store_that_does_not_answer_says_nothing() -> None:
    async def test(world: World) -> None:
        await world.store.close()
        assert await world.ask() == [None]

    run(test)


def test_a_node_that_makes_no_sense_says_nothing() -> None:
    async def test(world: World) -> None:
        await world.store.create(Topic.path("t"), b"?")
        assert await world.ask() == [None]

    run(test)


def test_all_who_want_to_know_are_told_by_one_question() -> None:
    async def test(world: World) -> None:
        await world.store.create(Topic.path("t"), TOPIC.encode())
        assert await world.ask(times=1000) == [[0, 1, 2]] * 1000
        assert len(world.tasks) == 1
        assert await world.ask() == [[0, 1, 2]]
        assert len(world.tasks) == 2

    run(test)
