"""The receive buffer of a broker, and what connections that are read from in one turn of the loop share.

A turn of the event loop reads from every connection on which something has arrived. Where these are small
Produces, they are only staged, and the end of the turn appends what all of them staged, one write for each
log, before each connection sends its replies. That costs less than to do it for every connection by itself.

Rules:
- All reads go into one buffer, each behind what is still staged; nothing keeps a view of it beyond its turn.
  Only the rest of a large frame has a place of its own, as long as one of a few is free.
- A connection that was read from twice in a row is probably the only one: it does not wait for others. Nor
  does one that sent much, or anything but Produces that are now staged.
- Others wait for at most `MOST_SHARED_BYTES`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from wire.frames import SpareBuffers

RECEIVE_BUFFER_BYTES = 1 << 20
SPARE_BUFFERS = 8
MOST_SHARED_BYTES = 128 * 1024
MOST_SHARED_READ_BYTES = 16 * 1024


class Sharing(Protocol):
    """A connection that has staged something."""

    def end_turn(self) -> None:
        """All that was staged has been carried out: send the replies. It raises nothing."""


class Turns:
    """One for all connections: a read is handled to its end before the loop starts the next one."""

    def __init__(self, carry_out: Callable[[], object]) -> None:
        """`carry_out` appends what was staged."""
        self._carry_out = carry_out
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.room = self._buffer
        """Where the next read goes."""
        self.spares = SpareBuffers(SPARE_BUFFERS, RECEIVE_BUFFER_BYTES)
        """For large frames that do not arrive in one read."""
        self._last_read: Sharing | None = None
        self._sharing: list[Sharing] = []

    def shares(self, connection: Sharing, size: int, *, has_staged: bool) -> bool:
        """Whether `connection`, after a read of `size`, leaves the end of its turn to `end`."""
        last, self._last_read = self._last_read, connection
        if last is connection or not has_staged or size > MOST_SHARED_READ_BYTES:
            return False
        if not self._sharing:
            asyncio.get_running_loop().call_soon(self.end)
        self._sharing.append(connection)
        self.room = self.room[size:]
        if RECEIVE_BUFFER_BYTES - len(self.room) > MOST_SHARED_BYTES:
            self.end()
        return True

    def end(self) -> None:
        sharing, self._sharing = self._sharing, []
        self.room = self._buffer
        self._carry_out()
        for connection in sharing:
            connection.end_turn()
