"""Replaying what producers wrote, and holding producer snapshots against it.

The replay knows of a producer what a broker knows that has read every batch: the same `ProducerEntry`, but
with open transactions counted by a second hand. It begins with the snapshot at the first segment's base
offset, where there is one.

What must hold:
- A producer's epoch does not fall, its sequence goes on where it was, and a new epoch begins at 0. A producer
  whose state had expired may begin anywhere, so a break in the sequence is a warning and no error.
- A snapshot has the producers as they were at its offset. It may lack those that had expired, and have those
  whose batches retention or compaction has removed since.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.errors import CorruptSnapshot
from storage.files import Files
from storage.findings import Finding, Kind, Severity
from storage.indexes import AbortedTransaction
from storage.producer_entry import NO_COORDINATOR_EPOCH, ProducerEntry
from storage.producer_snapshots import SnapshotEntry, decode_snapshot, snapshot_name
from storage.producer_state import end_marker
from wire.record_batch import BatchHeader
from wire.records import records

REPLACED = "The next start falls back on an older one and reads more of the log."
REMOVE_IT = "Remove the file while no broker runs; an older one and the log take its place."


class Replay:
    """The producers of a log, batch by batch."""

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.open: dict[int, int] = {}
        """Producer id by the first offset of its open transaction, in ascending order."""
        self.with_records: set[int] = set()
        """Producers whose open transaction has records, and not only what compaction leaves of batches."""

    def load(self, entries: list[SnapshotEntry]) -> None:
        self.producers = {entry.producer_id: ProducerEntry.from_snapshot(entry) for entry in entries}
        begun = sorted((entry.transaction_first_offset, entry.producer_id) for entry in entries)
        self.open = {first_offset: producer_id for first_offset, producer_id in begun if first_offset >= 0}
        self.with_records = set(self.open.values())

    def first_unstable_offset(self) -> int | None:
        return next(iter(self.open), None)

    def take(self, header: BatchHeader, batch: memoryview) -> AbortedTransaction | None:
        """Take over a batch; the transaction it ended, if that has records to be left out.

        WireError where a marker cannot be read.
        """
        if header.producer_id < 0:
            return None
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        if header.is_control:
            return self._take_marker(entry, header, batch)
        entry.take_batch(header, header.base_offset)
        if header.is_transactional:
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = header.base_offset
                self.open[header.base_offset] = header.producer_id
            if header.count:
                self.with_records.add(header.producer_id)
        return None

    def _take_marker(
        self, entry: ProducerEntry, header: BatchHeader, batch: memoryview
    ) -> AbortedTransaction | None:
        record = next(records(batch, 0, header), None)
        marker = None if record is None else end_marker(record)
        if marker is None or record is None:
            return None
        first_offset = entry.take_marker(header.producer_epoch, marker, record.timestamp)
        self.open.pop(first_offset, None)
        has_records = header.producer_id in self.with_records
        self.with_records.discard(header.producer_id)
        if first_offset < 0 or marker.is_commit or not has_records:
            return None
        stable = next(iter(self.open), header.base_offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, header.base_offset, stable)

    def break_in_sequence(self, header: BatchHeader) -> str | None:
        """What is odd about the batch that comes next, in words."""
        entry = self.producers.get(header.producer_id)
        if entry is None or header.producer_id < 0:
            return None
        producer = f"producer {header.producer_id}"
        if header.producer_epoch < entry.producer_epoch:
            return f"{producer} writes with epoch {header.producer_epoch} after {entry.producer_epoch}."
        if header.is_control or header.base_sequence < 0:
            return None
        if header.producer_epoch > entry.producer_epoch:
            expected = 0
        elif entry.batches and entry.batches[-1].last_sequence >= 0:
            expected = entry.next_sequence
        else:
            return None
        if header.base_sequence == expected:
            return None
        return f"{producer} goes on with sequence {header.base_sequence} instead of {expected}."


class Snapshots:
    """The snapshots of a log, held against a replay when it comes by."""

    def __init__(
        self, files: Files, directory: str, offsets: list[int], add: Callable[[Finding], None]
    ) -> None:
        """`offsets` ascend."""
        self._files = files
        self._directory = directory
        self._add = add
        self._offsets = offsets
        self._knows_all = True
        self.begin_offset = 0
        """Where the replay begins."""

    def begin(self, replay: Replay, begin_offset: int) -> None:
        """Load the snapshot that the log begins with. The ones before are left over."""
        self.begin_offset = begin_offset
        older = [offset for offset in self._offsets if offset <= begin_offset]
        del self._offsets[: len(older)]
        self._knows_all = begin_offset == 0
        if older and (entries := self._read(older[-1])) is not None:
            replay.load(entries)
            self._knows_all = older[-1] == begin_offset

    def compare_up_to(self, offset: int, replay: Replay, *, has_holes: bool) -> None:
        """The replay has taken everything below `offset`."""
        while self._offsets and self._offsets[0] <= offset:
            at = self._offsets.pop(0)
            entries = self._read(at)
            if entries is not None:
                self._compare(at, entries, replay, has_holes)

    def paths(self) -> list[str]:
        """Of those that have not been compared."""
        return [self._path(offset) for offset in self._offsets]

    def _read(self, offset: int) -> list[SnapshotEntry] | None:
        path = self._path(offset)
        try:
            return decode_snapshot(path, self._files.read(path))
        except CorruptSnapshot as error:
            self._add(
                Finding(Severity.WARNING, Kind.SNAPSHOT, path, f"{error.reason}.", REPLACED, error.position)
            )
            return None

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{snapshot_name(offset)}"

    def _compare(self, at: int, entries: list[SnapshotEntry], replay: Replay, has_holes: bool) -> None:
        missing = dict(replay.producers)
        for stored in entries:
            entry = missing.pop(stored.producer_id, None)
            if entry is None:
                is_gone = has_holes or stored.last_offset < self.begin_offset
                if not is_gone:
                    self._wrong(at, f"the log has nothing of producer {stored.producer_id}: {stored}.")
            elif not self._agrees(stored, entry.to_snapshot(), has_holes):
                self._wrong(at, f"{stored} should be {entry.to_snapshot()}.")
        for producer_id in missing:
            what = f"producer {producer_id} is not in it, which is right if it had expired."
            self._add(Finding(Severity.NOTE, Kind.SNAPSHOT, self._path(at), what))

    def _agrees(self, stored: SnapshotEntry, replayed: SnapshotEntry, has_holes: bool) -> bool:
        if stored == replayed or stored == replayed._replace(coordinator_epoch=NO_COORDINATOR_EPOCH):
            # A producer that expired, and came back, has nothing to do with older coordinators.
            return True
        if has_holes:
            # Compaction may have taken the marker with which the newer epoch began.
            is_newer = stored.producer_epoch > replayed.producer_epoch
            return is_newer or stored.last_offset >= replayed.last_offset
        if self._knows_all:
            return False
        # What came before the replay began shows in the rest: epochs of coordinators, open transactions.
        return replayed.last_offset in (stored.last_offset, -1)

    def _wrong(self, at: int, what: str) -> None:
        self._add(Finding(Severity.ERROR, Kind.SNAPSHOT, self._path(at), what, REMOVE_IT, None, at))
