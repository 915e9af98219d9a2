"""What the names in a partition's directory say: which files make up the log, and what is left over.

Compaction puts new segments in the place of old ones by renaming, and a crash can come in between. The log is
then what the next start makes of it: while any `.cleaned` file is there, it and every `.swap` from its offset
on count for nothing; otherwise a log file with `.swap` counts, in place of the segments it covers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from storage.batch_scan import CorruptBatch, headers
from storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from storage.files import Files
from storage.findings import Finding, Kind, Severity
from storage.producer_snapshots import snapshot_offset
from storage.segment import CLEANED, SWAP
from storage.set_aside import SUFFIX, is_set_aside

SEGMENT_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex)(\.swap|\.cleaned)?")
LEFTOVER = re.compile(r".*\.(deleted|cleaned|tmp|part)")
OF_A_CONTROLLER = re.compile(r"quorum-state|[0-9]{20}-[0-9]{10}\.checkpoint")
"""Kafka's KRaft controller keeps its metadata in a log of its own, and these beside it."""

LOG = "log"
REMOVED_AT_START = "The next start removes it."


class PartitionNames:
    """The names in one directory."""

    def __init__(self, files: Files, directory: str, add: Callable[[Finding], None]) -> None:
        self.directory = directory
        self._files = files
        self._add = add
        self._names = set(files.list(directory))
        self._left_over: list[str] = []
        self._discard_unfinished()
        self.segments = self._find_segments()
        """Base offsets, ascending."""
        self.snapshots = sorted(at for name in self._names if (at := snapshot_offset(name)) is not None)
        """Offsets, ascending."""
        for name in sorted(self._names):
            self._look_at(name)
        if self._left_over:
            self._tell_what_is_left_over(sorted(self._left_over))

    def path_of(self, base_offset: int, extension: str) -> str:
        """Of a segment's file, with an exchange of segments finished."""
        name = f"{base_offset:020d}{extension}"
        return f"{self.directory}/{name + SWAP if name + SWAP in self._names else name}"

    def _discard_unfinished(self) -> None:
        cleaned = [name for name in self._names if SEGMENT_FILE.fullmatch(name) and name.endswith(CLEANED)]
        if not cleaned:
            return
        first = min(cleaned)[:20]
        for name in [name for name in self._names if name.endswith(SWAP) and name[:20] >= first]:
            self._names.remove(name)
            self._left_over.append(name)

    def _find_segments(self) -> list[int]:
        logs = {True: set[int](), False: set[int]()}
        for name in self._names:
            match = SEGMENT_FILE.fullmatch(name)
            if match and match[2] == LOG and match[3] != CLEANED:
                logs[match[3] == SWAP].add(int(match[1]))
        swapped, plain = logs[True], logs[False]
        for base_offset in swapped:
            path = self.path_of(base_offset, ".log")
            what = "compaction was about to put this segment in place of others."
            self._add(Finding(Severity.NOTE, Kind.LEFTOVER, path, what, "The next start does it."))
            covered = range(base_offset, max(self._end_of(path), base_offset + 1))
            plain.difference_update([base for base in plain if base in covered])
        return sorted(plain | swapped)

    def _end_of(self, path: str) -> int:
        file = self._files.open(path, read_only=True)
        end = 0
        try:
            for _, header in headers(file, 0, file.size):
                end = header.next_offset
        except CorruptBatch:
            return end  # Reported when the segment is checked.
        finally:
            file.close()
        return end

    def _look_at(self, name: str) -> None:
        path = f"{self.directory}/{name}"
        if LEFTOVER.fullmatch(name):
            self._left_over.append(name)
        elif match := SEGMENT_FILE.fullmatch(name):
            if int(match[1]) not in self.segments and match[2] != LOG:
                what = "it belongs to no segment."
                self._add(Finding(Severity.NOTE, Kind.LEFTOVER, path, what, REMOVED_AT_START))
        elif is_set_aside(name):
            what = "it was found beyond the end of the log, and kept."
            advice = "`kbroker dump` reads it; remove it if nobody needs it."
            self._add(Finding(Severity.NOTE, Kind.LEFTOVER, path, what, advice))
        elif not self._is_known(name):
            what = "it is not known what this is."
            self._add(Finding(Severity.NOTE, Kind.UNKNOWN_FILE, path, what, "A broker leaves it alone."))

    def _is_known(self, name: str) -> bool:
        return (
            name in (LEADER_EPOCHS, PARTITION_METADATA)
            or snapshot_offset(name) is not None
            or SUFFIX in name  # an index
            or OF_A_CONTROLLER.fullmatch(name) is not None
        )

    def _tell_what_is_left_over(self, names: list[str]) -> None:
        """In one note: a log that is compacted is never without such files."""
        others = f", as are {len(names) - 1} other files here" if len(names) > 1 else ""
        what = f"it is left over from a removal, a compaction or a write that has not finished{others}."
        path = f"{self.directory}/{names[0]}"
        self._add(Finding(Severity.NOTE, Kind.LEFTOVER, path, what, REMOVED_AT_START))
