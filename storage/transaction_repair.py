"""When the transaction index of a segment is believed, and how it is made again while the log is in use.

An index that misses a transaction would have aborted data served as committed, and nothing in the batches
would tell; compaction gives up a log with such an index. So all of its entries are looked at before the first
is used. If one cannot be what was written, the index is made again: from the producers as they were where the
segment begins, and the headers in it.
(After a crash `recovery.py` does that, for segments that it reads anyway.)
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.batch_scan import headers
from storage.errors import CorruptIndex, CorruptSnapshot
from storage.indexes import AbortedTransaction
from storage.producer_snapshots import Snapshots
from storage.producer_state import end_marker
from storage.segment import LogSegment
from wire.record_batch import BatchHeader
from wire.records import records

if TYPE_CHECKING:
    from storage.log import UnifiedLog

logger = logging.getLogger(__name__)


def aborted_in(
    log: UnifiedLog, segment: LogSegment, offset: int, upper_bound: int
) -> tuple[list[AbortedTransaction], bool]:
    """What `TransactionIndex.collect` finds in an index that is sound."""
    make_sound(log, segment)
    return segment.transaction_index.collect(offset, upper_bound)


def make_sound(log: UnifiedLog, segment: LogSegment) -> None:
    """Look at the index of a segment, if nobody has, and make it again if it has to be."""
    index = segment.transaction_index
    if index.is_checked:
        return
    try:
        index.sanity_check()
    except CorruptIndex as error:
        logger.warning("%s; rebuilding it", error)
        index.replace(_Aborted(log, segment).find())
    index.is_checked = True  # not before: all of that may fail for want of a descriptor


class _Aborted:
    """The transactions that end in a segment, by an abort marker."""

    def __init__(self, log: UnifiedLog, segment: LogSegment) -> None:
        self._log = log
        self._segment = segment
        self._open: dict[int, int] = {}
        """By producer id: the first offsets of transactions that have not ended."""
        self._found: list[AbortedTransaction] = []

    def find(self) -> list[AbortedTransaction]:
        start = self._load_snapshot()
        for segment in self._log.segments.since(start):
            if segment.base_offset > self._segment.base_offset:
                break
            for position, header in headers(segment.file, 0, segment.size):
                if header.base_offset >= start and header.is_transactional:
                    self._take(segment, position, header)
        return [one for one in self._found if one.last_offset >= self._segment.base_offset]

    def _load_snapshot(self) -> int:
        """Where to begin: the newest snapshot not above the segment, or the first batch."""
        snapshots = Snapshots(self._log.files, self._log.directory)
        for offset in reversed(snapshots.offsets):
            if offset <= self._segment.base_offset:
                with suppress(CorruptSnapshot):
                    for entry in snapshots.read(offset):
                        if entry.transaction_first_offset >= 0:
                            self._open[entry.producer_id] = entry.transaction_first_offset
                    return offset
        return self._log.segments[0].base_offset

    def _take(self, segment: LogSegment, position: int, header: BatchHeader) -> None:
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
            return
        record = next(records(segment.file.read(position, header.size), 0, header), None)
        marker = None if record is None else end_marker(record)
        if marker is None:
            return
        first_offset = self._open.pop(header.producer_id, None)
        if first_offset is not None and not marker.is_commit:
            last_stable_offset = min(self._open.values(), default=header.base_offset + 1)
            self._found.append(
                AbortedTransaction(header.producer_id, first_offset, header.base_offset, last_stable_offset)
            )
