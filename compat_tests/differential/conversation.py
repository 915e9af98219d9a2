"""One script of raw requests, held with any broker; and what two brokers said, compared.

A script asks, and every reply is noted under a label. Two brokers have held the same conversation if they
said the same under every label. What cannot be the same (ids, ports, the time) is replaced by what it means,
texts of error messages count only as there or not, and the order of lists counts where their members have no
names, since Kafka's own order is that of a hash table.

Requests are written down as `ask("Fetch", 17, max_wait_ms=0, ..., topics=[{"topic_id": ...}])`: the name of
the API, its version, and its fields; a mapping is a struct.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tests.kbroker.harness import RawClient
from wire.api import ApiKey, api
from wire.codec import decode
from wire.errors import WireError
from wire.headers import response_header_version
from wire.primitives import ZERO_UUID
from wire.records import Record, batch_headers, records
from wire.schema import fields_of

SILENCE_S = 0.4
WAIT_S = 20
RECENTLY_MS = 3_600_000
TIMES = ("timestamp", "_time_ms", "time")
IDENTITIES = (
    "transactional_id",
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "resource_name",
    "group_id",
    "log_dir",
    "key",
    "api_key",
    "partition_index",
    "partition",
    "partition_id",
    "index",
    "node_id",
    "broker_id",
    "producer_id",
    "entity_type",
    "entity",
)
"""What the structs of a list are called by: the first of these that has a value."""

KEYS = {api(key).name: int(key) for key in ApiKey}

Script = Callable[["Conversation"], None]
SCRIPTS: dict[str, Script] = {}


def script(function: Script) -> Script:
    SCRIPTS[function.__name__] = function
    return function


class Difference(NamedTuple):
    """A place where this broker answers otherwise on purpose. `*` stands for anything in the first three."""

    script: str
    label: str
    path: str
    theirs: object
    ours: object
    reason: str

    def covers(self, name: str, found: Found) -> bool:
        return (
            fnmatchcase(name, self.script)
            and fnmatchcase(found.label, self.label)
            and fnmatchcase(found.path, self.path)
            and self.theirs in (ANYTHING, found.theirs)
            and self.ours in (ANYTHING, found.ours)
        )


COUNT = "<count>"
ANYTHING = "<anything>"
MISSING = "<nothing>"


class Found(NamedTuple):
    """A place where two brokers did answer differently."""

    label: str
    path: str
    theirs: object
    ours: object

    def __str__(self) -> str:
        return f"{self.label}: {self.path}: Kafka {self.theirs!r}, kbroker {self.ours!r}"


class World(NamedTuple):
    """A broker, and the versions of each API that are compared: those that both of them serve."""

    address: tuple[str, int]
    cluster_id: str
    versions: Mapping[int, range]


class Conversation:
    """One script with one broker."""

    def __init__(self, world: World, prefix: str) -> None:
        self.world = world
        self.prefix = prefix
        """Names that begin with it belong to this script alone."""
        self.noted: dict[str, dict[str, object]] = {}
        self._clients: dict[str, RawClient] = {}
        self._names: dict[tuple[str, object], str] = {("", world.cluster_id): "<cluster>"}

    # -- talking

    def versions(self, name: str) -> range:
        """Of this API, or none if one of the two does not serve it."""
        return self.world.versions.get(KEYS[name], range(0))

    def name(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def client(self, name: str) -> RawClient:
        if name not in self._clients:
            self._clients[name] = RawClient(*self.world.address)
        return self._clients[name]

    def ask(self, name: str, version: int, label: str = "", *, client: str = "a", **fields: Any) -> Any:
        """The reply, which is noted. Without a label, this is the API and its version."""
        reply = self.quietly(name, version, client=client, **fields)
        self.note(f"{name} v{version} {label}".strip(), reply)
        return reply

    def quietly(self, name: str, version: int, *, client: str = "a", **fields: Any) -> Any:
        """The reply, which is not noted; None when the broker hangs up."""
        self.send(name, version, client=client, **fields)
        return self.reply(name, version, client=client)

    def send(self, name: str, version: int, *, client: str = "a", **fields: Any) -> None:
        key = KEYS[name]
        self.client(client).send(RawClient.request(build(api(key).request, fields), key, version))

    def reply(self, name: str, version: int, *, client: str = "a") -> Any:
        key = KEYS[name]
        body = self.client(client).receive()
        if not body:
            self.hang_up(client)
            return None
        return decode(api(key).response, body[4 + response_header_version(key, version) :], version)

    def see_silence(self, label: str, *, client: str = "a") -> None:
        """Notes whether nothing comes for a moment."""
        self.note(label, {"event": self._next_event(client)})

    def _next_event(self, client: str) -> str:
        connection = self.client(client).socket
        connection.settimeout(SILENCE_S)
        try:
            data = connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return "silence"
        except ConnectionResetError:
            data = b""
        finally:
            connection.settimeout(WAIT_S)
        return "a reply" if data else "hung up"

    def send_bytes(self, label: str, data: bytes) -> None:
        """Bytes as they are, on a connection of their own; notes what comes of it."""
        connection = RawClient(*self.world.address)
        connection.socket.settimeout(2 * SILENCE_S)
        connection.socket.sendall(data)
        try:
            body = connection.receive()
            event = f"a reply of {body.hex()}" if body else "hung up"
        except TimeoutError:
            event = "silence"
        connection.socket.close()
        self.note(label, {"event": event})

    def hang_up(self, client: str = "a") -> None:
        if (gone := self._clients.pop(client, None)) is not None:
            gone.socket.close()

    def close(self) -> None:
        for name in list(self._clients):
            self.hang_up(name)

    def until(self, is_ready: Callable[[Any], bool], name: str, version: int, **fields: Any) -> Any:
        """The first reply that is so. Kafka's brokers learn a moment after its controller."""
        deadline = time.monotonic() + WAIT_S
        while not is_ready(reply := self.quietly(name, version, client="waiting", **fields)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} v{version} of {fields} stays {reply}")
            time.sleep(0.01)
        return reply

    # -- topics, which most scripts need

    def create(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """A topic that can be used, and its id."""
        topic = self.name(name)
        settings = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        self.quietly(
            "CreateTopics",
            7,
            topics=[
                {
                    "name": topic,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": settings,
                }
            ],
        )
        return self.learn_topic(name, partitions)

    def learn_topic(self, name: str, partitions: int) -> bytes:
        """Waits until a topic has so many partitions with leaders; its id is its name from now on."""

        def is_ready(reply: Any) -> bool:
            [found] = reply.topics
            return len(found.partitions) == partitions and all(one.leader_id > 0 for one in found.partitions)

        topic = self.name(name)
        reply = self.until(
            is_ready, "Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False
        )
        self.learn(reply.topics[0].topic_id, f"<id of {name}>")
        self.until(
            lambda reply: all(one.error_code == 0 for one in reply.topics[0].partitions),
            "ListOffsets",
            6,
            replica_id=-1,
            topics=[
                {
                    "name": topic,
                    "partitions": [{"partition_index": one, "timestamp": -1} for one in range(partitions)],
                }
            ],
        )
        return bytes(reply.topics[0].topic_id)

    def until_gone(self, name: str) -> None:
        self.until(
            lambda reply: reply.topics[0].error_code == 3,
            "Metadata",
            12,
            topics=[{"name": self.name(name)}],
            allow_auto_topic_creation=False,
        )

    def produce(self, name: str, *batches: bytes, partition: int = 0) -> None:
        """Records that must get in."""
        for batch in batches:
            reply = self.quietly(
                "Produce",
                9,
                client="producer",
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    {"name": self.name(name), "partition_data": [{"index": partition, "records": batch}]}
                ],
            )
            code = reply.responses[0].partition_responses[0].error_code
            assert code == 0, code

    def learn_created(self, reply: Any, label: str) -> None:
        """Notes a reply to CreateTopics, whose ids are new."""
        for one in reply.topics:
            if one.topic_id != ZERO_UUID:
                self.learn(one.topic_id, "<new id>")
        self.note(label, reply)

    # -- noting

    def learn(self, value: object, name: str, field: str = "") -> None:
        """This value of this broker, in fields of this name or anywhere, is to be seen as this name."""
        self._names[field, value] = name

    def note(self, label: str, reply: Any) -> None:
        number, unique = 1, label
        while unique in self.noted:
            number += 1
            unique = f"{label} #{number}"
        self.noted[unique] = {"": "hung up"} if reply is None else dict(self._leaves(reply, "", ""))

    def own(self, found: Iterable[Any], attribute: str = "name") -> list[Any]:
        """Those that belong to this script."""
        return [one for one in found if str(getattr(one, attribute)).startswith(self.prefix)]

    def _leaves(self, value: Any, path: str, field: str) -> Iterator[tuple[str, object]]:
        """Every value in a reply, by its path; the members of a list go by their names."""
        dot = path and "."
        if isinstance(value, list):
            yield f"{path}{dot}{COUNT}", len(value)
            if field == "partitions" and value and isinstance(value[0], int):
                value = sorted(value)
            for name, part in self._named(value):
                yield from self._leaves(part, f"{path}{dot}{name}", field)
        elif isinstance(value, Mapping):
            for key, part in value.items():
                yield from self._leaves(part, f"{path}{dot}{key}", str(key))
        elif is_struct(value):
            for key in value.__slots__:
                yield from self._leaves(getattr(value, key), f"{path}{dot}{key}", key)
        elif field == "records" and value:
            yield from self._leaves(list(stored(bytes(value))), path, "stored")
        else:
            yield path, self._plain(value, field)

    def _named(self, values: list[Any]) -> Iterator[tuple[str, Any]]:
        """By what they are called, where they have a name, else by position."""
        seen: dict[str, int] = {}
        for position, value in enumerate(values):
            name = self._identity(value) if is_struct(value) else str(position)
            seen[name] = number = seen.get(name, 0) + 1
            yield name if number == 1 else f"{name}#{number}", value

    def _identity(self, value: object) -> str:
        for field in IDENTITIES:
            if (found := getattr(value, field, None)) not in (None, "", ZERO_UUID, []):
                if isinstance(found, list):
                    return " ".join(sorted(map(self._identity, found)))
                return str(self._plain(found, field)).removeprefix(f"{self.prefix}-")
        return "<nameless>"

    def _plain(self, value: Any, field: str) -> object:
        if isinstance(value, memoryview):
            value = bytes(value)
        if field.endswith("message"):
            return "<text>" if value else "<no text>"
        if field == "port":
            return "<port>" if value == self.world.address[1] else value
        if known := self._names.get((field, value)) or self._names.get(("", value)):
            return known
        if isinstance(value, int) and field.endswith(TIMES) and is_now(value):
            return "<now>"
        return int(value) if isinstance(value, int) else value


