"""One producer in one log: what it may send next, and how its resends are recognised.

A producer numbers its records per partition (0 to 2147483647, then 0 again). Its last five batches are
remembered: a batch that begins with the next number is new, one that equals a remembered batch is a resend
and is answered with the first copy's offsets, anything else is out of order. A producer that is not known
may begin anywhere: its state may have expired. A new epoch begins at 0 and forgets the old one's batches; a
smaller epoch is fenced off.

Checks raise KafkaError and change nothing; `take_...` changes and checks nothing.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from storage.producer_snapshots import SnapshotEntry
from wire.errors import ErrorCode, KafkaError
from wire.record_batch import NO_PRODUCER_EPOCH, NO_TIMESTAMP, BatchHeader

REMEMBERED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1


class BatchMetadata(NamedTuple):
    """A batch that was appended, as far as a resend is recognised by it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class EndMarker(NamedTuple):
    """The contents of a commit or abort marker."""

    is_commit: bool
    coordinator_epoch: int


class ProducerEntry:
    """What is known of one producer."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_first_offset = NO_OFFSET
        """-1 while none is open."""
        self.batches: list[BatchMetadata] = []
        """At most five, oldest first."""
        self.next_sequence = 0
        """The only one that goes on where these batches end."""

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that `header` repeats."""
        if header.producer_epoch != self.producer_epoch:
            return None
        for batch in self.batches:
            if header.base_sequence == batch.first_sequence and header.last_sequence == batch.last_sequence:
                return batch
        return None

    def check_epoch(self, producer_epoch: int) -> None:
        if producer_epoch < self.producer_epoch:
            self._refuse_epoch(producer_epoch)

    def check_sequence(self, header: BatchHeader) -> None:
        if self.producer_epoch == NO_PRODUCER_EPOCH:
            return
        expected = self.next_sequence if header.producer_epoch == self.producer_epoch else 0
        if header.base_sequence != expected:
            self.refuse_sequence(header.base_sequence, str(expected))

    def check_marker(self, producer_epoch: int, marker: EndMarker, transaction_version: int) -> None:
        """From transaction version 2 on, a marker carries a larger epoch than the batches before it.

        The same one means that the coordinator repeats itself, which is fine once the transaction is over.
        """
        self.check_epoch(producer_epoch)
        may_repeat = self.transaction_first_offset < 0 or producer_epoch == MAX_PRODUCER_EPOCH
        if transaction_version >= 2 and producer_epoch == self.producer_epoch and not may_repeat:
            self._refuse_epoch(producer_epoch)
        if marker.coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator with epoch {marker.coordinator_epoch} ended a transaction of producer "
                f"{self.producer_id}, which belongs to one with epoch {self.coordinator_epoch} by now",
            )

    def take_batch(self, header: BatchHeader, base_offset: int) -> None:
        if header.producer_epoch != self.producer_epoch:
            self._take_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        last_sequence = header.base_sequence
        if last_sequence >= 0:
            last_sequence = (last_sequence + delta) & MAX_SEQUENCE
        batches = self.batches
        if len(batches) == REMEMBERED_BATCHES:
            del batches[0]
        timestamp = header.max_timestamp
        # Half the price of calling the class, on a path that every idempotent batch takes.
        batches.append(tuple.__new__(BatchMetadata, (last_sequence, base_offset + delta, delta, timestamp)))
        self.next_sequence = (last_sequence + 1) & MAX_SEQUENCE
        self.last_timestamp = timestamp

    def take_marker(self, producer_epoch: int, marker: EndMarker, timestamp: int) -> int:
        """The first offset of the transaction this ends, or -1."""
        self._take_epoch(producer_epoch)
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp = timestamp
        first_offset, self.transaction_first_offset = self.transaction_first_offset, NO_OFFSET
        return first_offset

    def _take_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()
            self.next_sequence = 0

    def _refuse_epoch(self, producer_epoch: int) -> NoReturn:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {self.producer_id} is at epoch {self.producer_epoch}, epoch {producer_epoch} is over",
        )

    def refuse_sequence(self, sequence: int, expected: str) -> NoReturn:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {self.producer_id} sent sequence {sequence} in place of {expected}",
        )

    def to_snapshot(self) -> SnapshotEntry:
        last = self.batches[-1] if self.batches else BatchMetadata(-1, NO_OFFSET, 0, NO_TIMESTAMP)
        return SnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.transaction_first_offset,
        )

    @classmethod
    def from_snapshot(cls, stored: SnapshotEntry) -> ProducerEntry:
        entry = cls(stored.producer_id)
        entry.producer_epoch = stored.producer_epoch
        entry.coordinator_epoch = stored.coordinator_epoch
        entry.last_timestamp = stored.timestamp
        entry.transaction_first_offset = max(stored.transaction_first_offset, NO_OFFSET)
        if stored.last_offset >= 0:
            last = BatchMetadata(
                stored.last_sequence, stored.last_offset, stored.offset_delta, stored.timestamp
            )
            entry.batches.append(last)
            entry.next_sequence = (stored.last_sequence + 1) & MAX_SEQUENCE
        return entry
