"""All producers of one log, the transactions open in it, and the snapshots that make both cheap to rebuild.

What a single producer may send is in `producer_entry`. A transaction is open in this log from the first
transactional batch of its producer to the marker of the transaction coordinator. It holds back the last
stable offset until the high watermark has passed the marker, too. Snapshots, as Kafka's, do not have the
markers that they have seen: after loading one, such a marker counts whether it is replicated or not. What is
then stable has been decided, as a coordinator writes no marker before.

Rules:
- One batch after the other: check, update, then the next. Checking changes nothing. There is no way back:
  if the write fails, the log is offline and this state is thrown away.
- What comes from a leader or from disk is taken over unchecked; it was checked when it was first written.
- State is a function of the log. Snapshots are taken by the owner where a segment begins and at a clean
  shutdown, and read only on loading and truncating. Producers are forgotten by time alone, never because
  retention removed what they wrote.
- No clock: now_ms is passed in. No error but KafkaError for refused batches, and OSError from files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import NamedTuple

from storage.errors import CorruptSnapshot
from storage.files import Buffer, Files
from storage.producer_entry import BatchMetadata, EndMarker, ProducerEntry
from storage.producer_snapshots import Snapshots
from wire.errors import ErrorCode, KafkaError
from wire.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from wire.records import ControlType, Record, control_type, coordinator_epoch, records

__all__ = [
    "BatchMetadata",
    "CompletedTransaction",
    "Duplicate",
    "EndMarker",
    "Origin",
    "ProducerEntry",
    "ProducerState",
    "VerificationGuard",
    "end_marker",
]

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000


class Origin(Enum):
    """Who appends, and so how much is checked."""

    CLIENT = auto()
    """Epoch, sequence, resends, transaction state."""
    COORDINATOR = auto()
    """Group and transaction coordinators: no sequences, their batches carry none."""
    REPLICATION = auto()
    """Copied from the leader, or read back from disk: nothing."""


class Duplicate(NamedTuple):
    """What the first copy of a resent batch got."""

    base_offset: int
    last_offset: int
    append_time_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker, at `last_offset`, has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class VerificationGuard:
    """A transaction is being looked up at its coordinator.

    Compared by identity: a guard that was handed out before a marker came does not count after it.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "started_ms", "supports_epoch_bump")

    def __init__(self, header: BatchHeader, now_ms: int, *, supports_epoch_bump: bool) -> None:
        self.producer_epoch = header.producer_epoch
        self.lowest_sequence = header.base_sequence
        self.started_ms = now_ms
        self.supports_epoch_bump = supports_epoch_bump

    def lower_to(self, header: BatchHeader) -> None:
        """No batch may overtake the first one that waits: the client could never send that again."""
        if header.producer_epoch > self.producer_epoch:
            self.producer_epoch = header.producer_epoch
            self.lowest_sequence = header.base_sequence
        elif header.producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, header.base_sequence)

    def check_sequence(self, entry: ProducerEntry, sequence: int) -> None:
        if self.supports_epoch_bump and sequence != 0 and not entry.batches:
            entry.refuse_sequence(sequence, "0, as its state is unknown here")
        if sequence > self.lowest_sequence:
            entry.refuse_sequence(sequence, f"{self.lowest_sequence}, which waits to be verified")


def end_marker(record: Record) -> EndMarker | None:
    """The commit or abort that a control record stands for; None for other control records."""
    kind = control_type(record)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    return EndMarker(kind == ControlType.COMMIT, coordinator_epoch(record))


