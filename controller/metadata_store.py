"""The store in which a cluster agrees: a small tree of nodes, the same over ZooKeeper and inside one process.

A `MetadataStore` is one session with the tree. This file is its contract, ZooKeeper's wherever that has one;
`tests/controller/test_metadata_store.py` holds every back end to it.

Calls
- A call hands its request over before it returns, and gives an awaitable of the answer. The requests of one
  session are performed in the order of the calls: many calls, then many awaits, is a pipeline (`all_of`).
- Nothing ever blocks the event loop, and every callback runs on it. A back end that answers at once gives an
  awaitable that never suspends.
- `ConnectionLost` means that nobody knows whether the request was performed. Every other error means that it
  was not.

Nodes
- Paths are absolute, without a trailing slash. A node exists only below an existing one; `delete` refuses a
  node with children; an ephemeral node has none.
- Each `set` raises a node's version by exactly one, from 0: who knows the version before a write knows it
  afterwards.
- An ephemeral node goes when the session that made it ends.
- A sequential create appends ten digits that grow with every child its parent ever had.
- `multi` performs all of its operations or none. Its error is that of the first operation that failed, whose
  index is in `failed_operation`.
- A transaction id (czxid, mzxid) never repeats and grows with every change, across restarts too.

Watches are one-shot and come with a read
- `get` and `children` of a missing node raise and set no watch; `exists` sets one on a missing node.
- A watch fires at most once, some time after the first change that came after its read. It says where to
  look, not what is there: read again, with a watch, and nothing is missed.
- The session that makes a change hears of it too.
- A lost connection drops every watch of the session without a call. Whoever relies on watches reads
  everything again at CONNECTED.

Sessions
- SUSPENDED: no connection. Calls wait, or raise ConnectionLost. The session may have ended already: a store
  may say LOST only once it has reached the other side again, so a leader stops acting at SUSPENDED.
- LOST: the session has ended, its ephemeral nodes go. Calls raise `SessionExpired` until CONNECTED.
- CONNECTED: `session_id` tells whether it is the old session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")

ANY_VERSION = -1


class Stat(NamedTuple):
    """What the store knows about a node besides its data."""

    version: int
    ephemeral_owner: int
    """The session that the node goes with; 0 for a persistent one."""
    czxid: int
    """Id of the transaction that created the node."""
    mzxid: int
    """Id of the transaction that last set its data."""
    pzxid: int
    """Id of the transaction that last created or deleted a child."""
    ctime_ms: int
    mtime_ms: int


class Node(NamedTuple):
    data: bytes
    stat: Stat


class EventType(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    """CREATED, CHANGED and DELETED answer `get` and `exists`; CHILDREN and DELETED answer `children`."""

    type: EventType
    path: str


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


Watch = Callable[[WatchEvent], None]
SessionListener = Callable[[SessionState], None]


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Let a `multi` fail unless the node is at this version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check
Result = str | int | None
"""Of a Create the path, of a Set the new version, of others nothing."""


class StoreError(Exception):
    """A request that was refused, or whose fate is unknown (ConnectionLost)."""

    def __init__(self, path: str = "", failed_operation: int | None = None) -> None:
        super().__init__(path)
        self.path = path
        self.failed_operation = failed_operation


class NoNode(StoreError):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExists(StoreError):
    """There is a node of this path already."""


class BadVersion(StoreError):
    """The node is at another version."""


class NotEmpty(StoreError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot have children."""


class InvalidPath(StoreError):
    """The path is not absolute, or has an empty part."""


class ConnectionLost(StoreError):
    """The connection broke before the answer came: the request may have been performed or not."""


class SessionExpired(StoreError):
    """The session has ended. What was asked for was not done."""


class StoreFailed(StoreError):
    """The store itself cannot write, for instance since its disk is full. What was asked for was not done."""


class StoreDamaged(StoreFailed):
    """What is stored makes no sense."""


class MetadataStore(Protocol):
    """One session with the tree."""

    @property
    def session_id(self) -> int:
        """Of the current session, or of the last one while there is none."""

    @property
    def session_timeout_ms(self) -> int:
        """A session without contact for so long may end."""

    @property
    def state(self) -> SessionState: ...

    def listen(self, listener: SessionListener) -> None:
        """Call `listener` at every change of state from now on."""

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Node]: ...

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]: ...

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[list[str]]:
        """Their names, sorted."""

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[str]:
        """Gives the path, which for a sequential node is longer than the one passed."""

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Awaitable[int]:
        """Gives the new version."""

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]: ...

    def multi(self, operations: Sequence[Operation]) -> Awaitable[list[Result]]: ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes go now."""


async def all_of(answers: Iterable[Awaitable[T]]) -> list[T]:
    """Every answer, or the first error once all have come."""
    results: list[T] = []
    error: StoreError | None = None
    for answer in list(answers):
        try:
            results.append(await answer)
        except StoreError as failure:
            error = error or failure
    if error is not None:
        raise error
    return results


async def found(answers: Iterable[Awaitable[T]]) -> list[T | None]:
    """As `all_of`, with None for each node that does not exist."""
    results: list[T | None] = []
    error: StoreError | None = None
    for answer in list(answers):
        try:
            results.append(await answer)
        except NoNode:
            results.append(None)
        except StoreError as failure:
            error = error or failure
    if error is not None:
        raise error
    return results


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


async def ensure(store: MetadataStore, paths: Iterable[str]) -> None:
    """Create the persistent nodes among these that do not exist, and their parents, without data."""
    wanted: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")[1:]
        wanted.update(dict.fromkeys("/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)))
    stats = await all_of([store.exists(path) for path in wanted])
    missing = [path for path, stat in zip(wanted, stats, strict=True) if stat is None]
    if not missing:
        return
    try:
        await store.multi([Create(path) for path in missing])
    except NodeExists:
        await ensure(store, missing)
