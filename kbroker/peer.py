"""A way from this broker to another one: a connection that is made when it is needed, and made again.

    peer = Peer("broker-1", "fetcher-0", open_connection, lambda: ("host", 9092))
    response = await peer.ask(FetchRequest(...), 17, timeout_s=30)

Rules:
- Requests leave in the order of `ask`, and several may be on their way. Whoever needs one to be answered
  before the next waits for it.
- `PeerLost` means that nobody knows whether the other broker has acted. Whoever asks has to be able to ask
  again. After it, and after a timeout, the next `ask` opens a new connection.
- Each connection begins with ApiVersions, and a request goes in the highest version that both brokers know
  (`kbroker.peer_versions`). The first connection waits for that answer. Later ones do not: what the broker
  served before holds until it says otherwise, or hangs up.
- What goes wrong is logged here, and rarely, since those who ask again do so often: the first failure of a
  minute as INFO, the fifth as WARNING.
- A reply is decoded once it is whole; `records` in it are views of bytes that nothing else uses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

from kbroker.peer_versions import Served, TooOld, chosen_version, served_by
from wire.api import api
from wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.codec import decode, encoder
from wire.errors import WireError
from wire.frames import FrameReader, frame
from wire.headers import encode_request_header, response_header_version
from wire.primitives import Buffer
from wire.schema import info_of

logger = logging.getLogger(__name__)

MOST_REPLY_BYTES = 0x7FFFFFFF
CONNECT_TIMEOUT_S = 10.0
FAILURES_S = 60.0
FAILURES_OF_NOTE = 5
API_VERSIONS_VERSION = 0

Address = tuple[str, int]
Open = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[tuple[Any, asyncio.Protocol]]]
"""An event loop's `create_connection`."""


class PeerLost(Exception):
    """There is no connection to the other broker, or none any more."""


class ClosedHere(PeerLost):
    """This broker does not want an answer any more."""


class _Asked(NamedTuple):
    """A request whose reply is still to come."""

    correlation_id: int
    key: int
    version: int
    answer: asyncio.Future[Any]


