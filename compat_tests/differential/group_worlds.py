"""Two worlds in which one script can be played: Apache Kafka over TCP, and our state machines on their own.

In the one, a client is a connection and sleeping takes time; in the other, the driver's clock is moved. A
Play is one script in one world. It remembers what its clients learned, and what was seen, in a form that can
be compared: member ids get the names of their clients, and throttle times stay out.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

from kbroker.coordinators.classic_group import GroupConfig
from tests.kbroker.coordinators.driver import Asked, Driver, Entry
from tests.kbroker.coordinators.requests import commit, describe, fetch, heartbeat, join, sync
from wire.api import ApiKey, api
from wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from wire.api.end_txn import EndTxnRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.init_producer_id import InitProducerIdRequest
from wire.api.list_groups import ListGroupsResponse
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.codec import decode, encode
from wire.errors import ErrorCode
from wire.headers import encode_request_header, response_header_version
from wire.internal import CONSUMER_OFFSETS
from wire.records import BatchHeader, ControlType, Record, batch_headers, control_type, records

TOPIC = "read-by-groups"
WAIT_S = 30
PARKED_MS = 150
ORDER_MS = 40
DELAY_MS = 500
MIN_SESSION_MS = 1_000
MAX_SIZE = 4

KEYS = {api(key).request: key for key in ApiKey}


class World(Protocol):
    """Where requests are answered."""

    def ask(self, client: str, request: object, version: int) -> None:
        """Send it. A client has one request under way."""
        ...

    def reply(self, client: str) -> Any:
        """To the last request, which must come."""
        ...

    def is_waiting(self, client: str) -> bool: ...

    def sleep(self, delay_ms: int) -> None: ...

    def begin_transaction(self, client: str, group_id: str) -> dict[str, int]:
        """Of a producer that may commit offsets of the group: who it is."""
        ...

    def end_transaction(
        self, client: str, group_id: str, producer: dict[str, int], *, is_commit: bool
    ) -> None: ...


class Machines:
    """Ours."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.driver = driver or Driver(CONFIG)
        self.asked: dict[str, Asked] = {}

    def ask(self, client: str, request: object, version: int) -> None:
        self.asked[client] = self.driver.ask(request, version, client)

    def reply(self, client: str) -> Any:
        asked = self.asked[client]
        while asked.is_parked:
            until_next_ms = min(self.driver.timers.values()) - self.driver.now_ms
            assert until_next_ms <= WAIT_S * 1000, f"no reply to {client}'s {asked.request}"
            self.driver.advance(until_next_ms)
        return decode(type(asked.reply), encode(asked.reply, asked.version), asked.version)

    def is_waiting(self, client: str) -> bool:
        self.sleep(PARKED_MS)
        return self.asked[client].is_parked

    def sleep(self, delay_ms: int) -> None:
        self.driver.advance(delay_ms)

    def begin_transaction(self, client: str, group_id: str) -> dict[str, int]:
        return {"producer_id": 7, "producer_epoch": 0}

    def end_transaction(
        self, client: str, group_id: str, producer: dict[str, int], *, is_commit: bool
    ) -> None:
        self.driver.end_transaction(producer["producer_id"], is_commit=is_commit)


CONFIG = GroupConfig(
    group_initial_rebalance_delay_ms=DELAY_MS,
    group_min_session_timeout_ms=MIN_SESSION_MS,
    group_max_size=MAX_SIZE,
)
PROPERTIES = {
    "group.initial.rebalance.delay.ms": DELAY_MS,
    "group.min.session.timeout.ms": MIN_SESSION_MS,
    "group.max.size": MAX_SIZE,
    "auto.create.topics.enable": "false",
}