def is_now(time_ms: int) -> bool:
    return abs(time_ms - time.time() * 1000) < RECENTLY_MS


def is_struct(value: object) -> bool:
    return hasattr(value, "__slots__") and type(value).__module__.startswith("wire.api.")


def stored(data: bytes) -> Iterator[Mapping[str, object]]:
    """Batches as a consumer gets them. A last one that is cut off is left out."""
    for position, header in batch_headers(data):
        if position + header.size <= len(data):
            fields = header._asdict()
            fields.pop("crc")
            if header.codec:
                fields.pop("batch_length")  # codecs do not compress equally
            try:
                contents = [shown(record) for record in records(data, position, header)]
            except WireError as error:
                contents = [str(error)]
            yield {**fields, "contents": contents}


def shown(record: Record) -> str:
    time_ms: object = "now" if is_now(record.timestamp) else record.timestamp
    return f"{record.offset} {time_ms} {record.key!r} {record.value!r} {record.headers}"


def build(cls: type, fields: Mapping[str, Any]) -> Any:
    """The message or struct with these fields, where a mapping stands for a struct."""
    kinds = {field.name: field.type for field in fields_of(cls)}
    if unknown := fields.keys() - kinds.keys():
        raise TypeError(f"{cls.__name__} has no {unknown}")
    return cls(**{name: _built(kinds[name], value) for name, value in fields.items()})


