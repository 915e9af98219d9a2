"""The broker in this process: what a bug does, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest

from kbroker.broker import Broker, loop_factory
from kbroker.handlers import HANDLERS, Handler
from kbroker.listeners import Listeners
from tests.kbroker.harness import RawClient
from wire.api import ApiKey
from wire.api.metadata import MetadataRequest
from wire.schema import Versions


def run(scenario: object) -> None:
    """On the loop that brokers run on."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(scenario)  # type: ignore[arg-type]


def test_a_bug_in_a_handler_closes_that_connection_and_leaves_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """conformance 6: a reply or a closed connection, never silence."""

    def broken(broker: Broker, context: object, request: object) -> object:
        raise LookupError("the bug")

    async def scenario() -> None:
        broker = Broker(
            Listeners.on("127.0.0.1", 0), {**HANDLERS, ApiKey.METADATA: Handler(broken, Versions(0, 13))}
        )
        await broker.start()
        reader, writer = await asyncio.open_connection(*broker.address)
        body = RawClient.request(MetadataRequest(topics=None), ApiKey.METADATA, 12)
        writer.write(struct.pack(">i", len(body)) + body)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        await broker.stop()

    run(scenario())
    record, closing = caplog.records
    assert "closing the connection" in closing.getMessage()
    assert record.levelno == logging.ERROR
    assert "a bug in the broker" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


def test_stopping_cuts_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies that nobody takes are waited for only so long."""
    monkeypatch.setattr("kbroker.broker.DRAIN_S", 0.05)

    async def scenario() -> None:
        broker = Broker(Listeners.on("127.0.0.1", 0))
        await broker.start()
        reader, writer = await asyncio.open_connection(*broker.address)
        body = RawClient.request(MetadataRequest(topics=None), ApiKey.METADATA, 12)
        writer.write(struct.pack(">i", len(body)) + body)
        await reader.readexactly(4)
        (connection,) = broker.connections
        connection._transport.write(bytes(64 << 20))
        await asyncio.wait_for(broker.stop(), 10)
        await asyncio.wait_for(connection.closed, 10)
        assert list(broker.connections) == []
        writer.close()

    run(scenario())


def test_a_broker_that_stopped_accepts_nobody() -> None:
    async def scenario() -> None:
        broker = Broker(Listeners.on("127.0.0.1", 0))
        await broker.start()
        assert broker.address[1] != 0
        await broker.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*broker.address)

    run(scenario())
