"""Requests of this broker to whichever broker has to answer them, itself included.

- What this broker asks itself takes the same handler without a socket.
- Each other broker has one connection for this purpose, made when it is first needed; requests leave in the
  order in which they were asked, and are not repeated here: whoever asks is told that nobody answered (None),
  and knows whether it may ask again.
- A broker that has left the cluster is not waited for any more: it may be frozen, and its connection alive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from kbroker.context import Context, Parked
from kbroker.peer import Address, Open, Peer, PeerLost
from wire.errors import KafkaError

logger = logging.getLogger(__name__)

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
    ) -> None:
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
        outcome = self._handlers[type(message)](Context(version, self._client_id), message)
        if isinstance(outcome, Parked):
            outcome.when_done(lambda response: _tell(told, response))
        else:
            told(outcome)

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
        except Exception:  # whatever it is, somebody waits to be told
            logger.exception("a bug in what broker %d asks of others", self._broker_id)
            response = None
        told(response)


def _tell(told: Told, outcome: object) -> None:
    told(None if isinstance(outcome, KafkaError) else outcome)
