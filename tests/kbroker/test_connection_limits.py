"""Limits on connections, over TCP: how many, how long idle, and what their requests may hold."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kbroker.broker import Broker
from kbroker.configuration.layers import Configuration
from kbroker.context import Context, Parked
from kbroker.handlers import HANDLERS, Handler
from kbroker.handlers.metadata import metadata
from kbroker.listeners import Listeners
from kbroker.serving import loop_factory
from tests.kbroker.harness import WAIT_S, RawClient
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.api.metadata import MetadataRequest
from wire.headers import encode_request_header
from wire.schema import Versions
from wire.slices import to_the_end

CONTEXT = Context(12, None)
MEBIBYTE = 1 << 20
MINUTE_MS = 60_000


LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class Client:
    """A raw connection on the loop of the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, body: bytes) -> None:
        self.writer.write(struct.pack(">i", len(body)) + body)

    async def is_served(self) -> bool:
        """Whether a request is answered; if not, the broker has hung up."""
        try:
            self.send(RawClient.request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0))
            return await self.has_reply()
        except ConnectionError:
            return False

    async def has_reply(self) -> bool:
        try:
            size = await asyncio.wait_for(self.reader.readexactly(4), WAIT_S)
            await asyncio.wait_for(self.reader.readexactly(struct.unpack(">i", size)[0]), WAIT_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        return True

    def reset(self) -> None:
        """Close without the usual farewell."""
        descriptor = self.writer.get_extra_info("socket").fileno()
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


class Scene:
    """A broker with these keys, and its clients."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._clients: list[Client] = []

    async def connect(self, listener: int = 0) -> Client:
        endpoint = self.broker.listeners.bound[listener]
        client = Client(*await asyncio.open_connection(endpoint.host, endpoint.port))
        self._clients.append(client)
        return client

    async def leave(self, client: Client) -> None:
        """Close, and wait until the broker has noticed."""
        before = len(self.broker.connections)
        await client.close()
        await until(lambda: len(self.broker.connections) < before)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.broker.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 -- of a broker that is no wiser
            await asyncio.sleep(0.001)


async def until_after(act: Callable[[], object], condition: Callable[[], bool]) -> None:
    """Act, perhaps several times, until something is so."""

    def is_so_now() -> bool:
        act()
        return condition()

    await until(is_so_now)


@asynccontextmanager
async def scene(handlers: Mapping[int, Handler] | None = None, **keys: object) -> AsyncIterator[Scene]:
    static = {name.replace("_", "."): str(value) for name, value in keys.items()}
    configuration = Configuration({"listeners": "PLAINTEXT://127.0.0.1:0", **static})
    listeners = Listeners.configured(configuration.broker)
    made = Scene(Broker(listeners, {**HANDLERS, **(handlers or {})}, configuration=configuration))
    await made.broker.start()
    try:
        yield made
    finally:
        await made.close()


FASTEST = loop_factory()


def run(scenario: Awaitable[None], loop: LoopFactory | None = FASTEST) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario)  # type: ignore[arg-type]


TWO_LISTENERS: dict[str, Any] = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
    "listener_security_protocol_map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}
INTERNAL, EXTERNAL = 0, 1


@pytest.mark.parametrize(
    "keys",
    [
        {"max_connections": 2},
        {"max_connections_per_ip": 2},
        {"max_connections_per_ip": 9, "max_connections_per_ip_overrides": "10.0.0.1:1, 127.0.0.1:2"},
        {"max_connections_per_ip": 0, "max_connections_per_ip_overrides": "localhost:2"},
        {"listener_name_plaintext_max_connections": 2},
    ],
)
def test_a_connection_too_many_is_closed_and_no_other(
    keys: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A place that becomes free is taken by the next one; the log counts those that were closed."""

    async def scenario() -> None:
        async with scene(**keys) as it:
            first, second = await it.connect(), await it.connect()
            assert await first.is_served()
            assert await second.is_served()
            for _ in range(2):
                assert not await (await it.connect()).is_served()
            await it.leave(first)
            assert await (await it.connect()).is_served()
            assert await second.is_served()

    run(scenario())
    said, count = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said.startswith("a new connection was closed: ")
    assert "(max.connections" in said
    assert count.startswith("1 more such line in ")


def test_a_limit_can_be_altered_while_the_broker_runs() -> None:
    async def scenario() -> None:
        async with scene(max_connections=1) as it:
            assert await (await it.connect()).is_served()
            assert not await (await it.connect()).is_served()
            it.broker.settings.heard("brokers/<default>", {"max.connections": "2"})
            assert await (await it.connect()).is_served()

    run(scenario())


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    async def scenario() -> None:
        async with scene(**TWO_LISTENERS, listener_name_external_max_connections=1) as it:
            assert await (await it.connect(EXTERNAL)).is_served()
            assert not await (await it.connect(EXTERNAL)).is_served()
            assert await (await it.connect(INTERNAL)).is_served()

    run(scenario())


def test_a_broker_is_let_in_and_the_client_that_was_silent_for_longest_goes() -> None:
    """As in Kafka, where brokers have a listener of their own."""

    async def scenario() -> None:
        async with scene(**TWO_LISTENERS, max_connections=2) as it:
            silent, talking = await it.connect(EXTERNAL), await it.connect(EXTERNAL)
            assert await silent.is_served()
            it.broker.connections.tick(it.broker.connections.now_ms + MINUTE_MS)
            assert await talking.is_served()
            assert await (await it.connect(INTERNAL)).is_served()
            assert not await silent.is_served()
            assert await talking.is_served()

    run(scenario())


def test_an_idle_connection_is_closed_unless_a_reply_is_due() -> None:
    """One that was used lately stays as well."""
    parked = Parked()

    def park(broker: Broker, context: object, request: object) -> Parked:
        return parked

    async def scenario() -> None:
        handlers: dict[int, Handler] = {ApiKey.METADATA: Handler(park, Versions(0, 13))}
        async with scene(handlers, connections_max_idle_ms=20_000) as it:
            idle, used, waiting = await it.connect(), await it.connect(), await it.connect()
            for client in (idle, used, waiting):
                assert await client.is_served()
            waiting.send(RawClient.request(MetadataRequest(topics=None), ApiKey.METADATA, 12))
            connections = it.broker.connections
            await until(lambda: any(one.awaits_reply for one in connections))
            start = connections.now_ms
            connections.tick(start + 1_000)
            connections.tick(start + 11_000)
            assert await used.is_served()
            connections.tick(start + 20_999)
            assert len(connections) == 3
            connections.tick(start + 22_000)
            assert not await idle.has_reply()
            assert await used.is_served()
            assert len(connections) == 2
            parked.complete(to_the_end(metadata(it.broker, CONTEXT, MetadataRequest(topics=None))))
            assert await waiting.has_reply()

    run(scenario())


def test_an_idle_time_below_0_is_for_ever() -> None:
    async def scenario() -> None:
        async with scene(connections_max_idle_ms=-1) as it:
            client = await it.connect()
            assert await client.is_served()
            for now_ms in (1 << 40, 1 << 41, 1 << 42):
                it.broker.connections.tick(now_ms)
            assert await client.is_served()

    run(scenario())


def large(size: int) -> bytes:
    """A request of this size: what follows its fields is passed over."""
    body = RawClient.request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
    return body + bytes(size - len(body))


@pytest.mark.parametrize("key", ["queued_max_request_bytes", "kbroker_queued_max_request_bytes"])
def test_requests_that_are_not_complete_share_a_budget(key: str) -> None:
    """The one that came furthest gets through; requests in one piece are served all the time."""
    keys: dict[str, Any] = {"socket_request_max_bytes": MEBIBYTE, key: MEBIBYTE}

    async def scenario() -> None:
        async with scene(**keys) as it:
            connections = it.broker.connections
            slow = [await it.connect() for _ in range(4)]
            request = large(900_000)
            frame = struct.pack(">i", len(request)) + request
            for client in slow:
                client.writer.write(frame[:700_000])
            await until(lambda: connections.held_bytes > MEBIBYTE)
            assert await (await it.connect()).is_served()
            assert connections.held_bytes <= MEBIBYTE + len(request)
            for client in slow:
                client.writer.write(frame[700_000:])
            for client in slow:
                assert await client.has_reply()
            assert connections.held_bytes == 0

    run(scenario())


def test_who_leaves_in_the_middle_of_a_request_gives_its_share_back() -> None:
    async def scenario() -> None:
        async with scene(socket_request_max_bytes=MEBIBYTE, queued_max_request_bytes=MEBIBYTE) as it:
            connections = it.broker.connections
            stalled, other = await it.connect(), await it.connect()
            stalled.writer.write(struct.pack(">i", MEBIBYTE) + bytes(MEBIBYTE - 1000))
            await until(lambda: connections.held_bytes > MEBIBYTE - 1000)
            other.send(large(600_000))
            await until(lambda: connections.held_bytes > MEBIBYTE)
            await it.leave(stalled)
            assert await other.has_reply()
            assert connections.held_bytes == 0

    run(scenario())


@pytest.mark.parametrize("loop", [None, FASTEST], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("leave", ["close", "reset", "half-close"])
def test_a_connection_that_rests_is_closed_when_its_client_has_gone(
    loop: LoopFactory | None, leave: str
) -> None:
    """Nobody reads from it, and no event loop tells."""

    async def scenario() -> None:
        async with scene(socket_request_max_bytes=MEBIBYTE, queued_max_request_bytes=MEBIBYTE) as it:
            connections = it.broker.connections
            foremost, leaving = await it.connect(), await it.connect()
            foremost.writer.write(struct.pack(">i", MEBIBYTE) + bytes(MEBIBYTE - 1000))
            leaving.writer.write(struct.pack(">i", MEBIBYTE) + bytes(200_000))
            await until(lambda: any(connections._incomplete.is_resting(one) for one in connections))
            connections.tick(connections.now_ms)
            assert len(connections) == 2
            if leave == "half-close":
                leaving.writer.write_eof()
            elif leave == "reset":
                leaving.reset()
            else:
                leaving.writer.close()
            await until_after(lambda: connections.tick(connections.now_ms), lambda: len(connections) == 1)
            foremost.writer.write(bytes(1000))
            assert not await foremost.has_reply()  # zeros are no request, but they are through

    run(scenario(), loop)


@pytest.mark.parametrize("loop", [None, FASTEST], ids=["asyncio", "uvloop"])
def test_a_connection_with_a_reply_due_is_closed_when_its_client_has_reset_it(
    loop: LoopFactory | None,
) -> None:
    """Nothing more is read from it meanwhile. A client that sends no more may still wait for its reply."""
    parked: list[Parked] = []

    def park(broker: Broker, context: object, request: object) -> Parked:
        parked.append(Parked())
        return parked[-1]

    async def scenario() -> None:
        handlers: dict[int, Handler] = {ApiKey.METADATA: Handler(park, Versions(0, 13))}
        async with scene(handlers) as it:
            connections = it.broker.connections
            waiting, leaving = await it.connect(), await it.connect()
            for number, client in enumerate((waiting, leaving), 1):
                client.send(RawClient.request(MetadataRequest(topics=[]), ApiKey.METADATA, 12))
                client.send(RawClient.request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0))
                await until(lambda number=number: sum(bool(one.held_bytes) for one in connections) == number)  # type: ignore[misc]
            waiting.writer.write_eof()
            leaving.reset()
            await until_after(lambda: connections.tick(connections.now_ms), lambda: len(connections) == 1)
            parked[0].complete(to_the_end(metadata(it.broker, CONTEXT, MetadataRequest(topics=[]))))
            assert await waiting.has_reply()
            assert await waiting.has_reply()

    run(scenario(), loop)


def test_requests_that_wait_for_an_earlier_reply_are_counted() -> None:
    parked = Parked()

    def park(broker: Broker, context: object, request: object) -> Parked:
        return parked

    async def scenario() -> None:
        handlers: dict[int, Handler] = {ApiKey.METADATA: Handler(park, Versions(0, 13))}
        async with scene(handlers) as it:
            client = await it.connect()
            waiting = RawClient.request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
            first = RawClient.request(MetadataRequest(topics=[]), ApiKey.METADATA, 12)
            client.writer.write(b"".join(struct.pack(">i", len(body)) + body for body in (first, waiting)))
            await until(lambda: it.broker.connections.held_bytes == len(waiting))
            parked.complete(to_the_end(metadata(it.broker, CONTEXT, MetadataRequest(topics=[]))))
            assert await client.has_reply()
            assert await client.has_reply()
            assert it.broker.connections.held_bytes == 0

    run(scenario())


def test_chosen_socket_buffers_are_set_and_others_left_to_the_kernel() -> None:
    async def accepted(**keys: Any) -> tuple[int, int]:
        async with scene(**keys) as it:
            assert await (await it.connect()).is_served()
            [connection] = it.broker.connections
            accepted = connection._transport.get_extra_info("socket")
            send, receive = (
                accepted.getsockopt(socket.SOL_SOCKET, which)
                for which in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            )
            return send, receive

    async def scenario() -> None:
        sizes = await accepted(socket_send_buffer_bytes=20_000, socket_receive_buffer_bytes=30_000)
        assert sizes in ((20_000, 30_000), (40_000, 60_000))  # Linux doubles what it is asked for
        plain = await accepted()
        assert await accepted(socket_send_buffer_bytes=-1, socket_receive_buffer_bytes=-1) == plain
        assert plain[0] != sizes[0]

    run(scenario())


def test_replies_that_are_not_read_make_the_next_ones_small() -> None:
    """Until they are read, or their client has gone."""

    async def scenario() -> None:
        async with scene(kbroker_unread_replies_max_bytes=4 * MEBIBYTE) as it:
            broker = it.broker
            deaf = [await it.connect(), await it.connect()]
            for client in deaf:
                assert await client.is_served()
            usual = broker.fetch_max_bytes
            assert usual == 55 * MEBIBYTE
            for connection in list(broker.connections):
                connection._outlet.send([bytes(16 * MEBIBYTE)])
                assert connection.owed_bytes > 8 * MEBIBYTE
            assert broker.fetch_max_bytes == MEBIBYTE
            await it.leave(deaf[0])
            assert broker.fetch_max_bytes == MEBIBYTE
            await asyncio.wait_for(deaf[1].reader.readexactly(16 * MEBIBYTE), WAIT_S)
            await until(lambda: broker.fetch_max_bytes == usual)

    run(scenario())


def test_a_client_that_sends_thousands_of_requests_at_once_does_not_keep_others_waiting() -> None:
    """It gets its answers all the same, in order (conformance 1)."""
    handled = []

    def count(broker: Broker, context: Context, request: object) -> object:
        handled.append(context.client_id)
        return HANDLERS[ApiKey.LIST_GROUPS].handle(broker, context, request)

    def asking(client_id: str, correlation_id: int) -> bytes:
        body = encode_request_header(ApiKey.LIST_GROUPS, 0, correlation_id, client_id)
        return struct.pack(">i", len(body)) + body

    async def scenario() -> None:
        async with scene({ApiKey.LIST_GROUPS: Handler(count, Versions(0, 5))}) as it:
            eager, modest = await it.connect(), await it.connect()
            await until(lambda: len(it.broker.connections) == 2)
            eager.writer.write(b"".join(asking("eager", number) for number in range(12_000)))
            await until(lambda: bool(handled))
            modest.writer.write(asking("modest", 0))
            assert await modest.has_reply()
            assert handled.index("modest") < 2_000
            for number in range(12_000):
                size = struct.unpack(">i", await eager.reader.readexactly(4))[0]
                assert (await eager.reader.readexactly(size))[:4] == struct.pack(">i", number)

    run(scenario())


def test_expensive_requests_of_many_clients_do_not_keep_another_one_waiting() -> None:
    """Ten of them send 500 at once, each of which takes a millisecond: one turn of each is short."""
    handled: list[str | None] = []

    def asking(client_id: str, number: int) -> bytes:
        body = encode_request_header(ApiKey.LIST_GROUPS, 0, 0, client_id)
        return (struct.pack(">i", len(body)) + body) * number

    async def scenario() -> None:
        async with scene() as it:
            broker, now_s = it.broker, 1.0

            def slow(of: Broker, context: Context, request: object) -> object:
                nonlocal now_s
                now_s += 0.001
                handled.append(context.client_id)
                return HANDLERS[ApiKey.LIST_GROUPS].handle(of, context, request)

            broker.handlers = {**broker.handlers, ApiKey.LIST_GROUPS: Handler(slow, Versions(0, 5))}
            broker.steady_s = lambda: now_s
            eager, modest = [await it.connect() for _ in range(10)], await it.connect()
            await until(lambda: len(broker.connections) == 11)
            for client in eager:
                client.writer.write(asking("eager", 500))
            modest.writer.write(asking("modest", 1))
            assert await modest.has_reply()
            assert handled.index("modest") <= 10 * 12 * 2
            await until(lambda: len(handled) == 10 * 500 + 1)

    run(scenario())
