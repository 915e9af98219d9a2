"""All logs of a broker, in all its data directories.

Start: each directory is locked, its checkpoints are read, its logs are opened. After a clean shutdown that
takes a fraction of a millisecond each; after a crash they are recovered in threads, and the log tells how far
it is. What cannot be opened is remembered as broken: its partition answers KAFKA_STORAGE_ERROR, others work.

While running, `tick` does what is due: retention, removal of deleted files, checkpoints, expiry of
producers, flushes that the topic asks for. It never waits for a disk, except where order matters (a log
start offset is checkpointed before the segments below it go).

Stop: every log is flushed and closed, checkpoints are written, and the clean-shutdown marker, if nothing
was broken, last of all.

Rules:
- One owner, one thread. Threads get a log that nobody knows yet (recovery, `make_ahead`), one that nobody
  uses any more (closing), or a checkpoint's contents.
- A directory that fails takes only its own logs with it. A new log goes to the one with the fewest.
- Recovery points are lowered durably before anything is appended where something was cut off; at the start,
  where a log ends below its own, as after a crash in the middle of that.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from storage.checkpoints import TopicPartition
from storage.closing import FOREVER_S, Submit, at_once, close_all
from storage.descriptors import is_exhausted
from storage.errors import LogDirectoryFailed, OutOfDescriptors, StorageError
from storage.files import Files
from storage.flusher import Failed, Flusher, log_failure
from storage.gaps import GapSearch
from storage.in_threads import InThreads
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.log_directory import (
    ASIDE_NAME,
    LOG_NAME,
    LogDirectory,
    OffsetCheckpoint,
    aside_name,
    log_name,
)
from storage.recovery import DEFAULTS, LogSettings, create_log, load_log
from wire.words import count

logger = logging.getLogger(__name__)

PROGRESS_LOGS = 1000
"""After so many a line says how far it is."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often `tick` does what; Kafka's defaults."""

    retention_ms: int = 300_000
    recovery_points_ms: int = 60_000
    log_start_offsets_ms: int = 60_000
    high_watermarks_ms: int = 5_000
    producers_ms: int = 600_000


INTERVALS = Intervals()


