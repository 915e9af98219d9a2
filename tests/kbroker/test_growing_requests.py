"""Every array of every request: four times the elements take four times the steps, not sixteen.

Steps are calls of functions, those of comparing and hashing an element included (its strings and numbers are
of classes that are written in Python), so that looking for one element in a list of others shows.
Two sorts of elements: such as the broker knows nothing of, and such as it has in its metadata.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbroker.broker import Broker
from kbroker.commands.start import join, make_broker
from kbroker.configuration.layers import Configuration
from kbroker.context import Context, HangUp, Parked
from kbroker.handlers import HANDLERS
from kbroker.large_messages import most_elements
from kbroker.listeners import Listeners
from tests.kbroker.harness import WAIT_S, RawClient
from tests.steps import Steps
from tests.wire.random_messages import is_present
from wire.api import ApiKey, api
from wire.api.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataTopicState,
)
from wire.codec import decode, encode
from wire.errors import KafkaError
from wire.schema import Primitive, fields_of
from wire.slices import to_the_end

SIZES = (2000, 8000, 32_000)
MORE = 1.3
"""By how much growth may exceed that of the elements."""
MOST_OF_AN_ELEMENT = 1000
"""Steps, in the smallest request."""
MOST_OF_A_TURN = 400_000
"""Steps in one callback of the event loop: less than 100 ms where nobody counts them."""
NOISE = 20_000
"""Steps that the broker takes meanwhile for other reasons."""

VALUES: dict[str, Any] = {
    "acks": 1,
    "broker_epoch": -1,
    "cursor": None,
    "generation_id_or_member_epoch": -1,
    "group_id": "g",
    "key_type": 0,
    "max_bytes": 1 << 20,
    "member_id": "",
    "num_partitions": 1,
    "protocol_type": "consumer",
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
    "validate_only": True,
}
"""What fields have to say for a request to get far."""
IDS = ("group", "member", "transactional", "client")
"""In names of strings that do not name topics."""


class Text(str):
    """A string whose comparisons can be counted."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) if isinstance(other, str) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)


class Number(int):
    """A number whose comparisons can be counted."""

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other) if isinstance(other, int) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return int.__hash__(self)


class Case(NamedTuple):
    """An array of a request, by the names of the fields that lead to it."""

    key: ApiKey
    version: int
    path: tuple[str, ...]
    known: bool

    def __str__(self) -> str:
        sort = "known" if self.known else "unknown"
        return f"{self.key.name}-v{self.version}-{'.'.join(self.path)}-{sort}"


def arrays_of(cls: type, version: int, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields_of(cls):
        if not is_present(field, version):
            continue
        here = (*path, field.name)
        if field.is_array:
            yield here
        if not isinstance(field.type, Primitive):
            yield from arrays_of(field.type, version, here)


def cases() -> Iterator[Case]:
    """Each array in the highest version that has it."""
    for key, handler in HANDLERS.items():
        seen = set()
        for version in range(handler.versions.last, handler.versions.first - 1, -1):
            for path in arrays_of(api(key).request, version):
                if path not in seen:
                    seen.add(path)
                    yield from (Case(ApiKey(key), version, path, known) for known in (False, True))


def built(cls: type, case: Case, size: int, path: tuple[str, ...], number: int = 0) -> Any:
    """A message whose array at `path` has `size` elements, and every other array one."""
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if not is_present(field, case.version):
            continue
        is_on_way = path[:1] == (field.name,)
        rest = path[1:] if is_on_way else ()
        if field.is_array:
            count = size if path == (field.name,) else 1
            values[field.name] = [
                _value(field.name, field.type, case, size, rest, index if count > 1 else number)
                for index in range(count)
            ]
        else:
            values[field.name] = _value(field.name, field.type, case, size, rest, number)
    return cls(**values)


def _value(
    name: str, kind: Primitive | type, case: Case, size: int, path: tuple[str, ...], number: int
) -> Any:
    if name in VALUES:
        return VALUES[name]
    if not isinstance(kind, Primitive):
        return built(kind, case, size, path, number)
    if kind.name == "string":
        if any(part in name for part in IDS) and not case.known:
            return Text(f"id-{number}")
        return Text(f"topic-{number}" if case.known else f"unknown-{number}")
    if kind.name == "uuid":
        return topic_id(number) if case.known else number.to_bytes(16)
    if kind.name in ("bytes", "records"):
        return b""
    if kind.name == "bool":
        return False
    if kind.name == "float64":
        return 1.0
    bits = kind.size * 8 - 1
    return Number(number % (1 << bits) if "partition" in name or "index" in name else 0)


def topic_id(number: int) -> bytes:
    return b"topic---" + number.to_bytes(8)


async def answered(broker: Broker, case: Case, request: Any) -> None:
    """Have it answered, whatever the answer is."""
    context = Context(case.version, "client", "/127.0.0.1")
    try:
        outcome = HANDLERS[case.key].handle(broker, context, request)
        if isinstance(outcome, Generator):
            outcome = to_the_end(outcome)
    except (KafkaError, HangUp):
        return
    if isinstance(outcome, Parked):
        done = asyncio.get_running_loop().create_future()
        outcome.when_done(done.set_result)
        outcome = await asyncio.wait_for(done, WAIT_S)
    if not isinstance(outcome, Exception):
        decode(type(outcome), encode(outcome, case.version), case.version)


async def steps(broker: Broker, case: Case, size: int, most: float) -> int:
    request = built(api(case.key).request, case, size, case.path)
    decoded = decode(type(request), encode(request, case.version), case.version)
    assert size_at(decoded, case.path) == size
    with Steps(most) as counted:
        await answered(broker, case, request)
    return counted.number


def size_at(message: Any, path: tuple[str, ...]) -> int:
    for name in path[:-1]:
        message = getattr(message, name)
        message = message[0] if isinstance(message, list) else message
    return len(getattr(message, path[-1]))


def fill(broker: Broker) -> None:
    """Topics that the broker knows from the controller: many with one partition, and one with many."""

    def state(index: int) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=broker.node_id,
            leader_epoch=0,
            isr=[broker.node_id],
            zk_version=0,
            replicas=[broker.node_id],
        )

    topics = [
        UpdateMetadataTopicState(
            topic_name=f"topic-{number}",
            topic_id=topic_id(number),
            partition_states=[state(index) for index in range(1 if number else SIZES[-1])],
        )
        for number in range(SIZES[-1])
    ]
    for topic in topics:
        broker.metadata._ends(topic)


