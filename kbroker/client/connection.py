"""One connection to one broker: requests out, replies in, in order.

The broker's versions are asked for when the connection opens. A request goes out in the highest version that
both sides speak, bounded by the table below: later versions name topics by id, earlier ones lack a field that
we rely on. Replies are read in the order of their requests, so several may be on their way (`send`, then
`receive` as often).

A connection that fails stays failed: `ConnectionLost` from then on.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Any, NamedTuple

from kbroker import __version__
from kbroker.client.errors import CannotConnect, ConnectionLost, NotServed, Refused
from wire.api import ApiKey, api
from wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.codec import decode, encoder
from wire.errors import ErrorCode, WireError
from wire.frames import frame
from wire.headers import encode_request_header, response_header_version
from wire.primitives import Buffer
from wire.schema import info_of

READ_BYTES = 256 * 1024
MAX_REPLY_BYTES = 1 << 30
CODES = {int(code): code for code in ErrorCode}

BOUNDS = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 9),
    ApiKey.METADATA: (4, 13),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (8, 9),
    ApiKey.FIND_COORDINATOR: (4, 6),
    ApiKey.JOIN_GROUP: (4, 9),
    ApiKey.LEAVE_GROUP: (3, 5),
    ApiKey.LIST_GROUPS: (3, 5),
    ApiKey.CREATE_TOPICS: (4, 7),
    ApiKey.DELETE_TOPICS: (1, 5),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
}
"""The versions that we use. An API that is not here is used in all that its table has."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Sent(NamedTuple):
    """A request whose reply is still to come."""

    correlation_id: int
    key: int
    version: int


class Connection:
    """Made connected; `close` it, or use it in a `with` block of contextlib.closing."""

    def __init__(self, address: Address, *, client_id: str, timeout_s: float) -> None:
        self.address = address
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._sent: deque[_Sent] = deque()
        self._next_correlation_id = 0
        self._failed = False
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            raise CannotConnect(f"cannot connect to {address}: {reason_of(error)}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb", READ_BYTES)
        try:
            self._versions = self._negotiated()
        except BaseException:
            self.close()
            raise

    @property
    def is_usable(self) -> bool:
        return not self._failed

    @property
    def pending(self) -> int:
        """How many replies are still to come."""
        return len(self._sent)

    def close(self) -> None:
        self._failed = True
        self._replies.close()
        self._socket.close()

    def serves(self, key: ApiKey) -> bool:
        return self._common(key) is not None

    def version(self, key: int) -> int:
        """The version that a request goes out in."""
        version = self._common(key)
        if version is None:
            name = api(key).name
            raise NotServed(f"{self.address} does not serve {name}, or not in a version that kbroker speaks")
        return version

    def ask(self, message: object, timeout_s: float | None = None) -> Any:
        """The reply to this request. Nothing else may be on its way."""
        if self._sent:
            raise RuntimeError("replies to earlier requests come first")
        self.send(message)
        return self.receive(timeout_s)

    def send(self, message: object) -> None:
        key = info_of(type(message)).key
        if key is None:
            raise TypeError(f"{type(message).__name__} is no request")
        self._send(message, key, self.version(key))

    def receive(self, timeout_s: float | None = None) -> Any:
        """The reply to the oldest request that has none."""
        sent = self._sent.popleft()
        try:
            return decode(api(sent.key).response, self._reply(sent, timeout_s), sent.version)
        except WireError as error:
            self._failed = True
            raise ConnectionLost(f"{self.address} answers in a way that cannot be read: {error}") from error

    def _common(self, key: int) -> int | None:
        if key not in self._versions:
            return None
        first, last = self._versions[key]
        known = api(key).versions
        least, most = BOUNDS.get(ApiKey(key), (known.first, known.last))
        version = min(last, most)
        return version if version >= max(first, least) else None

    def _negotiated(self) -> dict[int, tuple[int, int]]:
        """What the broker serves. One that does not know our version answers in version 0 (KIP-511)."""
        try:
            for version in (3, 0):
                self._send(
                    ApiVersionsRequest(client_software_name="kbroker", client_software_version=__version__),
                    ApiKey.API_VERSIONS,
                    version,
                )
                body = self._reply(self._sent.popleft(), None)
                if struct.unpack_from(">h", body)[0] != ErrorCode.UNSUPPORTED_VERSION:
                    break
            response = decode(ApiVersionsResponse, body, version)
        except (WireError, ConnectionLost, struct.error) as error:
            raise CannotConnect(f"{self.address} does not answer like a Kafka broker: {error}") from None
        check(response.error_code, f"{self.address} does not tell its versions")
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}

    def _send(self, message: object, key: int, version: int) -> None:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        parts: list[Buffer] = [encode_request_header(key, version, correlation_id, self._client_id)]
        encoder(type(message), version)(message, parts)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join(frame(parts)))
        except OSError as error:
            self._failed = True
            raise ConnectionLost(f"lost the connection to {self.address}: {reason_of(error)}") from None
        self._sent.append(_Sent(correlation_id, key, version))

    def _reply(self, sent: _Sent, timeout_s: float | None) -> memoryview:
        """The body of the next frame, which has to answer that request."""
        try:
            self._socket.settimeout(self._timeout_s if timeout_s is None else timeout_s)
            size = struct.unpack(">i", self._exactly(4))[0]
            if not 4 <= size <= MAX_REPLY_BYTES:
                raise WireError(f"a frame of {size} bytes")
            data = self._exactly(size)
        except (OSError, ValueError) as error:
            self._failed = True
            raise ConnectionLost(f"lost the connection to {self.address}: {reason_of(error)}") from None
        if struct.unpack_from(">i", data)[0] != sent.correlation_id:
            raise WireError("a reply to another request")
        header_bytes = 5 if response_header_version(sent.key, sent.version) else 4
        return memoryview(data)[header_bytes:]

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._replies.read(size)
        if len(data) < size:
            raise ConnectionResetError("it hung up")
        return data


def reason_of(error: BaseException) -> str:
    """The operating system's words, without the number."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return str(getattr(error, "strerror", None) or error)


def check(code: int, doing: str, message: str | None = None) -> None:
    """Refused, unless the code is that of success. `doing` says what was refused."""
    if code == ErrorCode.NONE:
        return
    known = CODES.get(code)
    if known is None:
        raise Refused(f"error {code}", f"{doing}: {message or 'an error that kbroker does not know'}")
    raise Refused(known.name, f"{doing}: {message or known.message}", known.retriable)
