"""Following the indexes of a segment while its batches go by, entry for entry.

What must hold:
- offset index: both columns grow; at an entry's position a batch begins that does not reach beyond the
  entry's offset. (It ends there, but for indexes that Kafka before 4.0 wrote for several batches at once.)
- time index: timestamps grow and offsets do not shrink; no batch up to the entry's offset is later than the
  entry's timestamp, and one has it. When a segment is closed the last entry has its largest timestamp.
- transaction index: one entry per aborted transaction, in the order of the markers, as a replay finds them.

An index may end early: entries are written late, and zeros at the end are Kafka's preallocation. An entry
that is there must be right. One pass, and one page of each index in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar, cast

from storage.errors import CorruptIndex
from storage.files import Files
from storage.findings import Finding, Kind, Severity
from storage.indexes import (
    AbortedTransaction,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from storage.transaction_index import TransactionIndex
from wire.record_batch import BatchHeader

ANY_SIZE = 1 << 31
MADE_AGAIN = "It is made again from the segment when it is next needed."
REMOVE_IT = "Remove the file while no broker runs; it is made again from the segment."

Entry = TypeVar("Entry", OffsetPosition, TimestampOffset, AbortedTransaction)
SeverityAt = Callable[[int], Severity]
"""How bad it is where something contradicts the batch at an offset."""


class _Follower(Generic[Entry]):
    """One index, read along with the log."""

    kind: Kind
    entry_size: int

    def __init__(
        self,
        path: str,
        index: OffsetIndex | TimeIndex | TransactionIndex,
        add: Callable[[Finding], None],
        severity_at: SeverityAt,
    ) -> None:
        self.path = path
        self._index = index
        self._add = add
        self._severity_at = severity_at
        self._slot = -1
        self.is_missing = self.is_unusable = False
        self._entries: Iterator[Entry] = self._read()
        self.next: Entry | None = None
        self.last: Entry | None = None
        self.advance()

    def _read(self) -> Iterator[Entry]:
        try:
            self._index.sanity_check()
            yield from cast(Iterable[Entry], self._index)
        except FileNotFoundError:
            self.is_missing = True
        except CorruptIndex as error:
            self.is_unusable = True
            self._add(
                Finding(
                    Severity.WARNING, self.kind, self.path, f"{error.reason}.", MADE_AGAIN, error.position
                )
            )
        finally:
            self._index.close()

    def advance(self) -> None:
        self._slot += 1
        previous, self.next = self.next, next(self._entries, None)
        if previous is not None:
            self.last = previous
            if self.next is not None and not self.may_follow(previous, self.next):
                self.wrong(f"{self.next} comes after {previous}.")

    def may_follow(self, previous: Entry, entry: Entry) -> bool:
        raise NotImplementedError

    def offset_of(self, entry: Entry) -> int:
        raise NotImplementedError

    def wrong(self, what: str) -> None:
        """Something about the entry that is next."""
        offset = None if self.next is None else self.offset_of(self.next)
        severity = Severity.ERROR if offset is None else self._severity_at(offset)
        position = self._slot * self.entry_size
        self._add(Finding(severity, self.kind, self.path, what, REMOVE_IT, position, offset))

    def finish(self) -> None:
        """No batch is left: nor should an entry be."""
        while self.next is not None:
            self.wrong(f"{self.next} lies beyond the end of the segment.")
            self.advance()

    def close(self) -> None:
        self._index.close()


class OffsetIndexFollower(_Follower[OffsetPosition]):
    """Beside the positions of the batches."""

    kind = Kind.OFFSET_INDEX
    entry_size = 8

    def may_follow(self, previous: OffsetPosition, entry: OffsetPosition) -> bool:
        return entry.offset > previous.offset and entry.position > previous.position

    def offset_of(self, entry: OffsetPosition) -> int:
        return entry.offset

    def take(self, position: int, header: BatchHeader) -> None:
        while self.next is not None and self.next.position <= position:
            if self.next.position < position:
                self.wrong(f"no batch begins at position {self.next.position}.")
            elif header.last_offset > self.next.offset:
                self.wrong(f"the batch at position {position} reaches offset {header.last_offset}.")
            self.advance()


class TimeIndexFollower(_Follower[TimestampOffset]):
    """Beside the largest timestamp so far."""

    kind = Kind.TIME_INDEX
    entry_size = 12
    largest_timestamp = -1
    _largest_claimed = -1
    """By headers that may say too little: an index can have been made by them."""

    def may_follow(self, previous: TimestampOffset, entry: TimestampOffset) -> bool:
        return entry.timestamp > previous.timestamp and entry.offset >= previous.offset

    def offset_of(self, entry: TimestampOffset) -> int:
        return entry.offset

    def take(self, header: BatchHeader) -> None:
        if self.next is not None:
            self._compare_up_to(header.base_offset - 1)
        self.largest_timestamp = max(self.largest_timestamp, header.latest_timestamp)
        self._largest_claimed = max(self._largest_claimed, header.max_timestamp)
        if self.next is not None:
            self._compare_up_to(header.last_offset)

    def _compare_up_to(self, offset: int) -> None:
        while self.next is not None and self.next.offset <= offset:
            if self.next.timestamp not in (self.largest_timestamp, self._largest_claimed):
                largest = self.largest_timestamp
                self.wrong(f"the largest timestamp up to there is {largest}, not {self.next.timestamp}.")
            self.advance()

    def check_is_complete(self) -> None:
        """For a segment that was closed."""
        last = -1 if self.last is None else self.last.timestamp
        if last < self.largest_timestamp and not self.is_missing and not self.is_unusable:
            what = f"it ends at timestamp {last}, and the segment at {self.largest_timestamp}."
            advice = "Retention and look-ups by time may go by the smaller one. " + REMOVE_IT
            self._add(Finding(Severity.WARNING, self.kind, self.path, what, advice))


class TransactionIndexFollower(_Follower[AbortedTransaction]):
    """Beside the abort markers. Where batches are missing, transactions may be known by the index alone."""

    kind = Kind.TRANSACTION_INDEX
    entry_size = 34
    known_from = 0
    """Where the replay began: what lies below is known by the index alone, too."""

    def may_follow(self, previous: AbortedTransaction, entry: AbortedTransaction) -> bool:
        return entry.last_offset > previous.last_offset

    def offset_of(self, entry: AbortedTransaction) -> int:
        return entry.last_offset

    def take(self, aborted: AbortedTransaction, *, has_holes: bool) -> None:
        """A transaction whose abort marker was found."""
        if self.is_unusable:
            return  # all of them are found again
        self.pass_over(aborted.last_offset, has_holes=has_holes)
        if self.next is None or self.next.last_offset != aborted.last_offset:
            self._add(
                Finding(
                    self._severity_at(aborted.last_offset),
                    self.kind,
                    self.path,
                    f"{aborted} is missing: readers of committed data would get its records.",
                    "Remove the clean-shutdown marker and the partition's entry of the recovery point "
                    "checkpoint while no broker runs; the next start makes the index again.",
                    None,
                    aborted.last_offset,
                )
            )
            return
        if not self._agrees(self.next, aborted, has_holes):
            self.wrong(f"{self.next} should be {aborted}.")
        self.advance()

    def pass_over(self, offset: int, *, has_holes: bool) -> None:
        """No marker was found below `offset` since the last one."""
        while self.next is not None and self.next.last_offset < offset:
            if not has_holes and self.next.first_offset >= self.known_from:
                self.wrong(f"the log has no {self.next}.")
            self.advance()

    def _agrees(self, entry: AbortedTransaction, aborted: AbortedTransaction, has_holes: bool) -> bool:
        if entry == aborted:
            return True
        if entry.producer_id != aborted.producer_id or entry.first_offset > aborted.first_offset:
            return False
        return has_holes or entry.first_offset < self.known_from


def _warning(offset: int) -> Severity:
    return Severity.WARNING


class SegmentIndexes:
    """The three of them."""

    def __init__(
        self,
        files: Files,
        path_of: Callable[[str], str],
        base_offset: int,
        add: Callable[[Finding], None],
        severity_at: SeverityAt,
        *,
        is_durable: bool,
    ) -> None:
        """`path_of` gives the path for ".index" and so on. `is_durable`: the hints were synced."""
        of_hint = severity_at if is_durable else _warning
        path = path_of(".index")
        self.offsets = OffsetIndexFollower(
            path, OffsetIndex(files, path, base_offset, ANY_SIZE), add, of_hint
        )
        path = path_of(".timeindex")
        self.times = TimeIndexFollower(path, TimeIndex(files, path, base_offset, ANY_SIZE), add, of_hint)
        path = path_of(".txnindex")
        self.transactions = TransactionIndexFollower(
            path, TransactionIndex(files, path, base_offset), add, severity_at
        )
        self._add = add

    def finish(self, next_offset: int, *, is_closed: bool, has_holes: bool) -> None:
        """After the last batch, which ends before `next_offset`."""
        self.offsets.finish()
        self.times.finish()
        self.transactions.pass_over(next_offset, has_holes=has_holes)
        self.transactions.finish()
        if is_closed:
            self.times.check_is_complete()
            for index in (self.offsets, self.times):
                if index.is_missing:
                    self._add(Finding(Severity.WARNING, index.kind, index.path, "it is missing.", MADE_AGAIN))

    def close(self) -> None:
        for index in (self.offsets, self.times, self.transactions):
            index.close()
