"""What the embedded store promises beyond the contract: it survives restarts, and says when it cannot."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.embedded import EmbeddedStore, EmbeddedTree
from controller.metadata_store import (
    Create,
    Delete,
    EventType,
    Node,
    Operation,
    SessionExpired,
    SessionState,
    Set,
    StoreFailed,
    WatchEvent,
)
from tests.controller.simulated_store import answer_of

WRITER = """
import sys
from pathlib import Path
from controller.embedded import EmbeddedTree
store = EmbeddedTree.open(Path(sys.argv[1]), now_ms=lambda: 5).connect(print)
store.create("/n")
for number in range(10_000):
    store.set("/n", str(number).encode())
    print(number, flush=True)
"""


def later(callback: Callable[[], None]) -> None:
    """Callbacks that no test here waits for."""


def opened(path: Path | None, now_ms: int = 1000) -> tuple[EmbeddedTree, EmbeddedStore]:
    tree = EmbeddedTree.open(path, now_ms=lambda: now_ms)
    return tree, tree.connect(later)


def change(store: EmbeddedStore, *operations: Operation) -> None:
    answer_of(store.multi(operations))


def everything(store: EmbeddedStore, path: str = "/") -> dict[str, Node]:
    nodes = {path: answer_of(store.get(path))}
    for name in answer_of(store.children(path)):
        nodes |= everything(store, f"{path.rstrip('/')}/{name}")
    return nodes


def test_persistent_nodes_are_as_before_after_a_restart(tmp_path: Path) -> None:
    tree, store = opened(tmp_path / "metadata.db")
    change(store, Create("/a", b"\x00\xff"), Create("/a/b"), Create("/a-b"), Create("/a/gone"))
    change(store, Create("/a/n-", sequential=True), Set("/a", "ü".encode()), Delete("/a/gone"))
    before = everything(store)
    tree.close()
    tree, store = opened(tmp_path / "metadata.db", now_ms=2000)
    assert everything(store) == before
    assert answer_of(store.create("/a/n-", sequential=True)) == "/a/n-0000000003"
    tree.close()


def test_ephemeral_nodes_do_not_outlive_the_process(tmp_path: Path) -> None:
    tree, store = opened(tmp_path / "metadata.db")
    change(store, Create("/ids"), Create("/ids/1", ephemeral=True))
    tree.close()
    tree, store = opened(tmp_path / "metadata.db")
    assert everything(store).keys() == {"/", "/ids"}
    tree.close()


def test_transaction_and_session_ids_grow_across_restarts(tmp_path: Path) -> None:
    sessions: list[int] = []
    czxids: list[int] = []
    for _ in range(3):
        tree, store = opened(tmp_path / "metadata.db")
        sessions += [store.session_id, tree.connect(later).session_id]
        for _ in range(2):
            # Of an ephemeral node the file knows nothing, and a broker's epoch is the id of one.
            stat = answer_of(store.exists(answer_of(store.create("/e-", ephemeral=True, sequential=True))))
            assert stat is not None
            czxids.append(stat.czxid)
        tree.close()
    assert sessions == sorted(set(sessions))
    assert czxids == sorted(set(czxids))


def test_an_answered_change_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        answered = [writer.stdout.readline() for _ in range(20)][-1]
        writer.send_signal(signal.SIGKILL)
        answered = ([answered, *writer.stdout])[-1]
    tree, store = opened(path)
    data = answer_of(store.get("/n")).data
    assert int(data) in (int(answered), int(answered) + 1)
    tree.close()


def test_a_second_opener_is_kept_out(tmp_path: Path) -> None:
    tree, _ = opened(tmp_path / "metadata.db")
    with pytest.raises(StoreFailed, match="locked"):
        EmbeddedTree.open(tmp_path / "metadata.db", now_ms=lambda: 0)
    tree.close()
    tree, _ = opened(tmp_path / "metadata.db")
    tree.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").write_bytes(b"no database" * 100)
    with pytest.raises(StoreFailed, match="not a database"):
        EmbeddedTree.open(tmp_path / "metadata.db", now_ms=lambda: 0)


def test_a_full_disk_refuses_a_change_and_nothing_is_half_done(tmp_path: Path) -> None:
    tree, store = opened(tmp_path / "metadata.db")
    change(store, Create("/kept", b"old"))
    before = everything(store)
    events: list[WatchEvent] = []
    answer_of(store.exists("/kept", events.append))
    database = database_of(tree)
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreFailed, match="full"):
        change(store, Set("/kept", b"new"), Create("/big", b"x" * 1_000_000))
    assert everything(store) == before
    database.execute("PRAGMA max_page_count=1000000")
    change(store, Set("/kept", b"new"), Create("/big", b"x" * 1_000_000))
    after = everything(store)
    tree.close()
    tree, store = opened(tmp_path / "metadata.db")
    assert everything(store) == after
    tree.close()


OPEN_WITHOUT_SPACE = """
import resource, sys
from pathlib import Path
from controller.embedded import EmbeddedTree
from controller.metadata_store import StoreDamaged, StoreFailed
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    EmbeddedTree.open(Path(sys.argv[1]), now_ms=lambda: 0)
except StoreDamaged as error:
    print("damaged:", error)
