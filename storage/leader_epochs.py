"""Which leader wrote what: the epochs of one log with their first offsets.

Both columns grow strictly from entry to entry. A new entry that contradicts older ones wins and they go:
the log was truncated, or an epoch was assigned before anything was written in it. With these entries a
follower finds where its log and the leader's part (KIP-101, KIP-279), and a reader the epoch of an offset.

The checkpoint file is written by `flush`, not by every change. Until then a crash loses changes, which
recovery makes good: it assigns the epochs of the batches it reads again, and cuts both ends to the log. So
the owner flushes before it lets a recovery point pass a new epoch's first batch, and an entry too many is
harmless.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter

from storage.checkpoints import EpochEntry, read_leader_epochs, write_leader_epochs
from storage.errors import CorruptCheckpoint
from storage.files import Files

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_epoch = attrgetter("epoch")
_start_offset = attrgetter("start_offset")


class LeaderEpochs:
    """The epochs of one log; reads its checkpoint file when made."""

    __slots__ = ("_entries", "_files", "dirty", "latest", "path")

    def __init__(self, files: Files, path: str) -> None:
        """CorruptCheckpoint where the file cannot be read."""
        self.path = path
        """Assign a new one when the directory was renamed."""
        self._files = files
        self._entries: list[EpochEntry] = []
        self.latest = UNDEFINED_EPOCH
        """The latest epoch; -1 where there is none."""
        self.dirty = False
        """Whether there is something to flush."""
        for entry in read_leader_epochs(files, path):
            if min(entry) < 0:
                raise CorruptCheckpoint(path, f"{entry} is negative")
            self.assign(*entry)
        self.dirty = False

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`; of the latest one known, only an earlier start is news.

        Entries at or above either number contradict the new one and go.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} cannot begin at {start_offset}")
        entries = self._entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch at or below `epoch`, and the offset where the next one begins.

        (-1, -1) for an epoch above all known ones. One below them all is answered with itself and the begin
        of the first: what it wrote is gone, and a follower goes on from there.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=_epoch)
        if following == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        known = self._entries[following - 1].epoch if following else epoch
        return known, self._entries[following].start_offset

    def epoch_for(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 where it lies before the first."""
        following = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[following - 1].epoch if following else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or above `end_offset`."""
        if self._entries and self._entries[-1].start_offset >= end_offset >= 0:
            del self._entries[bisect_left(self._entries, end_offset, key=_start_offset) :]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that end at or below `start_offset`; the one that goes on begins there now."""
        following = bisect_right(self._entries, start_offset, key=_start_offset)
        if following and self._entries[0] != (
            first := EpochEntry(self._entries[following - 1].epoch, start_offset)
        ):
            self._entries[:following] = [first]
            self._changed()

    def clear(self) -> None:
        """Forget everything."""
        if self._entries:
            self._entries.clear()
            self._changed()

    def flush(self) -> None:
        """Write the checkpoint file, atomically and durably, if anything changed."""
        if self.dirty:
            write_leader_epochs(self._files, self.path, self._entries)
            self.dirty = False

    def _changed(self) -> None:
        self.dirty = True
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
