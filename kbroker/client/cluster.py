"""The way to a cluster: connections by what they are needed for, and what Metadata says about topics.

    with Cluster("localhost:9092") as cluster:
        cluster.controller().ask(...)

Rules:
- Connections are opened when they are needed and kept. What is known about topics is kept until `forget`.
- `patiently` repeats what the cluster refused for the moment (elections, a broker that went away), with the
  knowledge of before forgotten, for as long as the patience lasts. A cluster of which no bootstrap address
  has ever answered is not waited for: whoever runs a tool wants to know.
- Nothing here creates a topic by asking for it.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from kbroker.client.connection import Address, Connection, check
from kbroker.client.errors import CannotConnect, ClientError, ConnectionLost, UnknownTopic
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from wire.errors import ErrorCode

T = TypeVar("T")

TIMEOUT_S = 30.0
PATIENCE_S = 15.0
PAUSE_S = 0.05
DEFAULT_PORT = 9092
GROUP = 0
NO_LEADER = -1


class Partition(NamedTuple):
    """One partition, as Metadata tells of it."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


class Topic(NamedTuple):
    """One topic, its partitions in order."""

    name: str
    is_internal: bool
    partitions: tuple[Partition, ...]


class Cluster:
    """Reached by one of the addresses in `bootstrap`, which commas separate."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "kbroker",
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.bootstrap = parse_bootstrap(bootstrap)
        self.timeout_s = timeout_s
        self._client_id = client_id
        self._patience_s = patience_s
        self._anyone: Connection | None = None
        self._connections: dict[Address, Connection] = {}
        self._addresses: dict[int, Address] = {}
        self._controller_id = -1
        self._topics: dict[str, Topic] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in (self._anyone, *self._connections.values()):
            if connection is not None:
                connection.close()
        self._connections.clear()

    # -- connections

    def anyone(self) -> Connection:
        """The first bootstrap address that answers, on a connection that has no other use."""
        if self._anyone is not None:
            if self._anyone.is_usable:
                return self._anyone
            self._anyone.close()
        failures = []
        for address in self.bootstrap:
            try:
                self._anyone = self.new_connection(address)
            except CannotConnect as error:
                failures.append(str(error))
            else:
                return self._anyone
        # One that was there may come back; one that never was is rather an address that is wrong.
        raise (CannotConnect if self._anyone is None else ConnectionLost)("; ".join(failures))

    def broker(self, node_id: int) -> Connection:
        if node_id not in self._addresses:
            self._learn(self.metadata([]))
        address = self._addresses.get(node_id)
        if address is None:
            raise ConnectionLost(f"broker {node_id} is not there")
        return self._connect_to_member(address)

    def controller(self) -> Connection:
        """The broker that takes changes to the cluster; with KRaft, one that passes them on."""
        self._learn(self.metadata([]))
        return self.broker(self._controller_id) if self._controller_id >= 0 else self.anyone()

    def coordinator(self, group: str) -> Connection:
        return self._connect_to_member(self.coordinator_address(group))

    def coordinator_address(self, group: str) -> Address:
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group])
        (found,) = self.anyone().ask(request).coordinators
        check(found.error_code, f"cannot find the coordinator of group {group}", found.error_message or None)
        return Address(found.host, found.port)

    def leader(self, topic: str, index: int) -> Connection:
        return self.broker(self.leader_id(topic, index))

    def new_connection(self, address: Address) -> Connection:
        """One that the caller owns and closes, and may use in another thread."""
        return Connection(address, client_id=self._client_id, timeout_s=self.timeout_s)

    def _connect_to_member(self, address: Address) -> Connection:
        try:
            return self._connect(address)
        except CannotConnect as error:
            raise ConnectionLost(str(error)) from None

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and not connection.is_usable:
            connection.close()
            connection = None
        if connection is None:
            connection = self._connections[address] = self.new_connection(address)
        return connection

    # -- what is known

    def metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        """What the cluster says about these topics, or about all."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        response: MetadataResponse = self.anyone().ask(request)
        return response

    def node_ids(self) -> list[int]:
        self._learn(self.metadata([]))
        return sorted(self._addresses)

    def topics(self) -> list[Topic]:
        """All that there are, by name."""
        response = self.metadata(None)
        self._learn(response)
        return sorted(topic_of(answer) for answer in response.topics if not answer.error_code)

    def topic(self, name: str) -> Topic:
        """UnknownTopic with suggestions if it is not there."""
        known = self._topics.get(name)
        if known is not None:
            return known
        response = self.metadata([name])
        (answer,) = response.topics
        if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(name, near(name, (topic.name for topic in self.topics())))
        check(answer.error_code, f"cannot describe topic {name}")
        self._learn(response)
        topic = self._topics[name] = topic_of(answer)
        return topic

    def leader_id(self, topic: str, index: int) -> int:
        """The leader of a partition; `patiently` waits for one."""
        partitions = self.topic(topic).partitions
        if not 0 <= index < len(partitions):
            raise ClientError(f"topic {topic} has no partition {index}, only 0 to {len(partitions) - 1}")
        leader = partitions[index].leader
        if leader == NO_LEADER:
            check(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {topic}-{index}")
        return leader

    def forget(self) -> None:
        """Ask anew about topics and brokers, and connect anew to what has failed."""
        self._topics.clear()
        self._addresses.clear()
        self._controller_id = -1
        for address, connection in list(self._connections.items()):
            if not connection.is_usable:
                connection.close()
                del self._connections[address]

    def patiently(
        self, action: Callable[[], T], patience_s: float | None = None, pause_s: float = PAUSE_S
    ) -> T:
        """The outcome of the action, repeated while it fails in a way that passes."""
        deadline = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        while True:
            try:
                return action()
            except ClientError as error:
                if not error.retriable or time.monotonic() >= deadline:
                    raise
            time.sleep(pause_s)
            self.forget()

    def _learn(self, response: MetadataResponse) -> None:
        self._controller_id = response.controller_id
        self._addresses = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}


def topic_of(answer: MetadataResponseTopic) -> Topic:
    partitions = (
        Partition(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
        )
        for one in answer.partitions
    )
    return Topic(answer.name or "", answer.is_internal, tuple(sorted(partitions)))


def near(name: str, names: Iterable[str]) -> list[str]:
    """Those names that somebody may have meant."""
    by_lower = {one.lower(): one for one in names}
    return [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, 3)]


def parse_bootstrap(text: str) -> list[Address]:
    """`HOST[:PORT],...`; ClientError says what is wrong with it."""
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or part.endswith("]") or (":" in host and not host.startswith("[")):
            host, port = part, str(DEFAULT_PORT)
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ClientError(f"{part} is not an address of the form HOST:PORT")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ClientError("no address to connect to: give HOST:PORT")
    return addresses
