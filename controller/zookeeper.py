"""The metadata store in a ZooKeeper ensemble. Only this module and `zookeeper_client` know kazoo.

    store = await ZooKeeperStore.connect("one:2181,two:2181/kafka", session_timeout_ms=18_000)

- The connection, its thread and its session are `ZooKeeperClient`'s.
- The path behind the servers is where our tree begins; it is made if it does not exist. kazoo knows nothing
  of it.
- Every change is a transaction, if only of one operation: one kind of answer to read, one kind of error.
- kazoo says SUSPENDED when a connection breaks, or when nothing comes back for two thirds of the session's
  time while it is idle. A request counts as a sign of life there, even if nobody ever answers it: so this
  module has a clock of its own, and says SUSPENDED when the oldest request has waited for as long as that.
- kazoo says LOST only once it has reached a server again. `session_id` is always what the thread knows last,
  which may be a moment ahead of the states that listeners have been told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.protocol.states import EventType as KazooEvent
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from controller.metadata_store import (
    ANY_VERSION,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventType,
    InvalidPath,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    Set,
    Stat,
    StoreError,
    StoreFailed,
    Watch,
    WatchEvent,
)
from controller.zookeeper_client import ZooKeeperClient

log = logging.getLogger(__name__)

SILENCE = 2 / 3
"""The part of the session's time after which a request without an answer means: no connection."""
EVENTS = {
    KazooEvent.CREATED: EventType.CREATED,
    KazooEvent.CHANGED: EventType.CHANGED,
    KazooEvent.DELETED: EventType.DELETED,
    KazooEvent.CHILD: EventType.CHILDREN,
}
ERRORS: dict[type[Exception], type[StoreError]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    exceptions.BadArgumentsError: InvalidPath,
    exceptions.SessionExpiredError: SessionExpired,
    exceptions.ConnectionClosedError: ConnectionLost,
    exceptions.ConnectionLoss: ConnectionLost,
    exceptions.OperationTimeoutError: ConnectionLost,
    exceptions.SessionMovedError: ConnectionLost,
}


class CannotConnect(StoreError):
    """No server could be reached in time."""


class _KazooWatch(NamedTuple):
    """What kazoo is given for a watch. Equal for equal watches, since each is to fire once."""

    store: ZooKeeperStore
    watch: Watch

    def __call__(self, event: WatchedEvent) -> None:
        if event.type in EVENTS:  # otherwise kazoo tells that the connection is lost
            self.watch(WatchEvent(EVENTS[event.type], self.store._ours(event.path)))


