"""What a handler may know about a request beyond its body, and how it may answer later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from wire.slices import InSlices as InSlices


class Context(NamedTuple):
    """Who asks, from where, and in which version of the API."""

    api_version: int
    client_id: str | None
    client_host: str = ""
    """As Kafka shows it to people: with a slash before it."""
    listener: str = "PLAINTEXT"
    connection: int = 0
    """Later connections have higher numbers; 0 is the broker itself."""
    is_there: Callable[[], bool] = lambda: True
    """Whether who asks is still connected."""


class NoReply:
    """The whole answer to a Produce with acks=0."""


NO_REPLY = NoReply()


class HangUp(Exception):
    """Close the connection: the only way to tell a client what no reply can say."""


class Postponed(HangUp):
    """The same to a broker that will ask again: nothing is wrong."""


class Parked:
    """A reply that will come later: returned by a handler instead of a response, completed exactly once.

    `pipelined` says that requests of the same API on the same connection may be handled meanwhile; every
    other request of the connection waits. Replies leave in the order of the requests in any case.
    """

    __slots__ = ("_deliver", "_outcome", "let_next", "pipelined")

    def __init__(self, *, pipelined: bool = False) -> None:
        self.pipelined = pipelined
        self.let_next: Callable[[], object] | None = None
        """Called when `pipelined` has become true."""
        self._deliver: Callable[[object], None] | None = None
        self._outcome: object = None

    @property
    def is_done(self) -> bool:
        return self._outcome is not None

    @property
    def outcome(self) -> object:
        """None until it is there."""
        return self._outcome

    def become_pipelined(self) -> None:
        """From now on requests of the same API may be handled."""
        self.pipelined = True
        if self.let_next is not None:
            self.let_next()

    def complete(self, outcome: object) -> None:
        """`outcome` is a response, NO_REPLY, or an exception: a KafkaError is answered, HangUp hangs up."""
        if self._outcome is not None:
            raise RuntimeError("a parked request was answered twice")
        self._outcome = outcome
        if self._deliver is not None:
            self._deliver(outcome)

    def fail(self, error: Exception) -> None:
        """A bug keeps it from being answered: `error` is its outcome, unless it has one."""
        if self._outcome is not None:
            raise error
        self.complete(error)

    def then(self, change: Callable[[object], object]) -> Parked:
        """The same reply with a change to the response; errors stay what they are."""
        changed = Parked(pipelined=self.pipelined)

        def told(outcome: object) -> None:
            changed.complete(outcome if isinstance(outcome, BaseException) else change(outcome))

        self.when_done(told, for_reply=changed)
        return changed

    def when_done(self, deliver: Callable[[object], None], for_reply: Parked | None = None) -> None:
        """What to do with the outcome; at once, if it is there already.

        `for_reply` is what depends on it, and gets what `deliver` raises.
        """
        if for_reply is not None:
            deliver = partial(_deliver, deliver, for_reply)
        self._deliver = deliver
        if self._outcome is not None:
            deliver(self._outcome)


def _deliver(deliver: Callable[[object], None], for_reply: Parked, outcome: object) -> None:
    try:
        deliver(outcome)
    except Exception as error:
        for_reply.fail(error)
