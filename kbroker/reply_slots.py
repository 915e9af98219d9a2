"""The place of one reply in the order of a connection's replies, and the way from a request to that reply.

Of a large request the slot is there first; then it is decoded, handled and answered, each where it has time
(`kbroker.slices`).
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from kbroker.bugs import Bugs, answering
from kbroker.context import HangUp, Parked
from kbroker.dispatch import Route
from kbroker.slices import Told, Work
from wire.errors import WireError
from wire.primitives import Buffer


class Replying(Protocol):
    """A connection, as far as a slot needs it."""

    turn_began_s: float
    bugs: Bugs

    def most_reply_bytes(self, api: int) -> int: ...

    def handle_large(self, route: Route, client_id: str | None, request: Any) -> tuple[Route, object]:
        """The route that counts it, and what the handler makes of it."""

    def make_reply(self, work: Work, told: Told) -> None:
        """In slices, as long as there is a connection."""

    def slot_filled(self) -> None:
        """The reply of a slot is known."""


class Slot:
    """`buffers` is None until the reply is known."""

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_request",
        "arrived_s",
        "buffers",
        "hang_up",
        "held_bytes",
        "is_worked_on",
        "pipelined",
        "route",
    )

    def __init__(
        self, connection: Replying, route: Route, correlation_id: int, request: object, pipelined: bool
    ) -> None:
        self._connection = connection
        self.route = route
        self.arrived_s = connection.turn_began_s
        self._correlation_id = correlation_id
        self._request = request
        self.pipelined = pipelined
        self.held_bytes = 0
        """Of a Produce for as long as the next one waits: it has records that are not appended yet."""
        self.is_worked_on = False
        """Whether it is to be decoded, or its records are to be looked at: that ends by itself."""
        self.buffers: list[Buffer] | None = None
        self.hang_up: str | None = None

    def let_next(self) -> None:
        """The next request of the same API need not wait for this one any more."""
        self.pipelined, self.held_bytes, self.is_worked_on = True, 0, False
        self._connection.slot_filled()

    def failed(self, error: Exception) -> None:
        self._finish(error)

    @answering
    def begin(self, decoded: object) -> None:
        """A large request has been decoded: the client's name and the message, or what is wrong with it."""
        self.is_worked_on = False
        if isinstance(decoded, Exception):
            self._finish(decoded)
            return
        client_id, self._request = cast(tuple[str | None, Any], decoded)
        self.route, outcome = self._connection.handle_large(self.route, client_id, self._request)
        if isinstance(outcome, Parked):
            outcome.when_done(self.deliver)
        else:
            self.deliver(outcome)

    @answering
    def deliver(self, outcome: object) -> None:
        """The handler's outcome is there."""
        route, connection = self.route, self._connection
        if route.is_large(outcome, self._request):
            most_bytes = connection.most_reply_bytes(route.key)
            work = route.large_reply(self._correlation_id, outcome, self._request, most_bytes)
            connection.make_reply(work, self._finish)
            return
        self._finish(route.outcome(self._correlation_id, outcome, self._request))

    def _finish(self, reply: object) -> None:
        """The reply's buffers, or why there is none."""
        if not isinstance(reply, Exception):
            self.buffers = cast(list[Buffer], reply)
        elif isinstance(reply, HangUp | WireError):
            self.buffers, self.hang_up = [], str(reply)
        else:
            self._connection.bugs.met(f"a reply: {self.route.response.__name__}", reply)
            self.buffers, self.hang_up = [], "its reply could not be made"
        self._request = None
        self._connection.slot_filled()
