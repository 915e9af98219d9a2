"""Replies that come later keep their order, and hold back what must not overtake them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kbroker.broker import Broker
from kbroker.context import NO_REPLY, Context, HangUp, Parked
from kbroker.handlers import HANDLERS, Handler
from kbroker.listeners import Listeners
from tests.kbroker.harness import RawClient
from wire.api import ApiKey, api
from wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from wire.api.metadata import MetadataRequest
from wire.api.produce import ProduceRequest, ProduceResponse
from wire.codec import decode
from wire.errors import ErrorCode, KafkaError
from wire.headers import response_header_version
from wire.schema import Versions

METADATA = MetadataRequest(topics=[])
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
PRODUCE = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
VERSIONS = {ApiKey.METADATA: 12, ApiKey.HEARTBEAT: 4, ApiKey.PRODUCE: 9}


class Scene:
    """A broker whose Heartbeat and Produce are parked until the test completes them, and a client."""

    def __init__(self) -> None:
        self.parked: list[Parked] = []
        self.handled: list[int] = []
        self.broker = Broker(
            Listeners.on("127.0.0.1", 0),
            {
                **HANDLERS,
                ApiKey.HEARTBEAT: Handler(self.park(ApiKey.HEARTBEAT, pipelined=False), Versions(0, 4)),
                ApiKey.PRODUCE: Handler(self.park(ApiKey.PRODUCE, pipelined=True), Versions(3, 9)),
            },
        )

    def park(self, key: int, *, pipelined: bool) -> Callable[[Broker, Context, Any], object]:
        def handle(broker: Broker, context: Context, request: Any) -> Parked:
            self.handled.append(key)
            self.parked.append(Parked(pipelined=pipelined))
            return self.parked[-1]

        return handle

    def send(self, *requests: tuple[int, object]) -> None:
        for correlation_id, (key, message) in enumerate(requests):
            body = RawClient.request(message, key, VERSIONS[ApiKey(key)], correlation_id)
            self.writer.write(struct.pack(">i", len(body)) + body)

    async def reply(self, key: int, correlation_id: int) -> Any:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        body = await self.reader.readexactly(size)
        assert struct.unpack_from(">i", body) == (correlation_id,)
        version = VERSIONS[ApiKey(key)]
        return decode(api(key).response, body[4 + response_header_version(key, version) :], version)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 -- the state of the broker is plain data
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Let the broker handle all that it is going to handle: a second connection gets its answer."""
        reader, writer = await asyncio.open_connection(*self.broker.address)
        body = RawClient.request(METADATA, ApiKey.METADATA, 12)
        writer.write(struct.pack(">i", len(body)) + body)
        await reader.readexactly(4)
        writer.close()

    def play(self, script: Callable[[], Awaitable[None]]) -> None:
        async def scenario() -> None:
            await self.broker.start()
            self.reader, self.writer = await asyncio.open_connection(*self.broker.address)
            async with asyncio.timeout(30):
                await script()
            self.writer.close()
            await self.broker.stop()

        with asyncio.Runner() as runner:
            runner.run(scenario())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_parked_request_holds_back_those_behind_it(scene: Scene) -> None:
    """conformance 1"""

    async def script() -> None:
        scene.send((ApiKey.HEARTBEAT, HEARTBEAT), (ApiKey.METADATA, METADATA), (ApiKey.HEARTBEAT, HEARTBEAT))
        await scene.until(lambda: len(scene.parked) == 1)
        await scene.settle()
        assert len(scene.parked) == 1
        scene.parked[0].complete(HeartbeatResponse(error_code=27))
        assert (await scene.reply(ApiKey.HEARTBEAT, 0)).error_code == 27
        await scene.reply(ApiKey.METADATA, 1)
        await scene.until(lambda: len(scene.parked) == 2)
        scene.parked[1].complete(HeartbeatResponse(error_code=0))
        await scene.reply(ApiKey.HEARTBEAT, 2)

    scene.play(script)


