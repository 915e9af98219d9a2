"""This broker's way to the active controller, wherever that is: on another broker, here, or not known yet.

An answer that says "I am not the controller" is none: the request is sent again, to whoever is the controller
by then. So a request may be acted on twice, as with any client. When another controller is heard of, the old
one's answers are not waited for (`close`): it may be frozen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from kbroker.context import Parked
from kbroker.peer import Address, Open, Peer, PeerLost
from wire.errors import ErrorCode, KafkaError

RETRY_S = 0.1
ATTEMPT_S = 30.0

Decide = Callable[[Any, int], Parked]
"""Puts a request of a version to the controller of this broker."""


class Whereabouts(NamedTuple):
    """Which broker is the controller, and where; -1 and None where that is not known."""

    broker_id: int
    address: Address | None


class ControllerChannel:
    """Used by everybody in this broker who has something to ask the controller."""

    def __init__(
        self, broker_id: int, open_connection: Open, whereabouts: Callable[[], Whereabouts], decide: Decide
    ) -> None:
        self._broker_id = broker_id
        self._whereabouts = whereabouts
        self._decide = decide
        self._peer = Peer(
            f"broker-{broker_id}", "the controller", open_connection, lambda: whereabouts().address
        )

    async def ask(self, message: object, version: int, timeout_s: float = ATTEMPT_S) -> Any:
        """The controller's answer; PeerLost where there was none in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        why: object = "there is none"
        while (left_s := deadline - loop.time()) > 0:
            try:
                response = await self._attempt(message, version, min(left_s, ATTEMPT_S))
            except PeerLost as error:
                why = error
            else:
                if not says_not_controller(response):
                    return response
            await asyncio.sleep(RETRY_S)
        raise PeerLost(f"no controller has answered in {timeout_s:g} s: {why}")

    async def _attempt(self, message: object, version: int, timeout_s: float) -> Any:
        where = self._whereabouts()
        if where.broker_id != self._broker_id:
            return await self._peer.ask(message, version, timeout_s)
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def deliver(outcome: object) -> None:
            if not answered.done():
                answered.set_result(outcome)

        try:
            self._decide(message, version).when_done(deliver)
        except KafkaError as error:
            raise PeerLost(str(error)) from None
        return await answered

    def close(self) -> None:
        """Let go of the connection. Those who wait for an answer ask again."""
        self._peer.close()


def says_not_controller(response: Any) -> bool:
    """Whether NOT_CONTROLLER is all that a response says; each API has its own place for that."""
    code = getattr(response, "error_code", ErrorCode.NONE)
    for name in ("topics", "responses", "results"):
        parts = getattr(response, name, None)
        if code == ErrorCode.NONE and parts:
            code = getattr(parts[0], "error_code", ErrorCode.NONE)
    return bool(code == ErrorCode.NOT_CONTROLLER)