class ZooKeeperStore:
    """One client with one session after the other; implements `MetadataStore`."""

    def __init__(self, servers: str, session_timeout_ms: int) -> None:
        """`servers` as in `zookeeper.connect`."""
        hosts, slash, chroot = servers.partition("/")
        if not hosts:
            raise ValueError(f"zookeeper.connect: {servers!r} names no server")
        self.state = SessionState.LOST
        self._chroot = f"/{chroot}".rstrip("/") if slash else ""
        self._loop = asyncio.get_running_loop()
        self._listeners: list[SessionListener] = []
        self._kazoo_state = SessionState.LOST
        self._is_connected = asyncio.Event()
        self._unanswered: dict[asyncio.Future[Any], float] = {}
        """The requests that wait for their answers, and when each was made, in that order."""
        self._silence_check: asyncio.TimerHandle | None = None
        self._client = ZooKeeperClient(hosts, session_timeout_ms, self._heard, self._abandon)

    @classmethod
    async def connect(
        cls, servers: str, *, session_timeout_ms: int, connection_timeout_ms: int | None = None
    ) -> ZooKeeperStore:
        """A store that is connected; CannotConnect where that takes too long, ValueError for nonsense."""
        store = cls(servers, session_timeout_ms)
        store._client.start()
        timeout_ms = session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await store._is_connected.wait()
                await store._make_chroot()
        except TimeoutError:
            await store.close()
            raise CannotConnect(f"zookeeper.connect: no answer from {servers} in {timeout_ms} ms") from None
        except BaseException:
            await store.close()
            raise
        return store

    async def _make_chroot(self) -> None:
        parts = self._chroot.split("/")[1:]
        for depth in range(1, len(parts) + 1):
            transaction = self._client.kazoo.transaction()
            transaction.create("/" + "/".join(parts[:depth]))
            with suppress(NodeExists):
                await self._answer(transaction.commit_async(), lambda results: _results(results, [""]))

    # -- the session

    @property
    def session_id(self) -> int:
        return self._client.session_id

    @property
    def session_timeout_ms(self) -> int:
        """What a server has granted, which may be less or more than was asked for."""
        return self._client.granted_timeout_ms

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        if self._silence_check is not None:
            self._silence_check.cancel()
        await self._client.close()

    def _heard(self, state: SessionState) -> None:
        """kazoo has another state."""
        self._kazoo_state = state
        if state is not self.state:
            self._now_in(state)
        if state is SessionState.LOST:
            self._abandon()

    def _abandon(self) -> None:
        """Whatever waits for its answer now: kazoo may have lost it."""
        unanswered, self._unanswered = self._unanswered, {}
        for future in unanswered:
            if not future.done():
                future.set_exception(ConnectionLost())

    def _now_in(self, state: SessionState) -> None:
        self.state = state
        if state is SessionState.CONNECTED:
            self._is_connected.set()
        for listener in list(self._listeners):
            try:
                listener(state)
            except Exception:
                log.exception("A listener to the session has failed")

    def _check_silence_in(self, delay_s: float) -> None:
        # What has come while the loop was busy is in the queue of the loop, and is heard first.
        self._silence_check = self._loop.call_later(
            delay_s, lambda: self._loop.call_soon(self._check_silence)
        )

    def _check_silence(self) -> None:
        """Be suspended if nothing has been heard for too long."""
        self._silence_check = None
        if not self._unanswered:
            return
        oldest_s = next(iter(self._unanswered.values()))
        left_s = oldest_s + self._longest_silence_s - self._loop.time()
        if left_s > 0:
            self._check_silence_in(left_s)
        elif self.state is SessionState.CONNECTED:
            log.warning("ZooKeeper has not answered for %.1f s", self._longest_silence_s)
            self._now_in(SessionState.SUSPENDED)

    @property
    def _longest_silence_s(self) -> float:
        return self.session_timeout_ms / 1000 * SILENCE

    # -- requests

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Node]:
        return self._ask(
            path,
            lambda: self._client.kazoo.get_async(self._theirs(path), self._watch(watch)),
            lambda found: Node(found[0] or b"", _stat(found[1])),
        )

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        return self._ask(
            path,
            lambda: self._client.kazoo.exists_async(self._theirs(path), self._watch(watch)),
            lambda stat: None if stat is None else _stat(stat),
        )

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[list[str]]:
        return self._ask(
            path,
            lambda: self._client.kazoo.get_children_async(self._theirs(path), self._watch(watch)),
            sorted,
        )

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[str]:
        return self._change(Create(path, data, ephemeral, sequential))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Awaitable[int]:
        return self._change(Set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]:
        return self._change(Delete(path, version))

    def multi(self, operations: Sequence[Operation]) -> Awaitable[list[Result]]:
        return self._transact(operations, lambda results: results)

    def _change(self, operation: Operation) -> Awaitable[Any]:
        return self._transact([operation], lambda results: results[0])

    def _transact(
        self, operations: Sequence[Operation], answer: Callable[[list[Result]], Any]
    ) -> Awaitable[Any]:
        paths = [operation.path for operation in operations]
        for index, operation in enumerate(operations):
            if not _is_path(operation.path):
                return self._refuse(InvalidPath(operation.path, index))

        def commit() -> Any:
            transaction = self._client.kazoo.transaction()
            for operation in operations:
                self._add(transaction, operation)
            return transaction.commit_async()

        return self._ask("/", commit, lambda results: answer(self._changed(_results(results, paths))))

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = self._theirs(operation.path)
        match operation:
            case Create(_, data, ephemeral, sequential):
                transaction.create(path, bytes(data), ephemeral=ephemeral, sequence=sequential)
            case Set(_, data, version):
                transaction.set_data(path, bytes(data), version)
            case Delete(_, version):
                transaction.delete(path, version)
            case Check(_, version):
                transaction.check(path, version)

    def _changed(self, results: list[Any]) -> list[Result]:
        """Of a created node the path, of one that was set the version."""
        return [
            self._ours(one) if isinstance(one, str) else one.version if isinstance(one, ZnodeStat) else None
            for one in results
        ]

    def _ask(self, path: str, request: Callable[[], Any], answer: Callable[[Any], Any]) -> Awaitable[Any]:
        if self.state is SessionState.LOST:
            return self._refuse(SessionExpired(path))
        if not _is_path(path):
            return self._refuse(InvalidPath(path))
        return self._answer(request(), answer, path)

    def _answer(self, asked: Any, answer: Callable[[Any], Any], path: str = "") -> asyncio.Future[Any]:
        """What kazoo will say, as an awaitable of this loop."""
        future = self._loop.create_future()
        self._unanswered[future] = self._loop.time()
        if self._silence_check is None:
            self._check_silence_in(self._longest_silence_s)

        def answered(asked: Any) -> None:
            self._unanswered.pop(future, None)
            error = asked.exception
            if self.state is SessionState.SUSPENDED is not self._kazoo_state and not _is_lost(error):
                self._now_in(self._kazoo_state)
            if future.done():
                return
            try:
                future.set_result(answer(asked.get_nowait()))
            except Exception as error:
                future.set_exception(_store_error(error, path))

        asked.rawlink(answered)
        return future

    def _refuse(self, error: StoreError) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        future.set_exception(error)
        return future

    def _watch(self, watch: Watch | None) -> _KazooWatch | None:
        return None if watch is None else _KazooWatch(self, watch)

    # -- paths

    def _theirs(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _ours(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"


def _is_path(path: str) -> bool:
    """kazoo would make one of anything."""
    return path == "/" or (path.startswith("/") and not path.endswith("/") and "//" not in path)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid, stat.pzxid, stat.ctime, stat.mtime)


def _results(results: list[Any], paths: Sequence[str]) -> list[Any]:
    """The results of a transaction; the error of the first operation that failed."""
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, exceptions.RolledBackError):
            error = _store_error(result, paths[index])
            error.failed_operation = index
            raise error
    return results


def _is_lost(error: Exception | None) -> bool:
    return error is not None and isinstance(_store_error(error, ""), ConnectionLost | SessionExpired)


def _store_error(error: Exception, path: str) -> StoreError:
    if isinstance(error, StoreError):
        return error
    known = ERRORS.get(type(error))
    if known is not None:
        return known(path)
    if not isinstance(error, exceptions.ZookeeperError):  # not a server's word, so it may have done it
        return ConnectionLost(path)
    return StoreFailed(f"{path}: {type(error).__name__} {error}")
