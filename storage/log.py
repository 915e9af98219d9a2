"""The log of one partition: batches in segments, one offset after another.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    recovery_point <= log_end_offset

Rules:
- One owner, one thread. A `Flush` is the only thing that another thread may run. No clock: now_ms is
  passed in.
- What is appended was validated by `wire`. The leader assigns offsets and its epoch; a follower keeps
  both. Several small batches that arrive together are one write.
- A batch counts when its write has succeeded: before that no offset, no index and no reader knows of it.
  Any error of the disk takes the log offline, and memory with it: whatever the log knows is then made
  again from the files when it is next loaded. So there is nothing to undo, and nothing half-written is
  ever served. A full disk is no exception; this is also what Kafka does, per directory instead of per
  log.
- Having no descriptor left is no error of the disk: what cannot be begun for want of one is refused with
  OutOfDescriptors, and the log goes on. Only in the middle of a change it has to go offline.
- A log that is offline raises the StorageError it went offline with, from every method. Others go on.
- `recovery_point` says up to where everything is durable: batches, what the indexes make of them, leader
  epochs and file names. Only a finished flush raises it. What lies above is read again after a crash.
- Truncation is durable before it returns, newest segment first, so that what was cut off cannot reappear
  behind something written later. Whoever truncates must checkpoint the recovery point before the next
  append.

Loading is told in `recovery.py`, removing old segments in `retention.py`, compaction's exchange of
segments in `replacement.py`, look-ups by time in `timestamps.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from storage import appending, reading, retention, timestamps, truncation
from storage.appending import Run
from storage.checkpoints import write_leader_epochs, write_partition_metadata
from storage.descriptors import is_exhausted
from storage.errors import LogDeleted, LogDirectoryFailed, OutOfDescriptors, StorageError
from storage.files import Buffer, Files
from storage.invariants import InvariantBroken, invariant
from storage.leader_epochs import LeaderEpochs
from storage.log_config import LogConfig
from storage.producer_state import CompletedTransaction, ProducerState
from storage.segment import DELETED, LogSegment
from storage.segments import Segments
from wire.record_batch import NO_LEADER_EPOCH, BatchHeader

logger = logging.getLogger(__name__)

SNAPSHOT_INTERVAL_BYTES = 16 << 20
"""What a producer snapshot within a segment is worth: so much less to read after a crash."""


class Flush(NamedTuple):
    """What has to be synced for everything below `offset` to be durable. `run` may be called in a thread."""

    first_offset: int
    offset: int
    generation: int
    targets: tuple[Callable[[], object], ...]

    def run(self) -> None:
        for target in self.targets:
            target()


class UnifiedLog:
    """One partition's log. `recovery.py` makes them."""

    def __init__(
        self,
        files: Files,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        segments: Segments,
        leader_epochs: LeaderEpochs,
        producers: ProducerState,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: bytes | None = None,
        jitter: Callable[[int], int] = lambda limit_ms: 0,
    ) -> None:
        """`jitter` draws from [0, limit_ms)."""
        self.files = files
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.offline: StorageError | None = None
        self._high_watermark = log_start_offset
        self._jitter = jitter
        self.first_durable_offset = segments[0].base_offset
        """After a power cut the log may have segments from here on: the names of those before it are gone."""
        self.first_dirty_offset = log_start_offset
        """Everything below was compacted once. The owner checkpoints it."""
        self.generation = 0
        """Counts truncations: a flush that began before one says nothing about what was written after it."""
        self.unsynced: list[Callable[[], object]] = []
        """What the next flush has to sync besides the active segment."""
        self._flushes_running = 0
        self._writing_files = threading.Lock()
        self._deleted: list[tuple[LogSegment, int | None]] = []
        """Renamed segments, and when to remove them."""
        self.is_changed = False
        """Whether closing has something to write."""
        self.gaps: Sequence[tuple[str, int, int]] = ()
        """Between segments, where records are lost; see `gaps.py`."""
        self.hole: int | None = None
        """From here on something is missing that recovery should have found. A follower can get it again."""
        self.set_aside = 0
        """How many files recovery has set aside, now or earlier; see `set_aside.py`."""
        self.is_closed = False
        """Whether it has done so."""
        self._snapshot_size = segments.active.size
        """The size of the active segment when the last snapshot was taken."""
        self._checkpointed_offset = log_end_offset
        self._check_order()

    def __repr__(self) -> str:
        return f"<UnifiedLog {self.name} [{self.log_start_offset}, {self.log_end_offset})>"

    append_as_leader = appending.append_as_leader
    append_as_follower = appending.append_as_follower
    read = reading.read
    truncate_to = truncation.truncate_to
    truncate_fully_and_start_at = truncation.truncate_fully_and_start_at
    delete_records_before = retention.delete_records_before
    delete_old_segments = retention.delete_old_segments
    offset_for_timestamp = timestamps.offset_for_timestamp

    # -- offsets

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self.segments.size

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Kept between log start and log end. That it never goes backwards is the partition's business."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        self._high_watermark = offset
        self.producers.high_watermark_updated(self._high_watermark)
        self._check_order()

    @property
    def last_stable_offset(self) -> int:
        """No transaction that begins below this is open (conformance 43)."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self.log_start_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch not above the one asked for, and where it ends; (-1, -1) (conformance 65)."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """What is appended from now on is written in this epoch, even if the log has been in a later one.

        So it is with a log that comes from another cluster. As in Kafka, later epochs are forgotten, and
        their batches stay.
        """
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    def raise_log_start_offset(self, offset: int) -> bool:
        """Whether that changed anything. Durable when the owner has checkpointed it."""
        if offset <= self.log_start_offset:
            return False
        invariant(offset <= self._high_watermark, "log_start_offset never passes the high watermark")
        self.log_start_offset = offset
        if self.hole is not None and self.hole < offset:
            self.hole = None
        self.leader_epochs.truncate_from_start(offset)
        self.producers.log_start_offset_incremented(offset)
        self._check_order()
        return True

    def set_offsets(self, log_start_offset: int, log_end_offset: int, recovery_point: int) -> None:
        """After a truncation."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.first_durable_offset = min(self.first_durable_offset, self.segments[0].base_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, log_end_offset)
        if self.hole is not None and not log_start_offset <= self.hole < log_end_offset:
            self.hole = None
        self.is_changed = True
        self.generation += 1
        self.high_watermark = self._high_watermark

    def _check_order(self) -> None:
        end = self.log_end_offset
        if not self.log_start_offset <= self.last_stable_offset <= self._high_watermark <= end:
            raise InvariantBroken("log start <= last stable offset <= high watermark <= log end")
        if self.recovery_point > end:
            raise InvariantBroken("recovery point <= log end")

    def assign_topic_id(self, topic_id: bytes) -> None:
        """For a log that was made before the topic had one, or whose file was lost."""
        try:
            write_partition_metadata(self.files, self.directory, topic_id)
        except OSError as error:
            raise self.fail(error) from error
        self.topic_id = topic_id

    # -- going offline

    def check_online(self) -> None:
        """Raise the error that took the log offline, if any."""
        if self.offline is not None:
            raise self.offline

    def fail(self, error: BaseException, *, half_done: bool = False) -> BaseException:
        """Go offline, for good; what to raise. For want of a descriptor only if something is `half_done`."""
        if isinstance(error, OutOfDescriptors) or (is_exhausted(error) and not half_done):
            return OutOfDescriptors.of(error, self.directory)
        if self.offline is None:
            if isinstance(error, StorageError):
                self.offline = error
            elif isinstance(error, OSError):
                self.offline = LogDirectoryFailed.from_os_error(error, self.directory)
            else:
                self.offline = StorageError(self.directory, f"{type(error).__name__}: {error}")
            ours = None if isinstance(error, (StorageError, OSError)) else error
            logger.error("Log %s goes offline: %s", self.name, self.offline, exc_info=ours)
        return self.offline if isinstance(error, Exception) else error

    def retire(self) -> None:
        """The log was deleted; who still has it will notice. A flush that runs writes no file any more.

        Its directory may be opened once more before it is removed: Kafka does that, and misses its indexes.
        """
        with self._writing_files:
            was_online = self.offline is None
            self.offline = self.offline or LogDeleted(self.directory)
        if was_online:
            with suppress(OSError):
                self.segments.active.finish()
        self.release()

    def write_while_online(self, write: Callable[[], object]) -> None:
        """In a thread: write a file by its name. That of a deleted log may be another one's by then."""
        with self._writing_files:
            if self.offline is None:
                write()

    # -- writing

    def make_room(
        self, run: Run, size: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether the batch about to join the run begins a new segment; then the run is written before."""
        active = self.segments.active
        used = active.size + run.size
        most_ms = self.config.max_segment_ms - active.roll_jitter_ms
        rolls = last_offset > active.largest_possible_offset or (
            used > 0
            and (
                used + size > self.config.segment_bytes
                or active.is_index_full
                or active.waited_ms(max_timestamp, now_ms) > most_ms
            )
        )
        if rolls:
            self.write(run)
            self.roll(now_ms, first_offset)
            active, used = self.segments.active, 0
            try:
                active.prepare()
            except OSError as error:
                raise self.fail(error) from error
        if not used:
            active.first_timestamp = max_timestamp
        return rolls

    def write(self, run: Run) -> None:
        """Write staged batches to the active segment; they count from here on."""
        if not run.buffers:
            return
        self.segments.active.append(run.buffers, run.written)
        self.log_end_offset = self.producers.map_end_offset = run.next_offset
        self.is_changed = True
        run.clear()
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()

    def take_over(self, header: BatchHeader, buffer: Buffer, position: int) -> None:
        """What a batch that was checked elsewhere means for leader epochs, producers and transactions."""
        if header.leader_epoch not in (NO_LEADER_EPOCH, self.leader_epochs.latest):
            # Also an older one: then the latest was ours, and nothing was written in it.
            self.leader_epochs.assign(header.leader_epoch, header.base_offset)
        ended = self.producers.replay(header, buffer, position)
        if ended is not None:
            self._index_transaction(*ended)

    def end_transaction(self, completed: CompletedTransaction) -> None:
        """A marker is about to be written."""
        last_stable_offset = self.producers.last_stable_offset(completed)
        self.producers.complete(completed)
        self._index_transaction(completed, last_stable_offset)

    def _index_transaction(self, completed: CompletedTransaction, last_stable_offset: int) -> None:
        if completed.is_aborted:
            self.segments.active.index_transaction(completed, last_stable_offset)
            self.unsynced.append(self.segments.active.transaction_index.sync)

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Begin a new segment, unless the active one is empty; a gap before `base_offset` stays a gap."""
        base_offset = self.log_end_offset if base_offset is None else base_offset
        closed = self.segments.active
        if closed.base_offset == base_offset:
            return
        try:
            closed.finish()
            if len(self.segments) == 1:
                # A log that has lost the name of its first segment only would begin with the second one.
                self.files.sync_dir(self.directory)
            self.add_segment(base_offset, now_ms)
            self.unsynced.append(closed.sync)
            self.producers.map_end_offset = base_offset
            self._take_snapshot()
        except OSError as error:
            raise self.fail(error) from error

    def add_segment(self, base_offset: int, now_ms: int) -> None:
        self.segments.add(
            LogSegment.create(
                self.files,
                self.directory,
                base_offset,
                self.config,
                now_ms=now_ms,
                roll_jitter_ms=self.config.roll_jitter_ms(self._jitter),
            )
        )
        self.unsynced.append(partial(self.files.sync_dir, self.directory))

    # -- making durable

    @property
    def is_being_flushed(self) -> bool:
        return self._flushes_running > 0

    @property
    def has_rolled(self) -> bool:
        """Whether there is more to flush than the active segment."""
        return bool(self.unsynced)

    def begin_flush(self) -> Flush:
        """What would make everything appended so far durable; to be run, and then finished or abandoned."""
        self.check_online()
        active = self.segments.active
        try:
            log_file = active.file
            active.transaction_index.flush()  # an entry may have had to wait
        except OSError as error:
            raise self.fail(error) from error
        targets, self.unsynced = self.unsynced, []
        epochs = self.leader_epochs
        if epochs.dirty:
            write = partial(write_leader_epochs, self.files, epochs.path, epochs.entries)
            targets.append(partial(self.write_while_online, write))
            epochs.dirty = False
        targets.append(log_file.sync)
        self._flushes_running += 1
        return Flush(self.segments[0].base_offset, self.log_end_offset, self.generation, tuple(targets))

    def finish_flush(self, flush: Flush) -> None:
        """It was run without an error. Where the log went offline meanwhile, epochs were not written."""
        self._flushes_running -= 1
        is_whole = self.offline is None and flush.generation == self.generation
        if is_whole:
            self.first_durable_offset = max(self.first_durable_offset, flush.first_offset)
            self.recovery_point = max(self.recovery_point, flush.offset)

    def abandon_flush(self, flush: Flush, error: BaseException) -> BaseException:
        """It failed. Nobody may try again: the kernel has forgotten what it could not write.

        Unless it was not even tried, as no file could be opened.
        """
        if is_exhausted(error):
            self.postpone_flush(flush)
        else:
            self._flushes_running -= 1
        return self.fail(error)

    def postpone_flush(self, flush: Flush) -> None:
        """It was not run, or not to its end: the next one has to do it."""
        self._flushes_running -= 1
        self.unsynced[:0] = flush.targets

    def flush(self) -> None:
        """Make everything appended so far durable, here and now."""
        flush = self.begin_flush()
        try:
            flush.run()
        except BaseException as error:
            raise self.abandon_flush(flush, error) from error
        self.finish_flush(flush)

    def checkpoint(self) -> None:
        """Bound what a crash makes us read again: write index entries, and now and then a snapshot."""
        self.check_online()
        if self._checkpointed_offset == self.log_end_offset:
            return
        self._checkpointed_offset = self.log_end_offset
        active = self.segments.active
        try:
            active.flush_indexes()
            if active.size - self._snapshot_size >= SNAPSHOT_INTERVAL_BYTES:
                self._snapshot_size = active.size
                latest = self.producers.latest_snapshot_offset
                if latest is not None and latest not in self.segments.base_offsets:
                    self._forget_snapshot(latest)
                self._take_snapshot()
        except OSError as error:
            raise self.fail(error) from error

    # -- the life of the files

    def remove_segments(self, segments: Iterable[LogSegment], *, sync: bool = False) -> None:
        """Take segments out of the log: their files get another name now, and go in a while."""
        for segment in segments:
            self.segments.remove(segment)
            segment.rename(DELETED, sync=sync)
            self._deleted.append((segment, None))

    def remove_deleted_files(self, now_ms: int) -> None:
        """Remove the files of segments that were taken out file.delete.delay.ms ago."""
        self.check_online()
        if self._flushes_running:
            return
        remaining: list[tuple[LogSegment, int | None]] = []
        try:
            for segment, due_ms in self._deleted:
                due_ms = now_ms + self.config.file_delete_delay_ms if due_ms is None else due_ms
                if due_ms > now_ms:
                    remaining.append((segment, due_ms))
                else:
                    segment.remove()
                    if segment.base_offset not in self.segments.base_offsets:
                        self._forget_snapshot(segment.base_offset)
        except OSError as error:
            raise self.fail(error) from error
        self._deleted = remaining

    def _take_snapshot(self) -> None:
        path = self.producers.take_snapshot()
        if path is not None:
            self.unsynced.append(partial(self._sync_snapshot, path))

    def _sync_snapshot(self, path: str) -> None:
        """In a thread. Its segment, and so the snapshot, may be gone by then."""
        with suppress(FileNotFoundError):
            file = self.files.open(path, read_only=True)
            try:
                file.sync()
            finally:
                file.close()

    def _forget_snapshot(self, offset: int) -> None:
        path = self.producers.forget_snapshot(offset)
        if path is not None and self.files.exists(path):
            self.files.remove(path)

    def release_idle_files(self) -> None:
        """Close the files of old segments that nobody has used since the last call."""
        if self._flushes_running or self.unsynced or self.offline is not None:
            return
        for segment in self.segments:
            if not segment.used and segment is not self.segments.active:
                segment.release()
            segment.used = False

    def close(self) -> None:
        """Make everything durable, so that the log can be opened again without reading it, and release it."""
        self.check_online()
        invariant(not self._flushes_running, "no flush is running when a log is closed")
        try:
            if self.is_changed:
                self._make_all_durable()
        except OSError as error:
            raise self.fail(error) from error
        self.release()
        self.is_closed = True

    def _make_all_durable(self) -> None:
        """With as few syncs as it takes. A snapshot needs none: one that a power cut tears is not used."""
        active = self.segments.active
        active.finish()
        if self.recovery_point < self.log_end_offset or self.unsynced or self.leader_epochs.dirty:
            self.flush()
        if active.sync_indexes():
            self.files.sync_dir(self.directory)
        self.producers.take_snapshot()

    def release(self) -> None:
        """Close all files, as they are."""
        for segment in [*self.segments, *(segment for segment, _ in self._deleted)]:
            with suppress(OSError):
                # The indexes would like to write what they hold; a log that is offline may not be able to.
                segment.release()