async def served(data: Path) -> Broker:
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(data),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
        "kbroker.flush": "never",
    }
    configuration = Configuration(keys)
    broker = make_broker(configuration, Listeners.configured(configuration.broker))
    await broker.start(lambda broker: join(broker, configuration))
    broker.create_topics(["__consumer_offsets", "__transaction_state"])
    while len(broker.groups.served()) + len(broker.transactions.served()) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    fill(broker)
    return broker


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def broker(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One for all tests: it takes a while to fill. Its loop runs while a request is answered."""
    made = runner.run(served(tmp_path_factory.mktemp("data")))
    yield made
    runner.run(made.stop())


@pytest.mark.slow
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_steps_grow_with_the_elements(runner: asyncio.Runner, broker: Broker, case: Case) -> None:
    most = float(MOST_OF_AN_ELEMENT * SIZES[0])
    least = runner.run(steps(broker, case, SIZES[0], most))
    for size in SIZES[1:]:
        runner.run(steps(broker, case, size, MORE * least * size / SIZES[0] + NOISE))


class Turns:
    """Counts the steps of each callback of the event loop."""

    def __init__(self) -> None:
        self.most = 0

    def __enter__(self) -> Turns:
        run = self._run = asyncio.events.Handle._run

        def counted(handle: asyncio.events.Handle) -> None:
            with Steps() as steps:
                run(handle)
            self.most = max(self.most, steps.number)

        asyncio.events.Handle._run = counted  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.events.Handle._run = self._run  # type: ignore[method-assign]


async def asked_over_a_socket(broker: Broker, case: Case, size: int) -> int:
    """The steps of the longest callback until the reply has come, or the connection is closed."""
    request = built(api(case.key).request, case, size, case.path)
    reader, writer = await asyncio.open_connection(*broker.listeners.first)
    body = RawClient.request(request, case.key, case.version)
    await asyncio.sleep(0)
    with Turns() as turns:
        writer.write(struct.pack(">i", len(body)) + body)
        try:
            (expected,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), WAIT_S))
            while expected > 0:
                expected -= len(await reader.read(1 << 16)) or expected
        except asyncio.IncompleteReadError:
            pass
    writer.close()
    return turns.most


@pytest.mark.slow
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_no_request_holds_the_loop_for_long(runner: asyncio.Runner, broker: Broker, case: Case) -> None:
    """Nearly as many elements as are allowed, most of which have another one in them."""
    size = most_elements(case.key, 100_000) * 3 // 10
    assert runner.run(asked_over_a_socket(broker, case, size)) < MOST_OF_A_TURN
