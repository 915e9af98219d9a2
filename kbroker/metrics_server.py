"""Serves /metrics to Prometheus: a small HTTP responder that nobody can hold up the broker with.

Rules:
- The broker's state is read on its loop, in one turn (`kbroker.metrics.snapshot`); making text of it, which
  takes longer, happens in a thread. A snapshot is good for `FRESH_S`: who asks more often gets the same.
- One request per connection, of at most `MOST_HEAD_BYTES`; all of it, the reply included, within
  `PATIENCE_S`, and no more than `MOST_CONNECTIONS` at once. Whatever exceeds that is cut off.
- prometheus-client is imported when a server is made, never otherwise.
- The server also measures how late the loop is: a timer every `LOOK_S` compares when it was called with when
  it should have been.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from typing import TYPE_CHECKING, NamedTuple

from controller.state import Endpoint
from kbroker.config import ConfigError
from kbroker.listeners import bind
from kbroker.measures import Histogram

if TYPE_CHECKING:
    from kbroker.broker import Broker

logger = logging.getLogger(__name__)

METRICS = "METRICS"
"""What the listener is called where it cannot be had."""

MOST_HEAD_BYTES = 8192
MOST_CONNECTIONS = 8
PATIENCE_S = 5.0
FRESH_S = 1.0
LOOK_S = 0.1
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ADDRESS = re.compile(r"(\[(?P<ipv6>[^\]\s]+)\]|(?P<host>[^:\[\]/\s]*)):(?P<port>\d{1,5})")


class _Reply(NamedTuple):
    status: str
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    def encoded(self, *, with_body: bool) -> bytes:
        head = (
            f"HTTP/1.1 {self.status}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        ).encode()
        return head + self.body if with_body else head


class MetricsServer:
    """That of one broker."""

    def __init__(self, broker: Broker, bound: socket.socket) -> None:
        self.loop_delays = Histogram()
        self.address: tuple[str, int] = bound.getsockname()[:2]
        self._broker = broker
        self._bound = bound
        self._handling: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._making = asyncio.Lock()
        self._text = b""
        self._read_s = float("-inf")

    @classmethod
    def of(cls, broker: Broker) -> MetricsServer | None:
        """A server that has its address, if one is configured. ConfigError, or CannotListen."""
        where = broker.settings.configuration.broker.kbroker_metrics_listener
        return cls(broker, bind(Endpoint(METRICS, *address_in(where)))) if where else None

    async def serve(self) -> None:
        """Let scrapers in."""
        import kbroker.exposition  # noqa: F401 -- now, rather than when somebody waits

        self._server = await asyncio.start_server(self._accept, sock=self._bound, limit=MOST_HEAD_BYTES)
        host, port = self.address
        logger.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)
        self._look(asyncio.get_running_loop().time())

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._bound.close()
        if self._looking is not None:
            self._looking.cancel()
        for task in self._handling:
            task.cancel()

    def _look(self, due_s: float) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self.loop_delays.add(max(now_s - due_s, 0.0))
        self._looking = loop.call_at(now_s + LOOK_S, self._look, now_s + LOOK_S)

    # -- requests

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._handling) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._handle(reader, writer))
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.transport.set_write_buffer_limits(0)  # so that `drain` means: it has left
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = request_line(head)
                reply = await self._reply(method, path)
                writer.write(reply.encoded(with_body=method != "HEAD"))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            logger.debug("a request for metrics was cut off: %r", error)
        except Exception as error:
            self._broker.bugs.met("a request for metrics", error)
        finally:
            writer.transport.abort()

    async def _reply(self, method: str, path: str) -> _Reply:
        if not method:
            return _Reply("400 Bad Request", b"this is no HTTP request\n")
        if method not in ("GET", "HEAD"):
            return _Reply("405 Method Not Allowed", b"metrics can only be read\n")
        if path.partition("?")[0] != "/metrics":
            return _Reply("404 Not Found", b"metrics are at /metrics\n")
        return _Reply("200 OK", await self._exposition(), CONTENT_TYPE)

    async def _exposition(self) -> bytes:
        from kbroker.exposition import render
        from kbroker.metrics import snapshot

        async with self._making:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._read_s >= FRESH_S:
                self._text = await asyncio.to_thread(render, list(snapshot(self._broker)))
                self._read_s = now_s
            return self._text


def request_line(head: bytes) -> tuple[str, str]:
    """Method and path; empty where this is no request."""
    parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return (parts[0], parts[1]) if len(parts) == 3 and parts[2].startswith("HTTP/") else ("", "")


def address_in(text: str) -> tuple[str, int]:
    """HOST:PORT; without a host it is every address. ConfigError for anything else."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 0xFFFF:
        raise ConfigError(f"kbroker.metrics.listener: {text!r} is not HOST:PORT")
    return match["ipv6"] or match["host"], int(match["port"])
