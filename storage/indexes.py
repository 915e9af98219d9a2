"""The three indexes of a segment, in Kafka's byte formats (big-endian, no header, entries of fixed size).

    .index       int32 offset - base offset, int32 position     every index.interval.bytes of log
    .timeindex   int64 timestamp, int32 offset - base offset    the largest timestamp up to that offset
    .txnindex    int16 version 0, int64 producer id, int64 first offset, int64 last offset,
                 int64 last stable offset                       one per aborted transaction, by its marker

All keys grow within a file. Entries that are not yet written stay in a tail of at most one page; a lookup
sees both. An index of any size therefore costs a page of memory, and an append costs no system call but for
one in hundreds. Nothing is read before it is asked for, and a file that is only read is opened for reading
only. Searching uses pread, not a memory map: a disk error must be an OSError of one log, not a SIGBUS of the
process.

Kafka preallocates its growing indexes and cuts them when it closes; after a crash of Kafka they end in
zeros. An entry of zeros stands for nothing (the first batch of a segment is never indexed), so they are
passed over here, and cut off by the first write.

Crash policy: an index is rebuilt from the log wherever recovery reads the log again, so its writes may be
lost or torn; and it is trusted everywhere else, so it must be flushed and synced before a recovery point
passes its segment. Above all the transaction index: what that misses would be served. `sanity_check` finds
what cannot be right at the cost of two reads (of all entries, for aborted transactions); to check every
entry, iterate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import Any, ClassVar, NamedTuple

from storage.descriptors import is_exhausted
from storage.errors import CorruptIndex
from storage.files import File, Files, parent

PAGE = 4096
READ_AHEAD = 16 * PAGE
MAX_RELATIVE_OFFSET = 2**31 - 1
NO_TIMESTAMP = -1

_INT32 = Struct(">i")
INT64 = Struct(">q")
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


class OffsetPosition(NamedTuple):
    """The batch that ends with `offset` begins at byte `position`."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """`timestamp` is the largest of the segment up to `offset`, which has it."""

    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    """`last_offset` is the offset of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class EntryFile:
    """A file of fixed-size entries in ascending order, of which the last few may still be in memory."""

    __slots__ = (
        "_created",
        "_entries",
        "_file",
        "_file_size",
        "_files",
        "_has_written",
        "_page",
        "_page_start",
        "_tail",
        "_writable",
        "path",
    )

    _entry: ClassVar[Struct]
    _preallocated: ClassVar[bool] = True
    _is_hint: ClassVar[bool] = True

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        """Assign a new one when a directory above was renamed."""
        self._files = files
        self._file: File | None = None
        self._writable = False
        self._created = False
        self._entries = -1
        """All of them, file and tail; -1 while the file has not been looked at."""
        self._tail = bytearray()
        self._page = b""
        self._page_start = 0
        self._file_size = -1
        """Of the file as it is, zeros and all; -1 where there is none, or it was not looked at."""
        self._has_written = False
        """Whether something was written and not synced."""

    @property
    def entries(self) -> int:
        """How many there are, written out or not."""
        if self._entries < 0:
            self._load()
        return self._entries

    @property
    def size(self) -> int:
        """Bytes of all entries, written out or not."""
        return self.entries * self._entry.size

    def reset(self) -> None:
        """Drop every entry."""
        self._cut(0)

    def flush(self) -> None:
        """Write buffered entries to the file, creating it. Durable after `sync`."""
        in_file = self.entries - len(self._tail) // self._entry.size
        if not self._tail and self._file_size == in_file * self._entry.size:
            return
        file = self._open_for_writing()
        if file.size != in_file * self._entry.size:
            file.truncate(in_file * self._entry.size)
            self._has_written = True
        if self._tail:
            file.append((self._tail,))
            self._tail = bytearray()
            self._has_written = True
        self._file_size = file.size

    def flush_if_possible(self) -> None:
        """As `flush`; but while no file can be opened, the entries go on waiting in memory."""
        try:
            self.flush()
        except OSError as error:
            if not is_exhausted(error):
                raise

    def sync(self, *, name: bool = True) -> None:
        """Make durable what was flushed, and the file's name. May be called from another thread.

        Without `name` the caller syncs the directory.
        """
        file = self._file
        self._has_written = False
        is_new, self._created = self._created, False
        if is_new and name:
            self._files.sync_dir(parent(self.path))
        if is_new and file is not None and not file.is_unsynced:
            return  # it is empty
        if file is not None:
            with suppress(ValueError):
                file.sync()
                return
        # Closed, perhaps just now. Or never written, or renamed at this moment: its segment leaves the log.
        with suppress(FileNotFoundError):
            file = self._files.open(self.path, read_only=True)
            file.sync()
            file.close()

    def sync_what_was_written(self) -> bool:
        """As `sync`, of what this process has written; whether the directory is to be synced for the name."""
        is_new = self._created
        if is_new or self._has_written:
            self.sync(name=False)
        return is_new

    def close(self) -> None:
        """Write what is buffered and give the descriptor back; any later use opens the file again.

        An index that never had an entry has no file until `flush` makes one.
        """
        if self._tail or self._writable:
            self.flush()
        self._release()

    def rename(self, path: str) -> None:
        """Move the file, where there is one, and go by the new path from now on."""
        if self._files.exists(self.path):
            self._files.rename(self.path, path)
        self.path = path
        if self._file is not None:
            self._file.path = path

    def remove(self) -> None:
        """Drop every entry and remove the file, where there is one."""
        self._release()
        self._tail = bytearray()
        self._entries = 0
        self._file_size = -1
        if self._files.exists(self.path):
            self._files.remove(self.path)

    def _load(self) -> None:
        entries = 0
        if self._files.exists(self.path):
            self._file_size = self._open().size
            entries = self._file_size // self._entry.size
            if self._preallocated:
                entries = self._without_zeros(entries)
        self._entries = entries
        self._remember_last()

    def _without_zeros(self, entries: int) -> int:
        """How many come before the zeros. A single entry of zeros is one: of a batch with timestamp 0."""
        size = self._entry.size
        zeros = bytes(size)
        if entries <= 1 or self._read((entries - 1) * size, size) != zeros:
            return entries
        low, high = 0, entries - 1
        while low < high:
            middle = (low + high) // 2
            if self._read(middle * size, size) == zeros:
                high = middle
            else:
                low = middle + 1
        return low

    def _remember_last(self) -> None:
        """Called whenever the last entry became another one by other means than an append."""

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, read_only=True)
            self._writable = False
        return self._file

    def _open_for_writing(self) -> File:
        if self._file is None or not self._writable:
            self._created = self._created or not self._files.exists(self.path)
            file = self._files.open(self.path, create=True)
            file.is_hint = self._is_hint
            self._release()
            self._file, self._writable = file, True
        return self._file

    def _release(self) -> None:
        self._page = b""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._writable = False

    def _cut(self, entries: int) -> None:
        """Keep only the first `entries`."""
        size = self._entry.size
        in_file = self.entries - len(self._tail) // size
        if entries >= in_file:
            del self._tail[(entries - in_file) * size :]
        else:
            self._open_for_writing().truncate(entries * size)
            self._file_size = entries * size
            self._has_written = True
            self._tail = bytearray()
            self._page = b""
        self._entries = entries
        self._remember_last()

    def _at(self, slot: int) -> tuple[Any, ...]:
        size = self._entry.size
        in_file = self.entries - len(self._tail) // size
        if slot >= in_file:
            return self._entry.unpack_from(self._tail, (slot - in_file) * size)
        if 0 <= (in_page := slot - self._page_start) < len(self._page) // size:
            return self._entry.unpack_from(self._page, in_page * size)
        return self._entry.unpack(self._read(slot * size, size))

    def _floor(self, target: int, key: Struct, key_at: int) -> int:
        """The slot of the last entry whose key is at or below `target`; -1 where there is none."""
        size = self._entry.size
        tail = self._tail
        in_file = self.entries - len(tail) // size
        if tail and key.unpack_from(tail, key_at)[0] <= target:
            return in_file + _floor_in(tail, target, size, key, key_at)
        if not in_file:
            return -1
        if not self._page_has(in_file, target, key, key_at):
            self._find_page(in_file, target, key, key_at)
        slot = _floor_in(self._page, target, size, key, key_at)
        # With -1 it is the last entry of the page before; where there is none, -1 is the answer.
        return self._page_start + slot

    def _page_has(self, in_file: int, target: int, key: Struct, key_at: int) -> bool:
        """Whether the page read last is the one where `target` belongs."""
        page, size = self._page, self._entry.size
        if not page or key.unpack_from(page, key_at)[0] > target:
            return False
        return self._page_start + len(page) // size == in_file or (
            target < key.unpack_from(page, len(page) - size + key_at)[0]
        )

    def _find_page(self, in_file: int, target: int, key: Struct, key_at: int) -> None:
        """Read the page where `target` belongs: try thrice where even growth would put it, then by halves."""
        size = self._entry.size
        low, high = 0, in_file - 1
        least, most = self._key(low, key, key_at), self._key(high, key, key_at)
        guesses = 3
        while True:
            if guesses:
                guesses -= 1
                slot = low + min(1.0, max(0.0, (target - least) / ((most - least) or 1))) * (high - low)
            else:
                slot = (low + high) / 2
            self._read_page(int(slot) // (PAGE // size), in_file)
            start, end = self._page_start, self._page_start + len(self._page) // size - 1
            first = key.unpack_from(self._page, key_at)[0]
            last = key.unpack_from(self._page, len(self._page) - size + key_at)[0]
            if target < first and low < start:
                high, most = start - 1, first
            elif target > last and end < high:
                low, least = end + 1, last
            else:
                return

    def _key(self, slot: int, key: Struct, key_at: int) -> int:
        value: int = key.unpack(self._read(slot * self._entry.size + key_at, key.size))[0]
        return value

    def _read_page(self, number: int, in_file: int) -> None:
        size = self._entry.size
        start = number * (PAGE // size)
        self._page = self._read(start * size, min(PAGE // size, in_file - start) * size)
        self._page_start = start

    def _iterate(self, slot: int = 0) -> Iterator[tuple[Any, ...]]:
        size = self._entry.size
        end = (self.entries - len(self._tail) // size) * size
        position = slot * size
        step = READ_AHEAD // size * size
        while position < end:
            data = self._read(position, min(step, end - position))
            yield from self._entry.iter_unpack(data)
            position += len(data)
        yield from self._entry.iter_unpack(self._tail[position - end :])

    def _read(self, position: int, length: int) -> bytes:
        data = self._open().read(position, length)
        if len(data) != length:
            raise CorruptIndex(self.path, "the file ends where there was an entry", position=position)
        return data

    def _check_size(self) -> None:
        size = self._files.size(self.path)
        if size % self._entry.size:
            raise CorruptIndex(
                self.path, f"{size} bytes are not a multiple of {self._entry.size}", position=size
            )


def _floor_in(entries: bytes | bytearray, target: int, size: int, key: Struct, key_at: int) -> int:
    """The slot of the last entry whose key is at or below `target`, among these; -1 where there is none."""
    unpack = key.unpack_from
    low, high = 0, len(entries) // size
    while low < high:
        middle = (low + high) // 2
        if unpack(entries, middle * size + key_at)[0] <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1


class _BoundedIndex(EntryFile):
    """An index of offsets relative to a base, with a largest size: the segment rolls when it is reached."""

    __slots__ = ("base_offset", "max_entries")

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(files, path)
        if max_bytes < self._entry.size:
            raise ValueError(f"an index of at most {max_bytes} bytes holds nothing")
        self.base_offset = base_offset
        self.max_entries = max_bytes // self._entry.size

    def _overflow(self, offset: int) -> ValueError:
        return ValueError(f"{self.path}: offset {offset} does not fit the base offset {self.base_offset}")


class OffsetIndex(_BoundedIndex):
    """Which position to begin at when an offset is looked for."""

    __slots__ = ("_last_offset", "_last_position")

    _last_offset: int
    _last_position: int
    _entry = _OFFSET_ENTRY

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    @property
    def last_entry(self) -> OffsetPosition:
        """(base_offset, 0) when empty."""
        if self._entries < 0:
            self._load()
        return OffsetPosition(self._last_offset, self._last_position)

    def append(self, offset: int, position: int) -> bool:
        """Whether it is full now. ValueError where the offset is not larger than the last one."""
        entries = self._entries if self._entries >= 0 else self.entries
        if offset <= self._last_offset and entries:
            raise ValueError(f"{self.path}: offset {offset} is not above the last, {self._last_offset}")
        if entries >= self.max_entries:
            raise ValueError(f"{self.path}: the index is full")
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise self._overflow(offset)
        if len(self._tail) >= PAGE:
            self.flush_if_possible()
        self._tail += _OFFSET_ENTRY.pack(relative, position)
        self._entries = entries + 1
        self._last_offset = offset
        self._last_position = position
        return entries + 1 >= self.max_entries

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`, or (base_offset, 0)."""
        if self._entries >= 0 and offset >= self._last_offset:
            return OffsetPosition(self._last_offset, self._last_position)
        return self._entry_at(self._floor(offset - self.base_offset, _INT32, 0))

    def lookup_position(self, position: int) -> OffsetPosition:
        """The last entry at or below `position`, or (base_offset, 0)."""
        return self._entry_at(self._floor(position, _INT32, 4))

    def __iter__(self) -> Iterator[OffsetPosition]:
        base_offset = self.base_offset
        return (OffsetPosition(base_offset + relative, position) for relative, position in self._iterate())

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""
        self._cut(self._floor(offset - self.base_offset - 1, _INT32, 0) + 1)

    def sanity_check(self) -> None:
        """CorruptIndex where the file cannot be what was written; FileNotFoundError where it is missing."""
        self._check_size()
        if not self.entries:
            return
        first, last = self._entry_at(0), self.last_entry
        if not self.base_offset <= first.offset <= last.offset or not 0 <= first.position <= last.position:
            raise CorruptIndex(self.path, f"entries run from {first} to {last}, base {self.base_offset}")

    def _entry_at(self, slot: int) -> OffsetPosition:
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self._at(slot)
        return OffsetPosition(self.base_offset + relative, position)

    def _remember_last(self) -> None:
        self._last_offset, self._last_position = self._entry_at(self._entries - 1)


class TimeIndex(_BoundedIndex):
    """Which offset to begin at when a timestamp is looked for."""

    __slots__ = ("_last_offset", "_last_timestamp")

    _last_timestamp: int
    _last_offset: int
    _entry = _TIME_ENTRY

    @property
    def is_full(self) -> bool:
        """One slot is kept back for the entry that rolling adds."""
        return self.entries >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """(-1, base_offset) when empty."""
        if self._entries < 0:
            self._load()
        return TimestampOffset(self._last_timestamp, self._last_offset)

    def maybe_append(self, timestamp: int, offset: int, *, at_roll: bool = False) -> bool:
        """Add an entry if the timestamp is larger than the last one; `at_roll` may use the slot kept back.

        Whether it is full now. ValueError where either goes backwards.
        """
        entries = self._entries if self._entries >= 0 else self.entries
        if entries and (offset < self._last_offset or timestamp < self._last_timestamp):
            raise ValueError(f"{self.path}: ({timestamp}, {offset}) goes back behind {self.last_entry}")
        if timestamp <= self._last_timestamp:
            return entries >= self.max_entries - 1
        if entries >= self.max_entries - (not at_roll):
            raise ValueError(f"{self.path}: the index is full")
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise self._overflow(offset)
        if len(self._tail) >= PAGE:
            self.flush_if_possible()
        self._tail += _TIME_ENTRY.pack(timestamp, relative)
        self._entries = entries + 1
        self._last_timestamp = timestamp
        self._last_offset = offset
        return entries + 1 >= self.max_entries - 1

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`, or (-1, base_offset)."""
        return self._entry_at(self._floor(timestamp, INT64, 0))

    def __iter__(self) -> Iterator[TimestampOffset]:
        base_offset = self.base_offset
        return (TimestampOffset(timestamp, base_offset + relative) for timestamp, relative in self._iterate())

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""
        self._cut(self._floor(offset - self.base_offset - 1, _INT32, 8) + 1)

    def sanity_check(self) -> None:
        """CorruptIndex where the file cannot be what was written; FileNotFoundError where it is missing."""
        self._check_size()
        if not self.entries:
            return
        first, last = self._entry_at(0), self.last_entry
        if not self.base_offset <= first.offset <= last.offset or first.timestamp > last.timestamp:
            raise CorruptIndex(self.path, f"entries run from {first} to {last}, base {self.base_offset}")

    def _entry_at(self, slot: int) -> TimestampOffset:
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self._at(slot)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def _remember_last(self) -> None:
        self._last_timestamp, self._last_offset = self._entry_at(self._entries - 1)
