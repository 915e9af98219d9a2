"""Offset, time and transaction index: contracts first; the bodies follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from storage.files import Files


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class OffsetIndex:
    """Which batch begins where: (offset, position in the segment), both growing. No I/O before first use."""

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None: ...

    path: str
    """Assign a new one when the directory above was renamed."""

    @property
    def entries(self) -> int:
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of all entries, written out or not."""
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        raise NotImplementedError

    @property
    def last_entry(self) -> OffsetPosition:
        """(base_offset, 0) when empty."""
        raise NotImplementedError

    def can_append(self, offset: int) -> bool:
        """Whether the offset, relative to the base, fits the 31 bits of an entry."""
        raise NotImplementedError

    def append(self, offset: int, position: int) -> None:
        """ValueError where the offset is not larger than the last one."""

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`, or (base_offset, 0)."""
        raise NotImplementedError

    def fetch_upper_bound(self, position: int) -> OffsetPosition | None:
        """The first entry at or above `position`: an offset that lies outside what ends at `position`."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[OffsetPosition]:
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""

    def reset(self) -> None:
        """Drop every entry."""

    def sanity_check(self) -> None:
        """Raise CorruptIndex where the file cannot be what was written; FileNotFoundError where it is missing."""

    def flush(self) -> None:
        """Write buffered entries to the file (creating it); not durable before `sync`."""

    def sync(self) -> None:
        """Make what was flushed durable. May be called from another thread."""

    def close(self) -> None:
        """Flush and release the descriptor; the next use opens the file again."""

    def rename(self, path: str) -> None:
        """Move the file, where there is one, and use the new path from now on."""

    def remove(self) -> None:
        """Close without flushing, and remove the file if there is one."""


class TimeIndex:
    """The largest timestamp up to an offset: (timestamp, offset), both growing. As OffsetIndex otherwise."""

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None: ...

    path: str

    @property
    def entries(self) -> int:
        raise NotImplementedError

    @property
    def size(self) -> int:
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        """One slot is kept back for the entry that rolling adds."""
        raise NotImplementedError

    @property
    def last_entry(self) -> TimestampOffset:
        """(-1, base_offset) when empty."""
        raise NotImplementedError

    def can_append(self, offset: int) -> bool:
        raise NotImplementedError

    def maybe_append(self, timestamp: int, offset: int, *, at_roll: bool = False) -> None:
        """Add an entry if the timestamp is larger than the last; `at_roll` may use the slot kept back."""

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`, or (-1, base_offset)."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[TimestampOffset]:
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None: ...

    def reset(self) -> None: ...

    def sanity_check(self) -> None: ...

    def flush(self) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def rename(self, path: str) -> None: ...

    def remove(self) -> None: ...


class TransactionIndex:
    """Aborted transactions whose marker lies in this segment, by growing last offset. The file exists only
    where there is one."""

    def __init__(self, files: Files, path: str, base_offset: int) -> None: ...

    path: str

    @property
    def entries(self) -> int:
        raise NotImplementedError

    def append(self, transaction: AbortedTransaction) -> None:
        """Written at once. ValueError where the last offset is not larger than the last entry's."""

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that overlap [fetch_offset, upper_bound), and whether later segments need not be asked."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[AbortedTransaction]:
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`."""

    def reset(self) -> None: ...

    def sanity_check(self) -> None: ...

    def flush(self) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def rename(self, path: str) -> None: ...

    def remove(self) -> None: ...
