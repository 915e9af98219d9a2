"""One data directory (`log.dirs` names several): its lock, its checkpoints, and the logs in it.

    .lock                               held while the broker runs
    .kafka_cleanshutdown                says that every log was closed; removed before the first is opened
    recovery-point-offset-checkpoint    of every log, as are the two that follow
    log-start-offset-checkpoint         of those that begin within their first segment, or behind it
    replication-offset-checkpoint       the high watermarks
    cleaner-offset-checkpoint           up to where logs were compacted, of those that are
    topic-7/                            a log
    topic-7.<unique>-delete/            the log of a deleted topic, to be removed in a while
    topic-7.<unique>-future/            a copy of a log that was to move here
    topic-7.<unique>-stray/             a log that belongs to nobody any more

Rules:
- A checkpoint is never written back to older contents, whoever writes it, in whatever thread. One that
  cannot be read is made again: without recovery points every log is recovered from its beginning, without
  log start offsets logs begin with their first segment, without high watermarks they wait for what the
  replicas say.
- When the disk refuses a checkpoint or the directory itself, the directory fails, and its logs with it.
  Having no descriptor left is no refusal by the disk: what was to be done is not done now.
- What is to be deleted gets another name first, durably, and is forgotten by the checkpoints: a topic of
  the same name must not inherit anything.
"""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial

from storage import checkpoints
from storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    TopicPartition,
)
from storage.descriptors import is_exhausted
from storage.errors import CorruptCheckpoint, LogDirectoryFailed, OutOfDescriptors, StorageError
from storage.files import Files, Lock, parent
from storage.log import UnifiedLog
from storage.retention import retain

logger = logging.getLogger(__name__)

LOG_NAME = re.compile(r"(.+)-([0-9]+)")
ASIDE_NAME = re.compile(r"(.+)-([0-9]+)\.([^.]+)-(delete|future|stray)")
LONGEST_NAME = 255


def log_name(topic_partition: TopicPartition) -> str:
    topic, partition = topic_partition
    return f"{topic}-{partition}"


def aside_name(topic_partition: TopicPartition, unique: str, why: str) -> str:
    """The name of a directory that is set aside. A long topic is cut, since it does not matter any more."""
    topic, partition = topic_partition
    end = f"-{partition}.{unique}-{why}"
    return topic[: LONGEST_NAME - len(end)] + end


class OffsetCheckpoint:
    """One checkpoint file, with the offsets of all logs of the directory."""

    def __init__(self, files: Files, path: str, offset_of: Callable[[UnifiedLog], int | None]) -> None:
        """Logs of which `offset_of` is None are left out."""
        self._files = files
        self._path = path
        self._offset_of = offset_of
        self._guard = threading.Lock()
        self._turn = 0
        self._written_turn = 0
        self.offsets: Mapping[TopicPartition, int] = {}
        """As last read, or handed out to be written."""

    def read(self) -> None:
        try:
            self.offsets = checkpoints.read_offsets(self._files, self._path)
        except CorruptCheckpoint as error:
            logger.warning("%s; going on without it", error)

    def writing(
        self, logs: Mapping[TopicPartition, UnifiedLog], broken: Collection[TopicPartition]
    ) -> Callable[[], None] | None:
        """What writes the offsets as they are now, here or in a thread; None where they are on disk already.

        Those of broken logs stay as they were.
        """
        offsets = {key: self.offsets[key] for key in broken if key in self.offsets}
        for key, log in logs.items():
            if (offset := self._offset_of(log)) is not None:
                offsets[key] = offset
        if offsets == self.offsets and self._written_turn == self._turn:
            return None
        self.offsets = offsets
        self._turn += 1
        return partial(self._write, self._turn, offsets)

    def _write(self, turn: int, offsets: Mapping[TopicPartition, int]) -> None:
        with self._guard:
            if turn > self._written_turn:
                checkpoints.write_offsets(self._files, self._path, offsets)
                self._written_turn = turn


