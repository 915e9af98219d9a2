"""A broker's session with the metadata store, as one of a process.

As `SimulatedStore`, with the difference that a process can die: what it hears, it hears in its own context,
and what is on its way to the store is not its any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from controller.embedded import EmbeddedTree
from controller.metadata_store import SessionState, Watch, WatchEvent
from tests.controller.simulated_store import SimulatedStore
from tests.sim.loop import NOBODY, Process


class _OfTheWorld:
    """A loop whose timers outlive the process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.create_future = process.loop.create_future
        self.time = process.loop.time

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        return self._process.loop.in_world(delay_s, call, *arguments)

    def call_at(self, when: float, call: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        return self._process.loop.in_world(when - self.time(), call, *arguments)

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        return self._process.loop.call_soon(call, *arguments, context=NOBODY)


class Session(SimulatedStore):
    """One process has one."""

    def __init__(
        self,
        process: Process,
        tree: EmbeddedTree,
        delay: Callable[[], float],
        session_timeout_ms: int,
        changed: Callable[[], object],
    ) -> None:
        """`changed` is called after every request that arrived."""
        super().__init__(tree, delay, session_timeout_ms)
        self._process = process
        self._loop = _OfTheWorld(process)  # type: ignore[assignment]
        self._changed = changed
        self.ended_early: set[int] = set()
        """Sessions that somebody else has ended, which their broker cannot foresee."""
        self._inner._call_soon = self._loop.call_soon

    def _ask(self, request: Any) -> asyncio.Future[Any]:
        answer = super()._ask(request)
        answer.add_done_callback(_heard, context=NOBODY)  # who asks for several may not wait for all
        return answer

    def end_early(self) -> None:
        self.ended_early.add(self.session_id)
        self.expire()
        self.cut()

    def restore(self) -> None:
        if self._process.is_alive:
            super().restore()

    def _arrive(self, connection: int, request: Any, answer: asyncio.Future[Any]) -> None:
        super()._arrive(connection, request, answer)
        self._changed()

    def _watching(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None
        connection = self._connection

        def deliver(event: WatchEvent) -> None:
            if connection == self._connection:
                watch(event)

        def on_its_way(event: WatchEvent) -> None:
            self._loop.call_later(self._delay(), self._process.call_soon, deliver, event)

        return on_its_way

    def _now_in(self, state: SessionState) -> None:
        self.state = state
        for listener in self._listeners:
            self._process.call_soon(listener, state)


def _heard(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
