"""A disk in memory that loses power and fails on demand: `Files` for crash tests and cluster simulation.

What it models, and what the code above may therefore not assume:

- Page cache. A write, a truncation, a created, renamed or removed name is visible at once and durable later:
  a file's bytes and length by `sync` of that file, names by `sync_dir` of their directory. A synced file
  whose name is not durable is gone after a power cut; a durable name whose file was never synced is an empty
  file. Nothing becomes durable on its own or because something else did, with one exception: a rename
  between two directories is one change, durable when either is synced.

- Power cut. `crash(at=n)` cuts the power in the middle of the n-th mutating operation (from 1): a write or a
  change of names has been issued, a sync has not finished. The caller gets `PowerCut`, as does every
  operation after it; that is no Exception, so no error handler survives it. `after_crash` is the disk that
  the next process finds. What was not durable is then, by `Outcome`:

    LOST    gone
    KEPT    all there
    TORN    all there, but the last write of every file ends at any byte
    EMPTY   names are there, bytes and lengths are not
    RANDOM  whatever a file system may do, by the seed. Every change of a name is kept or lost, in no order,
            but for those of one file, which go in theirs. Every file is as it was at some moment since its
            last sync with that write cut at some byte, or a mixture by sectors of two such moments, of one's
            length or one between, with zeros where nothing was written.

  What was durable is never harmed; `corrupt` does that.

- Killed process. `kill` leaves the cache as it is: open files of the dead process refuse, its locks are
  free.

- Faults. `fail(errno, ...)` makes operations fail: of a kind, on a path, from a number on, after so many
  written bytes. A failed append may have written a part: it is cut off again, as `File.append` promises to
  try, or with `leaves_part` stays beyond the file's size, for whoever opens it next. A failed `sync` does
  what it does on Linux: what was to be synced stays readable and is never made durable, not even by a later
  sync that succeeds; after a power cut there are zeros in its place.

- Capacity, if given: beyond so many bytes in all files ENOSPC, with a part written.

- Descriptors. The nth opening of a file or directory, or any after it, finds none left.

- No time of its own: files are stamped with `now_ms`, which the test sets.

Operations that only read have no number, but can fail, too. `replace` and `remove_tree` are made of the
small operations, so a power cut can come between any two of them. One lock serialises everything: real
threads may sync while others write.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import deque
from collections.abc import Iterator
from typing import NoReturn

from storage.descriptors import Descriptors
from storage.errors import DirectoryLocked
from storage.files import Buffer, File, Lock, Names, parent
from tests.storage.simulated_files import Fault, PowerCut, SimulatedFile, SimulatedLock
from tests.storage.simulated_nodes import (
    DirectoryNode,
    FileNode,
    NameChange,
    Node,
    Outcome,
    assign,
    contents_after,
    directory_after,
    names_after,
)

HISTORY = 500
UNLIMITED = 1 << 40


class SimulatedDisk:
    """See the module's docstring. Absolute paths only."""

    def __init__(self, *, capacity: int | None = None, now_ms: int = 0) -> None:
        self.capacity = capacity
        self.now_ms = now_ms
        self.operations = 0
        """Mutating operations so far."""
        self.history: deque[tuple[int, str, str]] = deque(maxlen=HISTORY)
        """The last of them: number, kind, path."""
        self.powered_off = False
        self._process = 0
        self._crash_at: int | None = None
        self._faults: list[Fault] = []
        self._root = DirectoryNode()
        self._pending: list[NameChange] = []
        self._locked: set[str] = set()
        self._powered = Power(self)
        self.descriptors = Descriptors()
        self.openings = 0
        """How often something was opened, if only for a moment."""
        self._exhausted_from = UNLIMITED

    # -- what tests do to it

    def crash(self, at: int) -> None:
        """Cut the power in the middle of mutating operation number `at`."""
        self._crash_at = at

    def cut_power(self) -> None:
        """Now, between two operations."""
        self.powered_off = True

    def kill(self) -> None:
        """The process is gone, and another may begin on this disk."""
        self._process += 1
        self._locked.clear()
        self.descriptors = Descriptors(self.descriptors.most)

    def fail(
        self,
        error: int,
        kind: str = "mutation",
        path: str = "*",
        *,
        from_operation: int = 0,
        after_bytes: int = 0,
        times: int | None = 1,
        leaves_part: bool = False,
    ) -> Fault:
        """Let matching operations fail with errno `error`; see `Fault`."""
        fault = Fault(error, kind, path, from_operation, after_bytes, times, leaves_part)
        self._faults.append(fault)
        return fault

    def fill(self, room: int) -> None:
        """Let there be room for so many bytes, and no more."""
        self.capacity = self._used() + room

    def heal(self) -> None:
        """No more faults."""
        self._faults.clear()
        self._exhausted_from = UNLIMITED

    def run_out_of_descriptors(self, at: int) -> None:
        """From the opening number `at` on (from 0), nothing can be opened until `heal`."""
        self._exhausted_from = at

    def count_opening(self, path: str) -> None:
        self.openings += 1
        if self.openings > self._exhausted_from:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    @property
    def is_failing(self) -> bool:
        """Whether it may refuse something."""
        return self.capacity is not None or bool(self._faults)

    def plant(self, path: str, data: Buffer) -> None:
        """Put a file there, durably, with the directories it needs."""
        directory = self._root
        *above, name = _split(path)
        for part in above:
            node = directory.names.setdefault(part, DirectoryNode())
            directory.durable[part] = node
            assert isinstance(node, DirectoryNode), path
            directory = node
        directory.names[name] = directory.durable[name] = FileNode(
            bytearray(data), bytearray(data), modified_ms=self.now_ms
        )

    def corrupt(self, path: str, position: int, mask: int = 0x01) -> None:
        """Flip bits of one byte, on the platter and in the cache."""
        node = self._file(path)
        node.contents[position] ^= mask
        if position < len(node.durable):
            node.durable[position] ^= mask

    def durable_contents(self, path: str) -> bytes | None:
        """What a power cut now could not take away; None where not even the name is durable."""
        node: Node | None = self._root
        for part in _split(path):
            node = node.durable.get(part) if isinstance(node, DirectoryNode) else None
        return bytes(node.durable) if isinstance(node, FileNode) else None

    def files(self, directory: str = "/") -> dict[str, bytes]:
        """Every file below, with its contents."""
        return {path: bytes(node.contents) for path, node in self._walk(directory)}

    def after_crash(self, outcome: Outcome = Outcome.RANDOM, seed: int = 0) -> SimulatedDisk:
        """The disk as the next process finds it, after a power cut here and now."""
        chance = random.Random(seed)
        after = SimulatedDisk(capacity=self.capacity, now_ms=self.now_ms)
        names = names_after(self._pending, outcome, chance)
        copies: dict[int, Node] = {}

        def copy(node: Node) -> Node:
            if id(node) not in copies:
                if isinstance(node, FileNode):
                    contents = contents_after(node, outcome, chance)
                    copies[id(node)] = FileNode(contents, bytearray(contents), modified_ms=node.modified_ms)
                else:
                    clone = copies[id(node)] = DirectoryNode()
                    for name, below in directory_after(node, names).items():
                        clone.names[name] = clone.durable[name] = copy(below)
            return copies[id(node)]

        root = copy(self._root)
        assert isinstance(root, DirectoryNode)
        after._root = root
        return after

    # -- Files

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        return self.descriptors.with_room(lambda: self._open(path, create, read_only))

    def _open(self, path: str, create: bool, read_only: bool) -> SimulatedFile:
        with self._powered:
            self.count_opening(path)
            node = self._find(path)
            if node is None and create:
                with self._mutation("create", path):
                    node = FileNode(modified_ms=self.now_ms)
                    self._change((self._directory(parent(path)), _name(path), node))
            else:
                self._check("open", path)
            if isinstance(node, DirectoryNode):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return SimulatedFile(self, path, node, read_only=read_only)

    def read(self, path: str) -> bytes:
        with self._powered:
            self.count_opening(path)
            self._check("read", path)
            return bytes(self._file(path).contents)

    def replace(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        if file.size:
            file.truncate(0)
        file.append([data])
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_dir(parent(path))

    def exists(self, path: str) -> bool:
        with self._powered:
            self._check("stat", path)
            return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        with self._powered:
            self._check("stat", path)
            return isinstance(self._find(path), DirectoryNode)

    def size(self, path: str) -> int:
        with self._powered:
            self._check("stat", path)
            return len(self._file(path).contents)

    def list(self, path: str) -> Names:
        with self._powered:
            self.count_opening(path)
            self._check("list", path)
            return sorted(self._directory(path).names)

    def make_dir(self, path: str) -> None:
        with self._powered:
            above = ""
            for part in _split(path):
                directory, above = self._directory(above or "/"), f"{above}/{part}"
                if part not in directory.names:
                    with self._mutation("make_dir", above):
                        self._change((directory, part, DirectoryNode()))
            self._directory(path)

    def rename(self, source: str, target: str) -> None:
        with self._powered:
            node = self._find(source)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
            there = self._find(target)
            if there is node:
                return
            if isinstance(there, DirectoryNode) and there.names:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
            with self._mutation("rename", target):
                self._change(
                    (self._directory(parent(source)), _name(source), None),
                    (self._directory(parent(target)), _name(target), node),
                )

    def remove(self, path: str) -> None:
        with self._powered:
            self._file(path)
            with self._mutation("remove", path):
                self._change((self._directory(parent(path)), _name(path), None))

    def remove_tree(self, path: str) -> None:
        with self._powered:
            node = self._find(path)
            if isinstance(node, DirectoryNode):
                for name in sorted(node.names):
                    self.remove_tree(f"{path}/{name}")
                with self._mutation("remove_dir", path):
                    self._change((self._directory(parent(path)), _name(path), None))
            elif node is not None:
                self.remove(path)

    def sync_dir(self, path: str) -> None:
        with self._powered:
            directory = self._directory(path)
            self.count_opening(path)
            with self._mutation("sync_dir", path, takes_effect=False):
                touched = {id(directory)}
                chosen: deque[NameChange] = deque()
                for change in reversed(self._pending):
                    if any(id(where) in touched for where, _, _ in change):
                        touched.update(id(where) for where, _, _ in change)
                        chosen.appendleft(change)
                for change in chosen:
                    self._pending.remove(change)
                    for where, name, node in change:
                        assign(where.durable, name, node)

    def lock(self, path: str) -> Lock:
        with self._powered:
            self.open(path, create=True).close()
            if path in self._locked:
                raise DirectoryLocked(path, "another process uses the data directory")
            self._locked.add(path)
            return SimulatedLock(self._locked, path)

    def modified_ms(self, path: str) -> int:
        with self._powered:
            self._check("stat", path)
            return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with self._powered:
            node = self._file(path)
            with self._mutation("set_modified", path):
                node.modified_ms = modified_ms

    def space(self, path: str) -> tuple[int, int]:
        with self._powered:
            self._check("stat", path)
            total = UNLIMITED if self.capacity is None else self.capacity
            return total, max(0, total - self._used())

    # -- inside

    def _check(self, kind: str, path: str, operation: int | None = None) -> None:
        """Raise what was ordered for this operation."""
        for fault in self._faults:
            if fault.matches(kind, path, self.operations if operation is None else operation):
                self._raise(fault, path)

    def _raise(self, fault: Fault, path: str) -> None:
        if fault.times is not None:
            fault.times -= 1
        raise OSError(fault.error, os.strerror(fault.error), path)

    def _mutation(self, kind: str, path: str, *, takes_effect: bool = True) -> Mutation:
        self.operations += 1
        self.history.append((self.operations, kind, path))
        return Mutation(self, kind, path, takes_effect)

    def _change(self, *change: tuple[DirectoryNode, str, Node | None]) -> None:
        for directory, name, node in change:
            assign(directory.names, name, node)
        self._pending.append(change)

    def _used(self) -> int:
        return sum(len(node.contents) for _, node in self._walk("/"))

    def _walk(self, path: str) -> Iterator[tuple[str, FileNode]]:
        node = self._find(path)
        if isinstance(node, FileNode):
            yield path, node
        elif node is not None:
            for name in sorted(node.names):
                yield from self._walk(f"{path.rstrip('/')}/{name}")

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for part in _split(path):
            node = node.names.get(part) if isinstance(node, DirectoryNode) else None
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node


class Power:
    """What every operation needs, and has for itself while it lasts."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._guard = threading.RLock()

    def __enter__(self) -> None:
        self._guard.acquire()
        if self._disk.powered_off:
            self._guard.release()
            raise PowerCut("the power is off")

    def __exit__(self, *_: object) -> None:
        self._guard.release()


class Mutation:
    """One numbered operation: refused before it happens, or cut by the power while it does."""

    def __init__(self, disk: SimulatedDisk, kind: str, path: str, takes_effect: bool) -> None:
        self._disk = disk
        self._cut = disk.operations == disk._crash_at
        if self._cut and not takes_effect:
            self._cut_power()
        if kind != "append":
            disk._check(kind, path, disk.operations)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        if self._cut:
            self._cut_power()

    def _cut_power(self) -> NoReturn:
        self._disk.powered_off = True
        raise PowerCut(str(self._disk.history[-1]))


def _split(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path")
    return [part for part in path.split("/") if part]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