class LogManager:
    """The logs of one broker, by topic and partition."""

    def __init__(
        self,
        files: Files,
        paths: Sequence[str],
        *,
        config_for: Callable[[str], LogConfig],
        submit: Submit,
        call: Callable[[Callable[[], object]], object],
        unique: Callable[[], str],
        settings: LogSettings = DEFAULTS,
        intervals: Intervals = INTERVALS,
        file_delete_delay_ms: Callable[[], int] = lambda: 60_000,
        failed: Failed = log_failure,
    ) -> None:
        """`config_for` a topic; `submit` to threads, `call` back from them; `unique` names, 32 hex digits."""
        self.files = files
        self.directories = [LogDirectory(files, path, is_alone=len(paths) == 1) for path in paths]
        self.flusher = Flusher(submit, call, failed=failed)
        self._failed = failed
        self._gap_search = GapSearch(files, submit, call)
        self._config_for = config_for
        self._submit = submit
        self._call = call
        self._unique = unique
        self._repairs: list[tuple[str, str]] = []
        self._settings = replace(settings, repaired=lambda *repair: self._repairs.append(repair))
        self._intervals = intervals
        self._file_delete_delay_ms = file_delete_delay_ms
        self._places: dict[TopicPartition, LogDirectory] = {}
        self._made: dict[TopicPartition, tuple[LogDirectory, UnifiedLog]] = {}
        """Logs that nobody has asked `create` for yet."""
        self._making_ahead = InThreads(submit, call)
        self._removals: list[tuple[LogDirectory, str, int | None]] = []
        """Directories of deleted logs, and since when they wait."""
        self._retaining: Iterator[None] | None = None
        self._started_ms = 0
        self._last_ms: dict[str, int] = {}
        self._flushed_ms: dict[str, int] = {}

    # -- logs

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.offline is None]

    def __iter__(self) -> Iterator[UnifiedLog]:
        for directory in self.directories:
            yield from directory.logs.values()

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """The log, if there is one; StorageError where it could not be opened or its directory failed."""
        directory = self._places.get(topic_partition)
        if directory is None:
            return None
        log = directory.logs.get(topic_partition)
        if log is None:
            raise directory.broken[topic_partition]
        return log

    # -- start

    def lock(self) -> None:
        """Keep others out of the directories, and change nothing else. DirectoryLocked where one is used."""
        self.files.descriptors.belong_here()
        try:
            for directory in self.directories:
                directory.lock()
        except StorageError:
            self.unlock()
            raise

    def unlock(self) -> None:
        """After a start that has failed."""
        for directory in self.directories:
            directory.release()

    def start(self, now_ms: int, progress: Callable[[int, int], object] = lambda done, total: None) -> None:
        """Open every log. DirectoryLocked where another broker uses a directory; `progress` counts logs."""
        self._started_ms = now_ms
        self.lock()
        try:
            for directory in self.directories:
                directory.open()
            self._open_all(now_ms, progress)
        except StorageError:
            self.unlock()
            raise

    def _open_all(self, now_ms: int, progress: Callable[[int, int], object]) -> None:
        opening = [
            (directory, topic_partition, self._open(directory, topic_partition, now_ms))
            for directory in self.online
            for topic_partition in self._find(directory)
        ]
        for done, (directory, topic_partition, future) in enumerate(opening, 1):
            self._place(directory, topic_partition, future)
            if not directory.was_clean and (done % PROGRESS_LOGS == 0 or done == len(opening)):
                self._tell_progress(done, len(opening))
            progress(done, len(opening))
        for directory in self.online:
            with suppress(StorageError):  # it is offline now
                if not directory.was_clean:
                    # A log that was made just before the crash may not have a durable name.
                    directory.run(partial(self.files.sync_dir, directory.path))
                directory.checkpoint(directory.recovery_points)

    def _tell_progress(self, done: int, total: int) -> None:
        """One line for many logs: after a crash there is something to do for each."""
        counts = sorted(Counter(self._repairs).items())
        repairs = [f"{count(number, one)} {what}" for (one, what), number in counts]
        logger.info(
            "Recovered %d of %s: %s", done, count(total, "log"), ", ".join(repairs) or "nothing to repair"
        )

    def _find(self, directory: LogDirectory) -> list[TopicPartition]:
        """The logs of a directory; what was set aside earlier is dealt with."""
        found = []
        try:
            names = directory.names()
        except OSError as error:
            directory.fail_at_start(error)
            return []
        for name in names:
            path = f"{directory.path}/{name}"
            if match := LOG_NAME.fullmatch(name):
                found.append((match[1], int(match[2])))
            elif match := ASIDE_NAME.fullmatch(name):
                if match[4] == "delete":
                    self._removals.append((directory, path, None))
                else:
                    logger.warning("%s is left as it is", path)
            else:
                logger.warning("%s is not the directory of a partition: it is left alone", path)
        return found

    def _open(
        self, directory: LogDirectory, topic_partition: TopicPartition, now_ms: int
    ) -> Future[UnifiedLog]:
        """Here, if there is nothing to recover; in a thread, if there is."""
        load = partial(
            load_log,
            self.files,
            f"{directory.path}/{log_name(topic_partition)}",
            *topic_partition,
            self._config_for(topic_partition[0]),
            recovery_point=directory.recovery_points.offsets.get(topic_partition),
            log_start_offset=directory.log_start_offsets.offsets.get(topic_partition, 0),
            was_clean=directory.was_clean,
            now_ms=now_ms,
            settings=self._settings,
        )
        return at_once(load) if directory.was_clean else self._submit(load)

    def _place(
        self, directory: LogDirectory, topic_partition: TopicPartition, opened: Future[UnifiedLog]
    ) -> None:
        """Take a log in, or remember why it could not be opened."""
        path = f"{directory.path}/{log_name(topic_partition)}"
        try:
            log = opened.result()
        except StorageError as error:
            self._break(directory, topic_partition, error)
            return
        except OSError as error:
            if is_exhausted(error):
                raise OutOfDescriptors.of(error, path) from error
            self._break(directory, topic_partition, LogDirectoryFailed.from_os_error(error, path))
            return
        other = self._places.get(topic_partition)
        if other is not None:
            log.release()
            why = f"the same log is in {other.path}; one of the two has to go"
            self._break(other, topic_partition, StorageError(path, why))
            return
        log.high_watermark = directory.high_watermarks.offsets.get(topic_partition, 0)
        cleaned = directory.cleaner_offsets.offsets.get(topic_partition, log.log_start_offset)
        log.first_dirty_offset = min(cleaned, log.log_end_offset)
        directory.logs[topic_partition] = log
        self._places[topic_partition] = directory
        self._gap_search.add(log)

    def _break(self, directory: LogDirectory, topic_partition: TopicPartition, error: StorageError) -> None:
        logger.error("Log %s of %s cannot be used: %s", log_name(topic_partition), directory.path, error)
        log = directory.logs.pop(topic_partition, None)
        if log is not None:
            log.release()
        directory.broken[topic_partition] = error
        self._places[topic_partition] = directory

    # -- making and removing logs

    def create(
        self,
        topic_partition: TopicPartition,
        now_ms: int,
        topic_id: bytes | None = None,
        *,
        is_new: bool = True,
    ) -> UnifiedLog:
        """The log, made if there is none, in the directory that has the fewest.

        A partition that is not new may have its log in a directory that is offline: then none is made.
        """
        log = self.get(topic_partition)
        if log is None and not is_new:
            for directory in self.directories:
                if directory.offline is not None:
                    raise directory.offline
        if log is not None and log.topic_id is None and topic_id is not None:
            log.assign_topic_id(topic_id)
        if log is None and topic_partition in self._made:
            directory, made = self._made.pop(topic_partition)
            if directory.offline is None:
                return self._keep(directory, topic_partition, made)
            made.release()
        while log is None:
            if not self.online:
                raise self.directories[0].offline or StorageError(self.directories[0].path, "is offline")
            directory = min(self.online, key=lambda directory: len(directory.logs))
            try:
                made = self._making(directory, topic_partition, topic_id, now_ms)()
            except OSError as error:
                refusal = directory.fail(error)
                if directory.offline is None:
                    raise refusal from error
            else:
                return self._keep(directory, topic_partition, made)
        return log

    def _keep(self, directory: LogDirectory, topic_partition: TopicPartition, log: UnifiedLog) -> UnifiedLog:
        directory.logs[topic_partition] = log
        self._places[topic_partition] = directory
        return log

    def _making(
        self, directory: LogDirectory, topic_partition: TopicPartition, topic_id: bytes | None, now_ms: int
    ) -> Callable[[], UnifiedLog]:
        return partial(
            create_log,
            self.files,
            f"{directory.path}/{log_name(topic_partition)}",
            *topic_partition,
            self._config_for(topic_partition[0]),
            now_ms=now_ms,
            topic_id=topic_id,
            settings=self._settings,
        )

    def would_make(self, topic_partition: TopicPartition, *, is_new: bool) -> bool:
        """Whether `create` would make a log now."""
        return topic_partition not in self._places and (is_new or len(self.online) == len(self.directories))

    def make_ahead(
        self, wanted: Mapping[TopicPartition, bytes], now_ms: int, done: Callable[[], object]
    ) -> None:
        """Make new logs, by topic id, in a thread, then call `done`; the caller will `create` each of them.

        One that cannot be made here is left to `create`, which tries again and says why.
        """
        logs = {directory: len(directory.logs) for directory in self.online}
        makings: list[tuple[TopicPartition, LogDirectory, Callable[[], UnifiedLog]]] = []
        for topic_partition, topic_id in wanted.items():
            if logs:
                directory = min(logs, key=lambda directory: logs[directory])
                logs[directory] += 1
                making = self._making(directory, topic_partition, topic_id, now_ms)
                makings.append((topic_partition, directory, making))

        made: dict[TopicPartition, tuple[LogDirectory, UnifiedLog]] = {}

        def make() -> None:
            for topic_partition, directory, making in makings:
                with suppress(OSError, StorageError):
                    made[topic_partition] = directory, making()

        def were_made(_: object) -> None:
            self._made.update(made)
            done()

        if not _try(partial(self._making_ahead.run, make, were_made)):
            self._call(done)

    def _try_to_submit(self, function: Callable[[], None]) -> bool:
        return _try(partial(self._submit, function))

    @property
    def is_busy(self) -> bool:
        """Whether threads flush logs, or make some."""
        return len(self._making_ahead) > 0 or not self.flusher.is_idle

    def look_at_threads(self) -> None:
        """Go on with what threads have ended without being able to say so."""
        self.flusher.tick()
        self._making_ahead.tick()

    def delete(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StorageError]:
        """Forget logs at once, durably; their files go in a while, or on the next start.

        Those whose directory cannot be used, and why: they would be back after a repair.
        """
        moved, refused = self._set_aside(topic_partitions, "delete")
        self._removals += [(directory, path, None) for directory, path in moved.values()]
        return refused

    def set_stray_aside(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Forget logs that this broker should not have, and keep their files."""
        moved, _ = self._set_aside(topic_partitions, "stray")
        for _, path in moved.values():
            logger.warning("%s is left as it is", path)

    def _set_aside(
        self, topic_partitions: Iterable[TopicPartition], why: str
    ) -> tuple[dict[TopicPartition, tuple[LogDirectory, str]], dict[TopicPartition, StorageError]]:
        """Where the logs are now, and those that could not be moved, or not durably."""
        moved: dict[TopicPartition, tuple[LogDirectory, str]] = {}
        refused: dict[TopicPartition, StorageError] = {}
        for topic_partition in topic_partitions:
            directory = self._places.get(topic_partition)
            if directory is None:
                continue
            try:
                moved[topic_partition] = directory, self._move_aside(directory, topic_partition, why)
            except StorageError as error:
                refused[topic_partition] = error
        for directory in dict.fromkeys(directory for directory, _ in moved.values()):
            try:
                directory.run(partial(self.files.sync_dir, directory.path))
                directory.checkpoint()
            except StorageError as error:
                refused |= dict.fromkeys((key for key in moved if moved[key][0] is directory), error)
        return moved, refused

    def _move_aside(self, directory: LogDirectory, topic_partition: TopicPartition, why: str) -> str:
        if directory.offline is not None:
            raise directory.offline
        target = f"{directory.path}/{aside_name(topic_partition, self._unique(), why)}"
        if (log := directory.logs.get(topic_partition)) is not None:
            log.retire()
        directory.run(partial(self.files.rename, f"{directory.path}/{log_name(topic_partition)}", target))
        del self._places[topic_partition]
        directory.logs.pop(topic_partition, None)
        directory.broken.pop(topic_partition, None)
        return target

    # -- cutting logs

    def truncate(self, offsets: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Cut logs to these offsets, durably. A log that fails is offline, and says so when it is used."""
        for topic_partition, offset in offsets.items():
            log = self.get(topic_partition)
            if log is not None and log.offline is None:
                with suppress(StorageError):
                    log.truncate_to(offset, now_ms)
        self._checkpoint_all(offsets)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int, now_ms: int) -> None:
        """Empty a log, durably, to go on at `offset`."""
        log = self.get(topic_partition)
        if log is not None:
            log.truncate_fully_and_start_at(offset, now_ms)
            self._checkpoint_all([topic_partition])

    def _checkpoint_all(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for directory in {self._places[key]: None for key in topic_partitions if key in self._places}:
            directory.checkpoint()

    def checkpoint_log_start_offsets(self) -> None:
        """Make log start offsets durable: what was deleted stays deleted."""
        for directory in self.online:
            directory.checkpoint(directory.log_start_offsets)

    # -- what is to be done now and then

    def tick(self, now_ms: int) -> None:
        """Do what is due. Failures take logs or directories offline, and are not raised."""
        if self._is_due("retention", self._intervals.retention_ms, now_ms):
            self._begin_to_retain(now_ms)
            self._each_log(UnifiedLog.release_idle_files)
        if self._is_due("producers", self._intervals.producers_ms, now_ms):
            self._each_log(lambda log: log.producers.expire(now_ms))
        if self._is_due("recovery points", self._intervals.recovery_points_ms, now_ms):
            self._each_log(UnifiedLog.checkpoint)
            self._checkpoint_later(lambda directory: directory.recovery_points)
            self._checkpoint_later(lambda directory: directory.cleaner_offsets)
        if self._is_due("log start offsets", self._intervals.log_start_offsets_ms, now_ms):
            self._checkpoint_later(lambda directory: directory.log_start_offsets)
        if self._is_due("high watermarks", self._intervals.high_watermarks_ms, now_ms):
            self._checkpoint_later(lambda directory: directory.high_watermarks)
        self._remove_deleted(now_ms)
        with suppress(RuntimeError, MemoryError):  # there may be a thread for it next time
            self._gap_search.tick()
        self.look_at_threads()
        self._flush_what_is_due(now_ms)

    def _is_due(self, what: str, interval_ms: int, now_ms: int) -> bool:
        due = now_ms - self._last_ms.setdefault(what, self._started_ms) >= interval_ms
        if due:
            self._last_ms[what] = now_ms
        return due

    def _each_log(self, action: Callable[[UnifiedLog], object]) -> None:
        for log in self:
            if log.offline is None:
                try:
                    action(log)
                except Exception as error:
                    self._heard(log, error)

    def _heard(self, log: UnifiedLog, error: Exception) -> None:
        """One log must not keep others from what is due."""
        if not isinstance(error, StorageError):  # of those there is a line already
            self._failed(f"what was due of {log.name}", error)

    def _begin_to_retain(self, now_ms: int) -> None:
        """Go through all logs, unless that is going on."""
        if self._retaining is None:
            retaining = [one.retaining(now_ms, self._heard) for one in self.online]
            self._retaining = chain.from_iterable(retaining)
            self._go_on_retaining()

    def _go_on_retaining(self) -> None:
        """With some logs; then others have their turn."""
        if self._retaining is None:
            return
        try:
            is_over = next(self._retaining, self) is self
        except Exception as error:
            self._failed("retention", error)
            is_over = True
        if is_over:
            self._retaining = None
        else:
            self._call(self._go_on_retaining)

    def _checkpoint_later(self, which: Callable[[LogDirectory], OffsetCheckpoint]) -> None:
        """In a thread; nobody waits for it."""
        for directory in self.online:
            write = which(directory).writing(directory.logs, directory.broken)
            if write is not None:
                self._try_to_submit(partial(self._write, directory, write))

    def _write(self, directory: LogDirectory, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self._call(partial(directory.fail, error))

    def _remove_deleted(self, now_ms: int) -> None:
        self._each_log(lambda log: log.remove_deleted_files(now_ms))
        remaining: list[tuple[LogDirectory, str, int | None]] = []
        begun_ms = now_ms - self._file_delete_delay_ms()
        for directory, path, since_ms in self._removals:
            since_ms = now_ms if since_ms is None else since_ms
            remove = partial(self._write, directory, partial(self.files.remove_tree, path))
            if since_ms > begun_ms or (directory.offline is None and not self._try_to_submit(remove)):
                remaining.append((directory, path, since_ms))
        self._removals = remaining

    def _flush_what_is_due(self, now_ms: int) -> None:
        """Logs whose topic asks for it, and those that have rolled: what is behind them need not wait.

        All, when descriptors are scarce: a file that is synced already can be closed at once.
        """
        needs_descriptors = self.files.descriptors.wants_syncs
        for log in self:
            flushed_ms = self._flushed_ms.setdefault(log.name, now_ms)
            if needs_descriptors or log.has_rolled or now_ms - flushed_ms >= log.config.flush_ms:
                self._flushed_ms[log.name] = now_ms
                self.flusher.request(log)

    # -- the end

    def close(self, broker_epoch: int = -1, time_left_s: Callable[[], float] = lambda: FOREVER_S) -> None:
        """Close every log and leave a note that it was done.

        When no time is left, the others stay as after a crash: the log says how many, and there is no note.
        """
        self._retaining = None
        for _, log in self._made.values():
            log.release()
        self._made.clear()
        close_all(self.directories, self._submit, broker_epoch, time_left_s)


def _try(submitting: Callable[[], object]) -> bool:
    """Whether a thread has it. If not, the log says why, and it has to be tried again."""
    try:
        submitting()
    except Exception as error:
        logger.error("There is no thread for work on the logs: %s", error or type(error).__name__)
        return False
    return True
