"""Which transactional batches compaction may drop, as it reads a log from one end to the other.

Compaction stays below the last stable offset, so every transaction it meets has ended. But that is where
the first open one begins, and the marker of another may well lie behind it. Whether data was aborted is
therefore taken from the transaction indexes, before the marker is met:

- Data of an aborted transaction may go at once. Its marker stays as long as data was seen before it, and so
  does its index entry: there may still be an empty batch of it, and readers may have the data.
- The marker of a transaction, aborted or committed, is spent when no batch is left of it.
- Control records that end no transaction are never spent.

Index entries come in the order of their markers, and are wanted in the order of their first offsets. The
last stable offset of an entry says that none behind it begins before that, so only few have to be held.

An abort marker behind data that no entry calls aborted means that a transaction index has lost entries.
Going on would keep what was aborted and drop what it seems to supersede: that is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from storage.indexes import AbortedTransaction
from wire.errors import WireError
from wire.record_batch import BatchHeader
from wire.records import Buffer, ControlType, control_type, records


class CleanedTransactions:
    """Shown every batch that has a producer id, in order of offsets."""

    __slots__ = ("_aborted", "_begun", "_committed", "_entries", "_upcoming", "_upcoming_from", "kept")

    def __init__(self, entries: Iterator[AbortedTransaction]) -> None:
        """`entries` are those of the transaction indexes, in their order, from the first segment read on."""
        self._entries = entries
        self._upcoming: list[tuple[int, AbortedTransaction]] = []
        """A heap, by first offset."""
        self._upcoming_from = -1
        """No entry that was not yet taken from the index begins before this."""
        self._aborted: dict[int, AbortedTransaction] = {}
        """By producer id: the one that is being passed."""
        self._begun: set[int] = set()
        """The producers of `_aborted` of which data was seen."""
        self._committed: set[int] = set()
        """The producers of which data of a transaction was seen whose marker was not."""
        self.kept: list[AbortedTransaction] = []
        """The entries whose markers were passed and stay. Whoever wrote them to an index clears it."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether this batch of data may be dropped because its transaction was aborted."""
        if not header.is_transactional:
            return False
        self._advance(header)
        producer_id = header.producer_id
        transaction = self._aborted.get(producer_id)
        if transaction is not None and header.base_offset > transaction.last_offset:
            # Its marker is gone already.
            del self._aborted[producer_id]
            self._begun.discard(producer_id)
            transaction = None
        if transaction is None:
            self._committed.add(producer_id)
            return False
        self._begun.add(producer_id)
        return True

    def is_spent(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether this control batch is a marker of which no data is left; WireError where it is damaged."""
        self._advance(header)
        record = next(records(batch, 0, header), None)
        if record is None:
            # Emptied when it was spent, and left because of its producer.
            return True
        kind = control_type(record)
        producer_id = header.producer_id
        if kind is ControlType.COMMIT:
            spent = producer_id not in self._committed
            self._committed.discard(producer_id)
            return spent
        if kind is ControlType.ABORT:
            return self._is_spent_abort(producer_id)
        return False

    def _is_spent_abort(self, producer_id: int) -> bool:
        if producer_id in self._committed:
            raise WireError(
                f"it aborts a transaction of producer {producer_id} that is in no transaction index"
            )
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._begun:
            return True
        self._begun.remove(producer_id)
        self.kept.append(transaction)
        return False

    def _advance(self, header: BatchHeader) -> None:
        """Take notice of the aborted transactions that begin up to the end of this batch."""
        offset = header.last_offset
        while self._upcoming_from <= offset:
            entry = next(self._entries, None)
            if entry is None:
                self._upcoming_from = 1 << 63
                break
            self._upcoming_from = entry.last_stable_offset
            heappush(self._upcoming, (entry.first_offset, entry))
        while self._upcoming and self._upcoming[0][0] <= offset:
            _, entry = heappop(self._upcoming)
            if entry.last_offset >= header.base_offset:
                self._aborted[entry.producer_id] = entry
