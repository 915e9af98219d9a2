"""Checking the directory of one partition: every batch, and all that is derived from the batches.

One pass over the segments in order; indexes, producers, snapshots and leader epochs go along. Memory does not
grow with the log, but for the producers in it.

What must hold of the batches (conformance 88):
- Each is whole, has a valid checksum and a known codec, and holds no more records than offsets.
- Offsets grow, within the segment's base offset and the next segment's. Offsets may be missing only where
  compaction has been.
- A batch is of the leader epoch that the epoch checkpoint has for its offset.

What lies above the recovery point of a directory that was not shut down cleanly is read again by the next
start, which cuts the log at the first damage. There damage is a warning, and what follows is not looked at.
The same files belong to a running broker: what it writes late may be missing above the recovery point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from storage.batch_scan import CorruptBatch, OtherFormat
from storage.check_indexes import SegmentIndexes
from storage.check_names import REMOVED_AT_START, PartitionNames
from storage.check_producers import Replay, Snapshots
from storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_partition_metadata
from storage.errors import CorruptCheckpoint
from storage.files import Files
from storage.findings import Finding, Kind, PartitionFacts, Report, Severity
from storage.indexes import MAX_RELATIVE_OFFSET
from storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from storage.survey import survey
from wire.compression import Codec
from wire.errors import WireError
from wire.record_batch import CODEC_MASK, BatchHeader, crc_is_valid

CUT = "The next start cuts the log there."
LEARNED_AGAIN = "The next start removes the file, and the broker learns the topic id again."
RESTORE = "Restore the partition from another replica, if there is one."
NOT_SERVED = f"kbroker does not serve it to readers. {RESTORE}"
REFUSED = "kbroker does not use such a log, and leaves it as it is. Copy the topic while Kafka runs on it."
FINE_IF_COMPACTED = "That is fine if the topic is compacted, or was; otherwise records are lost."
FINE_IF_EXPIRED = (
    "That is fine if the producer had been idle for long; otherwise batches are missing or twice there."
)
REMOVE_EPOCHS = (
    f"Remove {LEADER_EPOCHS} while no broker runs; the next start makes it again from the batches."
)
RECOVER = "Remove the clean-shutdown marker while no broker runs, so that the next start reads the log again."


@dataclass(frozen=True, slots=True)
class Known:
    """What the files of the data directory say of a log; None where they say nothing."""

    was_clean: bool = False
    recovery_point: int | None = None
    high_watermark: int | None = None
    log_start_offset: int | None = None
    cleaner_offset: int | None = None
    is_internal: bool = False
    """Brokers write it themselves, and do not count their batches in transactions."""


class PartitionCheck:
    """One directory, checked once."""

    def __init__(
        self, files: Files, path: str, report: Report, known: Known, progress: Callable[[int], None]
    ) -> None:
        """`progress` is told the size of every log file that is done with."""
        self.files = files
        self.path = path
        self.known = known
        self.add = report.add
        self.progress = progress
        self.topic_id = self._read_metadata()
        self.facts = PartitionFacts(path)
        self.end_offset = 0
        """After the last batch."""
        self.has_holes = False
        """Batches are missing, by compaction or damage: what is derived from all of them cannot be judged."""
        self.is_cut = False
        """The next start cuts the log where the check has got to."""
        self._gaps = 0
        self._first_gap: Finding | None = None
        self._names = PartitionNames(files, path, report.add)
        self._epochs = self._read_epochs()
        self._replay = Replay()
        self._snapshots = Snapshots(files, path, self._names.snapshots, report.add)

    def run(self) -> PartitionFacts:
        segments = self._names.segments
        begin = segments[0] if segments else self.known.log_start_offset or 0
        self.end_offset = begin
        self._snapshots.begin(self._replay, begin)
        for base_offset, next_base in zip_longest(segments, segments[1:]):
            if not self.is_cut:
                self._check_segment(base_offset, next_base)
        if not self.is_cut:
            self._check_end()
        self._tell_of_gaps()
        self._tell(begin)
        return self.facts

    def severity_at(self, offset: int) -> Severity:
        """Of what is wrong at an offset: a warning where the next start reads the log again."""
        known = self.known
        if known.was_clean or known.recovery_point is None or offset < known.recovery_point:
            return Severity.ERROR
        return Severity.WARNING

    # -- what stands beside the segments

    def _read_metadata(self) -> bytes | None:
        path = f"{self.path}/{PARTITION_METADATA}"
        try:
            topic_id = read_partition_metadata(self.files, self.path)
        except CorruptCheckpoint as error:
            severity = Severity.ERROR if self.known.was_clean else Severity.WARNING
            self.add(Finding(severity, Kind.METADATA, path, f"{error.why}.", LEARNED_AGAIN))
            return None
        if topic_id is None:
            self.add(Finding(Severity.NOTE, Kind.METADATA, path, "it is missing: the topic id is unknown."))
        return topic_id

    def _read_epochs(self) -> LeaderEpochs | None:
        path = f"{self.path}/{LEADER_EPOCHS}"
        try:
            return LeaderEpochs(self.files, path)
        except CorruptCheckpoint as error:
            advice = "The next start makes it again from the batches."
            self.add(Finding(Severity.WARNING, Kind.LEADER_EPOCHS, path, f"{error.why}.", advice))
            return None

    # -- segments

    def _check_segment(self, base_offset: int, next_base: int | None) -> None:
        path = self._names.path_of(base_offset, ".log")
        self._gap(path, self.end_offset, base_offset)
        self.end_offset = max(self.end_offset, base_offset)
        indexes = SegmentIndexes(
            self.files,
            partial(self._names.path_of, base_offset),
            base_offset,
            self.add,
            self.severity_at,
            is_durable=next_base is not None or self.known.was_clean or self.known.recovery_point is None,
        )
        indexes.transactions.known_from = self._snapshots.begin_offset
        try:
            is_whole = self._check_batches(path, base_offset, indexes)
        except OSError as error:
            what = f"it cannot be read: {error.strerror or error}."
            self.add(Finding(Severity.ERROR, Kind.UNREADABLE, path, what, RESTORE))
        else:
            if is_whole:
                self._finish_segment(path, next_base, indexes)
        finally:
            indexes.close()

    def _check_batches(self, path: str, base_offset: int, indexes: SegmentIndexes) -> bool:
        """Whether all of the file could be told apart."""
        self.facts.segments += 1
        file = self.files.open(path, read_only=True)
        try:
            is_whole = True
            for found in survey(file):
                if isinstance(found, CorruptBatch):
                    self._damaged(found, self.end_offset)
                    is_whole = False
                else:
                    self._check_batch(path, *found, base_offset, indexes)
                if self.is_cut:
                    return False
            self.facts.size += file.size
            self.progress(file.size)
            return is_whole
        finally:
            file.close()

    def _finish_segment(self, path: str, next_base: int | None, indexes: SegmentIndexes) -> None:
        if next_base is not None and self.end_offset > next_base:
            what = f"it reaches offset {self.end_offset - 1}, and the next segment begins at {next_base}."
            self.add(Finding(Severity.ERROR, Kind.OFFSETS, path, what, RESTORE, None, next_base))
        is_closed = next_base is not None or self.known.was_clean
        indexes.finish(self.end_offset, is_closed=is_closed, has_holes=self.has_holes)

    def _damaged(self, error: CorruptBatch, offset: int) -> None:
        severity = self.severity_at(offset)
        self.has_holes = True
        if isinstance(error, OtherFormat):
            severity, advice = Severity.ERROR, REFUSED
        else:
            self.is_cut = severity is Severity.WARNING
            advice = CUT if self.is_cut else NOT_SERVED
        self.add(
            Finding(severity, Kind.BATCH, error.path, f"{error.reason}.", advice, error.position, offset)
        )

    # -- batches

    def _check_batch(
        self,
        path: str,
        position: int,
        header: BatchHeader,
        batch: memoryview,
        base_offset: int,
        indexes: SegmentIndexes,
    ) -> None:
        why = _fault_of(header, batch, base_offset)
        if why is not None:
            self._damaged(CorruptBatch(path, why, position=position), header.base_offset)
            if self.is_cut:
                return
        self._gap(path, self.end_offset, header.base_offset, position)
        self._gap(path, header.base_offset + header.count, header.next_offset, position)
        self.end_offset = max(self.end_offset, header.next_offset)
        self.facts.batches += 1
        self.facts.records += header.count
        indexes.offsets.take(position, header)
        indexes.times.take(header)
        if why is None:
            self._check_epoch(path, position, header)
            self._check_producer(path, position, header, batch, indexes)

    def _gap(self, path: str, offset: int, end_offset: int, position: int | None = None) -> None:
        """Offsets without a record; within a batch it is only known how many there are."""
        if offset >= end_offset:
            return
        self.has_holes = True
        cleaner_offset = self.known.cleaner_offset
        if cleaner_offset is not None and (end_offset <= cleaner_offset or not self.known.was_clean):
            return
        self._gaps += 1
        if self._first_gap is None:
            what = f"{end_offset - offset} offsets up to {end_offset - 1} have no record."
            kind = Kind.GAP
            self._first_gap = Finding(Severity.WARNING, kind, path, what, FINE_IF_COMPACTED, position, offset)

    def _tell_of_gaps(self) -> None:
        """All at once: where compaction has been, there are many."""
        if self._first_gap is not None:
            more = f" So it is in {self._gaps - 1} more places." if self._gaps > 1 else ""
            self.add(self._first_gap._replace(what=self._first_gap.what + more))

    def _check_epoch(self, path: str, position: int, header: BatchHeader) -> None:
        epochs, epoch, offset = self._epochs, header.leader_epoch, header.base_offset
        if epochs is None or epoch < 0 or epoch == (known := epochs.epoch_for(offset)):
            return
        if known == UNDEFINED_EPOCH and epochs.entries and epoch <= epochs.entries[0].epoch:
            return  # Below the log start, where epochs are forgotten.
        if any(one.start_offset > offset and one.epoch <= epoch for one in epochs.entries):
            return  # It was forgotten when the log was led in an earlier epoch, behind this batch.
        is_late = known == epochs.latest < epoch
        if is_late and not self.known.was_clean and offset >= (self.known.recovery_point or 0):
            return
        what = f"the batch is of leader epoch {epoch}, by the checkpoint it should be of {known}."
        severity = self.severity_at(offset)
        self.add(Finding(severity, Kind.LEADER_EPOCHS, path, what, REMOVE_EPOCHS, position, offset))

    def _check_producer(
        self, path: str, position: int, header: BatchHeader, batch: memoryview, indexes: SegmentIndexes
    ) -> None:
        offset = header.base_offset
        self._snapshots.compare_up_to(offset, self._replay, has_holes=self.has_holes)
        has_sequences = not self.known.is_internal and not self.has_holes
        if has_sequences and (what := self._replay.break_in_sequence(header)):
            self.add(Finding(Severity.WARNING, Kind.SEQUENCE, path, what, FINE_IF_EXPIRED, position, offset))
        try:
            aborted = self._replay.take(header, batch)
        except WireError as error:
            what = f"the marker cannot be read: {error}."
            self.add(Finding(Severity.ERROR, Kind.BATCH, path, what, RESTORE, position, offset))
        else:
            if aborted is not None:
                indexes.transactions.take(aborted, has_holes=self.has_holes)

    # -- the end

    def _check_end(self) -> None:
        end = self.end_offset
        self._snapshots.compare_up_to(end, self._replay, has_holes=self.has_holes)
        severity = Severity.WARNING if self.known.was_clean else Severity.NOTE
        for path in self._snapshots.paths():
            what = f"the log ends before it, at {end}."
            self.add(Finding(severity, Kind.SNAPSHOT, path, what, REMOVED_AT_START))
        if self._epochs is not None and self.known.was_clean:
            for epoch, start_offset in self._epochs.entries:
                if start_offset > end:
                    what = f"epoch {epoch} begins at {start_offset}, after the log end {end}."
                    path = self._epochs.path
                    self.add(Finding(Severity.WARNING, Kind.LEADER_EPOCHS, path, what, REMOVE_EPOCHS))

    def _tell(self, begin: int) -> None:
        facts = self.facts
        facts.log_start_offset = max(begin, self.known.log_start_offset or 0)
        facts.log_end_offset = self.end_offset
        facts.high_watermark = self.known.high_watermark
        unstable = self._replay.first_unstable_offset()
        stable = self.end_offset if unstable is None else unstable
        facts.last_stable_offset = max(stable, facts.log_start_offset)


def _fault_of(header: BatchHeader, batch: memoryview, base_offset: int) -> str | None:
    """What is wrong with a batch as such."""
    if not crc_is_valid(batch, 0, header):
        return "the checksum of the batch does not match"
    if header.attributes & CODEC_MASK > max(Codec):
        return f"there is no codec {header.attributes & CODEC_MASK}"
    if not 0 <= header.count <= header.last_offset_delta + 1:
        return f"{header.count} records do not fit {header.last_offset_delta + 1} offsets"
    if header.base_offset < base_offset or header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
        return f"offsets {header.base_offset} to {header.last_offset} do not belong to this segment"
    return None
