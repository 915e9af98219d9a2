"""What is open on a simulated disk (files, parts of files, locks), and the faults that it may have."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from storage.files import Buffer
from tests.storage.simulated_nodes import FileNode, Write

if TYPE_CHECKING:
    from tests.storage.simulated_disk import SimulatedDisk


class PowerCut(BaseException):
    """The machine is off."""


READING = frozenset({"open", "read", "list", "stat"})


@dataclass(eq=False)
class Fault:
    """Operations that match fail: `times` times (None: for ever), once `after_bytes` were let through.

    `kind` is one of those in `history`; "open", "read", "list", "stat", which change nothing; "mutation" for
    all that change something; or "any". `path` is a pattern.
    """

    error: int
    kind: str = "mutation"
    path: str = "*"
    from_operation: int = 0
    after_bytes: int = 0
    times: int | None = 1
    leaves_part: bool = False

    def matches(self, kind: str, path: str, operation: int) -> bool:
        return (
            self.times != 0
            and (self.kind in (kind, "any") or (self.kind == "mutation" and kind not in READING))
            and operation >= self.from_operation
            and fnmatchcase(path, self.path)
        )


class SimulatedPart:
    """A stretch of a file."""

    def __init__(self, file: SimulatedFile, position: int, length: int) -> None:
        self._file, self._position, self._length = file, position, length

    def __len__(self) -> int:
        return self._length

    def read(self) -> bytes:
        return self._file.read(self._position, self._length)

    def send(self, descriptor: int) -> int:
        sent = os.write(descriptor, self.read())
        self._position, self._length = self._position + sent, self._length - sent
        return sent


class SimulatedFile:
    """An open file."""

    def __init__(self, disk: SimulatedDisk, path: str, node: FileNode, *, read_only: bool) -> None:
        self.path = path
        self.size = len(node.contents)
        self._disk = disk
        self._node = node
        self._read_only = read_only
        self._process = disk._process
        self._closed = False
        self.descriptor = 0
        self._sync_error: OSError | None = None
        self.used = True
        self.is_unsynced = self.is_hint = False
        disk.descriptors.keep(self)

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        disk = self._disk
        with disk._powered:
            self._check_writable()
            self.is_unsynced = True
            position = self.size
            with disk._mutation("append", self.path):
                fault, allowed = self._allowance(len(data))
                self._node.write(Write(position, data[:allowed]), disk.now_ms)
                if fault is not None:
                    if not fault.leaves_part:
                        self._node.write(Write(position, None), disk.now_ms)
                    disk._raise(fault, self.path)
                self.size = position + len(data)
            return position

    def _allowance(self, size: int) -> tuple[Fault | None, int]:
        """The fault that stops this write, and how many bytes get through before it."""
        disk = self._disk
        room = size if disk.capacity is None else disk.capacity - disk._used()
        if room < size:
            return Fault(errno.ENOSPC), max(0, room)
        for fault in disk._faults:
            if fault.matches("append", self.path, disk.operations):
                if fault.after_bytes < size or not fault.after_bytes:
                    return fault, fault.after_bytes
                fault.after_bytes -= size
        return None, size

    def read(self, position: int, length: int) -> bytes:
        with self._disk._powered:
            self._check_open()
            self._disk._check("read", self.path)
            if position < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
            return bytes(self._node.contents[position : position + length])

    def truncate(self, size: int) -> None:
        with self._disk._powered:
            self._check_writable()
            if size > self.size:
                raise ValueError(f"{self.path} cannot be cut to {size}: it has {self.size} bytes")
            self.is_unsynced = True
            with self._disk._mutation("truncate", self.path):
                self._node.write(Write(size, None), self._disk.now_ms)
                self.size = size

    def sync(self) -> None:
        with self._disk._powered:
            if self._sync_error is not None:
                raise self._sync_error
            if self._closed and self._process == self._disk._process:
                raise ValueError(f"{self.path} is closed")
            self._check_process()
            if self.descriptor < 0:
                self._disk.count_opening(self.path)
                self._disk._check("open", self.path)
            self.is_unsynced = False
            try:
                with self._disk._mutation("sync", self.path, takes_effect=False):
                    self._node.make_durable()
            except OSError as error:
                self._sync_error = error
                self.is_unsynced = True
                # The kernel marks the pages clean and reports the error once.
                self._node.pending.clear()
                raise

    def part(self, position: int, length: int) -> SimulatedPart:
        return SimulatedPart(self, position, length)

    def close(self) -> None:
        self._closed = True
        self._disk.descriptors.forget(self)

    @property
    def wants_sync(self) -> bool:
        return self.is_unsynced and not self.is_hint

    def let_go(self) -> bool:
        if self.wants_sync:
            with suppress(OSError):  # the next use fails with it
                self.sync()
        self.descriptor = -1
        return True

    def open_again(self) -> None:
        with self._disk._powered:
            self._check_open()

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self.used = True
        if self.descriptor < 0:
            if self._sync_error is not None:
                raise self._sync_error
            self._disk.descriptors.with_room(self._find_again)
            self.descriptor = 0
            self._disk.descriptors.keep(self)

    def _find_again(self) -> None:
        self._disk.count_opening(self.path)
        self._disk._check("open", self.path)
        if self._disk._find(self.path) is not self._node:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), self.path)

    def _check_process(self) -> None:
        if self._process != self._disk._process:
            raise PowerCut(f"{self.path} was opened by a process that is dead")

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


class SimulatedLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)
