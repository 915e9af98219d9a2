"""What a leader that has lost the metadata store still acknowledges and gives to read, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.admin import Admin
from tests.sim.clients import PRODUCE_VERSION, Client, World
from tests.sim.cluster import SESSION_TIMEOUT_MS, Cluster, Node
from tests.sim.history import History
from tests.sim.loop import SimulatedLoop
from tests.sim.watcher import Watcher
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.errors import ErrorCode
from wire.records import BatchBuilder

TOPIC = "loose"
SESSION_S = SESSION_TIMEOUT_MS / 1000
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Scene:
    """Three brokers, and a topic where acks=1 is enough of a promise."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.history = History(loop.time)
        self.cluster = Cluster(loop, 1, 3, self.history.note)
        self.watcher = Watcher(self.cluster, self.history)
        self.client = Client(World(self.cluster, self.history, 1), "client")

    async def begin(self) -> None:
        for node in self.cluster.nodes:
            self.cluster.start(node)
        await self.until(lambda: len(self.cluster.ready()) == 3)
        await Admin(World(self.cluster, self.history, 1), "admin").create(TOPIC, min_insync_replicas="1")
        await self.until(lambda: -1 not in self.leaders_elsewhere(None) and self.cluster.in_sync())
        asyncio.create_task(self.watcher.run())  # noqa: RUF006 -- until the end of the loop

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.cluster.until(condition, 60, "until")

    def leader(self) -> Node:
        state = self.cluster.brokers()[0].metadata.partition(TOPIC, 0)
        assert state is not None
        return self.cluster.node(state.leader)

    def leaders_elsewhere(self, node: Node | None) -> set[int]:
        """As the other brokers have been told; -1 where one knows of none."""
        others = [one.broker for one in self.cluster.nodes if one is not node and one.broker is not None]
        states = [broker.metadata.partition(TOPIC, 0) for broker in others]
        return {-1 if state is None else state.leader for state in states}

    async def produce(self, node: Node, value: bytes, acks: int = 1) -> tuple[int, int]:
        builder = BatchBuilder()
        builder.append(b"k", value, timestamp_ms=1_700_000_000_000)
        piece = PartitionProduceData(index=0, records=builder.build())
        topic = TopicProduceData(name=TOPIC, partition_data=[piece])
        request = ProduceRequest(acks=acks, timeout_ms=2000, topic_data=[topic])
        answer = await self.client.ask(node.broker_id, request, PRODUCE_VERSION, timeout_s=30)
        found = answer.responses[0].partition_responses[0]
        return found.error_code, found.base_offset

    async def fetch(self, node: Node, max_wait_ms: int = 0) -> int:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 16)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1 << 15, topics=topics)
        response = await self.client.ask(node.broker_id, request, 12, purpose="fetch", timeout_s=90)
        return int(response.responses[0].partitions[0].error_code)

    async def end_offset(self, node: Node) -> int:
        topic = ListOffsetsTopic(
            name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
        response = await self.client.ask(node.broker_id, ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
        return int(response.topics[0].partitions[0].error_code)


def run(test: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()
    try:
        scene = Scene(loop)

        async def play() -> None:
            await scene.begin()
            await test(scene)

        loop.run_until_complete(play())
        assert scene.history.violations == []
        assert loop.failures == []
    finally:
        for node in scene.cluster.nodes:
            if node.process is not None:
                node.process.kill()
        loop.close()


def test_a_leader_that_may_have_been_replaced_acknowledges_nothing_and_is_not_read() -> None:
    async def test(scene: Scene) -> None:
        leader = scene.leader()
        assert await scene.produce(leader, b"before") == (0, 0)
        assert leader.session is not None
        leader.session.cut()
        await scene.until(lambda: not scene.leaders_elsewhere(leader) & {-1, leader.broker_id})
        elected_s = scene.loop.time()
        codes = []
        while scene.loop.time() < elected_s + 3:
            codes.append(await scene.produce(leader, b"lost"))
        assert all(code != ErrorCode.NONE for code, _ in codes), "nobody else has it"
        assert codes[-1][0] == NOT_LEADER, "clients are to look for the leader elsewhere"
        assert await scene.produce(leader, b"lost", acks=-1) == (NOT_LEADER, -1)
        assert await scene.fetch(leader) == NOT_LEADER
        assert await scene.end_offset(leader) == NOT_LEADER
        leader.session.restore()
        await scene.until(scene.cluster.in_sync)
        assert (await scene.produce(scene.leader(), b"after"))[0] == ErrorCode.NONE

    run(test)


def test_a_consumer_that_waits_at_a_leader_that_may_have_been_replaced_is_sent_away() -> None:
    async def test(scene: Scene) -> None:
        leader = scene.leader()
        await scene.produce(leader, b"one")
        assert leader.session is not None
        leader.session.cut()
        await asyncio.sleep(SESSION_S)
        began_s = scene.loop.time()
        assert await scene.fetch(leader, max_wait_ms=60_000) == NOT_LEADER
        assert scene.loop.time() - began_s < 5  # of virtual time; the wait would have been a minute

    run(test)


def test_while_the_store_alone_is_away_everybody_goes_on() -> None:
    """Nobody can be elected; the followers follow, so the leader needs no session to know that it leads."""

    async def test(scene: Scene) -> None:
        leader = scene.leader()
        for node in scene.cluster.nodes:
            assert node.session is not None
            node.session.cut()
        ended_s = scene.loop.time() + 3 * SESSION_S
        offset = 0
        while scene.loop.time() < ended_s:
            assert await scene.produce(leader, b"x") == (0, offset)
            assert await scene.fetch(leader) == ErrorCode.NONE
            assert await scene.end_offset(leader) == ErrorCode.NONE
            offset += 1
            await asyncio.sleep(0.2)
        for node in scene.cluster.nodes:
            if node.session is not None:
                node.session.restore()
        await scene.until(scene.cluster.in_sync)
        assert (await scene.produce(scene.leader(), b"x"))[1] == offset

    run(test)


def test_a_short_interruption_is_not_noticed() -> None:
    """A proof of life counts until one session after the one before it: half a session is left at least."""

    async def test(scene: Scene) -> None:
        leader = scene.leader()
        assert leader.session is not None
        assert leader.broker is not None
        assert leader.broker.membership is not None
        for _ in range(3):
            leader.session.cut()
            until_s = scene.loop.time() + SESSION_S * 0.45
            while scene.loop.time() < until_s:
                assert leader.broker.membership.lease.is_current
                assert (await scene.produce(leader, b"x"))[0] == ErrorCode.NONE
                await asyncio.sleep(0.05)
            leader.session.restore()
            await asyncio.sleep(SESSION_S)

    run(test)


def test_a_frozen_leader_is_not_certain_when_it_goes_on() -> None:
    """Its first thought is a request that came while it slept; it has not heard of anything yet."""

    async def test(scene: Scene) -> None:
        leader = scene.leader()
        assert await scene.produce(leader, b"before") == (0, 0)
        scene.cluster.freeze(leader, SESSION_S + 3)
        code, _ = await scene.produce(leader, b"lost")
        assert code != ErrorCode.NONE
        await scene.until(scene.cluster.in_sync)

    run(test)
