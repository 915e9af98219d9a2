"""What each producer wrote last: contracts first; the bodies follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from storage.files import Files

if TYPE_CHECKING:
    from wire.records import BatchHeader, Buffer, Record  # type: ignore[import-not-found,unused-ignore]


class Origin(Enum):
    """Who appends, and so how much is checked."""

    CLIENT = auto()
    """Epoch, sequence, duplicates, transaction state."""
    COORDINATOR = auto()
    """Group and transaction coordinators: epochs only; their batches carry no sequence numbers."""
    REPLICATION = auto()
    """Copied from the leader, or read back from disk: nothing is refused."""


class BatchMetadata(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class Duplicate(NamedTuple):
    """What the first copy of a resent batch got."""

    base_offset: int
    last_offset: int
    append_time_ms: int


class EndMarker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool


class ProducerEntry:
    """One producer: epochs, the last five batches (oldest first), the first offset of its open transaction or -1."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    transaction_first_offset: int
    batches: tuple[BatchMetadata, ...]


class VerificationGuard:
    """Proof that a transaction was looked up at its coordinator after the last marker; compared by identity."""


def end_marker(record: Record) -> EndMarker | None:
    """The commit or abort a control record stands for; None for other control records."""
    raise NotImplementedError


class ProducerState:
    """The producers of one log."""

    def __init__(self, files: Files, directory: str, *, producer_id_expiration_ms: int = 86_400_000) -> None:
        """Lists the snapshots; reads none."""

    directory: str
    """Assign the new one when the directory was renamed."""
    map_end_offset: int
    """All batches below this offset are in the state; set it after every append."""
    first_unstable_offset: int | None
    """First offset of the oldest transaction that is open, or whose marker is at or above the high watermark."""
    producers: Mapping[int, ProducerEntry]

    # Appending. One batch: check, then update (before or after the write, but before the next check).
    # If the write fails the log goes offline and this state is thrown away.

    def check_append(
        self, header: BatchHeader, origin: Origin = Origin.CLIENT, guard: VerificationGuard | None = None
    ) -> Duplicate | None:
        """Raise KafkaError where a data batch is refused (45, 47, 48); a Duplicate must not be appended."""
        raise NotImplementedError

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Take over a data batch that begins at `base_offset`; it may begin a transaction."""

    def check_marker(
        self, header: BatchHeader, marker: EndMarker, origin: Origin, transaction_version: int = 0
    ) -> None:
        """Raise KafkaError where a marker is refused: 47 (epoch), 52 (coordinator epoch)."""

    def update_marker(
        self, header: BatchHeader, marker: EndMarker, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """Take over a marker at `offset`; None where it ended nothing. Afterwards: `last_stable_offset`, the
        transaction index if aborted, `complete`."""
        raise NotImplementedError

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """What the last stable offset becomes when this one is complete: goes into the transaction index."""
        raise NotImplementedError

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction is over; it stays unstable until the high watermark has passed its marker."""

    def replay(
        self, header: BatchHeader, buffer: Buffer, position: int = 0
    ) -> tuple[CompletedTransaction, int] | None:
        """Take over a stored batch (data or marker), unchecked. (completed, last stable offset) when it ended a
        transaction; `complete` has been called."""
        raise NotImplementedError

    # Transactions.

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        raise NotImplementedError

    def start_verification(
        self, header: BatchHeader, now_ms: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Begin the lookup at the coordinator; None where the transaction is open already. 47 on an old epoch."""
        raise NotImplementedError

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        """Whether the oldest open transaction has been idle five minutes longer than any may be."""
        raise NotImplementedError

    def high_watermark_updated(self, high_watermark: int) -> None: ...

    # Life of the log.

    def expire(self, now_ms: int) -> None:
        """Forget producers idle for `producer_id_expiration_ms`, unless in a transaction."""

    def log_start_offset_incremented(self, log_start_offset: int) -> None: ...

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Drop snapshots outside the log. If the state is not that of `log_end_offset`, load the latest snapshot;
        then the caller replays [map_end_offset, log_end_offset)."""

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything and remove all snapshots."""

    # Snapshots: %020d.snapshot holds the state before that offset.

    @property
    def latest_snapshot_offset(self) -> int | None:
        raise NotImplementedError

    @property
    def oldest_snapshot_offset(self) -> int | None:
        raise NotImplementedError

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Write a snapshot at map_end_offset, unless there is one; its path. `sync=False`: see `sync_snapshot`."""
        raise NotImplementedError

    def sync_snapshot(self, path: str) -> None:
        """Make a snapshot taken with sync=False durable. May be called from another thread."""

    def remove_snapshots_before(self, offset: int) -> None: ...

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """On load: keep those at a segment's base offset, and one above all of them (clean shutdown)."""

    def forget_snapshot(self, offset: int) -> str | None:
        """Drop a snapshot from the list and return its path, for a caller that renames it with its segment."""
        raise NotImplementedError
