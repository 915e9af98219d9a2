"""Clients of a coordinator: they look for it, and look again when it has moved or says nothing."""

from __future__ import annotations

from typing import Any

from kbroker.peer import PeerLost
from tests.sim.clients import ASK_S, Client
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.errors import ErrorCode

GROUP, TRANSACTION = 0, 1
FIND_VERSION = 3
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Coordinated(Client):
    """`key` is a group or a transactional id."""

    _coordinator: int | None = None

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        message: object,
        version: int,
        *,
        purpose: str = "coordinator",
        timeout_s: float = ASK_S,
    ) -> Any:
        """The response; None where nobody knows what has become of it."""
        broker_id = await self._find(kind, key)
        try:
            return await self.ask(broker_id, message, version, purpose=purpose, timeout_s=timeout_s)
        except PeerLost:
            self._coordinator = None
            return None

    async def moved(self, code: int) -> None:
        """Rest for a moment, and after some errors look for the coordinator again."""
        if code in MOVED:
            self._coordinator = None
        await self.pause(0.1)

    async def _find(self, kind: int, key: str) -> int:
        while self._coordinator is None:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            try:
                found = await self.ask(self.any_broker(), request, FIND_VERSION, purpose="coordinator")
            except PeerLost:
                found = None
            if found is not None and found.error_code == ErrorCode.NONE:
                self._coordinator = found.node_id
            else:
                await self.pause(0.2)
        return self._coordinator
