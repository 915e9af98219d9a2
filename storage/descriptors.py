"""Which files stay open: a bounded cache of descriptors, so that logs need not have one for each file.

A file that was let go of opens itself again when it is next used; see `files.DiskFile`. The bound is on the
files of the thread that owns the logs. A thread that helps (recovery, compaction, closing) has a small bound
of its own.

Rules:
- A thread lets go only of files that it opened itself, or opened again, so no other one is using them. Files
  are closed before they are handed to another thread.
- What was written and not synced is synced before the descriptor is closed: a new descriptor might not be
  told of an error that the kernel met while it wrote the pages. Such files go last, since a sync takes time;
  the owner has them flushed in advance (`wants_syncs`). A file that failed to sync refuses its next use.
- Running out of descriptors says nothing about the disk. An open that fails for want of one (EMFILE, ENFILE)
  is tried again as long as there is a file to let go of.
"""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

UNLIMITED = sys.maxsize
OF_A_HELPER = 8
"""The most files that a thread keeps open which does not own the logs."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE)


def is_exhausted(error: BaseException) -> bool:
    """Whether this process, or the machine, had no descriptor left."""
    return isinstance(error, OSError) and error.errno in EXHAUSTED


def exhausted(path: str) -> OSError:
    """The error of an open that was not even tried."""
    return OSError(errno.EMFILE, "Too many open files", path)


class Kept(Protocol):
    """An open file that can open itself again."""

    used: bool
    """Set by every use, cleared here."""

    @property
    def wants_sync(self) -> bool:
        """Whether something was written that must be synced before the descriptor is closed."""

    def let_go(self) -> bool:
        """Sync if need be and close the descriptor; False where somebody uses it now. Does not raise."""


class _Mine:
    """The open files of one thread, those that were let be for longest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.files: dict[Kept, None] = {}
        self.unsynced: dict[Kept, None] = {}
        """Those that were found to want a sync."""

    def __len__(self) -> int:
        return len(self.files) + len(self.unsynced)

    def forget(self, file: Kept) -> None:
        self.files.pop(file, None)
        self.unsynced.pop(file, None)

    def let_one_go(self, spared: Kept | None) -> bool:
        """The first that was not used since the last look, and needs no sync if there is one."""
        if self._let_go_without_sync(spared):
            return True
        self._look_at_the_unsynced_again()
        if self._let_go_without_sync(spared):
            return True
        return any(self._let_go(self.unsynced, file) for file in list(self.unsynced) if file is not spared)

    def _let_go_without_sync(self, spared: Kept | None) -> bool:
        for _ in range(2 * len(self.files)):
            if not self.files:
                break
            file = next(iter(self.files))
            if file.used or file is spared:
                file.used = False
                self.files[file] = self.files.pop(file)
            elif file.wants_sync:
                self.unsynced[file] = self.files.pop(file)
            elif self._let_go(self.files, file):
                return True
        return False

    def _look_at_the_unsynced_again(self) -> None:
        for file in [file for file in self.unsynced if not file.wants_sync]:
            del self.unsynced[file]
            self.files[file] = None

    def _let_go(self, files: dict[Kept, None], file: Kept) -> bool:
        del files[file]
        if file.let_go():
            return True
        files[file] = None
        return False


class Descriptors:
    """The open files of all threads."""

    def __init__(self, most: int = UNLIMITED) -> None:
        self.most = most
        self.appending_to: Kept | None = None
        """It stays open: an append that has begun must not fail for want of a descriptor."""
        self.opened_again = 0
        """How often a file was opened that had been open before."""
        self._guard = threading.RLock()
        self._owned = _Mine(most)
        self._by_thread = {threading.get_ident(): self._owned}

    def belong_here(self) -> None:
        """This thread owns the logs from now on. Nothing is open yet."""
        self._by_thread = {threading.get_ident(): self._owned}

    def __len__(self) -> int:
        return sum(map(len, self._by_thread.values()))

    @property
    def wants_syncs(self) -> bool:
        """Whether files have to be synced so that others can be opened."""
        return 2 * len(self._owned.unsynced) > self.most

    def with_room(self, opening: Callable[[], T]) -> T:
        """Open something, even if files of this thread have to be closed for it."""
        while True:
            try:
                return opening()
            except OSError as error:
                if not is_exhausted(error) or not self._let_one_go():
                    raise

    def keep(self, file: Kept) -> None:
        """This thread has opened a file, which others may have to make room for."""
        with self._guard:
            mine = self._mine()
            if len(mine) >= mine.most:
                mine.let_one_go(self.appending_to)
            mine.files[file] = None

    def forget(self, file: Kept) -> None:
        """It is closed for good."""
        with self._guard:
            for mine in self._by_thread.values():
                mine.forget(file)

    def _let_one_go(self) -> bool:
        with self._guard:
            return self._mine().let_one_go(self.appending_to)

    def _mine(self) -> _Mine:
        thread = threading.get_ident()
        mine = self._by_thread.get(thread)
        if mine is None:
            mine = self._by_thread[thread] = _Mine(min(OF_A_HELPER, self.most))
        return mine