class Kafka:
    """Theirs."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self.address = (host, int(port))
        self.connections: dict[str, socket.socket] = {}
        self.asked: dict[str, tuple[int, int]] = {}

    def ask(self, client: str, request: object, version: int) -> None:
        if client not in self.connections:
            self.connections[client] = socket.create_connection(self.address, timeout=WAIT_S)
        key = KEYS[type(request)]
        body = encode_request_header(key, version, 7, client) + encode(request, version)
        self.connections[client].sendall(struct.pack(">i", len(body)) + body)
        self.asked[client] = key, version
        # Connections are not ordered among each other, and scripts are.
        self._is_readable(client, ORDER_MS)

    def reply(self, client: str) -> Any:
        key, version = self.asked[client]
        (size,) = struct.unpack(">i", self._receive(client, 4))
        body = self._receive(client, size)[4 + response_header_version(key, version) :]
        return decode(api(key).response, body, version)

    def _receive(self, client: str, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.connections[client].recv(size - len(data))
            assert piece, "Kafka hung up"
            data += piece
        return data

    def is_waiting(self, client: str) -> bool:
        return not self._is_readable(client, PARKED_MS)

    def _is_readable(self, client: str, wait_ms: int) -> bool:
        readable, _, _ = select.select([self.connections[client]], [], [], wait_ms / 1000)
        return bool(readable)

    def sleep(self, delay_ms: int) -> None:
        time.sleep(delay_ms / 1000)

    def begin_transaction(self, client: str, group_id: str) -> dict[str, int]:
        transactional_id = f"transactional-{group_id}"
        wait_until(self, FindCoordinatorRequest(key=transactional_id, key_type=1), 3, is_done)
        initialize = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        reply = wait_until(self, initialize, 4, is_done)
        producer = {"producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}
        add = AddOffsetsToTxnRequest(transactional_id=transactional_id, group_id=group_id, **producer)
        wait_until(self, add, 3, is_done)
        return producer

    def end_transaction(
        self, client: str, group_id: str, producer: dict[str, int], *, is_commit: bool
    ) -> None:
        end = EndTxnRequest(transactional_id=f"transactional-{group_id}", committed=is_commit, **producer)
        wait_until(self, end, 3, is_done)
        stable = fetch(group_id, {TOPIC: [0, 1]}, require_stable=True)
        wait_until(
            self,
            stable,
            8,
            lambda reply: all(
                partition.error_code == 0
                for topic in reply.groups[0].topics
                for partition in topic.partitions
            ),
        )

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


class Play:
    """A script being played in one world: what its clients learn, and what was seen."""

    def __init__(self, world: World, group_id: str) -> None:
        self.world = world
        self.group = group_id
        self.member_ids: dict[str, str] = {}
        """What each client goes by now."""
        self.names: dict[str, str] = {}
        """Every member id there was: its client, and how many it had before."""
        self.generation = -1
        self.seen: list[tuple[str, Any]] = []

    def ask(self, client: str, request: object, version: int) -> None:
        self.world.ask(client, request, version)

    def see(self, client: str) -> Any:
        """The reply to the client, which has to be the same in both worlds."""
        reply = self.world.reply(client)
        member_id = getattr(reply, "member_id", "")
        if member_id:
            self.member_ids[client] = member_id
            self.names.setdefault(member_id, f"<{client}{len(self.names)}>")
        if getattr(reply, "generation_id", -1) >= 0:
            self.generation = reply.generation_id
        self.seen.append((client, reply))
        return reply

    def call(self, client: str, request: object, version: int) -> Any:
        self.ask(client, request, version)
        return self.see(client)

    def see_waiting(self, *clients: str) -> None:
        self.seen.extend((client, self.world.is_waiting(client)) for client in clients)

    def comparable(self) -> list[object]:
        return [(client, self._comparable(reply)) for client, reply in self.seen]

    def sleep(self, delay_ms: int) -> None:
        self.world.sleep(delay_ms)

    def id(self, client: str) -> str:
        return self.member_ids[client]

    def _comparable(self, value: Any) -> Any:
        if isinstance(value, list):
            return sorted((self._comparable(item) for item in value), key=repr)
        if hasattr(value, "__slots__") and not isinstance(value, bytes | str | int | float | type(None)):
            fields = {name: self._comparable(getattr(value, name)) for name in value.__slots__}
            fields.pop("throttle_time_ms", None)
            if isinstance(value, ListGroupsResponse):
                fields["groups"] = [group for group in fields["groups"] if group[1]["group_id"] == self.group]
            return type(value).__name__, fields
        if isinstance(value, str):
            return self.names.get(value, value)
        return value

    def begin_transaction(self, client: str) -> dict[str, Any]:
        self.producer = self.world.begin_transaction(client, self.group)
        return {"transactional_id": f"transactional-{self.group}", **self.producer}

    def end_transaction(self, client: str, *, is_commit: bool) -> None:
        self.world.end_transaction(client, self.group, self.producer, is_commit=is_commit)

    # What most scripts do

    def join(self, client: str, version: int = 9, **more: Any) -> None:
        """Up to the JoinGroup that waits for the group."""
        if "member_id" not in more and "instance_id" not in more and version >= 4:
            if client not in self.member_ids:
                first = self.call(client, join(self.group, **more), version)
                assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            more["member_id"] = self.id(client)
        self.ask(client, join(self.group, **more), version)

    def sync(self, client: str, version: int = 4, **assignments: bytes) -> None:
        given = {self.id(name): assignment for name, assignment in assignments.items()}
        self.ask(client, sync(self.group, self.generation, self.id(client), given), version)

    def heartbeat(self, client: str, version: int = 4, **more: Any) -> None:
        values = {"generation": self.generation, "member_id": self.id(client), **more}
        self.call(client, heartbeat(self.group, **values), version)

    def commit(self, client: str, version: int = 8, **more: Any) -> None:
        values = {"generation": self.generation, "member_id": self.member_ids.get(client, ""), **more}
        self.call(client, commit(self.group, TOPIC, {0: 5}, **values), version)

    def describe(self, version: int = 5) -> None:
        self.call("admin", describe(self.group), version)

    def stable(self, *clients: str, **more: Any) -> None:
        """A stable group of these, led by the first."""
        self.join(clients[0], **more)
        for client in clients[1:]:
            self.join(client, **more)
        for client in clients:
            self.see(client)
        for client in clients:
            shares: dict[str, Any] = {name: f"for {name}".encode() for name in clients}
            self.sync(client, **(shares if client == clients[0] else {}))
        for client in clients:
            self.see(client)


def prepare(world: Kafka) -> None:
    """Wait until Kafka has the topic of the scripts, and a coordinator."""
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    wait_until(world, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, lambda reply: True)
    named = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    wait_until(world, named, 8, lambda reply: len(reply.topics[0].partitions) == 2)
    wait_until(world, FindCoordinatorRequest(key="any", key_type=0), 3, is_done)
    wait_until(
        world, heartbeat("any", 1, "nobody"), 4, lambda reply: reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    )


def is_done(reply: Any) -> bool:
    return bool(reply.error_code == ErrorCode.NONE)


def wait_until(world: Kafka, request: object, version: int, is_ready: Callable[[Any], bool]) -> Any:
    for _ in range(200):
        world.ask("admin", request, version)
        if is_ready(reply := world.reply("admin")):
            return reply
        world.sleep(50)
    raise AssertionError(f"Kafka is not ready to answer {request}: {reply}")


def read_group_log(world: Kafka) -> list[Entry]:
    """All of the one partition of `__consumer_offsets` of this Kafka."""
    entries: list[Entry] = []
    while data := _read_some(world, len(entries)):
        for position, header in batch_headers(data):
            for record in records(data, position, header):
                entries.extend([Entry(b"", None)] * (record.offset - len(entries)))
                entries.append(_entry(header, record))
    return entries


def _read_some(world: Kafka, offset: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=CONSUMER_OFFSETS, partitions=[partition])
    world.ask("admin", FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]), 11)
    return bytes(world.reply("admin").responses[0].partitions[0].records or b"")


def _entry(header: BatchHeader, record: Record) -> Entry:
    producer_id = header.producer_id if header.is_transactional else -1
    if header.is_control:
        return Entry(b"", None, producer_id, control_type(record) == ControlType.COMMIT)
    return Entry(record.key or b"", record.value, producer_id)
