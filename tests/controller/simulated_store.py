"""A metadata store that is some time away: answers take a while, connections break, sessions end.

A third back end, over an embedded tree in memory. Requests of a session arrive in order, and so do its
answers. `cut` breaks the connection: what was on its way is lost, or arrives without an answer ever coming.
The tree ends the session when the cut lasts longer than its timeout; the store learns of it when it is back,
as with kazoo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from controller.embedded import EmbeddedStore, EmbeddedTree
from controller.metadata_store import (
    ANY_VERSION,
    ConnectionLost,
    Node,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    Stat,
    StoreError,
    Watch,
    WatchEvent,
)

T = TypeVar("T")

APART_S = 1e-6
"""Timers of the same moment have no order."""

Request = Callable[[EmbeddedStore], Awaitable[Any]]


def answer_of(answer: Awaitable[T]) -> T:
    """What an embedded store has answered already."""
    try:
        answer.__await__().send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("an embedded store answers at once")


class SimulatedStore:
    """One session; implements `MetadataStore`."""

    def __init__(
        self, tree: EmbeddedTree, delay: Callable[[], float], session_timeout_ms: int = 6000
    ) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.state = SessionState.CONNECTED
        self._tree = tree
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._inner = tree.connect(self._loop.call_soon, session_timeout_ms)
        self._listeners: list[SessionListener] = []
        self._connection = 0
        self._last_arrival = self._last_answer = 0.0
        self._on_the_way: dict[asyncio.Future[Any], Request] = {}
        self._waiting: list[tuple[Request, asyncio.Future[Any]]] = []
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Node]:
        return self._ask(lambda store: store.get(path, self._watching(watch)))

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        return self._ask(lambda store: store.exists(path, self._watching(watch)))

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[list[str]]:
        return self._ask(lambda store: store.children(path, self._watching(watch)))

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[str]:
        return self._ask(lambda store: store.create(path, data, ephemeral=ephemeral, sequential=sequential))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Awaitable[int]:
        return self._ask(lambda store: store.set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]:
        return self._ask(lambda store: store.delete(path, version))

    def multi(self, operations: Sequence[Operation]) -> Awaitable[list[Result]]:
        return self._ask(lambda store: store.multi(operations))

    async def close(self) -> None:
        self._drop_connection()
        await self._inner.close()

    def cut(self, *, lose_requests: bool = True) -> None:
        """Break the connection. Without `lose_requests`, what was on its way arrives all the same."""
        if self.state is not SessionState.CONNECTED:
            return
        if not lose_requests:
            for request in self._on_the_way.values():
                try:
                    answer_of(request(self._inner))
                except StoreError:
                    continue
        self._drop_connection()
        self._now_in(SessionState.SUSPENDED)
        self._expiry = self._loop.call_later(self.session_timeout_ms / 1000, self.expire)

    def restore(self) -> None:
        """Reach the other side again, with the old session if it is still there."""
        if self.state is SessionState.CONNECTED:
            return
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._inner.state is not SessionState.CONNECTED:
            self._now_in(SessionState.LOST)
            for _, answer in self._waiting:
                answer.set_exception(SessionExpired())
            self._waiting.clear()
            self._inner = self._tree.connect(self._loop.call_soon, self.session_timeout_ms)
        self._now_in(SessionState.CONNECTED)
        for request, answer in self._waiting:
            self._send(request, answer)
        self._waiting.clear()

    def expire(self) -> None:
        """End the session on the other side."""
        with suppress(StopIteration):
            self._inner.close().send(None)

    def _ask(self, request: Request) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.state is SessionState.CONNECTED:
            self._send(request, answer)
        else:
            self._waiting.append((request, answer))
        return answer

    def _send(self, request: Request, answer: asyncio.Future[Any]) -> None:
        self._last_arrival = max(self._last_arrival + APART_S, self._loop.time() + self._delay())
        self._on_the_way[answer] = request
        self._loop.call_at(self._last_arrival, self._arrive, self._connection, request, answer)

    def _arrive(self, connection: int, request: Request, answer: asyncio.Future[Any]) -> None:
        if connection != self._connection:
            return
        outcome: Callable[[], None]
        try:
            outcome = partial(answer.set_result, answer_of(request(self._inner)))
        except StoreError as error:
            outcome = partial(answer.set_exception, error)
        self._on_the_way[answer] = _nothing_more_to_do
        self._last_answer = max(self._last_answer + APART_S, self._loop.time() + self._delay())
        self._loop.call_at(self._last_answer, self._answered, connection, answer, outcome)

    def _answered(self, connection: int, answer: asyncio.Future[Any], outcome: Callable[[], None]) -> None:
        if connection == self._connection:
            del self._on_the_way[answer]
            if not answer.done():
                outcome()

    def _watching(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None
        connection = self._connection

        def deliver(event: WatchEvent) -> None:
            if connection == self._connection:
                watch(event)

        def on_its_way(event: WatchEvent) -> None:
            self._loop.call_later(self._delay(), deliver, event)

        return on_its_way

    def _drop_connection(self) -> None:
        self._connection += 1
        on_the_way, self._on_the_way = self._on_the_way, {}
        for answer in on_the_way:
            if not answer.done():
                answer.set_exception(ConnectionLost())

    def _now_in(self, state: SessionState) -> None:
        self.state = state
        for listener in self._listeners:
            self._loop.call_soon(listener, state)


def _nothing_more_to_do(store: EmbeddedStore) -> Awaitable[Any]:
    """The request has arrived already; only its answer is on its way."""
    return store.multi([])
