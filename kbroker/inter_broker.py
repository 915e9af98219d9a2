"""Requests of this broker to whichever broker has to answer them, itself included.

- What this broker asks itself takes the same handler without a socket.
- Each other broker has one connection for this purpose, made when it is first needed; requests leave in the
  order in which they were asked, and are not repeated here: whoever asks is told that nobody answered (None),
  and knows whether it may ask again.
- A broker that has left the cluster is not waited for any more: it may be frozen, and its connection alive.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.context import Context, Parked
from kbroker.peer import Address, Open, Peer, PeerLost
from wire.errors import KafkaError

Told = Callable[[Any], object]
"""The response, or None if there is none."""

Handle = Callable[[Context, Any], object]
Spawn = Callable[[Coroutine[object, object, None]], object]


class Send(Protocol):
    def __call__(self, broker_id: int, message: object, version: int, told: Told) -> None: ...


class InterBroker:
    """The way to all brokers."""

    def __init__(
        self,
        broker_id: int,
        handlers: Mapping[type, Handle],
        spawn: Spawn,
        open_connection: Open,
        address_of: Callable[[int], Address | None],
        timeout_s: Callable[[], float],
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        self._bugs = bugs
        self._broker_id = broker_id
        self._client_id = f"broker-{broker_id}"
        self._handlers = handlers
        self._spawn = spawn
        self._open_connection = open_connection
        self._address_of = address_of
        self._timeout_s = timeout_s
        self._peers: dict[int, Peer] = {}

    def send(self, broker_id: int, message: object, version: int, told: Told) -> None:
        """Ask a broker; `told` gets the response, perhaps before this returns."""
        if broker_id != self._broker_id:
            self._spawn(self._ask(self._peer(broker_id), message, version, told))
            return
        try:
            outcome = self._handlers[type(message)](Context(version, self._client_id), message)
        except Exception as error:
            outcome = error
        if isinstance(outcome, Parked):
            outcome.when_done(partial(self._tell, told))
        else:
            self._tell(told, outcome)

    def brokers_changed(self) -> None:
        for peer in self._peers.values():
            peer.follow()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    def _peer(self, broker_id: int) -> Peer:
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = Peer(
                self._client_id,
                f"transactions at broker {broker_id}",
                self._open_connection,
                lambda: self._address_of(broker_id),
            )
        return peer

    async def _ask(self, peer: Peer, message: object, version: int, told: Told) -> None:
        try:
            response = await peer.ask(message, version, self._timeout_s())
        except PeerLost:
            response = None
        except Exception as error:  # whatever it is, somebody waits to be told
            response = error
        self._tell(told, response)

    def _tell(self, told: Told, outcome: object) -> None:
        if isinstance(outcome, Exception) and not isinstance(outcome, KafkaError):
            self._bugs.met("a request among brokers", outcome)
        self._bugs.tell(told, None if isinstance(outcome, Exception) else outcome)
