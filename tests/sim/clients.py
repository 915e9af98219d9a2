"""Clients that speak Kafka's protocol over the simulated network: producers, consumers, an administrator.

Each is a process on a host of its own, and notes in the history what it did and was told. They retry as
Kafka's clients do: an idempotent producer sends what was not acknowledged again, in order; a consumer asks
for the same offset again. Producers without idempotence send each value once, so that it can be there once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from kbroker.peer import Address, Peer, PeerLost
from tests.sim.cluster import PORT, Cluster
from tests.sim.history import History, Place, Sent
from tests.sim.loop import Process
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from wire.api.init_producer_id import InitProducerIdRequest
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.errors import ErrorCode
from wire.records import BatchBuilder, batch_headers, records

PRODUCE_VERSION = 9
FETCH_VERSION = 12
METADATA_VERSION = 12
ASK_S = 2.5
WINDOW = 3
BEFORE_APPEND = frozenset(
    (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
)
"""Nothing was appended."""
DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
NEW_ID = frozenset(
    (
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
)
"""In answer to the oldest batch without an answer: its producer has been forgotten, or what was remembered of
it. A snapshot has only the last batch of each producer, as Kafka's has; an older one is out of order then."""


class World(NamedTuple):
    """What all clients of a run share."""

    cluster: Cluster
    history: History
    seed: int


class Client:
    """Knows who leads what, as brokers say."""

    def __init__(self, world: World, name: str, process: Process | None = None) -> None:
        """Without a process it has one of its own."""
        self.cluster, self.history, seed = world
        self.name = name
        self.chance = random.Random(f"{seed} {name}")
        self.process = process or Process(self.cluster.loop, name)
        self.is_stopping = False
        self._peers: dict[tuple[int, str], Peer] = {}
        self._leaders: dict[Place, tuple[int, int]] = {}

    async def ask(
        self, broker_id: int, message: object, version: int, *, purpose: str = "", timeout_s: float = ASK_S
    ) -> Any:
        """The response, or PeerLost."""
        peer = self._peers.get((broker_id, purpose))
        if peer is None:

            async def connect(made: Any, host: str, port: int) -> Any:
                return await self.cluster.network.connect(self.process, made, host, port)

            address: Address = (f"broker-{broker_id}", PORT)
            peer = self._peers[broker_id, purpose] = Peer(self.name, purpose, connect, lambda: address)
        return await peer.ask(message, version, timeout_s)

    def any_broker(self) -> int:
        return self.chance.randrange(len(self.cluster.nodes)) + 1

    async def leader(self, place: Place) -> tuple[int, int]:
        """Broker and leader epoch; waits until there is one."""
        while place not in self._leaders:
            await self._look_up(place)
            if place not in self._leaders:
                await self.pause(0.1)
        return self._leaders[place]

    def forget(self, place: Place) -> None:
        self._leaders.pop(place, None)

    async def _look_up(self, place: Place) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=place[0])], allow_auto_topic_creation=False
        )
        try:
            response = await self.ask(self.any_broker(), request, METADATA_VERSION)
        except PeerLost:
            return
        for found in response.topics[0].partitions:
            if found.partition_index == place[1] and found.leader_id > 0:
                self._leaders[place] = found.leader_id, found.leader_epoch

    async def fetch(
        self, place: Place, offset: int, *, isolation_level: int = 0, max_wait_ms: int = 300
    ) -> PartitionData | None:
        """What its leader gives; None where it gives nothing, for whatever reason."""
        broker_id, leader_epoch = await self.leader(place)
        wanted = FetchPartition(
            partition=place[1],
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=1 << 16,
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=place[0], partitions=[wanted])],
        )
        try:
            response = await self.ask(broker_id, request, FETCH_VERSION)
        except PeerLost:
            self.forget(place)
            return None
        answer: PartitionData = response.responses[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            self.history.note("not read", self.name, answer.error_code)
            self.forget(place)
            return None
        return answer

    async def pause(self, most_s: float) -> None:
        await asyncio.sleep(most_s * (0.2 + self.chance.random()))


class Producer(Client):
    """To one partition."""

    def __init__(
        self,
        world: World,
        name: str,
        place: Place,
        *,
        acks: int = -1,
        idempotent: bool = False,
        pause_s: float = 0.15,
    ) -> None:
        super().__init__(world, name)
        self.place, self.acks, self.idempotent = place, acks, idempotent
        self._pause_s = pause_s
        self._number = 0
        self.is_done = False

    async def run(self) -> None:
        if self.idempotent:
            await self._run_idempotent()
        else:
            while not self.is_stopping:
                sent = self._next()
                await self._send(sent, BatchBuilder())
                await self.pause(self._pause_s)
        self.is_done = True

    def _next(self) -> Sent:
        self._number += 1
        value = f"{self.name}:{self._number}".encode()
        sent = Sent(value, self.place, self.name, self.acks, self.idempotent, self._number)
        self.history.sending(sent)
        return sent

    async def _send(self, sent: Sent, builder: BatchBuilder) -> ErrorCode | None:
        """One attempt: the error, or None where nobody answered."""
        builder.append(b"k", sent.value, timestamp_ms=1_700_000_000_000)
        piece = PartitionProduceData(index=self.place[1], records=builder.build())
        topic = TopicProduceData(name=self.place[0], partition_data=[piece])
        request = ProduceRequest(acks=self.acks, timeout_ms=2000, topic_data=[topic])
        broker_id, _ = await self.leader(self.place)
        try:
            response = await self.ask(broker_id, request, PRODUCE_VERSION)
        except PeerLost:
            self.forget(self.place)
            return None
        answer = response.responses[0].partition_responses[0]
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.NONE:
            self.history.acknowledged(sent, answer.base_offset)
        else:
            self.history.note("not acknowledged", sent.value.decode(), code.name)
            self.forget(self.place)
            if code in BEFORE_APPEND and not self.idempotent:
                self.history.refused(sent)
        return code

    # -- with idempotence

    async def _run_idempotent(self) -> None:
        while not self.is_stopping:
            producer_id, epoch = await self._producer_id()
            sequence, is_known = 0, False
            window: list[tuple[Sent, int]] = []
            while window or not self.is_stopping:
                # A broker that knows nothing of a producer takes any of its batches for the first one.
                most = WINDOW if is_known else 1
                while len(window) < most and not self.is_stopping:
                    window.append((self._next(), sequence))
                    sequence += 1
                await self.leader(self.place)
                codes = await asyncio.gather(
                    *(
                        self._send(
                            sent,
                            BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=number),
                        )
                        for sent, number in window
                    )
                )
                while window and codes and codes[0] in DONE:
                    window.pop(0)
                    codes.pop(0)
                    is_known = True
                if codes and codes[0] in NEW_ID:
                    self.history.note("new producer id", self.name, codes[0])
                    break  # what is in the window may or may not be there
                await self.pause(self._pause_s)

    async def _producer_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_epoch=-1
        )
        while True:
            try:
                response = await self.ask(self.any_broker(), request, 4)
            except PeerLost:
                response = None
            if response is not None and response.error_code == ErrorCode.NONE:
                return response.producer_id, response.producer_epoch
            await self.pause(0.2)


