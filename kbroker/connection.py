"""One client connection: bytes to requests, replies to bytes, in the order of the requests.

Every request that arrived in one read is answered in that same turn of the loop, and all replies leave in one
write. Reads go into the broker's one receive buffer, which the next read overwrites: nothing may keep a view
of a request beyond its turn.

A connection is closed for what cannot be answered: bytes that are not the request they claim to be, an API or
version that is not served, a bug in a handler. Requests before it are answered, none after it, and the log
says why, without a byte of the request. A client that does not read its replies is not read from either.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from kbroker.dispatch import Unanswerable, dispatch
from wire.errors import WireError
from wire.frames import FrameReader
from wire.primitives import Buffer

if TYPE_CHECKING:
    from kbroker.broker import Broker

logger = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """What the event loop drives. `closed` is done when the socket is."""

    _transport: asyncio.Transport

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reader = FrameReader(broker.max_request_bytes)
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._broker.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.connections.discard(self)
        self.closed.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._broker.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        replies: list[Buffer] = []
        answered = self._answer(self._broker.receive_buffer[:nbytes], replies)
        if replies:
            self._transport.writelines(replies)
        if not answered:
            self._transport.close()

    def _answer(self, data: memoryview, replies: list[Buffer]) -> bool:
        """Collect the replies to the requests that `data` completes; False after one that gets none."""
        try:
            for request in self._reader.feed(data):
                replies += dispatch(self._broker, request)
        except (WireError, Unanswerable) as error:
            logger.warning("closing the connection from %s: %s", self._peer(), error)
            return False
        except Exception:
            logger.exception("closing the connection from %s: a bug in the broker", self._peer())
            return False
        return True

    def _peer(self) -> str:
        host, port, *_ = self._transport.get_extra_info("peername") or ("?", 0)
        return f"{host}:{port}"

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Close once the replies already written have left."""
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()
