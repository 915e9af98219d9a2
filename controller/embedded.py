"""The metadata store inside one process: ZooKeeper's tree in memory, durable in one SQLite file.

    tree = EmbeddedTree.open(directory / "metadata.db", now_ms=clock)
    store = tree.connect(loop.call_soon)

What it owns: the file `metadata.db` (with SQLite's `-wal` beside it), locked against a second process. Table
`nodes` has a row per persistent node; table `store` has the number of times the file was opened.

- Everything is served from memory. A change is validated and made in memory, written to the file in one
  SQLite transaction, and only then answered. If the file cannot be written, memory goes back to what it was
  and the call raises StoreFailed. Unless the disk was merely full, nothing is written to the file again then:
  what an fsync that failed has left behind, only opening it anew can tell.
- Crash policy: WAL with `synchronous=FULL` unless told otherwise, so an answered change survives a power cut
  (about a millisecond of fdatasync per change, on the event loop: metadata changes are rare). With `OFF` it
  survives the death of the process only. A transaction is there whole or not at all.
- Ephemeral nodes are never written: they end with the process at the latest.
- Transaction and session ids start at 2^32 times the number of openings, so they grow across restarts without
  a write of their own.
- Several sessions may share one tree. Without a path the tree lives in memory only, which is what tests and
  the simulator use; there `expire` ends a session from outside, as ZooKeeper would.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

from controller.metadata_store import (
    ANY_VERSION,
    BadVersion,
    Check,
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
    StoreDamaged,
    StoreError,
    StoreFailed,
    Watch,
    WatchEvent,
    parent_of,
)

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

Synchronous = Literal["FULL", "NORMAL", "OFF"]
CallSoon = Callable[[Callable[[], None]], object]

IDS_PER_OPENING = 1 << 32
SEQUENCE_DIGITS = 10
MAY_BE_WHOLE = tuple(
    f"SQLITE_{what}" for what in ("FULL", "IOERR", "BUSY", "LOCKED", "READONLY", "CANTOPEN", "PERM", "NOMEM")
)
"""What says nothing about what is in the file."""

_COLUMNS = "path, data, version, sequence, czxid, mzxid, pzxid, ctime_ms, mtime_ms"
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, sequence INTEGER NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS store (openings INTEGER NOT NULL)",
    "INSERT INTO store SELECT 0 WHERE NOT EXISTS (SELECT * FROM store)",
)


class _Answer(Generic[T]):
    """An awaitable of what is known already."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, T]:
        yield from ()
        return self._value


class _Refusal:
    """An awaitable that raises."""

    __slots__ = ("_error",)

    def __init__(self, error: StoreError) -> None:
        self._error = error

    def __await__(self) -> Generator[None, None, NoReturn]:
        yield from ()
        raise self._error


class _Node:
    __slots__ = (
        "children",
        "ctime_ms",
        "czxid",
        "data",
        "ephemeral_owner",
        "mtime_ms",
        "mzxid",
        "pzxid",
        "sequence",
        "version",
    )

    def __init__(self, data: bytes, ephemeral_owner: int, zxid: int, now_ms: int) -> None:
        self.data = data
        self.version = 0
        self.ephemeral_owner = ephemeral_owner
        self.sequence = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = now_ms
        self.children: dict[str, None] = {}

    def stat(self) -> Stat:
        return Stat(
            self.version,
            self.ephemeral_owner,
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime_ms,
            self.mtime_ms,
        )


