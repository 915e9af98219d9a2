"""The only way to the file system: two small interfaces, and the real disk behind them.

Nothing else in `storage/` imports `os`. The tests put a simulated disk in place of `Disk`, one that can
lose, tear and refuse; so the rules here are the ones all of `storage/` may rely on:

- A `File` is a sequence of bytes that grows at its end. There is no write in the middle. An append that
  fails is cut off again as far as the disk lets us; an append that returns is in the page cache, no more.
- What was written is durable after `sync` has returned. A created, renamed or removed name is durable after
  `sync_dir` of its directory has returned. Nothing else is, in no order.
- A sync that failed is never repeated as if it could succeed: the kernel has thrown away the dirty pages
  and forgotten the error. The file refuses every later sync.
- `replace` is atomic and durable: after a crash the file has the old contents or the new ones.
- Only `sync` and `close` may be called from a thread other than the owner's. A close during a sync, or while
  part of the file is to be sent, waits for nobody: the descriptor is closed when that is done.
- A file that is open may not have a descriptor: it opens itself again when it is used (`descriptors.py`). So
  any operation may fail because there is none left, and a file that is renamed has to be told (`path`).

Errors are `OSError`s, as the operating system words them; the callers decide what that means for a log.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import ClassVar, Protocol

from storage.descriptors import Descriptors, is_exhausted
from storage.errors import DirectoryLocked

Buffer = bytes | bytearray | memoryview
Names = list[str]
Sync = Callable[[int], None]
"""Makes what was written to a descriptor durable; called from any thread."""

IOV_MAX = 1024
"""The most buffers one system call takes (Linux and macOS)."""

FILE_MODE = 0o666
DIRECTORY_MODE = 0o777
"""Before the umask, as Kafka creates them."""


class FilePart(Protocol):
    """A stretch of a file, for those who send bytes without seeing them. It keeps the file open."""

    def __len__(self) -> int: ...

    def read(self) -> bytes:
        """What has not been sent yet."""

    def send(self, descriptor: int) -> int:
        """Give the kernel as much of it for this socket as it takes now; how much that was.

        What was sent is no longer part of it. Nothing is sent only where the file has lost the rest.
        """


class File(Protocol):
    """An open file: read anywhere, append at the end, cut off the end."""

    path: str
    """Where it is. Assign the new one when it was renamed."""
    used: bool
    """Set by every use; `descriptors.py` clears it."""
    is_hint: bool
    """Set it where an error in writing need not be noticed: then the descriptor is closed without a sync."""

    descriptor: int
    """-1 while it has none."""

    @property
    def is_unsynced(self) -> bool:
        """Whether something was appended or truncated since the last sync."""

    @property
    def wants_sync(self) -> bool:
        """Whether it has to be synced before its descriptor is closed."""

    @property
    def size(self) -> int:
        """Bytes in the file, counting everything appended."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end, and return the position where they begin."""

    def read(self, position: int, length: int) -> bytes:
        """`length` bytes from `position`; fewer only where the file ends."""

    def part(self, position: int, length: int) -> FilePart:
        """A stretch that lies within the file."""

    def open_again(self) -> None:
        """Have a descriptor, so that what is done next does not fail for want of one."""

    def let_go(self) -> bool:
        """Close the descriptor, after a sync if need be; False where somebody uses it now. Does not raise."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size`, which is no larger than its own."""

    def sync(self) -> None:
        """Make all that was appended or truncated before this call durable."""

    def close(self) -> None:
        """Release the descriptor. Does not sync. Closing twice is harmless."""


class Lock(Protocol):
    """A held lock file."""

    def release(self) -> None:
        """Let others take it. Releasing twice is harmless."""


