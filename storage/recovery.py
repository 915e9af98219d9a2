"""Opening the log in a directory, whatever state it was left in.

Whoever is given a log finds its files closed: thousands can be recovered, or made, with few of them open.

After a clean shutdown nothing is read but the names and sizes of the files, the leader epochs and the
latest producer snapshot: the log ends at its recovery point. (The first use of the active segment makes
sure of it.)

After a crash (conformance 88):
- Everything below the recovery point is as it was. From there on each batch is read, and its checksum
  verified; the log ends before the first that is damaged or incomplete. What follows is cut off, but nothing
  that can be read is deleted: `set_aside.py`. Indexes, aborted transactions, leader epochs and producers are
  made again from what is good, and all of it is synced.
- A log with batches of message format 0 or 1 is not opened: they are whole, and nothing is cut off.
  The segments that are to be read are looked at for that before anything is changed.
- A segment that does not begin where the one before it ends stays: compaction leaves such gaps, and elsewhere
  what is behind a gap is no worse for it. A batch whose offset cannot be right is passed over:
  `misplaced_batches.py`.
- Producers begin with the newest snapshot that is sound, and go on with the headers of the batches after
  it.

At any time:
- What compaction, retention or truncation left halfway is finished or removed: `replacement.py`.
- An index that is missing or not sound is made again from its segment; leader epochs, if their file is
  missing or cannot be read, from the headers of all batches; a snapshot that is not sound is replaced by
  an older one and more headers. None of these files can take a batch with it.
- A log that ends before its log start offset has lost its files. It goes on there, empty, and what is left of
  it is set aside.

Recovery may run in a thread of its own: until it returns, nobody else knows of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from storage import index_repair
from storage.batch_scan import (
    LARGEST_OFFSET,
    CorruptBatch,
    OtherFormat,
    checked_batches,
    header_at,
    headers,
)
from storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    encode_partition_metadata,
    read_partition_metadata,
    write_partition_metadata,
)
from storage.errors import CorruptCheckpoint, CorruptFile, CorruptIndex, StorageError
from storage.files import Files, parent
from storage.indexes import MAX_RELATIVE_OFFSET, AbortedTransaction
from storage.leader_epochs import LeaderEpochs
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.misplaced_batches import headers_in_order, in_any_order, in_order
from storage.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerState
from storage.replacement import SEGMENT_FILE, finish_replacements
from storage.segment import DELETED, LogSegment
from storage.segments import Segments
from storage.set_aside import is_set_aside, set_aside, set_tail_aside
from storage.transaction_index import Rewrite
from wire.record_batch import HEADER_SIZE, NO_LEADER_EPOCH, BatchHeader

logger = logging.getLogger(__name__)

LARGE_BYTES = 100 << 20
"""A segment of that size takes a while to read: somebody may want to know."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What all logs of a broker have in common."""

    producer_id_expiration_ms: Callable[[], int] = lambda: PRODUCER_ID_EXPIRATION_MS
    verify_transactions: bool = False
    jitter: Callable[[int], int] = lambda limit_ms: 0
    """Draws from [0, limit_ms)."""
    repaired: Callable[[str, str], object] = lambda one, what: None
    """Told of each thing that had to be mended after a crash, and how. Called in threads."""


DEFAULTS = LogSettings()


def create_log(
    files: Files,
    directory: str,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    now_ms: int,
    topic_id: bytes | None = None,
    settings: LogSettings = DEFAULTS,
) -> UnifiedLog:
    """A new, empty log. Its first flush makes the directory durable, too."""
    files.make_dir(directory)
    if topic_id is not None:
        metadata = files.open(f"{directory}/{PARTITION_METADATA}", create=True)
        metadata.truncate(0)
        metadata.append([encode_partition_metadata(topic_id)])
        metadata.close()
    log = _Opening(files, directory, config, 0, now_ms, settings).log(topic, partition, 0)
    if topic_id is not None:
        write = partial(write_partition_metadata, files, directory, topic_id)
        log.unsynced.append(partial(log.write_while_online, write))
    log.unsynced.append(partial(files.sync_dir, directory))
    log.unsynced.append(partial(files.sync_dir, parent(directory)))
    log.is_changed = True
    log.release()
    return log