class EmbeddedTree:
    """The nodes, and the sessions that look at them."""

    def __init__(self, now_ms: Callable[[], int], file: _File | None = None) -> None:
        self._now_ms = now_ms
        self._file = file
        self._nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0, 0)}
        self._sessions: dict[int, EmbeddedStore] = {}
        openings = 1 if file is None else file.load(self._nodes)
        self._zxid = self._last_session_id = openings * IDS_PER_OPENING

    @classmethod
    def open(
        cls, path: Path | None, *, now_ms: Callable[[], int], synchronous: Synchronous = "FULL"
    ) -> EmbeddedTree:
        """The tree of a file, made if it does not exist, or one in memory. May raise StoreFailed."""
        return cls(now_ms, None if path is None else _File(path, synchronous))

    def connect(self, call_soon: CallSoon, session_timeout_ms: int = 18000) -> EmbeddedStore:
        """A new session, whose callbacks are passed to `call_soon`."""
        store = EmbeddedStore(self, call_soon, session_timeout_ms)
        self._begin(store)
        return store

    def close(self) -> None:
        """Answer nobody any more, and let go of the file."""
        for store in self._sessions.values():
            store.state = SessionState.LOST
        self._sessions.clear()
        if self._file is not None:
            self._file.close()

    def expire(self, session_id: int) -> None:
        """End a session: its ephemeral nodes go, and it is told that it is lost."""
        store = self._sessions.pop(session_id, None)
        owned = [path for path, node in self._nodes.items() if node.ephemeral_owner == session_id]
        if owned:
            self._commit(session_id, [Delete(path) for path in sorted(owned)])
        if store is not None:
            store._ended()

    def _begin(self, store: EmbeddedStore) -> None:
        self._last_session_id += 1
        self._sessions[self._last_session_id] = store
        store._begun(self._last_session_id)

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def _commit(self, session_id: int, operations: Sequence[Operation]) -> list[Result]:
        """Perform all of the operations or none, and set off the watches."""
        transaction = _Transaction(self._nodes, session_id, self._zxid + 1, self._now_ms())
        results: list[Result] = []
        try:
            for index, operation in enumerate(operations):
                try:
                    results.append(transaction.perform(operation))
                except StoreError as error:
                    error.failed_operation = index
                    raise
            if self._file is not None:
                self._file.write(transaction.dirty, self._nodes)
        except StoreError:
            transaction.undo()
            raise
        if transaction.events:
            self._zxid += 1
        for event in transaction.events:
            for store in list(self._sessions.values()):
                store._notify(event)
        return results