class PeerConnection(asyncio.Protocol):
    """One connection, from its opening to its end."""

    def __init__(self, client_id: str, purpose: str) -> None:
        self._client_id = client_id
        self._purpose = purpose
        self._reader = FrameReader(MOST_REPLY_BYTES)
        self._asked: deque[_Asked] = deque()
        self._last_correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self.is_open = False

    def ask(self, message: object, version: int) -> asyncio.Future[Any]:
        """Send a request; its response, decoded, or PeerLost."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self.is_open or self._transport is None:
            future.set_exception(ClosedHere(f"{self._purpose}: the connection is closed"))
            return future
        key = key_of(message)
        self._last_correlation_id = (self._last_correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(key, version, self._last_correlation_id, self._client_id)
        parts: list[Buffer] = [header]
        encoder(type(message), version)(message, parts)
        self._transport.writelines(frame(parts))
        self._asked.append(_Asked(self._last_correlation_id, key, version, future))
        return future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(ClosedHere(f"{self._purpose}: the connection was closed here"))

    def _end(self, why: PeerLost) -> None:
        self.is_open = False
        asked, self._asked = self._asked, deque()
        for one in asked:
            if not one.answer.done():
                one.answer.set_exception(why)

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        why = exc or "the other broker hung up"
        if self._asked:
            oldest = self._asked[0]
            why = f"{why}, asked for {api(oldest.key).name} {oldest.version}"
        self._end(PeerLost(f"{self._purpose}: the connection has ended: {why}"))

    def data_received(self, data: bytes) -> None:
        try:
            for reply in self._reader.feed(data):
                self._received(reply)
        except WireError as error:
            logger.warning("a broker's reply makes no sense: %s", error)
            self.close()

    def _received(self, reply: memoryview) -> None:
        correlation_id = int.from_bytes(reply[:4])
        if not self._asked or self._asked[0].correlation_id != correlation_id:
            raise WireError(f"nobody has asked for reply {correlation_id}")
        asked = self._asked.popleft()
        if asked.answer.done():
            return  # nobody waits any more
        header_bytes = 4 + response_header_version(asked.key, asked.version)
        response: object = decode(api(asked.key).response, reply[header_bytes:], asked.version)
        asked.answer.set_result(response)


class Peer:
    """The other broker, for one purpose."""

    def __init__(
        self, client_id: str, purpose: str, open_connection: Open, address: Callable[[], Address | None]
    ) -> None:
        """`address` is where the broker is now, or None if it is nowhere."""
        self._client_id = client_id
        self._purpose = purpose
        self._open = open_connection
        self._address = address
        self._connection: PeerConnection | None = None
        self._connected_to: Address | None = None
        """Where the connection leads, or the one that is being made."""
        self._opening = asyncio.Lock()
        self._closings = 0
        self._served: Served | None = None
        """What the other broker serves, as far as that is known."""
        self._failures = 0
        self._failures_end = 0.0

    async def ask(self, message: object, version: int, timeout_s: float) -> Any:
        """The response to a request of this version, or a lower one that the other broker knows.

        PeerLost where there is none, or none in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection, served = await self._connected()
                return await connection.ask(message, chosen_version(key_of(message), version, served))
        except TimeoutError:
            self.close()
            raise self.lost(f"no answer in {timeout_s:g} s") from None
        except TooOld as error:
            raise self.lost(str(error)) from None
        except ClosedHere:
            raise
        except PeerLost as error:
            self._report(error)
            raise

    def lost(self, why: str) -> PeerLost:
        """To be raised."""
        error = PeerLost(f"{self._purpose}: {why}")
        self._report(error)
        return error

    def _report(self, error: PeerLost) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._failures_end:
            self._failures, self._failures_end = 0, now + FAILURES_S
        self._failures += 1
        if self._failures == 1:
            logger.info("%s", error)
        elif self._failures == FAILURES_OF_NOTE:
            logger.warning("%s; it is tried again and again", error)

    async def _connected(self) -> tuple[PeerConnection, Served]:
        async with self._opening:
            address = self._address()
            connection = self._connection
            if address != self._connected_to:
                self._served = None
            if connection is None or not connection.is_open or self._served is None:
                connection = await self._new_connection(address)
                heard = connection.ask(ApiVersionsRequest(), API_VERSIONS_VERSION)
                heard.add_done_callback(self._heard)
                if self._served is None:
                    await heard
            if self._served is None:
                raise PeerLost(f"{self._purpose}: it does not say which versions it serves")
            return connection, self._served

    def _heard(self, heard: asyncio.Future[ApiVersionsResponse]) -> None:
        """The answer to ApiVersions, or that there is none."""
        if heard.cancelled() or heard.exception() is not None:
            self._served = None
            return
        try:
            self._served = served_by(heard.result())
        except TooOld as error:
            self._served = None
            logger.warning("%s: %s", self._purpose, error)

    async def _new_connection(self, address: Address | None) -> PeerConnection:
        self.close()
        if address is None:
            raise PeerLost(f"{self._purpose}: the broker is not there")
        self._connected_to, closings = address, self._closings
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, protocol = await self._open(
                    lambda: PeerConnection(self._client_id, self._purpose), *address
                )
        except (OSError, TimeoutError) as error:
            raise PeerLost(f"{self._purpose}: cannot connect to {address[0]}:{address[1]}: {error}") from None
        connection = cast(PeerConnection, protocol)
        if self._closings != closings:
            connection.close()
            raise ClosedHere(f"{self._purpose}: it was closed here")
        self._connection = connection
        return connection

    def follow(self) -> None:
        """Hang up if the other broker is not where it was: whoever waits for it waits for nothing."""
        if self._address() != self._connected_to:
            self.close()

    def close(self) -> None:
        """Also a connection that is being made."""
        self._closings += 1
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def key_of(message: object) -> int:
    key = info_of(type(message)).key
    if key is None:
        raise TypeError(f"{type(message).__name__} is no request")
    return key
