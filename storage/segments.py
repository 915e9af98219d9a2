"""The segments of one log in order of their base offsets; the last one takes the appends.

Never empty but while a log is being loaded or emptied. Segments do not overlap: each holds the offsets
from its base up to where the next one begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from storage.batch_scan import CorruptBatch
from storage.invariants import invariant
from storage.misplaced_batches import headers_in_order
from storage.producer_state import ProducerState
from storage.segment import LogSegment
from wire.errors import WireError


class Segments:
    """A sorted list, found by offset."""

    __slots__ = ("_bases", "_segments", "active")

    active: LogSegment

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._segments: list[LogSegment] = []
        self._bases: list[int] = []
        for segment in segments:
            self.add(segment)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> LogSegment:
        return self._segments[index]

    @property
    def base_offsets(self) -> list[int]:
        return self._bases

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: LogSegment) -> None:
        index = bisect_left(self._bases, segment.base_offset)
        invariant(
            index == len(self._bases) or self._bases[index] != segment.base_offset,
            "no two segments of a log have the same base offset",
        )
        self._bases.insert(index, segment.base_offset)
        self._segments.insert(index, segment)
        self.active = self._segments[-1]

    def remove(self, segment: LogSegment) -> None:
        index = self._segments.index(segment)
        del self._segments[index], self._bases[index]
        if self._segments:
            self.active = self._segments[-1]

    def floor(self, offset: int) -> LogSegment:
        """The one that holds `offset`, if any does: the last that begins at or before it."""
        if offset >= self.active.base_offset:
            return self.active
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def after(self, segment: LogSegment) -> LogSegment | None:
        """The next one."""
        if segment is self.active:
            return None
        return self._segments[bisect_right(self._bases, segment.base_offset)]

    def since(self, offset: int) -> list[LogSegment]:
        """The one that holds `offset`, and all after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def reload_producers(
        self, producers: ProducerState, last_snapshot_offset: int, end_offset: int, now_ms: int
    ) -> None:
        """Bring producers to `end_offset`, or further if a snapshot not above `last_snapshot_offset` does.

        They begin with the first batch there is, or a snapshot before it: what lies below the log start may
        have begun a transaction, or be resent. Transactions that end on the way are in the indexes already.
        """
        before_all = max(self._bases[0] - 1, 0)
        producers.truncate_and_reload(before_all, last_snapshot_offset, now_ms)
        if producers.map_end_offset >= end_offset:
            return
        for segment in self.since(producers.map_end_offset):
            if segment.base_offset >= end_offset:
                break
            position = segment.position_of(producers.map_end_offset)
            if position is None:
                continue
            for begin, header in headers_in_order(segment.file, position, segment.size):
                if header.base_offset >= end_offset:
                    break
                body = segment.file.read(begin, header.size) if header.is_control else b""
                try:
                    producers.replay(header, body)
                except WireError as error:
                    raise CorruptBatch(segment.path, str(error), position=begin) from error
        producers.map_end_offset = end_offset
