"""The aborted transactions of a segment; see `indexes.py` for the format, and for the crash policy.

    .txnindex    int16 version 0, int64 producer id, int64 first offset, int64 last offset,
                 int64 last stable offset                       one per aborted transaction, by its marker

It is no hint: what it misses would be served. So entries are written at once, and synced before a recovery
point passes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from storage.descriptors import exhausted
from storage.errors import CorruptIndex
from storage.files import Files
from storage.indexes import INT64, MAX_RELATIVE_OFFSET, AbortedTransaction, EntryFile

_TRANSACTION_ENTRY = Struct(">hqqqq")


class TransactionIndex(EntryFile):
    """The aborted transactions whose marker lies in this segment. There is no file while there is none."""

    __slots__ = ("base_offset", "is_checked")

    _entry = _TRANSACTION_ENTRY
    _preallocated = False
    _is_hint = False

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path)
        self.base_offset = base_offset
        self.is_checked = False
        """Whether the entries that were in the file have been looked at."""

    def append(self, transaction: AbortedTransaction) -> None:
        """Written at once. ValueError where the last offset is not larger than the last entry's."""
        entries = self.entries
        if entries and self._entry_at(entries - 1).last_offset >= transaction.last_offset:
            raise ValueError(f"{self.path}: {transaction} does not come after {self._entry_at(entries - 1)}")
        self._tail += _TRANSACTION_ENTRY.pack(0, *transaction)
        self._entries += 1
        self.flush_if_possible()

    def sync(self, *, name: bool = True) -> None:
        """Not while an entry waits in memory: the owner of the log has to write it first."""
        if self._tail:
            raise exhausted(self.path)
        if self._file is None and not self._entries:
            return  # there is no file
        super().sync(name=name)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that overlap [fetch_offset, upper_bound), and whether later segments need not be asked."""
        found: list[AbortedTransaction] = []
        for transaction in self._from(self._floor(fetch_offset - 1, INT64, 18) + 1):
            if transaction.first_offset < upper_bound:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self._from(0)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`."""
        keep = self._floor(offset - 1, INT64, 18) + 1
        if keep < self.entries:
            self._cut(keep)

    def from_offset(self, offset: int) -> Rewrite:
        """To make the entries whose marker is at or above `offset` once more."""
        return Rewrite(self, self._floor(offset - 1, INT64, 18) + 1)

    def reset(self) -> None:
        if self.entries:
            self._cut(0)

    def replace(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Durably have these entries instead of all others: half of them would be taken for all there are."""
        self._release()
        self._tail, self._entries, self._file_size = bytearray(), -1, -1
        entries = [_TRANSACTION_ENTRY.pack(0, *transaction) for transaction in transactions]
        self._files.replace(self.path, b"".join(entries))

    def flush(self) -> None:
        """Nothing to do but before the first entry is in the file: appends write."""
        if self._tail:
            super().flush()

    def sanity_check(self) -> None:
        """CorruptIndex where the entries cannot be what was written. A missing file is an empty index."""
        if not self._files.exists(self.path):
            return
        self._check_size()
        last_offset = self.base_offset - 1
        for slot, transaction in enumerate(self):
            if not self._is_possible(transaction) or transaction.last_offset <= last_offset:
                why = f"{transaction} cannot come after offset {last_offset}"
                raise CorruptIndex(self.path, why, position=slot * self._entry.size)
            last_offset = transaction.last_offset

    def _is_possible(self, one: AbortedTransaction) -> bool:
        # A marker never aborts only itself. (Zeros would say that, which a power cut may leave.)
        fits = 0 <= one.first_offset < one.last_offset <= self.base_offset + MAX_RELATIVE_OFFSET
        return fits and one.producer_id >= 0 and 0 <= one.last_stable_offset <= one.last_offset + 1

    def _from(self, slot: int) -> Iterator[AbortedTransaction]:
        for version, *fields in self._iterate(slot):
            if version != 0:
                raise CorruptIndex(self.path, f"an entry has version {version}; 0 is the only one there is")
            yield AbortedTransaction(*fields)

    def _entry_at(self, slot: int) -> AbortedTransaction:
        return AbortedTransaction(*self._at(slot)[1:])


class Rewrite:
    """The last entries of an index, made once more. Those that are right are not touched: whatever comes in
    between, nobody finds them missing."""

    __slots__ = ("_index", "_right")

    def __init__(self, index: TransactionIndex, right: int) -> None:
        """The first `right` entries stay."""
        self._index = index
        self._right = right

    def append(self, transaction: AbortedTransaction) -> None:
        index = self._index
        if self._right == index.entries or index._entry_at(self._right) != transaction:
            self.finish()
            index.append(transaction)
        self._right += 1

    def finish(self) -> None:
        """Drop what was there beyond the entries that were made."""
        if self._right < self._index.entries:
            self._index._cut(self._right)
