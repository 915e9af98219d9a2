"""Crash states of a data directory, made from the system calls that a real broker has made.

A broker runs under strace, which notes every call that changes files, with its data. Replaying the calls up
to one of them on the simulated disk gives what a process that is killed there leaves behind (KILLED), or what
a power cut may leave of it (the other outcomes of `tests.storage.simulated_nodes`; RANDOM is all that POSIX
allows).

Nothing is known here of what the broker does: only calls count, and when they returned. A sync makes durable
what was written before it began.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import DirectoryNode, FileNode, Outcome, Write

CALLS = (
    "openat,write,pwrite64,pwritev,pwritev2,ftruncate,rename,renameat,renameat2,"
    "unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fdatasync"
)
LONGEST = 1 << 20
KILLED = Outcome.KEPT


def can_trace() -> bool:
    """Whether there is strace, and it is allowed to look."""
    if shutil.which("strace") is None:
        return False
    return (
        subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0
    )


def under_strace(trace: Path) -> list[str]:
    """What to put before a command, so that its calls are noted; the process stays a child of the caller."""
    how = ["-D", "-f", "--seccomp-bpf", "-ttt", "-y", "-xx", "-s", str(LONGEST)]
    return ["strace", "-o", str(trace), *how, "-e", f"trace={CALLS}", "-e", "signal=none"]


class Call(NamedTuple):
    """One system call that has succeeded."""

    begun: float
    """Seconds since 1970."""
    begun_line: int
    line: int
    """Of the trace, where it returned: others may have returned since it began."""
    name: str
    arguments: str
    result: int


LINE = re.compile(r"(\d+) +(\d+\.\d+) (.*)")
WHOLE = re.compile(r"(\w+)\((.*)\) += (\d+)", re.DOTALL)
RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)", re.DOTALL)
UNFINISHED = " <unfinished ...>"
STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
DESCRIPTOR = re.compile(r"(\d+|AT_FDCWD)(?:<((?:\\x[0-9a-f]{2})*)>)?")


def calls(trace: Path) -> Iterator[Call]:
    """In the order in which they returned."""
    pending: dict[str, tuple[float, int, str]] = {}
    for number, line in enumerate(trace.read_text().splitlines()):
        match = LINE.fullmatch(line)
        if match is None:
            continue
        thread, begun, text = match[1], float(match[2]), match[3]
        begun_line = number
        if text.endswith(UNFINISHED):
            pending[thread] = begun, number, text.removesuffix(UNFINISHED)
            continue
        if resumed := RESUMED.fullmatch(text):
            begun, begun_line, text = pending.pop(thread, (begun, number, ""))
            text += resumed[1]
        if whole := WHOLE.match(text):
            yield Call(begun, begun_line, number, whole[1], whole[2], int(whole[3]))


class Replay:
    """The calls of one process after another, on a simulated disk."""

    def __init__(self, root: Path) -> None:
        """Only what lies below `root` matters; it is there, and durable."""
        self.disk = SimulatedDisk()
        self._root = str(root)
        self.disk.make_dir(self._root)
        for path in [root, *root.parents]:
            self.disk.sync_dir(str(path))

    def run(self, trace: Path) -> Iterator[Call]:
        """Perform the calls that change something; each is given when it was."""
        all_calls = list(calls(trace))
        begins = {call.begun_line: call for call in all_calls if call.name in ("fsync", "fdatasync")}
        to_be_synced: dict[int, tuple[FileNode, list[Write]]] = {}
        seen = 0
        for call in all_calls:
            for line in range(seen, call.line + 1):
                if line in begins and (node := self._file(begins[line])) is not None:
                    to_be_synced[line] = node, list(node.pending)
            seen = max(seen, call.line + 1)
            if call.begun_line in to_be_synced:
                _make_durable(*to_be_synced.pop(call.begun_line))
                yield call
            elif self._perform(call):
                yield call

    def _perform(self, call: Call) -> bool:
        """Whether it has changed anything."""
        perform: Callable[[Call], bool] | None = getattr(self, f"_{call.name}", None)
        return perform is not None and perform(call)

    def _node(self, call: Call) -> FileNode | DirectoryNode | None:
        """What its descriptor stands for. (Numbers are used again by other threads while a call returns.)"""
        path = self._inside(_decoded(_descriptor_path(call.arguments)))
        return None if path is None else self.disk._find(path)

    def _file(self, call: Call) -> FileNode | None:
        node = self._node(call)
        return node if isinstance(node, FileNode) else None

    # -- calls

    def _openat(self, call: Call) -> bool:
        path = self._path(call.arguments)
        if path is None:
            return False
        is_new = "O_CREAT" in call.arguments and not self.disk.exists(path)
        if is_new:
            self.disk.open(path, create=True).close()
        node = self.disk._find(path)
        if "O_TRUNC" in call.arguments and isinstance(node, FileNode) and node.contents:
            node.write(Write(0, None), 0)
            return True
        return is_new

    def _pwrite64(self, call: Call) -> bool:
        return self._write_at(call, int(call.arguments.rsplit(", ", 1)[1]))

    def _pwritev(self, call: Call) -> bool:
        return self._write_at(call, int(call.arguments.rsplit(", ", 1)[1]))

    def _pwritev2(self, call: Call) -> bool:
        return self._write_at(call, int(call.arguments.rsplit(", ", 2)[1]))

    def _write(self, call: Call) -> bool:
        node = self._file(call)
        return node is not None and self._write_at(call, len(node.contents))

    def _write_at(self, call: Call, position: int) -> bool:
        node = self._file(call)
        if node is None:
            return False
        data = b"".join(_bytes(found) for found in STRING.findall(call.arguments))
        if len(data) < call.result:
            raise ValueError(f"strace has noted {len(data)} of {call.result} bytes")
        node.write(Write(position, data[: call.result]), 0)
        return True

    def _ftruncate(self, call: Call) -> bool:
        node = self._file(call)
        if node is None:
            return False
        size = int(call.arguments.rsplit(", ", 1)[1])
        missing = size - len(node.contents)
        node.write(Write(len(node.contents), bytes(missing)) if missing > 0 else Write(size, None), 0)
        return True

    def _fsync(self, call: Call) -> bool:
        path = self._inside(_decoded(_descriptor_path(call.arguments)))
        if path is None or not self.disk.is_dir(path):
            return False
        self.disk.sync_dir(path)
        return True

    def _rename(self, call: Call) -> bool:
        source, target = (self._inside(_decoded(one)) for one in STRING.findall(call.arguments)[:2])
        if source is None or target is None:
            return False
        self.disk.rename(source, target)
        return True

    _renameat = _renameat2 = _rename

    def _unlink(self, call: Call) -> bool:
        return self._removed(_decoded(STRING.findall(call.arguments)[0]))

    _rmdir = _unlink

    def _unlinkat(self, call: Call) -> bool:
        path = self._path(call.arguments)
        return path is not None and self._removed(path)

    def _removed(self, path: str) -> bool:
        if self._inside(path) is None:
            return False
        self.disk.remove_tree(path)
        return True

    def _mkdir(self, call: Call) -> bool:
        path = self._inside(_decoded(STRING.findall(call.arguments)[0]))
        if path is None:
            return False
        self.disk.make_dir(path)
        return True

    # -- names

    def _path(self, arguments: str) -> str | None:
        """Of a call whose first argument is a directory, and whose second is a name in it."""
        name = _decoded(STRING.findall(arguments)[0])
        return self._inside(os.path.join(_decoded(_descriptor_path(arguments)), name))

    def _inside(self, path: str) -> str | None:
        return path if path.startswith(f"{self._root}/") else None


def _make_durable(node: FileNode, written: Sequence[Write]) -> None:
    for write in written:
        if write in node.pending:
            write.apply(node.durable)
            node.pending.remove(write)


def _descriptor_path(arguments: str) -> str:
    match = DESCRIPTOR.match(arguments)
    return "" if match is None else match[2] or ""


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _decoded(escaped: str) -> str:
    return os.fsdecode(_bytes(escaped))


def written_out(disk: SimulatedDisk, source: str, target: Path) -> None:
    """Put a directory of a simulated disk on the real one. What belongs to no crash is left out."""
    target.mkdir(parents=True)
    for name in disk.list(source):
        path = f"{source}/{name}"
        if disk.is_dir(path):
            written_out(disk, path, target / name)
        elif not name.endswith("-shm"):  # SQLite's, memory of a process that is gone
            (target / name).write_bytes(disk.read(path))