def _built(kind: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return build(kind, value)
    if isinstance(value, list):
        return [_built(kind, one) for one in value]
    return value


def different(theirs: Conversation, ours: Conversation) -> list[Found]:
    """Where two brokers did not say the same. What only one has in a list is told by its length."""
    found = []
    for label in dict.fromkeys([*theirs.noted, *ours.noted]):
        one, other = theirs.noted.get(label, {}), ours.noted.get(label, {})
        paths = list(dict.fromkeys([*one, *other]))
        unequal = [path for path in paths if path.endswith(COUNT) and one.get(path) != other.get(path)]
        for path in paths:
            left, right = one.get(path, MISSING), other.get(path, MISSING)
            if MISSING in (left, right) and any(
                path.startswith(list_.removesuffix(COUNT)) for list_ in unequal if list_ != path
            ):
                continue
            if left != right:
                found.append(Found(label, path, left, right))
    return found


def cluster_of(address: tuple[str, int]) -> str:
    client = RawClient(*address)
    reply = client.ask(api(60).request(include_cluster_authorized_operations=False), 60, 0)
    client.socket.close()
    return str(reply.cluster_id)


def served_by(address: tuple[str, int]) -> dict[int, range]:
    client = RawClient(*address)
    reply = client.ask(api(18).request(client_software_name="raw", client_software_version="1"), 18, 3)
    client.socket.close()
    return {one.api_key: range(one.min_version, one.max_version + 1) for one in reply.api_keys}


def common(one: Mapping[int, range], other: Mapping[int, range]) -> dict[int, range]:
    return {
        key: range(max(one[key].start, other[key].start), min(one[key].stop, other[key].stop))
        for key in one.keys() & other.keys()
    }