except StoreFailed as error:
    print("failed:", error)
"""


def test_a_file_that_cannot_be_written_now_is_not_called_damaged(tmp_path: Path) -> None:
    """Whoever hears that it is makes it again from the logs, and configurations are gone."""
    tree, store = opened(tmp_path / "metadata.db")
    change(store, Create("/a"))
    tree.close()
    command = [sys.executable, "-c", OPEN_WITHOUT_SPACE, str(tmp_path / "metadata.db")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("failed: ")
    tree, store = opened(tmp_path / "metadata.db")
    assert answer_of(store.children("/")) == ["a"]
    tree.close()


def test_nothing_is_written_after_a_write_that_failed(tmp_path: Path) -> None:
    tree, store = opened(tmp_path / "metadata.db")
    change(store, Create("/a"))
    database_of(tree).execute("DROP TABLE nodes")
    with pytest.raises(StoreFailed, match="no such table"):
        change(store, Create("/b"))
    with pytest.raises(StoreFailed, match="an earlier write failed"):
        change(store, Create("/c"))
    assert answer_of(store.children("/")) == ["a"]
    change(store, Create("/e", ephemeral=True))
    tree.close()


def database_of(tree: EmbeddedTree) -> sqlite3.Connection:
    """The connection, to let the disk misbehave."""
    assert tree._file is not None
    return tree._file._database


def test_times_are_those_of_the_clock_that_was_passed() -> None:
    now = 5
    tree = EmbeddedTree.open(None, now_ms=lambda: now)
    store = tree.connect(later)
    change(store, Create("/a"))
    now = 7
    change(store, Set("/a", b""))
    stat = answer_of(store.exists("/a"))
    assert stat is not None
    assert (stat.ctime_ms, stat.mtime_ms) == (5, 7)


def test_a_session_that_was_expired_refuses_calls_until_it_has_begun_anew() -> None:
    tree = EmbeddedTree.open(None, now_ms=lambda: 0)
    pending: list[Callable[[], None]] = []
    store = tree.connect(pending.append)
    tree.expire(store.session_id)
    states = [store.state]
    with pytest.raises(SessionExpired):
        answer_of(store.get("/"))
    for callback in pending:
        callback()
    states.append(store.state)
    assert states == [SessionState.LOST, SessionState.CONNECTED]
    answer_of(store.get("/"))


def test_callbacks_come_after_the_call_that_caused_them() -> None:
    tree = EmbeddedTree.open(None, now_ms=lambda: 0)
    pending: list[Callable[[], None]] = []
    store = tree.connect(pending.append)
    events: list[WatchEvent] = []
    answer_of(store.exists("/a", events.append))
    answer_of(store.create("/a"))
    assert events == []
    for callback in pending:
        callback()
    assert events == [WatchEvent(EventType.CREATED, "/a")]
