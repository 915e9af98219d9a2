"""Several brokers in one event loop, on one metadata store in memory: a cluster without processes.

    async def test(cluster: Cluster) -> None: ...
    run(test, tmp_path)

The brokers are whole, and speak with one another over loopback. Times are short, so that tests need not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from controller.embedded import EmbeddedTree
from kbroker.broker import Broker
from kbroker.configuration.layers import Configuration
from kbroker.handlers import BETWEEN_BROKERS, HANDLERS
from kbroker.listeners import Listeners
from kbroker.machine import Machine
from kbroker.membership import Membership
from kbroker.peer import Address, Peer
from kbroker.replica_manager import Durability, HostedPartition
from tests.kbroker.speaker import batch
from wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records import batch_headers, records

PATIENCE_S = 20
LONGEST_TEST_S = 60
PROPERTIES = {
    "replica.lag.time.max.ms": "400",
    "replica.fetch.wait.max.ms": "50",
    "replica.fetch.backoff.ms": "50",
    "controlled.shutdown.retry.backoff.ms": "50",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.enable": "false",
}


class Cluster:
    """Brokers by id, and what tests ask them."""

    def __init__(self, directory: Path, **properties: object) -> None:
        self.tree = EmbeddedTree.open(None, now_ms=Machine.now_ms)
        self.brokers: dict[int, Broker] = {}
        self._directory = directory
        self._properties = {
            **PROPERTIES,
            **{name.replace("_", "."): str(properties[name]) for name in properties},
        }
        self._peers: dict[tuple[Address, type], Peer] = {}

    # -- brokers that come and go

    async def start(self, *broker_ids: int, **properties: object) -> None:
        for broker_id in broker_ids:
            directory = self._directory / f"broker-{broker_id}"
            directory.mkdir(exist_ok=True)
            own = {name.replace("_", "."): str(properties[name]) for name in properties}
            broker = Broker(
                Listeners.on("127.0.0.1", 0),
                {**HANDLERS, **BETWEEN_BROKERS},
                configuration=Configuration({**self._properties, **own, "broker.id": str(broker_id)}),
                data=[str(directory)],
                durability=Durability.NEVER,
                node_id=broker_id,
            )
            await broker.start(self._join)
            self.brokers[broker_id] = broker
        for broker in self.brokers.values():
            await until(partial(self._is_known_to, broker))

    def _is_known_to(self, broker: Broker) -> bool:
        return set(broker.metadata.nodes) == set(self.brokers)

    def _join(self, broker: Broker) -> Membership:
        store = self.tree.connect(asyncio.get_running_loop().call_soon)
        return Membership(broker, store, is_shared=True)

    async def stop(self, broker_id: int) -> None:
        """As SIGTERM does."""
        await self.brokers[broker_id].stop()
        del self.brokers[broker_id]

    async def crash(self, broker_id: int) -> None:
        """It is gone before anybody hears of it. (What it has written is still there, as after kill -9.)"""
        membership = self.brokers[broker_id].membership
        assert membership is not None

        async def no_goodbye() -> bool:
            return False

        membership.depart = no_goodbye  # type: ignore[method-assign]
        await self.stop(broker_id)

    async def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        for broker_id in list(self.brokers):
            await self.crash(broker_id)
        self.tree.close()

    # -- what there is

    def hosted(self, broker_id: int, topic: str = "t", index: int = 0) -> HostedPartition:
        partition = self.brokers[broker_id].replicas.find(topic, index)
        assert partition is not None
        return partition

    def leader(self, topic: str = "t", index: int = 0) -> int:
        """By everybody's metadata; -1 while they do not agree."""
        leaders = {broker.metadata.leader(topic, index) for broker in self.brokers.values()}
        leader = leaders.pop()
        if leaders or leader not in self.brokers:
            return -1
        partition = self.brokers[leader].replicas.find(topic, index)
        return leader if partition is not None and partition.leader_id == leader else -1

    def isr(self, topic: str = "t", index: int = 0) -> set[int]:
        """By everybody's metadata; empty while they do not agree."""
        states = [broker.metadata.partition(topic, index) for broker in self.brokers.values()]
        found = {frozenset(state.isr) if state is not None else frozenset() for state in states}
        return set(found.pop()) if len(found) == 1 else set()

    def controller(self) -> int:
        active = [
            broker_id
            for broker_id, broker in self.brokers.items()
            if broker.membership is not None and broker.membership.controller.is_active
        ]
        assert len(active) <= 1
        return active[0] if active else -1

    def stored(self, broker_id: int, topic: str = "t", index: int = 0) -> bytes:
        """All bytes of a replica."""
        log = self.hosted(broker_id, topic, index).log
        return b"".join(segment.file.read(0, segment.size) for segment in log.segments)

    def values(self, broker_id: int, topic: str = "t", index: int = 0) -> list[bytes | None]:
        data = self.stored(broker_id, topic, index)
        return [
            bytes(record.value) if record.value is not None else None
            for position, header in batch_headers(data)
            for record in records(data, position, header)
        ]

    def described(self) -> str:
        """What each broker believes, for somebody who wonders what they wait for."""
        lines = [f"controller {self.controller()}"]
        for broker_id, broker in self.brokers.items():
            lines.append(
                f"broker {broker_id}, epoch {broker.broker_epoch}: knows {list(broker.metadata.nodes)}"
            )
            for one in broker.replicas:
                log, leadership = one.log, one.leadership
                known = broker.metadata.partition(one.topic, one.index)
                followers = {
                    replica: follower.log_end_offset
                    for replica, follower in (leadership.followers if leadership else {}).items()
                }
                proposed = leadership and leadership.proposed
                offsets = log.log_start_offset, log.high_watermark, log.log_end_offset
                heard = known and (known.leader, known.leader_epoch, known.isr)
                lines.append(f"  {one!r}: in sync {one.in_sync_replicas}, proposed {proposed}")
                lines.append(f"    log {offsets}, followers {followers}, metadata {heard}")
        return "\n".join(lines)

    async def agreed(self, topic: str = "t", index: int = 0) -> None:
        """Every replica has the same bytes, epochs and high watermark."""

        def same() -> bool:
            replicas = [b for b in self.brokers if self.brokers[b].replicas.find(topic, index)]
            logs = [self.hosted(one, topic, index).log for one in replicas]
            return (
                len({self.stored(one, topic, index) for one in replicas}) == 1
                and len({log.high_watermark for log in logs}) == 1
                and logs[0].high_watermark == logs[0].log_end_offset
            )

        await until(same)

    # -- what is asked

    async def ask(self, broker_id: int, message: object, version: int) -> Any:
        """On a connection for each kind of request, since replies on one come in order."""
        place = self.brokers[broker_id].address, type(message)
        peer = self._peers.get(place)
        if peer is None:
            open_connection = asyncio.get_running_loop().create_connection
            peer = self._peers[place] = Peer("test", "a test", open_connection, lambda: place[0])
        return await peer.ask(message, version, PATIENCE_S)

    async def create(self, topic: str = "t", *replicas: int, partitions: int = 1, **configs: object) -> None:
        """Replicated everywhere; the first of `replicas` is the preferred leader, if they are given."""
        from wire.api.create_topics import CreatableReplicaAssignment

        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index in range(partitions if replicas else 0)
        ]
        one = CreatableTopic(
            name=topic,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1 if replicas else len(self.brokers),
            assignments=assignments,
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=str(configs[name]))
                for name in configs
            ],
        )
        request = CreateTopicsRequest(topics=[one], timeout_ms=10_000)
        response = await self.ask(self.controller(), request, 7)
        assert response.topics[0].error_code == 0, response
        await until(lambda: all(self.leader(topic, index) >= 0 for index in range(partitions)))

    async def produce(
        self,
        broker_id: int,
        *values: bytes,
        topic: str = "t",
        index: int = 0,
        acks: int = -1,
        timeout_ms: int = 10_000,
    ) -> Any:
        """The answer for the one partition."""
        piece = PartitionProduceData(index=index, records=batch(*values))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=[piece])],
        )
        return (await self.ask(broker_id, request, 9)).responses[0].partition_responses[0]

    async def fetch(self, broker_id: int, offset: int = 0, *, topic: str = "t", index: int = 0) -> Any:
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
        )
        return (await self.ask(broker_id, request, 12)).responses[0].partitions[0]

    async def end_offset(self, broker_id: int, *, topic: str = "t", index: int = 0, version: int = 7) -> Any:
        """The answer about the latest offset."""
        wanted = ListOffsetsPartition(partition_index=index, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        return (await self.ask(broker_id, request, version)).topics[0].partitions[0]

    # -- trouble

    def hold_back(self, broker_id: int, topic: str = "t", index: int = 0) -> None:
        """Let a follower fetch a partition no more, until the controller tells it something new."""
        membership = self.brokers[broker_id].membership
        assert membership is not None
        membership.fetchers.stop(self.hosted(broker_id, topic, index))

    def let_follow(self, broker_id: int, topic: str = "t", index: int = 0) -> None:
        membership = self.brokers[broker_id].membership
        assert membership is not None
        membership.fetchers.follow(self.hosted(broker_id, topic, index))


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- what it waits for has no event
            await asyncio.sleep(0.002)


def run(
    test: Callable[[Cluster], Awaitable[None]], directory: Path, brokers: int = 3, **properties: object
) -> None:
    """Run a test with a cluster of its own."""

    async def body() -> None:
        cluster = Cluster(directory, **properties)
        try:
            async with asyncio.timeout(LONGEST_TEST_S):
                await cluster.start(*range(1, brokers + 1))
                await test(cluster)
        except TimeoutError as error:
            raise AssertionError(cluster.described()) from error
        finally:
            await cluster.close()

    asyncio.run(body())
