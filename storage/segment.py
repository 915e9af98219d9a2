"""One segment of a log: a file of batches, and the indexes that find things in it.

    00000000000000000042.log        the batches, the first one at offset 42 or later
    00000000000000000042.index      offset index, sparse
    00000000000000000042.timeindex  time index, sparse
    00000000000000000042.txnindex   aborted transactions, where there are any

Suffixes say what is going on: `.cleaned` (being written by compaction), `.swap` (complete, about to
replace the segments it was made from), `.deleted` (to be removed). See `replacement.py` and
`retention.py`.

Rules:
- The log file is the truth. Offset and time index are made from it: their entries are kept in memory,
  written when the segment is closed or checkpointed, and made again from the batches when they are
  missing or prove wrong. An index never decides what is in the log, only where to begin looking.
- An index entry is Kafka's: the last offset of a batch and the position where that batch begins; the
  largest timestamp so far and the last offset of the first batch that has it.
- Nothing is opened before it is needed, so that a thousand idle segments cost nothing to load.
- Batches appended since the segment was made or loaded were checked before they came here. All others are
  checked the first time they are read: a batch that fails is named, and never handed out.
- Only `sync` may be called from a thread other than the owner's.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar, cast

from storage import index_repair
from storage.batch_scan import CorruptBatch, base_offset_at, check_batches, header_at, headers
from storage.checked_ranges import CheckedRanges
from storage.errors import CorruptIndex
from storage.files import Buffer, File, Files
from storage.indexes import (
    MAX_RELATIVE_OFFSET,
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    TimestampOffset,
)
from storage.log_config import LogConfig
from storage.misplaced_batches import headers_in_order
from storage.producer_state import CompletedTransaction
from storage.transaction_index import TransactionIndex
from wire.record_batch import HEADER_SIZE, LOG_OVERHEAD

logger = logging.getLogger(__name__)

T = TypeVar("T")

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

LEAST_READ_BYTES = 4096
REMEMBERED_POSITIONS = 64
SPAN = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch, where the rest of its header does not matter."""
NO_PARTS = 1 << 62


class SegmentRead(NamedTuple):
    """Whole batches, and where the reader goes on: no batch before `next_offset` is left out."""

    records: Buffer
    """Or a FilePart, for who asked for parts; the types keep quiet about it, as nobody else ever sees one."""
    next_offset: int