def test_a_produce_does_not_wait_for_a_produce_but_is_answered_in_its_turn(scene: Scene) -> None:
    async def script() -> None:
        scene.send((ApiKey.PRODUCE, PRODUCE), (ApiKey.PRODUCE, PRODUCE), (ApiKey.METADATA, METADATA))
        await scene.until(lambda: len(scene.parked) == 2)
        scene.parked[1].complete(ProduceResponse(responses=[], throttle_time_ms=2))
        await scene.settle()
        scene.parked[0].complete(ProduceResponse(responses=[], throttle_time_ms=1))
        assert (await scene.reply(ApiKey.PRODUCE, 0)).throttle_time_ms == 1
        assert (await scene.reply(ApiKey.PRODUCE, 1)).throttle_time_ms == 2
        await scene.reply(ApiKey.METADATA, 2)

    scene.play(script)


def test_no_reply_means_none_and_keeps_the_order_of_the_others(scene: Scene) -> None:
    """conformance 7"""

    async def script() -> None:
        scene.send((ApiKey.PRODUCE, PRODUCE), (ApiKey.METADATA, METADATA))
        await scene.until(lambda: len(scene.parked) == 1)
        scene.parked[0].complete(NO_REPLY)
        await scene.reply(ApiKey.METADATA, 1)

    scene.play(script)


def test_hanging_up_answers_what_came_before(scene: Scene) -> None:
    """conformance 7: a failed Produce with acks=0 closes the connection."""

    async def script() -> None:
        scene.send((ApiKey.PRODUCE, PRODUCE), (ApiKey.PRODUCE, PRODUCE), (ApiKey.METADATA, METADATA))
        await scene.until(lambda: len(scene.parked) == 2)
        scene.parked[1].complete(HangUp("acks=0"))
        scene.parked[0].complete(ProduceResponse(responses=[]))
        await scene.reply(ApiKey.PRODUCE, 0)
        assert await scene.reader.read() == b""

    scene.play(script)


def test_an_error_of_the_whole_request_is_a_reply_where_the_response_has_a_place_for_it(scene: Scene) -> None:
    async def script() -> None:
        scene.send((ApiKey.HEARTBEAT, HEARTBEAT))
        await scene.until(lambda: len(scene.parked) == 1)
        scene.parked[0].complete(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
        assert (await scene.reply(ApiKey.HEARTBEAT, 0)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    scene.play(script)


def test_a_client_that_leaves_takes_nothing_with_it(scene: Scene) -> None:
    async def script() -> None:
        scene.send((ApiKey.HEARTBEAT, HEARTBEAT), (ApiKey.METADATA, METADATA))
        await scene.until(lambda: len(scene.parked) == 1)
        scene.writer.transport.abort()
        await scene.settle()
        scene.parked[0].complete(HeartbeatResponse(error_code=0))
        await scene.settle()

    scene.play(script)


def test_nothing_is_read_while_requests_wait(scene: Scene) -> None:
    """A client cannot fill the broker's memory with requests that wait for a parked one."""

    async def script() -> None:
        big = METADATA
        body = RawClient.request(big, ApiKey.METADATA, 12) + bytes(60_000)
        frame = struct.pack(">i", len(body)) + body
        scene.send((ApiKey.HEARTBEAT, HEARTBEAT))
        await scene.until(lambda: len(scene.parked) == 1)
        scene.writer.transport.set_write_buffer_limits(high=0)

        async def fill() -> None:
            for _ in range(2000):  # 120 MB, far more than sockets hold
                scene.writer.write(frame)
                await scene.writer.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fill(), 0.5)
        (connection,) = scene.broker.connections
        assert sum(map(len, connection._backlog)) < 1 << 20
        scene.writer.transport.abort()

    scene.play(script)


def test_a_parked_request_is_answered_once() -> None:
    parked = Parked()
    parked.complete(NO_REPLY)
    with pytest.raises(RuntimeError, match="twice"):
        parked.complete(NO_REPLY)