class Consumer(Client):
    """Of one partition, by offset, from its beginning."""

    def __init__(self, world: World, name: str, place: Place) -> None:
        super().__init__(world, name)
        self.place = place
        self.offset = 0
        self.seen: dict[int, bytes] = {}
        self.checks = True
        """Whether what it reads stays; before it is durable, what a single replica has may go."""

    async def run(self) -> None:
        while not self.is_stopping:
            if not await self.poll():
                await self.pause(0.2)

    async def poll(self) -> bool:
        """Whether there was something."""
        before = self.offset
        answer = await self.fetch(self.place, self.offset)
        if answer is not None:
            self.take(answer)
        return self.offset > before

    def take(self, answer: PartitionData) -> None:
        for offset, value in self.read(bytes(answer.records or b"")):
            if value is None:
                continue
            self.seen[offset] = value
            if self.checks:
                self.history.read(self.name, self.place, offset, value)

    def read(self, data: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Goes on from `offset`, record by record; markers have no value."""
        for offset, value in values(data):
            if offset < self.offset:
                continue
            if offset > self.offset:
                self.history.broken("poll skip", f"{self.name}: {offset} after {self.offset - 1}")
            self.offset = offset + 1
            yield offset, value


def values(data: bytes) -> Iterator[tuple[int, bytes | None]]:
    """All records by offset; markers without a value."""
    for position, header in batch_headers(data):
        for record in records(data, position, header):
            yield record.offset, None if header.is_control else bytes(record.value or b"")