def load_log(
    files: Files,
    directory: str,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    recovery_point: int | None = None,
    log_start_offset: int = 0,
    was_clean: bool = False,
    now_ms: int,
    settings: LogSettings = DEFAULTS,
) -> UnifiedLog:
    """The log in `directory`. The offsets are those of the data directory's checkpoints."""
    names = finish_replacements(files, directory, config)
    if was_clean:
        try:
            opening = _Opening(files, directory, config, log_start_offset, now_ms, settings)
            opening.find_segments(names)
            return opening.log(topic, partition, opening.trust(recovery_point))
        except CorruptFile as error:
            logger.warning("%s, after a clean shutdown; recovering the log", error)
    opening = _Opening(files, directory, config, log_start_offset, now_ms, settings)
    opening.find_segments(names)
    try:
        log = opening.log(topic, partition, opening.recover(recovery_point or 0))
    except OtherFormat as error:
        raise StorageError(error.path, error.why) from error
    if recovery_point is None and log.topic_id is not None:
        write_partition_metadata(files, directory, log.topic_id)  # its maker may not have flushed it
    log.is_changed = True
    log.release()
    return log


class _Opening:
    """One log on its way from its files into memory."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        log_start_offset: int,
        now_ms: int,
        settings: LogSettings,
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.log_start_offset = log_start_offset
        self.now_ms = now_ms
        self.settings = settings
        self.segments = Segments()
        self.set_aside = 0
        """Log files that belong to the log no more, and are kept."""
        self.hole: int | None = None
        self.leader_epochs, self.epochs_are_lost = self._load_leader_epochs()
        self.has_read_batches = False
        """Whether epochs may be known from them alone. Those that are only cut off would be so next time."""
        self.producers = ProducerState(
            files,
            directory,
            expiration_ms=settings.producer_id_expiration_ms,
            verify_transactions=settings.verify_transactions,
        )

    def _load_leader_epochs(self) -> tuple[LeaderEpochs, bool]:
        path = f"{self.directory}/{LEADER_EPOCHS}"
        try:
            epochs = LeaderEpochs(self.files, path)
            is_lost = not epochs.entries and (not self.files.exists(path) or not self.files.size(path))
            return epochs, is_lost
        except CorruptCheckpoint as error:
            logger.warning("%s; it will be made again from the log", error)
            self.files.remove(path)
            return LeaderEpochs(self.files, path), True

    def find_segments(self, all_names: Sequence[str]) -> None:
        """Those that have a log file. An index without one is removed."""
        names = [name for name in all_names if SEGMENT_FILE.fullmatch(name)]
        self.set_aside = sum(map(is_set_aside, all_names))
        logs = {name[:20] for name in names if name.endswith(".log")}
        for name in names:
            path = f"{self.directory}/{name}"
            if name[:20] not in logs:
                logger.warning("%s belongs to no segment and is removed", path)
                self.files.remove(path)
            elif name.endswith(".log"):
                size = self.files.size(path)
                self.segments.add(
                    LogSegment(
                        self.files,
                        self.directory,
                        int(name[:20]),
                        self.config,
                        size=size,
                        created_ms=self.now_ms,
                        roll_jitter_ms=self.config.roll_jitter_ms(self.settings.jitter),
                    )
                )

    # -- after a clean shutdown

    def trust(self, recovery_point: int | None) -> int:
        """The log end, from the checkpoint if that can be right."""
        if not self.segments:
            return self.log_start_offset
        active = self.segments.active
        if recovery_point is None or recovery_point < active.base_offset:
            return active.end_offset()
        active.expected_end = recovery_point
        return recovery_point

    # -- after a crash

    def recover(self, recovery_point: int) -> int:
        """Read again what may not be durable, and make it so; where the log ends."""
        self.has_read_batches = True
        if not self.segments:
            return self.log_start_offset
        self._remove_half_deleted()
        recovery_point = max(recovery_point, self.log_start_offset)  # below, nothing matters any more
        suspects = self.segments.since(recovery_point)
        for segment in suspects:
            self._refuse_other_format(segment)
        end_offset = suspects[0].base_offset
        for number, segment in enumerate(suspects, 1):
            level = logging.INFO if segment.size >= LARGE_BYTES else logging.DEBUG
            logger.log(level, "Recovering %s, segment %d of %d", segment.path, number, len(suspects))
            self.settings.repaired("segment", "read again")
            if 0 < segment.base_offset - end_offset <= MAX_RELATIVE_OFFSET and not self.config.compacts:
                self._found_hole(end_offset)  # `gaps.py` tells of it
            if number > 1:
                self.producers.map_end_offset = segment.base_offset
                self.producers.take_snapshot()
                self.producers.sync_snapshot(segment.base_offset)
            offset = max(recovery_point, segment.base_offset)
            limit = LARGEST_OFFSET if number == len(suspects) else suspects[number].base_offset
            good, end_offset = self._recover_segment(segment, offset, limit, is_first=number == 1)
            if good < segment.size:
                self._set_aside(suspects[number:])
                if set_tail_aside(self.files, segment, good, end_offset):
                    self.set_aside += 1
                segment.cut(good)
                self.settings.repaired("log", "cut")
                break
        if self.producers.map_end_offset > end_offset:
            # The recovery point, and a snapshot, are those of a log which was then truncated.
            self.segments.reload_producers(self.producers, end_offset, end_offset, self.now_ms)
            self.segments.active.transaction_index.truncate_to(end_offset)
        for segment in self.segments.since(recovery_point):
            # Or else the next recovery, which begins where the indexes say, might miss aborted transactions.
            segment.transaction_index.flush()
            segment.transaction_index.sync()
            segment.finish()
            segment.sync()
        self.files.sync_dir(self.directory)
        return end_offset

    def _recover_segment(
        self, segment: LogSegment, offset: int, limit: int, *, is_first: bool
    ) -> tuple[int, int]:
        """Read what may not be durable; how many bytes of the segment are good, and the offset after them.

        The next segment begins at `limit`.
        """
        offset = self._check_transactions(segment, offset)
        begin = position = index_repair.rewind(segment, offset)
        if not begin and offset > segment.base_offset:
            self.settings.repaired("index", "made anew")
        end_offset = self._offset_at(segment, position)
        if is_first:
            self.segments.reload_producers(self.producers, offset, end_offset, self.now_ms)
        aborted = segment.transaction_index.from_offset(self.producers.map_end_offset)
        good = segment.size
        walk = in_any_order(checked_batches, segment.file, position, segment.size)
        is_last, limit = limit == LARGEST_OFFSET, min(limit, segment.largest_possible_offset + 1)
        try:
            for found, header, batch in in_order(walk, end_offset, limit, partial(self._misplaced, segment)):
                if found != position:
                    self._found_hole(end_offset)
                    segment.mark_checked(begin, position)
                    segment.index_next()
                    begin = found
                index_repair.index(segment, found, header)
                if header.base_offset >= self.producers.map_end_offset:
                    self._take_over(aborted, header, batch)
                position, end_offset = found + header.size, header.next_offset
            if is_last and position < good:
                good = position  # what is appended next has to be found behind the last batch
        except OtherFormat:
            raise
        except CorruptBatch as error:
            logger.warning("%s; the log ends there, at offset %d", error, end_offset)
            good = error.position
        aborted.finish()
        segment.mark_checked(begin, position)
        return good, end_offset

    def _remove_half_deleted(self) -> None:
        """A power cut may bring back the name of a segment below the log start, without all of its data."""
        for segment, following in pairwise(list(self.segments)):
            if following.base_offset > self.log_start_offset:
                return
            try:
                for _ in headers(segment.file, 0, segment.size):
                    pass
            except OtherFormat:
                raise
            except CorruptBatch as error:
                logger.info("%s; the segment had been deleted, and is again", error)
                self.segments.remove(segment)
                segment.rename(DELETED, sync=True)
                segment.remove()

    def _refuse_other_format(self, segment: LogSegment) -> None:
        """OtherFormat where the segment begins with it, before anything is changed."""
        try:
            next(headers(segment.file, 0, segment.size, HEADER_SIZE), None)
        except OtherFormat:
            raise
        except CorruptBatch:
            pass  # recovery comes to it
        finally:
            segment.release()

    def _found_hole(self, offset: int) -> None:
        self.settings.repaired("gap", "left")
        if self.hole is None:
            self.hole = offset

    def _misplaced(self, segment: LogSegment, found: tuple[int, BatchHeader, memoryview]) -> None:
        position, header, _ = found
        logger.error(
            "%s, byte %d: the batch says offset %d, which cannot be right; it stays, and cannot be read",
            segment.path,
            position,
            header.base_offset,
        )
        self.settings.repaired("batch", "with impossible offsets")

    def _check_transactions(self, segment: LogSegment, offset: int) -> int:
        """Where to begin: at `offset`, or at the beginning if the transaction index is lost."""
        try:
            segment.transaction_index.sanity_check()
        except CorruptIndex as error:
            logger.warning("%s; reading all of %s", error, segment.path)
            segment.transaction_index.remove()
            return segment.base_offset
        return offset

    def _offset_at(self, segment: LogSegment, position: int) -> int:
        if not position:
            return segment.base_offset
        data = segment.file.read(position, HEADER_SIZE)
        return header_at(segment.path, data, 0, position).base_offset

    def _take_over(self, aborted: Rewrite, header: BatchHeader, batch: memoryview) -> None:
        epochs = self.leader_epochs
        if epochs.epoch_for(header.base_offset) != header.leader_epoch > NO_LEADER_EPOCH:
            # What the file has from here on was given up without a flush; or it does not have this one yet.
            epochs.truncate_from_end(header.base_offset)
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
        ended = self.producers.replay(header, batch)
        if ended is not None and ended[0].is_aborted:
            completed, last_stable_offset = ended
            aborted.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
                )
            )
        self.producers.map_end_offset = header.next_offset

    def _set_aside(self, segments: Sequence[LogSegment]) -> None:
        """The newest first, each durably, so that a crash leaves no hole."""
        for segment in reversed(segments):
            self.segments.remove(segment)
            if segment.size:
                set_aside(self.files, segment)
                self.set_aside += 1
                self.settings.repaired("segment", "set aside")
            else:
                segment.rename(DELETED, sync=True)
                segment.remove()

    # -- in any case

    def log(self, topic: str, partition: int, end_offset: int) -> UnifiedLog:
        """The log, with what it needs besides its batches."""
        if end_offset < self.log_start_offset:
            logger.warning(
                "%s ends at offset %d, before its log start offset %d: its files must have been removed",
                self.directory,
                end_offset,
                self.log_start_offset,
            )
            self._set_aside(list(self.segments))
            end_offset = self.log_start_offset
        if not self.segments:
            self.segments.add(self._new_segment(end_offset))
            if end_offset:
                self.files.sync_dir(self.directory)  # without the name it would begin at 0 again
        log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        if self.epochs_are_lost:
            self._find_leader_epochs()
        self.leader_epochs.truncate_from_end(end_offset)
        self.leader_epochs.truncate_from_start(log_start_offset)
        if self.has_read_batches:
            # The recovery point is the end from now on: the next start will not read these batches again.
            self.leader_epochs.flush()
        self.producers.remove_stray_snapshots(self.segments.base_offsets)
        self.segments.reload_producers(self.producers, end_offset, end_offset, self.now_ms)
        log = UnifiedLog(
            self.files,
            self.directory,
            topic,
            partition,
            self.config,
            self.segments,
            self.leader_epochs,
            self.producers,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=end_offset,
            topic_id=self._topic_id(),
            jitter=self.settings.jitter,
        )
        log.set_aside = self.set_aside
        log.hole = self.hole
        return log

    def _new_segment(self, base_offset: int) -> LogSegment:
        return LogSegment.create(
            self.files,
            self.directory,
            base_offset,
            self.config,
            now_ms=self.now_ms,
            roll_jitter_ms=self.config.roll_jitter_ms(self.settings.jitter),
        )

    def _find_leader_epochs(self) -> None:
        self.has_read_batches = True
        self.leader_epochs.clear()
        for segment in self.segments:
            for _, header in headers_in_order(segment.file, 0, segment.size):
                if header.leader_epoch > self.leader_epochs.latest:
                    self.leader_epochs.assign(header.leader_epoch, header.base_offset)

    def _topic_id(self) -> bytes | None:
        try:
            return read_partition_metadata(self.files, self.directory)
        except CorruptCheckpoint as error:
            logger.warning("%s; the topic id is unknown, the file is removed", error)
            self.files.remove(f"{self.directory}/{PARTITION_METADATA}")
            return None