class ProducerState:
    """The producers of one log."""

    __slots__ = (
        "_expiration_ms",
        "_last_snapshot_offset",
        "_open",
        "_snapshots",
        "_unreplicated",
        "_verifications",
        "first_unstable_offset",
        "map_end_offset",
        "producers",
        "verify_transactions",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        expiration_ms: Callable[[], int] = lambda: PRODUCER_ID_EXPIRATION_MS,
        verify_transactions: bool = False,
    ) -> None:
        """With `verify_transactions`, a transaction begins here only with a guard of `start_verification`."""
        self._snapshots = Snapshots(files, directory)
        self._last_snapshot_offset = 0
        self._expiration_ms = expiration_ms
        self.verify_transactions = verify_transactions
        self._verifications: dict[int, VerificationGuard] = {}
        self.producers: dict[int, ProducerEntry] = {}
        """To be read only, by others."""
        self.map_end_offset = 0
        """All batches below are in the state. The owner sets it after every append."""
        self.first_unstable_offset: int | None = None
        """Where the oldest transaction begins that is open or was ended at or above the high watermark."""
        self._open: dict[int, int] = {}
        """First offset -> producer id, in ascending order."""
        self._unreplicated: dict[int, int] = {}
        """First offset -> offset of the marker."""

    @property
    def directory(self) -> str:
        """Assign the new one when the directory was renamed."""
        return self._snapshots.directory

    @directory.setter
    def directory(self, directory: str) -> None:
        self._snapshots.directory = directory

    # -- data batches

    def check_append(
        self, header: BatchHeader, origin: Origin = Origin.CLIENT, guard: VerificationGuard | None = None
    ) -> Duplicate | None:
        """Raises KafkaError 45, 47 or 48 where the batch is refused. A Duplicate must not be appended."""
        entry = self.producers.get(header.producer_id)
        if (
            entry is not None
            and header.base_sequence == entry.next_sequence
            and header.producer_epoch == entry.producer_epoch
            and (header.attributes & TRANSACTIONAL_FLAG != 0) == (entry.transaction_first_offset >= 0)
            and not self._verifications
        ):
            # A producer that goes on as it should: what is checked below could only agree.
            return None
        if header.producer_id < 0 or origin is Origin.REPLICATION:
            return None
        return self._check_closely(entry or ProducerEntry(header.producer_id), header, origin, guard)

    def _check_closely(
        self, entry: ProducerEntry, header: BatchHeader, origin: Origin, guard: VerificationGuard | None
    ) -> Duplicate | None:
        if origin is Origin.CLIENT and (batch := entry.find_duplicate(header)):
            return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp)
        entry.check_epoch(header.producer_epoch)
        pending = self._verifications.get(header.producer_id)
        needs_guard = header.is_transactional and self.verify_transactions and not _goes_on(entry, header)
        if needs_guard and (pending is None or pending is not guard):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} has no transaction here that its coordinator knows of",
            )
        if origin is Origin.CLIENT:
            if pending is not None:
                pending.check_sequence(entry, header.base_sequence)
            entry.check_sequence(header)
        if entry.transaction_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} has an open transaction and sent a batch outside of it",
            )
        return None

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Take over a data batch that begins at `base_offset`; it may open a transaction."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        entry.take_batch(header, base_offset)
        if header.attributes & TRANSACTIONAL_FLAG:
            self._verifications.pop(producer_id, None)
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = base_offset
                self._open[base_offset] = producer_id
                self._find_first_unstable()

    # -- markers

    def check_marker(
        self,
        header: BatchHeader,
        marker: EndMarker,
        origin: Origin = Origin.COORDINATOR,
        transaction_version: int = 0,
    ) -> None:
        """Raises KafkaError 47 where the producer's epoch is old, 52 where the coordinator's is."""
        entry = self.producers.get(header.producer_id)
        if entry is not None and origin is not Origin.REPLICATION:
            entry.check_marker(header.producer_epoch, marker, transaction_version)

    def update_marker(
        self, header: BatchHeader, marker: EndMarker, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """Take over a marker at `offset`; None where no transaction was open.

        Where one was: ask `last_stable_offset`, note it in the transaction index if aborted, then `complete`.
        """
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        first_offset = entry.take_marker(header.producer_epoch, marker, timestamp)
        if self.ends_verification(producer_id, header.producer_epoch):
            del self._verifications[producer_id]
        if first_offset < 0:
            return None
        return CompletedTransaction(producer_id, first_offset, offset, not marker.is_commit)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset with this transaction out of the way: what the transaction index is told."""
        for first_offset, producer_id in self._open.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """It is over, and stays unstable until the high watermark has passed its marker."""
        if self._open.pop(completed.first_offset, None) is None:
            raise ValueError(f"{self.directory}: {completed} was not open")
        self._unreplicated[completed.first_offset] = completed.last_offset
        self._find_first_unstable()

    def replay(
        self, header: BatchHeader, buffer: Buffer, position: int = 0
    ) -> tuple[CompletedTransaction, int] | None:
        """Take over the stored batch at `position`, unchecked.

        Where it ended a transaction, that is complete, and returned with the last stable offset for the
        transaction index.
        """
        if header.producer_id < 0:
            return None
        if not header.attributes & CONTROL_FLAG:
            self.update(header, header.base_offset)
            return None
        record = next(records(buffer, position, header), None)
        marker = None if record is None else end_marker(record)
        if record is None or marker is None:
            # Compaction took the marker, and did so only when nothing else of the transaction was left.
            return None
        completed = self.update_marker(header, marker, header.base_offset, record.timestamp)
        if completed is None:
            return None
        last_stable_offset = self.last_stable_offset(completed)
        self.complete(completed)
        return completed, last_stable_offset

    # -- transactions

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        if entry is None or entry.transaction_first_offset < 0:
            return False
        return entry.producer_epoch == producer_epoch

    def start_verification(
        self, header: BatchHeader, now_ms: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Begin to look up a transaction at its coordinator; None where it is open here already.

        KafkaError 47 where the epoch is old.
        """
        entry = self.producers.get(header.producer_id)
        if entry is not None:
            entry.check_epoch(header.producer_epoch)
            if _goes_on(entry, header):
                return None
        guard = self._verifications.get(header.producer_id)
        if guard is None:
            guard = VerificationGuard(header, now_ms, supports_epoch_bump=supports_epoch_bump)
            self._verifications[header.producer_id] = guard
        guard.lower_to(header)
        return guard

    def give_up_verification(self, producer_id: int, guard: VerificationGuard) -> None:
        """The coordinator has refused for good. After a passing refusal the guard stays and keeps order."""
        if self._verifications.get(producer_id) is guard:
            del self._verifications[producer_id]

    def is_being_verified(self, producer_id: int) -> bool:
        return producer_id in self._verifications

    def ends_verification(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a marker with this epoch makes void what is being looked up.

        One that carries the epoch of the next transaction must not undo that one's verification.
        """
        guard = self._verifications.get(producer_id)
        return guard is not None and not (
            guard.supports_epoch_bump and guard.producer_epoch == producer_epoch
        )

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        """Whether the oldest open transaction has been idle for five minutes longer than any may be."""
        producer_id = next(iter(self._open.values()), None)
        if producer_id is None:
            return False
        last_timestamp = self.producers[producer_id].last_timestamp
        limit_ms = max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        return last_timestamp > 0 and now_ms - last_timestamp > limit_ms

    def high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark hold nothing back any more."""
        if self._unreplicated:
            self._forget_unreplicated(high_watermark)

    def _forget_unreplicated(self, offset: int) -> None:
        self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= offset}
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first_open = next(iter(self._open), None)
        first_unreplicated = min(self._unreplicated, default=None)
        if first_open is None or first_unreplicated is None:
            self.first_unstable_offset = first_unreplicated if first_open is None else first_open
        else:
            self.first_unstable_offset = min(first_open, first_unreplicated)

    # -- the life of the log

    def expire(self, now_ms: int) -> None:
        """Forget the producers that have been idle too long, unless in a transaction."""
        expiration_ms = self._expiration_ms()
        for entry in list(self.producers.values()):
            if entry.transaction_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms:
                del self.producers[entry.producer_id]
        for producer_id, guard in list(self._verifications.items()):
            if now_ms - guard.started_ms >= expiration_ms:
                del self._verifications[producer_id]

    def log_start_offset_incremented(self, log_start_offset: int) -> None:
        """What lies below is gone; producers stay."""
        self._forget_unreplicated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Become the state of a log that begins and ends there, as far as the snapshots go.

        The caller then replays from `map_end_offset` to `log_end_offset`, and sets it.
        """
        outside = [at for at in self._snapshots.offsets if not log_start_offset < at <= log_end_offset]
        self._snapshots.remove(*outside)
        if log_end_offset == self.map_end_offset:
            self.log_start_offset_incremented(log_start_offset)
            return
        self._clear()
        self._load_latest_snapshot(log_start_offset)
        self.expire(now_ms)
        self._find_first_unstable()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything and remove all snapshots."""
        self._clear()
        self._snapshots.remove(*self._snapshots.offsets)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self.producers.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = None

    def _load_latest_snapshot(self, log_start_offset: int) -> None:
        self._last_snapshot_offset = self.map_end_offset = log_start_offset
        while (offset := self.latest_snapshot_offset) is not None:
            try:
                stored = self._snapshots.read(offset)
            except (CorruptSnapshot, FileNotFoundError):
                self._snapshots.remove(offset)
                continue
            self.producers = {one.producer_id: ProducerEntry.from_snapshot(one) for one in stored}
            begun = sorted((one.transaction_first_offset, one.producer_id) for one in stored)
            self._open = {first: producer_id for first, producer_id in begun if first >= 0}
            self._last_snapshot_offset = self.map_end_offset = offset
            return

    # -- snapshots

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshots.offsets[-1] if self._snapshots.offsets else None

    def take_snapshot(self) -> str | None:
        """Write a snapshot at `map_end_offset` and return its path; None where there is one already.

        It may be lost or torn in a crash: then the replay is longer.
        """
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        entries = [self.producers[producer_id].to_snapshot() for producer_id in sorted(self.producers)]
        path = self._snapshots.write(offset, entries)
        self._last_snapshot_offset = offset
        return path

    def sync_snapshot(self, offset: int) -> None:
        """Make it durable, if it exists: once older segments are gone, only it says what was open there."""
        self._snapshots.sync(offset)

    def remove_snapshots_before(self, offset: int) -> None:
        self._snapshots.remove(*(at for at in self._snapshots.offsets if at < offset))

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """When a log is loaded: the snapshots of segments stay, and that of a clean shutdown at the end."""
        self._snapshots.remove_strays(segment_base_offsets)

    def forget_snapshot(self, offset: int) -> str | None:
        """The path of the snapshot at `offset`, which is the caller's now: it goes with its segment."""
        if offset not in self._snapshots.offsets:
            return None
        self._snapshots.offsets.remove(offset)
        return self._snapshots.path(offset)


def _goes_on(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Whether the batch belongs to the transaction that is open here."""
    return entry.transaction_first_offset >= 0 and header.producer_epoch == entry.producer_epoch