class LogSegment:
    """The batches from `base_offset` on, up to where the next segment begins."""

    __slots__ = (
        "_appended_from",
        "_checked",
        "_file",
        "_files",
        "_index_interval",
        "_indexes_checked",
        "_largest_offset",
        "_largest_timestamp",
        "_positions",
        "_suffix",
        "_unindexed",
        "base_offset",
        "created_ms",
        "damage",
        "directory",
        "expected_end",
        "first_timestamp",
        "is_index_full",
        "largest_possible_offset",
        "may_be_later",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "time_index",
        "transaction_index",
        "used",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int = 0,
        created_ms: int = 0,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        """A segment whose log file is there, with `size` bytes in it. Opens nothing."""
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.largest_possible_offset = base_offset + MAX_RELATIVE_OFFSET
        self.is_index_full = False
        """Not known before the indexes were read."""
        self.used = False
        """Set by every use; whoever closes idle files clears it."""
        self.expected_end: int | None = None
        """The offset after the last batch, where it was taken from a checkpoint and is to be checked."""
        self._suffix = suffix
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(files, self.path_of(".index"), base_offset, index_bytes)
        self.time_index = TimeIndex(files, self.path_of(".timeindex"), base_offset, index_bytes)
        self.transaction_index = TransactionIndex(files, self.path_of(".txnindex"), base_offset)
        self._file: File | None = None
        self._index_interval = config.index_interval_bytes
        self._indexes_checked = False
        self._unindexed = 0
        self.damage: CorruptBatch | None = None
        """Why the indexes could not be made again."""
        self.first_timestamp: int | None = None
        """The largest timestamp of the first batch; None where it has not been looked up."""
        self._largest_timestamp: int | None = None
        self._largest_offset = base_offset
        self.may_be_later = False
        """Whether there are batches that do not say how late their records are."""
        self._appended_from = size
        self._checked = CheckedRanges()
        self._positions: dict[int, int] = {}

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> LogSegment:
        """A new, empty one. Its name is durable when the directory has been synced."""
        segment = cls(
            files,
            directory,
            base_offset,
            config,
            created_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            suffix=suffix,
        )
        file = segment._file = files.open(segment.path, create=True)
        if file.size:
            file.truncate(0)
        segment.reset_indexes()
        return segment

    def __repr__(self) -> str:
        return f"<LogSegment {self.path}, {self.size} bytes>"

    # -- files

    @property
    def path(self) -> str:
        return self.path_of(".log")

    def path_of(self, extension: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{extension}{self._suffix}"

    @property
    def file(self) -> File:
        """The log file, opened if need be."""
        self.used = True
        return self._file or self._open()

    def _open(self) -> File:
        file = self._file = self._files.open(self.path)
        try:
            if file.size != self.size:
                why = f"the file has {file.size} bytes instead of {self.size}"
                raise CorruptBatch(self.path, why, position=file.size)
            self._check_end()
        except BaseException:
            self._file = None
            file.close()
            raise
        return file

    def _check_end(self) -> None:
        """On first use after a clean shutdown, when the end was taken from a checkpoint."""
        if self.expected_end is None:
            return
        end = self.end_offset()
        if end != self.expected_end:
            why = f"the last batch ends before offset {end} instead of {self.expected_end}"
            raise CorruptBatch(self.path, why, position=self.size)
        self.expected_end = None

    def flush_indexes(self) -> None:
        """Write the index entries that are only in memory, without syncing."""
        for index in self._indexes():
            index.flush()

    def finish(self) -> None:
        """No more batches for now: complete the time index, and write the indexes."""
        self.complete_time_index()
        self.flush_indexes()

    def complete_time_index(self) -> None:
        if self.largest_timestamp >= 0:
            self.time_index.maybe_append(self.largest_timestamp, self._largest_offset, at_roll=True)

    def sync(self) -> None:
        """Make log and indexes durable, as far as they were written."""
        if self._file is not None:
            self._file.sync()
        for index in self._indexes():
            index.sync()

    def sync_indexes(self) -> bool:
        """Make durable what was written to them; whether the directory is to be synced for their names."""
        return any([index.sync_what_was_written() for index in self._indexes()])

    def release(self) -> None:
        """Give the descriptors back; the next use opens the files again."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for index in self._indexes():
            index.close()

    def rename(self, suffix: str, *, sync: bool = False) -> None:
        """Give all files another suffix, the log first; with `sync`, durably before the others."""
        old = self.path
        self._suffix = suffix
        self._files.rename(old, self.path)
        if self._file is not None:
            self._file.path = self.path
        if sync:
            self._files.sync_dir(self.directory)
        self.offset_index.rename(self.path_of(".index"))
        self.time_index.rename(self.path_of(".timeindex"))
        self.transaction_index.rename(self.path_of(".txnindex"))

    def remove(self) -> None:
        """Remove all files."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._files.exists(self.path):
            # Another one may have been renamed over it: compaction makes segments of the same base offset.
            self._files.remove(self.path)
        for index in self._indexes():
            index.remove()

    def _indexes(self) -> tuple[OffsetIndex, TimeIndex, TransactionIndex]:
        return self.offset_index, self.time_index, self.transaction_index

    # -- appending and truncating

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """How long the segment has been taking batches: by their timestamps, if they have any."""
        first = self.first_timestamp
        if first is None:
            _, header = next(headers(self.file, 0, self.size, HEADER_SIZE))
            first = self.first_timestamp = header.latest_timestamp
        return max_timestamp - first if first >= 0 else now_ms - self.created_ms

    def prepare(self) -> None:
        """Open what appending needs, so that it does not fail half-way for want of a descriptor."""
        if self._largest_timestamp is None:
            self._load_largest_timestamp()
        file = self._file or self._open()
        if file.descriptor < 0:
            file.open_again()
        self._files.descriptors.appending_to = file

    def append(self, buffers: Sequence[Buffer], written: Iterable[tuple[int, int, int]]) -> None:
        """Write buffers that are whole batches, each described by (size, last offset, largest timestamp)."""
        self.used = True
        position = (self._file or self._open()).append(buffers)
        if self._largest_timestamp is None:
            self._load_largest_timestamp()
        for size, last_offset, max_timestamp in written:
            if max_timestamp > self._largest_timestamp or self._unindexed > self._index_interval:  # type: ignore[operator]
                self.index_batch(position, size, last_offset, max_timestamp)
            else:
                self._unindexed += size
            position += size
        self.size = position

    def index_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Take into account a batch that was written."""
        if max_timestamp > self._largest_timestamp:  # type: ignore[operator]  # every caller has loaded it
            self._largest_timestamp = max_timestamp
            self._largest_offset = last_offset
        if self._unindexed > self._index_interval and not self.is_index_full:
            full = self.offset_index.append(last_offset, position)
            # Both of the latest have been loaded by every caller.
            full |= self.time_index.maybe_append(self._largest_timestamp, self._largest_offset)  # type: ignore[arg-type]
            self.is_index_full = full
            self._unindexed = 0
        self._unindexed += size

    def index_next(self) -> None:
        """Have an index entry for the next batch: what lies before it may lead no search there."""
        self._unindexed = self._index_interval + 1

    def index_transaction(self, completed: CompletedTransaction, last_stable_offset: int) -> None:
        """Take into account a marker that is here, if it aborts."""
        if completed.is_aborted:
            self.transaction_index.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
                )
            )

    def truncate_to(self, offset: int) -> int:
        """Cut off every batch that reaches `offset`, durably; the offset after the last batch that stays."""
        position = self.position_of(offset)
        if position is not None:
            self.cut(position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.scan_for_largest_timestamp(self.size)
        self.sync()
        return self.end_offset()

    def cut(self, size: int) -> None:
        """Cut the log file, durably: what was cut off must not come back behind what is written next."""
        if size < self.file.size:
            self.file.truncate(size)
            self.file.sync()
        self.size = size
        self._appended_from = min(self._appended_from, size)
        self._checked.cut(size)
        self._positions.clear()
        if not size:
            self.first_timestamp = None

    # -- indexes

    def _check_indexes(self) -> None:
        """On first use: make those again that are missing, or cannot be what was written."""
        if self._indexes_checked:
            return
        self._indexes_checked = True
        try:
            index_repair.check_files(self)
        except (CorruptIndex, FileNotFoundError) as error:
            index_repair.rebuild(self, error)

    def _searching(self, search: Callable[..., T], *arguments: object) -> T:
        """The outcome of a search that relies on the indexes; if they prove wrong they are made again."""
        self._check_indexes()
        try:
            return search(*arguments)
        except CorruptIndex as error:
            index_repair.rebuild(self, error)
            return search(*arguments)

    def reset_indexes(self) -> None:
        """As for an empty segment."""
        for index in self._indexes():
            index.reset()
        self.first_timestamp = None
        self.set_largest_timestamp(-1, self.base_offset)
        self.restart_index_interval()

    def restart_index_interval(self) -> None:
        """The indexes are as this process made them, and the next entry is an interval away."""
        self._indexes_checked = True
        self._unindexed = 0

    # -- timestamps

    @property
    def largest_timestamp(self) -> int:
        """Of all batches here; -1 where none has one."""
        if self._largest_timestamp is None:
            self._load_largest_timestamp()
        return self._largest_timestamp  # type: ignore[return-value]

    @property
    def offset_of_largest_timestamp(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        if self._largest_timestamp is None:
            self._load_largest_timestamp()
        return self._largest_offset

    def lookup_time(self, timestamp: int) -> TimestampOffset:
        """Up to this offset nothing is later than `timestamp`, nor below it."""
        return self._searching(lambda: index_repair.time_lookup(self, timestamp))

    def _load_largest_timestamp(self) -> None:
        """The time index knows, since it got a last entry when the segment was closed."""
        self._check_indexes()
        if self._largest_timestamp is None:
            self._searching(lambda: index_repair.check_last_time(self))
        if self._largest_timestamp is None:
            self.set_largest_timestamp(*self.time_index.last_entry)

    def scan_for_largest_timestamp(self, end: int) -> None:
        """Up to the position `end`: what follows the last entry of the time index may be larger."""
        timestamp, offset = self.time_index.last_entry
        for _, header in headers(
            self.file, index_repair.trusted(self, self.offset_index.lookup(offset)), end
        ):
            self.may_be_later |= header.is_too_early
            if header.latest_timestamp > timestamp:
                timestamp, offset = header.latest_timestamp, header.last_offset
        self.set_largest_timestamp(timestamp, offset)

    def set_largest_timestamp(self, timestamp: int, offset: int) -> None:
        """Whenever the indexes are read or changed by other means than an append."""
        self._largest_timestamp, self._largest_offset = timestamp, offset
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full

    @property
    def retention_timestamp(self) -> int:
        """How old it is: its largest timestamp, or else when the file was last written."""
        largest = self.largest_timestamp
        return largest if largest >= 0 else self._files.modified_ms(self.path)

    # -- finding and reading

    def position_of(self, offset: int) -> int | None:
        """Where the first batch begins that reaches `offset`; None where all end before it."""
        position = self._positions.get(offset)
        if position is None:
            position = self._searching(self._search, offset)
            if position is not None:
                self._remember(offset, position)
        return position

    def _search(self, offset: int) -> int | None:
        position = index_repair.trusted(self, self.offset_index.lookup(offset))
        least_offset = 0
        while position < self.size:
            data = self.file.read(position, 2 * self._index_interval + HEADER_SIZE)
            index, limit = 0, len(data) - HEADER_SIZE
            while index <= limit:
                base_offset, length, delta = SPAN.unpack_from(data, index)
                if base_offset + delta >= offset or base_offset < least_offset or length < 0 or delta < 0:
                    # Either the one that is looked for, or no batch.
                    header_at(self.path, data, index, position + index, least_offset)
                    return position + index
                least_offset = base_offset + delta + 1
                index += length + LOG_OVERHEAD
            if not index:
                raise CorruptBatch(self.path, "the file ends within a batch", position=position)
            position += index
        return None

    def _remember(self, offset: int, position: int) -> None:
        if len(self._positions) >= REMEMBERED_POSITIONS:
            del self._positions[next(iter(self._positions))]
        self._positions[offset] = position

    def end_offset(self) -> int:
        """The offset after the last batch; the base offset where there is none."""
        end = self.base_offset
        begin = self._searching(lambda: index_repair.trusted(self, self.offset_index.last_entry))
        for _, header in headers_in_order(self.file, begin, self.size):
            end = header.next_offset
        return end

    def read(
        self,
        offset: int,
        max_bytes: int,
        end: tuple[int, int],
        *,
        min_one_batch: bool,
        part_from: int = NO_PARTS,
    ) -> SegmentRead | None:
        """Whole batches, from the one that reaches `offset` up to `end`: a position, and the offset there.

        None where no batch reaches `offset`, so that the next segment has to be asked. From `part_from` bytes
        on they may come as a part of the file.
        """
        position = self.position_of(offset)
        if position is None or position >= self.size:  # at its end: where a reader came to who read it all
            return None
        end_position, end_offset = end
        if position >= end_position:
            return SegmentRead(b"", end_offset)
        if min(max_bytes, end_position - position) >= part_from:
            part = self._searching(self._part, position, max_bytes, end)
            if part is not None:
                return part
        # More than a small limit allows: the first batch is likely to be wanted whatever its size.
        data = self.file.read(position, min(max(max_bytes, LEAST_READ_BYTES), end_position - position))
        size, next_offset = min(max_bytes, len(data)), end_offset
        if SPAN.unpack_from(data)[1] + LOG_OVERHEAD > size:
            if not min_one_batch:
                return SegmentRead(b"", offset)
            data, next_offset = self._one_batch(data, position)
            size = len(data)
        elif position + size != end_position:
            size, next_offset = self._searching(self._whole_batches, data, position, size)
        if position < self._appended_from and (position, position + size) not in self._checked:
            if position + size != end_position:
                end_offset = base_offset_at(self.file.read(position + size, HEADER_SIZE), 0)
            size, next_offset = self._check(memoryview(data)[:size], offset, position, end_offset)
        if position + size == end_position:
            # Compaction may have left nothing between the last batch and there: no reader must get stuck.
            next_offset = end_offset
        self._remember(next_offset, position + size)
        return SegmentRead(data if size == len(data) else memoryview(data)[:size], next_offset)

    def _part(self, position: int, max_bytes: int, end: tuple[int, int]) -> SegmentRead | None:
        """The same, without reading more than the last header; None if any of it is still to be checked."""
        end_position, next_offset = end
        stop = min(position + max_bytes, end_position)
        if stop != end_position:
            entry = self.offset_index.lookup_position(stop - HEADER_SIZE)
            at = max(entry.position, position)
            while at + HEADER_SIZE <= stop:
                data = self.file.read(at, HEADER_SIZE)
                if at == entry.position > position:
                    index_repair.check_entry(self, entry, data, 0)
                header = header_at(self.path, data, 0, at)
                if at + header.size > stop:
                    next_offset = header.base_offset
                    break
                at, next_offset = at + header.size, header.next_offset
            stop = at
        is_checked = position >= self._appended_from or (position, stop) in self._checked
        if stop == position or not is_checked:
            return None
        self._remember(next_offset, stop)
        return SegmentRead(cast(Buffer, self.file.part(position, stop - position)), next_offset)

    def _whole_batches(self, data: bytes, begin: int, limit: int) -> tuple[int, int]:
        """How many of the first `limit` bytes of `data`, read from `begin` on, are whole batches, and the
        offset after them.

        The offset index knows a batch close to the end, which spares walking over all of them.
        """
        size = last = 0
        if limit > 2 * self._index_interval:
            entry = self.offset_index.lookup_position(begin + limit - HEADER_SIZE)
            if entry.position > begin:
                size = last = entry.position - begin
                index_repair.check_entry(self, entry, data, size)
        while size <= limit - HEADER_SIZE:
            following = size + SPAN.unpack_from(data, size)[1] + LOG_OVERHEAD
            if not size < following <= limit:
                break
            last, size = size, following
        header = header_at(self.path, data, last, begin + last)
        return size, header.next_offset if last < size else header.base_offset

    def _one_batch(self, data: bytes, position: int) -> tuple[bytes, int]:
        """The batch that `data`, read from `position` on, begins with."""
        header = header_at(self.path, data, 0, position)
        whole = data[: header.size] if header.size <= len(data) else self.file.read(position, header.size)
        return whole, header.next_offset

    def mark_checked(self, begin: int, end: int) -> None:
        """What lies between these positions was verified by others."""
        if end > begin:
            self._checked.add(begin, end)

    def _check(self, data: memoryview, offset: int, begin: int, end_offset: int) -> tuple[int, int]:
        """Verify batches that are handed out for the first time, and end before one that fails."""
        size, next_offset, error = check_batches(self.path, data, offset, begin, end_offset)
        if error is not None:
            logger.error("%s", error)
            if not size:
                raise error
        self._checked.add(begin, begin + size)
        return size, next_offset