class _Transaction:
    """Operations on the nodes in memory that can be taken back."""

    def __init__(self, nodes: dict[str, _Node], session_id: int, zxid: int, now_ms: int) -> None:
        self.events: list[WatchEvent] = []
        self.dirty: dict[str, None] = {}
        """Paths whose row in the file is no longer right."""
        self._nodes = nodes
        self._session_id = session_id
        self._zxid = zxid
        self._now_ms = now_ms
        self._undo: list[Callable[[], None]] = []

    def perform(self, operation: Operation) -> Result:
        match operation:
            case Create():
                return self._create(operation)
            case Set():
                return self._set(operation)
            case Delete():
                self._delete(operation)
                return None
            case Check(path, version):
                self._at_version(path, version)
                return None

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()

    def _create(self, operation: Create) -> str:
        path = operation.path
        if not path.startswith("/") or "//" in path or (path.endswith("/") and not operation.sequential):
            raise InvalidPath(path)
        parent_path = parent_of(path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNode(path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemerals(path)
        if operation.sequential:
            path += str(parent.sequence).zfill(SEQUENCE_DIGITS)
        if path in self._nodes:
            raise NodeExists(path)
        owner = self._session_id if operation.ephemeral else 0
        self._nodes[path] = _Node(bytes(operation.data), owner, self._zxid, self._now_ms)
        self._child_changed(parent, path, created=True)
        self._undo.append(partial(self._nodes.__delitem__, path))
        self._changed(EventType.CREATED, path, ephemeral=operation.ephemeral)
        return path

    def _set(self, operation: Set) -> int:
        node = self._at_version(operation.path, operation.version)
        old = (node.data, node.version, node.mzxid, node.mtime_ms)

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime_ms = old

        self._undo.append(undo)
        node.data, node.version = bytes(operation.data), node.version + 1
        node.mzxid, node.mtime_ms = self._zxid, self._now_ms
        if not node.ephemeral_owner:
            self.dirty[operation.path] = None
        self.events.append(WatchEvent(EventType.CHANGED, operation.path))
        return node.version

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        node = self._at_version(path, operation.version)
        if node.children:
            raise NotEmpty(path)
        if path == "/":
            raise InvalidPath(path)
        del self._nodes[path]
        self._undo.append(lambda: self._nodes.update({path: node}))
        self._child_changed(self._nodes[parent_of(path)], path, created=False)
        self._changed(EventType.DELETED, path, ephemeral=bool(node.ephemeral_owner))

    def _at_version(self, path: str, version: int) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _child_changed(self, parent: _Node, path: str, *, created: bool) -> None:
        name = path.rpartition("/")[2]
        old = (parent.sequence, parent.pzxid)

        def undo() -> None:
            parent.sequence, parent.pzxid = old
            if created:
                del parent.children[name]
            else:
                parent.children[name] = None

        self._undo.append(undo)
        parent.pzxid = self._zxid
        if created:
            parent.sequence += 1
            parent.children[name] = None
        else:
            del parent.children[name]

    def _changed(self, event: EventType, path: str, *, ephemeral: bool) -> None:
        parent = parent_of(path)
        if not ephemeral:
            self.dirty.update({path: None, parent: None})
        self.events += (WatchEvent(event, path), WatchEvent(EventType.CHILDREN, parent))


class EmbeddedStore:
    """One session; implements `MetadataStore`."""

    def __init__(self, tree: EmbeddedTree, call_soon: CallSoon, session_timeout_ms: int) -> None:
        self.session_id = 0
        self.session_timeout_ms = session_timeout_ms
        self.state = SessionState.LOST
        self._tree = tree
        self._call_soon = call_soon
        self._listeners: list[SessionListener] = []
        self._data_watches: dict[str, dict[Watch, None]] = {}
        self._child_watches: dict[str, dict[Watch, None]] = {}
        self._is_closed = False

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Node]:
        return self._answer(self._get, path, watch)

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        return self._answer(self._exists, path, watch)

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[list[str]]:
        return self._answer(self._names, path, watch)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[str]:
        return self._answer(self._change, Create(path, data, ephemeral, sequential))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Awaitable[int]:
        return self._answer(self._change, Set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]:
        return self._answer(self._change, Delete(path, version))

    def multi(self, operations: Sequence[Operation]) -> Awaitable[list[Result]]:
        return self._answer(self._tree._commit, self.session_id, operations)

    async def close(self) -> None:
        self._is_closed = True
        self._tree.expire(self.session_id)

    def _answer(self, perform: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        if self.state is not SessionState.CONNECTED:
            return _Refusal(SessionExpired())
        try:
            return _Answer(perform(*arguments))
        except StoreError as error:
            return _Refusal(error)

    def _get(self, path: str, watch: Watch | None) -> Node:
        node = self._tree._node(path)
        _remember(self._data_watches, path, watch)
        return Node(node.data, node.stat())

    def _exists(self, path: str, watch: Watch | None) -> Stat | None:
        node = self._tree._nodes.get(path)
        _remember(self._data_watches, path, watch)
        return None if node is None else node.stat()

    def _names(self, path: str, watch: Watch | None) -> list[str]:
        node = self._tree._node(path)
        _remember(self._child_watches, path, watch)
        return sorted(node.children)

    def _change(self, operation: Operation) -> Result:
        return self._tree._commit(self.session_id, (operation,))[0]

    def _notify(self, event: WatchEvent) -> None:
        """Fire the watches that this change sets off, each once."""
        fired: dict[Watch, None] = {}
        if event.type is not EventType.CHILDREN:
            fired |= self._data_watches.pop(event.path, {})
        if event.type in (EventType.CHILDREN, EventType.DELETED):
            fired |= self._child_watches.pop(event.path, {})
        for watch in fired:
            self._call_soon(partial(watch, event))

    def _begun(self, session_id: int) -> None:
        self.session_id = session_id
        self._now_in(SessionState.CONNECTED)

    def _ended(self) -> None:
        self._data_watches.clear()
        self._child_watches.clear()
        self._now_in(SessionState.LOST)
        self._call_soon(self._reconnect)

    def _reconnect(self) -> None:
        if not self._is_closed:
            self._tree._begin(self)

    def _now_in(self, state: SessionState) -> None:
        self.state = state
        for listener in self._listeners:
            self._call_soon(partial(listener, state))


def _remember(watches: dict[str, dict[Watch, None]], path: str, watch: Watch | None) -> None:
    if watch is not None:
        watches.setdefault(path, {})[watch] = None


class _File:
    """The durable copy of the persistent nodes."""

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        # Ten milliseconds that a test with a tree in memory need not pay.
        import sqlite3

        self._path = path
        self._failure = sqlite3.Error
        self._is_broken = False
        try:
            self._database = self._opened(sqlite3.connect(path, timeout=0, isolation_level=None), synchronous)
        except sqlite3.Error as error:
            raise _failure(path, error) from error

    @staticmethod
    def _opened(database: sqlite3.Connection, synchronous: Synchronous) -> sqlite3.Connection:
        try:
            # Exclusive before WAL: no second process gets in, and there is no file of shared memory.
            database.execute("PRAGMA locking_mode=EXCLUSIVE")
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(f"PRAGMA synchronous={synchronous}")
            database.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                database.execute(statement)
            database.execute("COMMIT")
        except BaseException:
            database.close()
            raise
        return database

    def load(self, nodes: dict[str, _Node]) -> int:
        """Fill in the nodes, and say how often the file has been opened, this time included."""
        try:
            # A path sorts behind its parent's, so each node finds its parent.
            for row in self._database.execute(f"SELECT {_COLUMNS} FROM nodes ORDER BY path"):
                _restore(nodes, row)
            self._database.execute("UPDATE store SET openings = openings + 1")
            (openings,) = self._database.execute("SELECT openings FROM store").fetchone()
        except (self._failure, LookupError, TypeError, AttributeError) as error:
            self.close()
            raise _failure(self._path, error) from error
        return int(openings)

    def write(self, paths: Iterable[str], nodes: dict[str, _Node]) -> None:
        """Let the rows of these paths be as the nodes are now, in one transaction."""
        rows = [_row(path, nodes[path]) for path in paths if path in nodes]
        gone = [(path,) for path in paths if path not in nodes]
        if not rows and not gone:
            return
        if self._is_broken:
            raise StoreFailed(f"{self._path}: an earlier write failed")
        try:
            self._database.execute("BEGIN")
            self._database.executemany(f"REPLACE INTO nodes ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)", rows)
            self._database.executemany("DELETE FROM nodes WHERE path = ?", gone)
            self._database.execute("COMMIT")
        except self._failure as error:
            self._is_broken = getattr(error, "sqlite_errorname", "") != "SQLITE_FULL"
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise StoreFailed(f"{self._path}: {error}") from error

    def close(self) -> None:
        self._database.close()


def _failure(path: Path, error: Exception) -> StoreFailed:
    """StoreDamaged, but not where the file may be whole: a full disk is no reason to make it again."""
    is_damaged = not getattr(error, "sqlite_errorname", "").startswith(MAY_BE_WHOLE)
    return (StoreDamaged if is_damaged else StoreFailed)(f"{path}: {error}")


def _row(path: str, node: _Node) -> tuple[object, ...]:
    return (
        path,
        node.data,
        node.version,
        node.sequence,
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime_ms,
        node.mtime_ms,
    )


def _restore(nodes: dict[str, _Node], row: Sequence[Any]) -> None:
    path, data, version, sequence, czxid, mzxid, pzxid, ctime_ms, mtime_ms = row
    node = nodes[path] = _Node(data, 0, czxid, ctime_ms)
    node.version, node.sequence, node.mzxid, node.pzxid, node.mtime_ms = (
        version,
        sequence,
        mzxid,
        pzxid,
        mtime_ms,
    )
    if path != "/":
        nodes[parent_of(path)].children[path.rpartition("/")[2]] = None