class Files(Protocol):
    """The file system, as far as the log needs it. Paths use '/'."""

    descriptors: Descriptors
    """Bounds how many files are open."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file; `create` makes it where it is missing. The new name still wants a `sync_dir`."""

    def read(self, path: str) -> bytes:
        """The whole file."""

    def replace(self, path: str, data: Buffer) -> None:
        """Atomically and durably give `path` these contents, by way of `path + ".tmp"`."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> Names:
        """The names in a directory, sorted."""

    def make_dir(self, path: str) -> None:
        """Create a directory and the missing ones above it; one that is there already is fine."""

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory; a file that has the target's name is replaced."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; one that is missing already is fine."""

    def sync_dir(self, path: str) -> None:
        """Make the creations, renames and removals in this directory durable."""

    def lock(self, path: str) -> Lock:
        """Take the lock file `path`, creating it; DirectoryLocked where another holds it."""

    def modified_ms(self, path: str) -> int:
        """When the file was last written."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def space(self, path: str) -> tuple[int, int]:
        """(total, free for us) bytes of the volume that holds `path`."""


def parent(path: str) -> str:
    """The directory a path lies in."""
    head, _, _ = path.rpartition("/")
    return head or ("/" if path.startswith("/") else ".")


class Disk:
    """The real file system. `durable=False` makes every sync do nothing, for data nobody keeps."""

    __slots__ = ("descriptors", "durable", "sync_data")

    def __init__(
        self, *, durable: bool = True, sync: Sync | None = None, descriptors: Descriptors | None = None
    ) -> None:
        """`sync` is called instead of `sync_data`, to do that and measure it."""
        self.durable = durable
        self.sync_data = sync or sync_data
        self.descriptors = Descriptors() if descriptors is None else descriptors

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        return DiskFile(self, path, self.descriptor(path, flags), read_only=read_only)

    def descriptor(self, path: str, flags: int) -> int:
        """A new one; the caller closes it."""
        return self.descriptors.with_room(lambda: os.open(path, flags | os.O_CLOEXEC, FILE_MODE))

    def read(self, path: str) -> bytes:
        descriptor = self.descriptor(path, os.O_RDONLY)
        try:
            pieces = [os.read(descriptor, os.fstat(descriptor).st_size + 1)]
            while pieces[-1]:
                pieces.append(os.read(descriptor, 1 << 20))
            return b"".join(pieces)
        finally:
            os.close(descriptor)

    def replace(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        descriptor = self.descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write_all(descriptor, [data], 0)
            if self.durable:
                self.sync_data(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        self.sync_dir(parent(path))

    def exists(self, path: str) -> bool:
        return _status(path) is not None

    def is_dir(self, path: str) -> bool:
        status = _status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list(self, path: str) -> Names:
        return sorted(self.descriptors.with_room(lambda: os.listdir(path)))

    def make_dir(self, path: str) -> None:
        os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        if self.exists(path):
            shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        if not self.durable:
            return
        descriptor = self.descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> Lock:
        return DiskLock(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def space(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        return usage.f_frsize * usage.f_blocks, usage.f_frsize * usage.f_bavail


class DiskFile:
    """An open file of the real file system. Appends go to `size`, not to the descriptor's own offset.

    Without a descriptor its number is -1, which every system call refuses: so a use costs nothing more while
    there is one.
    """

    __slots__ = (
        "_closed",
        "_disk",
        "_guard",
        "_identity",
        "_is_read_only",
        "_sync_error",
        "_users",
        "descriptor",
        "is_hint",
        "is_unsynced",
        "path",
        "size",
        "used",
    )

    def __init__(self, disk: Disk, path: str, descriptor: int, *, read_only: bool) -> None:
        self.path = path
        status = os.fstat(descriptor)
        self.size = status.st_size
        self.used = True
        self.is_unsynced = self.is_hint = False
        self._identity = status.st_dev, status.st_ino
        self.descriptor = descriptor
        self._disk = disk
        self._is_read_only = read_only
        self._guard = threading.Lock()
        self._users = 1
        self._closed = False
        self._sync_error: OSError | None = None
        disk.descriptors.keep(self)

    # -- using it

    def append(self, buffers: Sequence[Buffer]) -> int:
        self.used = True
        if self.descriptor < 0:
            self.open_again()
        position = self.size
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        try:
            if len(buffers) > IOV_MAX or os.pwritev(self.descriptor, buffers, position) != total:
                _write_all(self.descriptor, buffers, position)
        except OSError:
            self._cut_back(position)
            raise
        self.is_unsynced = True  # not before: a sync in a thread may just begin
        self.size = position + total
        return position

    def _cut_back(self, size: int) -> None:
        # The first error is the one to report; whoever reads on has to bear with bytes beyond the size.
        self.is_unsynced = True
        try:
            os.ftruncate(self.descriptor, size)
        except OSError:
            return

    def read(self, position: int, length: int) -> bytes:
        self.used = True
        if self.descriptor < 0:
            self.open_again()
        data = os.pread(self.descriptor, length, position)
        if len(data) == length or position + len(data) >= self.size:
            return data
        return self._read_on(data, position, length)

    def _read_on(self, data: bytes, position: int, length: int) -> bytes:
        parts = [data]
        missing = length - len(data)
        while missing and (data := os.pread(self.descriptor, missing, position + length - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def part(self, position: int, length: int) -> FilePart:
        if not self._closed:
            self.open_again()
        return DiskPart(self, position, length)

    def truncate(self, size: int) -> None:
        if size > self.size:
            raise ValueError(f"{self.path} cannot be cut to {size}: it has {self.size} bytes")
        self.open_again()
        os.ftruncate(self.descriptor, size)
        self.is_unsynced = True
        self.size = size

    def sync(self) -> None:
        """In any thread. A file that was let go of is opened for the purpose."""
        if self._sync_error is not None:
            raise self._sync_error
        descriptor = self.join()
        self.is_unsynced = False
        is_shared = descriptor >= 0
        try:
            if not is_shared:
                descriptor = self._another_descriptor()
            if self._disk.durable:
                self._disk.sync_data(descriptor)
        except OSError as error:
            self.is_unsynced = True
            if not is_exhausted(error):
                self._sync_error = error
            raise
        finally:
            self.leave()
            if not is_shared and descriptor >= 0:
                os.close(descriptor)

    # -- the descriptor

    def open_again(self) -> None:
        """In the owner's thread."""
        self.used = True
        if self.descriptor >= 0:
            return
        if self._sync_error is not None:
            raise self._sync_error
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self.descriptor = self._another_descriptor()
        self._disk.descriptors.opened_again += 1
        self._disk.descriptors.keep(self)

    def _another_descriptor(self) -> int:
        """Of the very same file, whatever its path leads to by now."""
        descriptor = self._disk.descriptor(self.path, os.O_RDONLY if self._is_read_only else os.O_RDWR)
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != self._identity:
            os.close(descriptor)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), self.path)
        return descriptor

    @property
    def wants_sync(self) -> bool:
        return self.is_unsynced and not self.is_hint and self._disk.durable

    def let_go(self) -> bool:
        """Sync if need be and close the descriptor; False where somebody uses it now."""
        if self.wants_sync and self._users == 1:
            with suppress(OSError):  # the next use fails with it
                self.sync()
        with self._guard:
            if self._users > 1 or self.descriptor < 0:
                return False
            descriptor, self.descriptor = self.descriptor, -1
        os.close(descriptor)
        return True

    def join(self) -> int:
        """Another one uses the file, until it leaves. The descriptor; -1 if it has none."""
        with self._guard:
            if self._closed:
                raise ValueError(f"{self.path} is closed")
            self._users += 1
            return self.descriptor

    def leave(self) -> None:
        """The owner, every running sync and every part use the descriptor; the last to leave closes it."""
        with self._guard:
            self._users -= 1
            last = not self._users
        if last and self.descriptor >= 0:
            # The number will be another file's: a late call must fail, not reach that one.
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def close(self) -> None:
        with self._guard:
            if self._closed:
                return
            self._closed = True
        self._disk.descriptors.forget(self)
        self.leave()


