"""The broker in this process: what a bug does, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from kbroker.broker import Broker
from kbroker.handlers import HANDLERS, Handler
from kbroker.listeners import Listeners
from kbroker.machine import Machine
from kbroker.serving import loop_factory
from storage.checkpoints import CLEAN_SHUTDOWN
from storage.errors import StorageError
from storage.files import Files, Sync, sync_data
from tests.kbroker.harness import RawClient
from tests.storage.partitions import append, batch
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
    monkeypatch.setattr("kbroker.draining.DRAIN_S", 0.05)

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


class HangingMachine(Machine):
    """Its disk does not answer any more, once it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.answers.set()

    def files(self, *, durable: bool, sync: Sync = sync_data) -> Files:
        def wait_and_sync(descriptor: int) -> None:
            self.answers.wait()
            sync(descriptor)

        return super().files(durable=durable, sync=wait_and_sync)


def test_a_disk_that_hangs_does_not_keep_a_broker_from_stopping(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says what it has left, and does not call it clean."""
    monkeypatch.setattr("kbroker.broker.STOP_S", 0.2)
    monkeypatch.setattr("kbroker.broker.CLOSE_S", 0.1)
    machine = HangingMachine()
    told: list[object] = []

    async def scenario() -> None:
        broker = Broker(Listeners.on("127.0.0.1", 0), data=[str(tmp_path)], machine=machine)
        await broker.start()
        log = broker.logs.create(("t", 0), broker.now_ms())
        append(log, batch("v"))
        machine.answers.clear()
        broker.logs.flusher.request(log, told.append)
        await broker.stop()

    try:
        run(scenario())
    finally:
        machine.answers.set()
    assert told == []
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "Threads have not ended; what they were doing is left as it is" in said
    assert f"1 of 1 log in {tmp_path} could not be closed; the next start will recover what is left" in said


def test_a_broker_without_threads_or_memory_answers_and_stops(tmp_path: Path) -> None:
    """A Produce that cannot be made durable gets an error, and one after it is acknowledged."""
    machine = Machine()
    submit = machine.submit
    told: list[object] = []

    def refuse(function: Callable[[], object]) -> Future[object]:
        raise MemoryError

    async def scenario() -> None:
        broker = Broker(Listeners.on("127.0.0.1", 0), data=[str(tmp_path)], machine=machine)
        await broker.start()
        log = broker.logs.create(("t", 0), broker.now_ms())
        append(log, batch("v"))
        broker.logs.flusher._submit = refuse  # planted
        broker.logs.flusher.request(log, told.append)
        broker.logs.flusher._submit = submit
        broker.logs._submit = refuse  # type: ignore[assignment]  # planted
        broker.logs.tick(broker.now_ms() + 10_000_000)
        await broker.stop()

    run(scenario())
    (error,) = told
    assert isinstance(error, StorageError)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
