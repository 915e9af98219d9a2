"""What one connection sends: replies in order, straight to the socket.

- What the socket takes at once is gone when `send` returns. Large stretches of logs go from the page cache to
  the socket by `sendfile` and never pass through here. What the socket does not take waits, in order, and
  follows as soon as there is room.
- `waiting_bytes` beyond `MOST_BYTES` tells the connection that its client is slow: it then handles nothing
  more until `FEW_BYTES` are left. So this holds that much and one reply; parts of files cost no memory. Where
  all connections together hold too much, a client is slow as soon as anything waits for it.
- The transport owns the socket, reads from it and closes it; nothing is written through it, so that it never
  has anything of its own to send. A transport without a socket gets all bytes, and its own word on slowness.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Protocol

from storage.files import FilePart
from wire.primitives import Buffer

JOINED_BYTES = 64 * 1024
"""Small replies are cheaper to copy together than to hand to the kernel one by one."""
MOST_BYTES = 1 << 20
FEW_BYTES = MOST_BYTES // 4
BYTES = bytes | bytearray | memoryview
"""Everything else is part of a file."""
MOST_BUFFERS = 1024
"""That one system call takes."""


class Sender(Protocol):
    """A connection, as far as its outlet needs it."""

    has_moved: bool

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def failed(self, error: Exception) -> None:
        """A bug: close the connection."""

    def replies_wait(self, held_bytes: int) -> bool:
        """Its client has not read so much; whether that is too much with what others have not."""


class Outlet:
    """For a connection, which is told to pause and to resume like by any transport."""

    __slots__ = (
        "_closing",
        "_is_full",
        "_protocol",
        "_socket",
        "_transport",
        "_waiting",
        "_watched",
        "waiting_bytes",
    )

    def __init__(self, transport: asyncio.Transport, protocol: Sender) -> None:
        self._transport = transport
        self._protocol = protocol
        has_socket = transport.get_extra_info("sslcontext") is None
        connected = transport.get_extra_info("socket") if has_socket else None
        self._socket: int = connected.fileno() if connected is not None else -1
        self._waiting: deque[Buffer | FilePart] = deque()
        self.waiting_bytes = 0
        self._watched = -1
        """Another descriptor of the socket: the loop does not watch the transport's own for others."""
        self._is_full = self._closing = False
        if self._socket < 0:
            transport.set_write_buffer_limits(high=MOST_BYTES)

    @property
    def held_bytes(self) -> int:
        """What waits here, and not in files."""
        if self._socket < 0:
            return self._transport.get_write_buffer_size()
        return sum(len(part) for part in self._waiting if isinstance(part, BYTES))

    def send(self, parts: Sequence[Buffer | FilePart]) -> None:
        if self._transport.is_closing():
            return
        size = sum(map(len, parts))
        if self._socket < 0:
            self._transport.writelines([p if isinstance(p, BYTES) else p.read() for p in parts])
        elif size <= JOINED_BYTES and not self._waiting:
            self._send_joined(b"".join(parts))  # type: ignore[arg-type]  # parts of files are larger
        else:
            self._waiting += parts
            self.waiting_bytes += size
            if self._watched < 0:
                self._send_waiting()
            else:
                self._tell()

    def _send_joined(self, data: bytes) -> None:
        try:
            sent = os.write(self._socket, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._transport.abort()
            return
        if sent < len(data):
            self._waiting.append(memoryview(data)[sent:])
            self.waiting_bytes = len(data) - sent
            self._watch()
            self._tell()

    def _send_waiting(self) -> None:
        """As much as the socket takes, and more as soon as it takes more."""
        waiting = self._waiting
        try:
            while waiting:
                first = waiting[0]
                if not isinstance(first, BYTES):
                    sent = first.send(self._socket)
                    if not sent:
                        raise OSError("the file has become shorter")
                    if not len(first):
                        waiting.popleft()
                else:
                    buffers = takewhile(lambda part: isinstance(part, BYTES), waiting)
                    sent = os.writev(self._socket, list(islice(buffers, MOST_BUFFERS)))  # type: ignore[arg-type]
                    self._forget(sent)
                self.waiting_bytes -= sent
                self._protocol.has_moved = True
        except BlockingIOError:
            self._watch()
        except OSError:
            self._transport.abort()
            return
        else:
            self._unwatch()
        self._tell()

    def _go_on(self) -> None:
        """Called by the event loop, which would call it again and again."""
        try:
            self._send_waiting()
        except Exception as error:
            self._protocol.failed(error)

    def _forget(self, sent: int) -> None:
        """Bytes of buffers that have been sent."""
        waiting = self._waiting
        while sent:
            first = waiting[0]
            if len(first) > sent:
                waiting[0] = memoryview(first)[sent:]  # type: ignore[arg-type]
                return
            sent -= len(first)
            waiting.popleft()
        while waiting and not len(waiting[0]):
            waiting.popleft()

    def _watch(self) -> None:
        if self._watched < 0:
            self._watched = os.dup(self._socket)
            asyncio.get_running_loop().add_writer(self._watched, self._go_on)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            asyncio.get_running_loop().remove_writer(self._watched)
            os.close(self._watched)
            self._watched = -1

    def _tell(self) -> None:
        is_too_much = self._protocol.replies_wait(self.held_bytes)
        most_bytes, few_bytes = (0, 0) if is_too_much else (MOST_BYTES, FEW_BYTES)
        if not self._is_full and self.waiting_bytes > most_bytes:
            self._is_full = True
            self._protocol.pause_writing()
        elif self._is_full and self.waiting_bytes <= few_bytes:
            self._is_full = False
            self._protocol.resume_writing()
        if self._closing and not self._waiting:
            self._transport.close()

    def close(self) -> None:
        """Close the connection once everything has been sent."""
        self._closing = True
        if not self._waiting:
            self._transport.close()

    def drop(self) -> None:
        """The connection is gone."""
        self._unwatch()
        self._waiting.clear()
        self.waiting_bytes = 0
