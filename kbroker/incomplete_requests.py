"""Requests that have not arrived whole, or wait for the reply before theirs: what they may hold, and how slow
they may be.

- Together they may hold so many bytes (`queued.max.request.bytes`, or else our own bound). Beyond that,
  connections in the middle of a request *rest*: they are not read from until some are through. The one that
  holds most goes on, so that there is always one that gets through. Requests that arrive in one piece hold
  nothing and are served. What is held can exceed the bound by that one request, and by one receive buffer for
  each connection. While the broker works on requests that arrived whole, and holds them, all others rest:
  what they hold will be free, and each that got through would be one more.
- Who has begun a request has to go on with it: `kbroker.request.min.bytes.per.second`, judged every
  `WINDOW_MS`. What a resting connection's client has sent, and nobody has read yet, counts.
- While there is more than the bound, those are closed that are slowest, until there is some room: they keep
  others from being read. Fast ones, and those that have begun just now, are not.

Nothing here knows sockets or the time. `tick` is to be called about once a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kbroker.configuration.layers import Configuration
from kbroker.log_limits import LogLimits

logger = logging.getLogger(__name__)

WINDOW_MS = 30_000
LOOK_MS = 1000
FAST_BYTES = 64 * 1024
"""In that time."""
ENOUGH_UNREAD_BYTES = 2048
"""Of a resting connection: the kernel may not take more from its client."""


class Sender(Protocol):
    """A connection that requests come from."""

    client_address: str
    client_is_slow: bool
    """It is not read from since it does not read its replies."""
    held_bytes: int
    """Of requests that are not complete, or have to wait."""

    @property
    def awaits_reply(self) -> bool: ...

    @property
    def is_worked_on(self) -> bool:
        """Whether what it holds will be free when the broker has done its work."""

    @property
    def unread_bytes(self) -> int:
        """What has arrived and has not been read."""

    @property
    def missing_bytes(self) -> int:
        """What an incomplete request lacks."""

    def rest(self, resting: bool) -> None:
        """Read no more, or again."""

    def abort(self) -> None: ...


class _Progress:
    """Of a connection in the middle of a request."""

    __slots__ = ("arrived_bytes", "arrived_lately", "is_new", "window_began_ms")

    def __init__(self, now_ms: int) -> None:
        self.window_began_ms = now_ms
        self.arrived_bytes = self.arrived_lately = 0
        self.is_new = True
        """It began after the last look: too late to tell how fast it is."""

    def arrived(self, size: int) -> None:
        self.arrived_bytes += size
        self.arrived_lately += size


C = TypeVar("C", bound=Sender)


class IncompleteRequests(Generic[C]):
    """Those of all connections of a broker."""

    def __init__(self, configuration: Callable[[], Configuration], log_limits: LogLimits) -> None:
        self._configuration = configuration
        self._log_limits = log_limits
        self._holding: dict[C, _Progress] = {}
        self._resting: dict[C, None] = {}
        self._now_ms = self._looked_ms = 0
        self.held_bytes = 0

    def is_resting(self, connection: C) -> bool:
        return connection in self._resting

    def holds(self, connection: C, held_bytes: int) -> None:
        """What a connection's requests hold has changed."""
        arrived = held_bytes - connection.held_bytes
        self.held_bytes += arrived
        connection.held_bytes = held_bytes
        if not held_bytes:
            self._holding.pop(connection, None)
        elif arrived < 0 or connection not in self._holding:  # the one before is complete
            self._holding[connection] = _Progress(self._now_ms)
        else:
            self._holding[connection].arrived(arrived)
        self._share()

    def left(self, connection: C) -> None:
        self._resting.pop(connection, None)
        self.holds(connection, 0)

    def _share(self) -> None:
        if self.held_bytes > self._budget():
            self._let_one_through()
        elif self._resting:
            resting, self._resting = self._resting, {}
            for one in resting:
                one.rest(False)

    def _let_one_through(self) -> None:
        in_the_middle = [one for one in self._holding if not one.awaits_reply]
        foremost = None
        if not any(one.is_worked_on for one in self._holding):
            foremost = max(in_the_middle, key=lambda one: one.held_bytes, default=None)
        for one in in_the_middle:
            if one is not foremost and one not in self._resting:
                self._resting[one] = None
                one.rest(True)
        if foremost is not None and foremost in self._resting:
            del self._resting[foremost]
            foremost.rest(False)

    def _budget(self) -> int:
        values = self._configuration().broker
        if values.queued_max_request_bytes > 0:
            return values.queued_max_request_bytes
        return values.kbroker_queued_max_request_bytes

    # -- those that are too slow

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for connection, progress in list(self._holding.items()):
            if connection.awaits_reply or connection.client_is_slow:  # it is not read from for that reason
                self._holding[connection] = _Progress(now_ms)
            elif now_ms - progress.window_began_ms >= WINDOW_MS:
                self._judge(connection, progress)
        if now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        if self.held_bytes > self._budget():
            self._make_room()
        self._share()  # nobody says when work has become waiting
        for progress in self._holding.values():
            progress.arrived_lately, progress.is_new = 0, False

    def _judge(self, connection: C, progress: _Progress) -> None:
        """At the end of a window."""
        least = self._configuration().broker.kbroker_request_min_bytes_per_second
        window_ms = self._now_ms - progress.window_began_ms
        if progress.arrived_bytes * 1000 < least * window_ms and not self._waits_for_us(connection):
            self._close(connection, "its request arrives too slowly (kbroker.request.min.bytes.per.second)")
        else:
            progress.window_began_ms, progress.arrived_bytes = self._now_ms, 0

    def _make_room(self) -> None:
        """Close the slowest, until half of the bound is free or only fast ones are left."""
        slow = [
            (progress.arrived_lately, connection)
            for connection, progress in self._holding.items()
            if progress.arrived_lately < FAST_BYTES and not progress.is_new
        ]
        slow.sort(key=lambda one: one[0])
        too_much = self.held_bytes - self._budget() // 2
        for _, connection in slow:
            if too_much <= 0:
                break
            if not connection.awaits_reply and not self._waits_for_us(connection):
                too_much -= connection.held_bytes
                self._close(connection, "others wait for the memory that its slow request holds")

    def _waits_for_us(self, connection: C) -> bool:
        """Whether its client goes on sending, and we do not read."""
        enough = min(connection.missing_bytes, ENOUGH_UNREAD_BYTES)
        return connection in self._resting and connection.unread_bytes >= enough

    def _close(self, connection: C, reason: str) -> None:
        self._log_limits.warning(
            logger, reason, "closing the connection from %s: %s", connection.client_address, reason
        )
        connection.abort()