class LogDirectory:
    """A data directory in use: its open logs, and why the others could not be opened."""

    def __init__(self, files: Files, path: str, *, is_alone: bool = False) -> None:
        """`is_alone`: where it cannot be used, the broker does not start, and says why."""
        self.files = files
        self.path = path
        self._is_alone = is_alone
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.broken: dict[TopicPartition, StorageError] = {}
        self.offline: StorageError | None = None
        self.was_clean = False
        self.recovery_points = OffsetCheckpoint(
            files, f"{path}/{RECOVERY_POINTS}", lambda log: log.recovery_point
        )
        self.log_start_offsets = OffsetCheckpoint(
            files,
            f"{path}/{LOG_START_OFFSETS}",
            lambda log: log.log_start_offset if log.log_start_offset > log.first_durable_offset else None,
        )
        self.high_watermarks = OffsetCheckpoint(
            files, f"{path}/{HIGH_WATERMARKS}", lambda log: log.high_watermark
        )
        self.cleaner_offsets = OffsetCheckpoint(
            files,
            f"{path}/{CLEANER_OFFSETS}",
            lambda log: log.first_dirty_offset if log.config.compacts else None,
        )
        self._lock: Lock | None = None

    def __repr__(self) -> str:
        return f"<LogDirectory {self.path}, {len(self.logs)} logs>"

    def lock(self) -> None:
        """Make the directory, if there is none, and take its lock. DirectoryLocked where a broker uses it."""
        try:
            self._make()
            self._lock = self._lock or self.files.lock(f"{self.path}/{LOCK}")
        except OSError as error:
            self.fail_at_start(error)

    def open(self) -> None:
        """Read what the last broker left. OutOfDescriptors where there are too few even for this."""
        if self.offline is not None:
            return
        try:
            self.was_clean = checkpoints.was_clean_shutdown(self.files, self.path)
            checkpoints.remove_clean_shutdown(self.files, self.path)
            for checkpoint in self._checkpoints():
                checkpoint.read()
            for name in self.files.list(self.path):
                if name.endswith(".tmp"):
                    self.files.remove(f"{self.path}/{name}")
        except OSError as error:
            self.fail_at_start(error)

    def fail_at_start(self, error: OSError) -> None:
        """Go on without the directory; but a broker that has too few descriptors is not to start."""
        refusal = self.fail(error, level=logging.DEBUG if self._is_alone else logging.ERROR)
        if self.offline is None:
            raise refusal from error

    def _make(self) -> None:
        """A power cut must not take the directory itself. (Not everybody may sync what is above it.)"""
        missing, path = [], self.path
        while not self.files.is_dir(path):
            if self.files.exists(path):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            missing.append(path)
            path = parent(path)
        self.files.make_dir(self.path)
        with suppress(OSError):
            for path in missing:
                self.files.sync_dir(parent(path))

    def _checkpoints(self) -> tuple[OffsetCheckpoint, ...]:
        return self.recovery_points, self.log_start_offsets, self.high_watermarks, self.cleaner_offsets

    def fail(self, error: OSError, *, level: int = logging.ERROR) -> StorageError:
        """The directory, and every log in it, goes offline; not because too many files are open."""
        if is_exhausted(error):
            refusal = OutOfDescriptors.of(error, self.path)
            logger.warning("%s", refusal)
            return refusal
        if self.offline is None:
            self.offline = LogDirectoryFailed.from_os_error(error, self.path)
            logger.log(level, "Data directory %s goes offline: %s", self.path, self.offline)
            for log in self.logs.values():
                log.fail(self.offline)
        return self.offline

    def names(self) -> list[str]:
        """The directories in it."""
        return [name for name in self.files.list(self.path) if self.files.is_dir(f"{self.path}/{name}")]

    # -- checkpoints

    def checkpoint(self, *files: OffsetCheckpoint) -> None:
        """Write them here and now, durably. A failure takes the directory offline and is raised."""
        for checkpoint in files or self._checkpoints():
            if (write := checkpoint.writing(self.logs, self.broken)) is not None:
                self.run(write)

    def retaining(self, now_ms: int, heard: Callable[[UnifiedLog, Exception], object]) -> Iterator[None]:
        """Retention of all logs, some at a time; `heard` is told of those that fail."""
        durably = partial(self.checkpoint, self.log_start_offsets)
        return retain(list(self.logs.values()), durably, now_ms, heard)

    def run(self, operation: Callable[[], object]) -> None:
        """Something that concerns the whole directory."""
        if self.offline is not None:
            raise self.offline
        try:
            operation()
        except OSError as error:
            raise self.fail(error) from error

    # -- the end

    def close(self, *, clean: bool, broker_epoch: int) -> None:
        """Write what the next broker wants to know, if the logs are closed, and give back the lock."""
        if self.offline is None:
            self.checkpoint()
            if clean:
                self.run(partial(checkpoints.write_clean_shutdown, self.files, self.path, broker_epoch))
        self.release()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
