"""One cleaning of one log, as a thread does it: read closed segments, write the ones that replace them.

    made by the owner of the log (`cleaner.py`), from values that nobody changes any more
    work()   in a thread: learn the last offset of every key that came since the last cleaning
    work()   in a thread: write the next group of segments anew, under `.cleaned`, synced
             ... each is exchanged by the owner before the next call
    work()   in a thread: nothing is left, `is_finished`

Rules:
- The thread opens its own files, for reading. It shares nothing with the owner but this object, which
  belongs to the thread while `work` runs and to the owner otherwise. `cancel` may be called by anyone at
  any time.
- Segments are cleaned from the first on, also those that are clean: their keys may have come again. Several
  small ones become one of at most segment.bytes. One that would come out as it is is left alone.
- Every batch is verified before anything is decided by it, also what the checksum does not cover. One that
  proves damaged ends the cleaning with a CorruptFile.
- Where the map of keys is full, `end_offset` is where it stopped. Batches behind that are copied as they
  are.
- `throttle` is told of all bytes read and written, some 256 KiB at a time, and may take its time.
- Whatever ends a cleaning early, the files that were being written are removed: here, by the next cleaning,
  or on the next start. None may be left when an exchange begins: they would undo it if it had to be
  finished on the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from storage.batch_filter import BatchFilter, LastBatch
from storage.batch_scan import CHUNK_BYTES, CorruptBatch, checked_batches
from storage.cleaned_transactions import CleanedTransactions
from storage.errors import StorageError
from storage.files import Buffer, Files
from storage.indexes import MAX_RELATIVE_OFFSET, AbortedTransaction
from storage.log_config import LogConfig
from storage.offset_map import OffsetMap
from storage.segment import CLEANED, LogSegment
from storage.transaction_index import TransactionIndex
from wire.errors import WireError
from wire.record_batch import BatchHeader
from wire.record_spans import record_data, record_spans

LARGEST_POSITION = (1 << 31) - 1


class CleaningCancelled(Exception):
    """Somebody wanted the cleaning to end."""


class Source(NamedTuple):
    """A closed segment: the offsets from its base to where the next one begins."""

    base_offset: int
    next_base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """What is to be cleaned, and all there is to know about it."""

    files: Files
    directory: str
    config: LogConfig
    sources: tuple[Source, ...]
    """From the first segment of the log on, without a gap."""
    first_dirty_offset: int
    aborted_behind: tuple[AbortedTransaction, ...]
    """Aborted transactions that reach into the sources, and whose markers lie behind them."""
    last_batches: Mapping[int, LastBatch]
    """Of every producer that is remembered."""
    now_ms: int

    @property
    def round_end(self) -> int:
        return self.sources[-1].next_base_offset

    def path(self, source: Source, extension: str) -> str:
        return f"{self.directory}/{source.base_offset:020d}{extension}"


@dataclass(slots=True)
class CleaningStatistics:
    """What it took, and what it brought."""

    keys: int = 0
    map_capacity: int = 0
    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_seen: int = 0
    records_kept: int = 0


class Cleaned(NamedTuple):
    """A segment under `.cleaned`, synced, and the sources it is to replace."""

    segment: LogSegment
    sources: tuple[Source, ...]
    lacks_markers: bool
    """Whether a transaction ends in the sources and does not seem to any more."""


class Cleaning:
    """See the module's docstring."""

    def __init__(self, assignment: Assignment, max_map_bytes: int, throttle: Callable[[int], object]) -> None:
        self.assignment = assignment
        self.cleaned: Cleaned | None = None
        """What the last `work` wrote, until the owner takes it."""
        self.error: Exception | None = None
        """Why the last `work` failed; there is no use in another one."""
        self.is_finished = False
        self.is_cancelled = False
        self.end_offset = assignment.first_dirty_offset
        """Below this the log is clean once all is exchanged."""
        self.statistics = CleaningStatistics()
        self._max_map_bytes = max_map_bytes
        self._throttle = throttle
        self._unpaced = 0
        self._groups: Iterator[Sequence[Source]] | None = None
        self._transactions: CleanedTransactions
        self._filter: BatchFilter
        self._output: _Output | None = None

    def cancel(self) -> None:
        """End it soon, and without harm."""
        self.is_cancelled = True

    def work(self) -> None:
        """The next step; what came of it is in `cleaned`, `is_finished` or `error`."""
        try:
            self._check_cancelled()
            if self._groups is None:
                self._remove_leftovers()
                self._groups = self._learn_keys()
            else:
                self._clean_until_something_changes(self._groups)
        except Exception as error:
            self.error = error
        finally:
            if self._output is not None:
                self._output.discard()
                self._output = None

    # -- learning

    def _remove_leftovers(self) -> None:
        files, directory = self.assignment.files, self.assignment.directory
        for name in files.list(directory):
            if name.endswith(CLEANED):
                files.remove(f"{directory}/{name}")

    def _learn_keys(self) -> Iterator[Sequence[Source]]:
        assignment, statistics = self.assignment, self.statistics
        offsets = OffsetMap(self._max_map_bytes)
        self.end_offset = self._fill(offsets)
        statistics.keys, statistics.map_capacity = len(offsets), offsets.capacity
        self._transactions = CleanedTransactions(self._aborted_since(0))
        self._filter = BatchFilter(
            offsets,
            self._transactions,
            assignment.last_batches,
            end_offset=self.end_offset,
            round_end=assignment.round_end,
            now_ms=assignment.now_ms,
            delete_retention_ms=assignment.config.delete_retention_ms,
        )
        sources = [source for source in assignment.sources if source.base_offset < self.end_offset]
        return grouped(assignment, sources)

    def _fill(self, offsets: OffsetMap) -> int:
        """Note the keys of all dirty batches, as long as there is room; the first offset not noted."""
        first_dirty_offset = self.assignment.first_dirty_offset
        transactions = CleanedTransactions(self._aborted_since(first_dirty_offset))
        for source in self.assignment.sources:
            if source.next_base_offset <= first_dirty_offset:
                continue
            for position, header, batch in self._batches(source):
                self.statistics.map_bytes_read += header.size
                if header.next_offset <= first_dirty_offset:
                    continue
                try:
                    if header.is_control:
                        transactions.is_spent(header, batch)
                    elif not transactions.is_aborted(header):
                        for spans in record_spans(header, record_data(header, batch)):
                            full_at = offsets.put_all(spans, first_dirty_offset)
                            if full_at is not None:
                                return full_at
                except WireError as error:
                    raise self._damaged(source, position, error) from error
        return self.assignment.round_end

    def _aborted_since(self, offset: int) -> Iterator[AbortedTransaction]:
        """The entries of the transaction indexes, from that of the segment with `offset` on."""
        sources = (source for source in self.assignment.sources if source.next_base_offset > offset)
        return chain(chain.from_iterable(map(self._aborted_in, sources)), self.assignment.aborted_behind)

    def _aborted_in(self, source: Source) -> Iterator[AbortedTransaction]:
        path = self.assignment.path(source, ".txnindex")
        index = TransactionIndex(self.assignment.files, path, source.base_offset)
        try:
            yield from index
        finally:
            index.close()

    # -- cleaning

    def _clean_until_something_changes(self, groups: Iterator[Sequence[Source]]) -> None:
        for group in groups:
            markers_dropped = self._filter.markers_dropped
            segment = self._clean(group)
            self.statistics.records_seen = self._filter.records_seen
            self.statistics.records_kept = self._filter.records_kept
            if segment is not None:
                lacks_markers = self._filter.markers_dropped > markers_dropped
                self.cleaned = Cleaned(segment, tuple(group), lacks_markers)
                return
        self.is_finished = True

    def _clean(self, group: Sequence[Source]) -> LogSegment | None:
        """What is to replace a group; None where a single segment would be replaced by its like."""
        if len(group) > 1:
            self._output = _Output(self.assignment, group[0])
        for source in group:
            self._clean_source(source)
        aborted, self._transactions.kept = self._transactions.kept, []
        if self._output is None:
            return None
        for source in group:
            if source.next_base_offset > self.end_offset:
                aborted += (one for one in self._aborted_in(source) if one.last_offset >= self.end_offset)
        segment = self._output.finish(aborted, group[-1])
        self._output = None
        return segment

    def _clean_source(self, source: Source) -> None:
        for position, header, batch in self._batches(source):
            self.statistics.bytes_read += header.size
            kept: Buffer | None = batch
            if header.base_offset < self.end_offset:
                try:
                    kept = self._filter.filtered(header, batch)
                except WireError as error:
                    raise self._damaged(source, position, error) from error
            if kept is not batch and self._output is None:
                self._copy(source, position)
            if kept is not None and self._output is not None:
                self._write(header if kept is batch else BatchHeader.parse(kept), kept)

    def _copy(self, source: Source, end: int) -> None:
        """Begin to write a segment, of which everything up to the position `end` stays."""
        self._output = _Output(self.assignment, source)
        for _, header, batch in self._batches(source, end):
            self._write(header, batch)

    def _write(self, header: BatchHeader, batch: Buffer) -> None:
        if self._output is not None:
            self._output.add(header, batch)
            self.statistics.bytes_written += header.size
            self._pace(header.size)

    # -- reading, at the pace that is asked for

    def _batches(
        self, source: Source, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """The batches of a segment, up to a position, each verified."""
        file = self.assignment.files.open(self.assignment.path(source, ".log"), read_only=True)
        try:
            for position, header, batch in checked_batches(file, 0, source.size if end is None else end):
                self._check(source, position, header)
                yield position, header, batch
                self._pace(header.size)
        finally:
            file.close()

    def _check(self, source: Source, position: int, header: BatchHeader) -> None:
        """What neither the checksum nor the neighbours would show."""
        if header.base_offset < source.base_offset or header.next_offset > source.next_base_offset:
            why = f"a batch from offset {header.base_offset} to {header.last_offset} does not belong here"
            raise self._damaged(source, position, why)

    def _pace(self, size: int) -> None:
        self._unpaced += size
        if self._unpaced < CHUNK_BYTES:
            return
        if self._output is not None:
            # What waits to be written keeps whole chunks of what was read in memory.
            self._output.flush()
        self._throttle(self._unpaced)
        self._unpaced = 0
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self.is_cancelled:
            raise CleaningCancelled

    def _damaged(self, source: Source, position: int, why: object) -> CorruptBatch:
        return CorruptBatch(self.assignment.path(source, ".log"), str(why), position=position)


class _Output:
    """The segment that a group is cleaned into."""

    def __init__(self, assignment: Assignment, first: Source) -> None:
        self._files = assignment.files
        self._assignment = assignment
        self._segment = LogSegment.create(
            assignment.files,
            assignment.directory,
            first.base_offset,
            assignment.config,
            now_ms=assignment.now_ms,
            suffix=CLEANED,
        )
        self._buffers: list[Buffer] = []
        self._written: list[tuple[int, int, int]] = []
        self._size = 0

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        self._size += header.size
        if self._size > LARGEST_POSITION:
            # A delete horizon can make a batch longer by a few bytes per record.
            raise StorageError(self._segment.path, f"it would have more than {LARGEST_POSITION} bytes")
        self._buffers.append(batch)
        self._written.append((header.size, header.last_offset, header.latest_timestamp))

    def flush(self) -> None:
        if self._buffers:
            self._segment.append(self._buffers, self._written)
            self._buffers.clear()
            self._written.clear()

    def finish(self, aborted: Sequence[AbortedTransaction], last: Source) -> LogSegment:
        """Complete and durable, as old as the last segment that went into it."""
        self.flush()
        for transaction in aborted:
            self._segment.transaction_index.append(transaction)
        self._segment.finish()
        modified_ms = self._files.modified_ms(self._assignment.path(last, ".log"))
        self._files.set_modified_ms(self._segment.path, modified_ms)
        self._segment.sync()
        self._segment.release()
        return self._segment

    def discard(self) -> None:
        with suppress(OSError):
            self._segment.remove()


def grouped(assignment: Assignment, sources: Sequence[Source]) -> Iterator[Sequence[Source]]:
    """Segments in a row that fit into one: by size, by the entries of their indexes, by their offsets."""
    config = assignment.config
    group: list[Source] = []
    room: list[int] = []
    for source in sources:
        sizes = [source.size, *(_size(assignment, source, name) for name in (".index", ".timeindex"))]
        fits = all(size <= left for size, left in zip(sizes, room, strict=False))
        if group and fits and source.next_base_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET:
            room = [left - size for size, left in zip(sizes, room, strict=True)]
            group.append(source)
            continue
        if group:
            yield group
        group = [source]
        limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
        room = [limit - size for size, limit in zip(sizes, limits, strict=True)]
    if group:
        yield group


def _size(assignment: Assignment, source: Source, extension: str) -> int:
    path = assignment.path(source, extension)
    return assignment.files.size(path) if assignment.files.exists(path) else 0