class DiskPart:
    """A stretch of a real file. Replies are dropped in many places, so it leaves the file when it goes."""

    __slots__ = ("_descriptor", "_file", "_length", "_position")

    def __init__(self, file: DiskFile, position: int, length: int) -> None:
        self._descriptor = file.join()
        self._file = file
        self._position = position
        self._length = length

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.leave()

    def __len__(self) -> int:
        return self._length

    def read(self) -> bytes:
        return self._file.read(self._position, self._length)

    def send(self, descriptor: int) -> int:
        sent = os.sendfile(descriptor, self._descriptor, self._position, self._length)
        self._position += sent
        self._length -= sent
        return sent


class DiskLock:
    """A lock on a file, the kind the JVM takes, freed by the kernel when the process ends.

    Such a lock belongs to the process: it would be granted twice, and closing the file anywhere in the
    process would free it. Hence the list of those held.
    """

    __slots__ = ("_descriptor", "_identity")

    _held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: str) -> None:
        status = _status(path)
        if status is not None and (status.st_dev, status.st_ino) in self._held:
            raise DirectoryLocked(path, "this process uses the data directory already")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise DirectoryLocked(path, "another process uses the data directory") from error
        status = os.fstat(self._descriptor)
        self._identity = status.st_dev, status.st_ino
        self._held.add(self._identity)

    def release(self) -> None:
        if self._identity in self._held:
            self._held.remove(self._identity)
            os.close(self._descriptor)


def _status(path: str) -> os.stat_result | None:
    """None where nothing is there; but a disk that does not answer is an error, unlike in `os.path`."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_all(descriptor: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write every byte at `position`, over as many calls as it takes."""
    pending = deque(memoryview(buffer) for buffer in buffers)
    while pending:
        written = os.pwritev(descriptor, list(islice(pending, IOV_MAX)), position)
        position += written
        while pending and written >= len(pending[0]):
            written -= len(pending.popleft())
        if written:
            pending[0] = pending[0][written:]


if sys.platform == "darwin":

    def sync_data(descriptor: int) -> None:
        # fsync stops at the drive's volatile cache on macOS.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:

    def sync_data(descriptor: int) -> None:
        os.fdatasync(descriptor)
