"""fsck for Kafka's data directories: reads everything, changes nothing.

    report = check_directory(files, path)
    report.is_sound, report.findings, report.partitions

`path` is a data directory (one of `log.dirs`), a directory of several, or the directory of one partition. It
may be Kafka's or kbroker's, cleanly shut down, crashed, or in use by the very process that checks it between
two steps. Files are read from start to end in pieces; all that grows with their number is the report.

What is known of the logs as a whole comes from the data directory: the clean-shutdown marker and the four
checkpoints. A partition that lies in a data directory is judged by them, wherever the check begins. Between
the checkpoints and the log must hold

    log_start_offset <= high_watermark <= log_end_offset      recovery_point == log_end_offset

after a clean shutdown. After a crash checkpoints are older than the log, and may only not be beyond its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from storage.check_partition import RECOVER, Known, PartitionCheck
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    TopicPartition,
    read_meta_properties,
    read_offsets,
    was_clean_shutdown,
)
from storage.errors import CorruptCheckpoint
from storage.files import Files, parent
from storage.findings import Finding, Kind, PartitionFacts, Report, Severity
from storage.log_directory import ASIDE_NAME, LOG_NAME
from wire.internal import TABLES

Progress = Callable[[str, int, int], None]
"""Told the partition that is being checked, bytes done with, and bytes in all."""

CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
KNOWN_FILES = {*CHECKPOINTS, META_PROPERTIES, CLEAN_SHUTDOWN, LOCK, "bootstrap.checkpoint"}
"""The last one is a KRaft controller's."""

METADATA_STORE = re.compile(r"metadata\.db(-wal|-shm|-journal)?")
"""Of a kbroker that runs on its own: what topics there are, and how they are configured."""

WHY_ASIDE = {
    "delete": "it is being deleted.",
    "stray": "the controller knew nothing of it when a broker started.",
    "future": "it is being moved here from another data directory.",
}


def check_directory(files: Files, path: str, progress: Progress = lambda name, done, total: None) -> Report:
    """Check what is in a directory. FileNotFoundError where it does not exist."""
    path = path.rstrip("/") or "/"
    report = Report(path)
    for directory in list(_data_directories(files, path)):
        DataDirectoryCheck(files, directory, report, progress).run()
    if _is_partition(files, path):
        DataDirectoryCheck(files, parent(path), report, progress).run_one(path)
    return report


def _data_directories(files: Files, path: str) -> Iterator[str]:
    """The directory itself, or those in it."""
    names = files.list(path)
    if _is_partition(files, path):
        return
    yield path
    if not any(name in CHECKPOINTS or name == META_PROPERTIES for name in names):
        for name in names:
            below = f"{path}/{name}"
            if files.is_dir(below) and META_PROPERTIES in files.list(below):
                yield below


def _is_partition(files: Files, path: str) -> bool:
    return _name_of(path) is not None and not any(
        name in KNOWN_FILES or files.is_dir(f"{path}/{name}") for name in files.list(path)
    )


def _name_of(path: str) -> TopicPartition | None:
    """The partition a directory is, or was, named after."""
    name = path.rpartition("/")[2]
    match = ASIDE_NAME.fullmatch(name) or LOG_NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else None


class DataDirectoryCheck:
    """One data directory: its own files, and the partitions in it."""

    def __init__(self, files: Files, path: str, report: Report, progress: Progress) -> None:
        self._files = files
        self._path = path
        self._report = report
        self._progress = progress
        self._done = 0
        self._total = 0
        self._topic_ids: dict[str, bytes] = {}
        self._names = files.list(path) if files.exists(path) else []
        self._was_clean = was_clean_shutdown(files, path)
        self._offsets = {name: self._read_checkpoint(name) for name in CHECKPOINTS}

    def run(self) -> None:
        self._check_meta_properties()
        partitions = [name for name in self._names if self._look_at(name)]
        self._total = sum(self._size_of(name) for name in partitions)
        for name in partitions:
            self._check_partition(f"{self._path}/{name}")
        self._check_entries({_name_of(name) for name in partitions})

    def run_one(self, path: str) -> None:
        """Check one partition in it, or wherever it is if this is no data directory."""
        self._total = self._size_of(path.rpartition("/")[2])
        self._check_partition(path)

    # -- the directory's own files

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int] | None:
        """None where it does not tell anything."""
        path = f"{self._path}/{name}"
        try:
            return read_offsets(self._files, path) if name in self._names else None
        except CorruptCheckpoint as error:
            severity = Severity.ERROR if self._was_clean else Severity.WARNING
            advice = "The next start does without it."
            self._report.add(Finding(severity, Kind.CHECKPOINT, path, f"{error.why}.", advice))
            return None

    def _check_meta_properties(self) -> None:
        path = f"{self._path}/{META_PROPERTIES}"
        try:
            properties = read_meta_properties(self._files, self._path)
        except CorruptCheckpoint as error:
            advice = "No broker starts on this directory until it is put right."
            self._report.add(Finding(Severity.ERROR, Kind.METADATA, path, f"{error.why}.", advice))
        else:
            if properties is not None and properties.metadata_file is not None:
                self._check_metadata_file(properties.metadata_file)

    def _check_metadata_file(self, name: str) -> None:
        """Whether the file is there that says which topics there are."""
        path = f"{self._path}/{name}"
        has_logs = any(LOG_NAME.fullmatch(name) for name in self._names)
        if has_logs and not (name in self._names and self._files.size(path)):
            what = "it is missing or empty, and says which topics there are."
            advice = "`kbroker check --rebuild-metadata` makes it again from the logs."
            self._report.add(Finding(Severity.ERROR, Kind.METADATA, path, what, advice))

    def _look_at(self, name: str) -> bool:
        """Whether it is a partition's directory."""
        path = f"{self._path}/{name}"
        if name in KNOWN_FILES or METADATA_STORE.fullmatch(name):
            return False
        if not self._files.is_dir(path):
            if name.endswith(".tmp"):
                what, kind = "it is left over from a write that has not finished.", Kind.LEFTOVER
            else:
                what, kind = "it is not known what this is.", Kind.UNKNOWN_FILE
            self._report.add(Finding(Severity.NOTE, kind, path, what))
            return False
        if _name_of(name) is None:
            if META_PROPERTIES not in self._files.list(path):
                what = "it is not named like a partition."
                self._report.add(Finding(Severity.NOTE, Kind.UNKNOWN_FILE, path, what))
            return False
        if aside := ASIDE_NAME.fullmatch(name):
            self._report.add(Finding(Severity.NOTE, Kind.LEFTOVER, path, WHY_ASIDE[aside[4]]))
            return aside[4] != "delete"  # what is in there matters to nobody, and may be gone in part
        return True

    def _check_entries(self, partitions: set[TopicPartition | None]) -> None:
        for name, offsets in self._offsets.items():
            for topic_partition in offsets or ():
                if topic_partition not in partitions:
                    topic, partition = topic_partition
                    what = f"it has an entry for {topic}-{partition}, which is not here."
                    self._report.add(Finding(Severity.NOTE, Kind.CHECKPOINT, f"{self._path}/{name}", what))

    # -- partitions

    def _size_of(self, name: str) -> int:
        path = f"{self._path}/{name}"
        logs = [file for file in self._files.list(path) if file.endswith((".log", ".log.swap"))]
        return sum(self._files.size(f"{path}/{file}") for file in logs)

    def _check_partition(self, path: str) -> None:
        name = path.rpartition("/")[2]
        is_aside = ASIDE_NAME.fullmatch(name) is not None
        known = Known() if is_aside else self._known(_name_of(name))
        self._progress(name, self._done, self._total)
        try:
            check = PartitionCheck(self._files, path, self._report, known, partial(self._advance, name))
            facts = check.run()
        except OSError as error:
            what = f"it cannot be read: {error.strerror or error}."
            self._report.add(Finding(Severity.ERROR, Kind.UNREADABLE, error.filename or path, what))
            return
        self._report.partitions.append(facts)
        if not check.is_cut:
            self._check_offsets(facts, known)
        if check.topic_id is not None and not is_aside:
            self._check_topic_id(path, name.rpartition("-")[0], check.topic_id)

    def _advance(self, name: str, size: int) -> None:
        self._done += size
        self._progress(name, self._done, self._total)

    def _known(self, partition: TopicPartition | None) -> Known:
        if partition is None:
            return Known()
        is_internal = partition[0] in TABLES
        entries = [(offsets or {}).get(partition) for offsets in self._offsets.values()]
        recovery_point, log_start_offset, high_watermark, cleaner_offset = entries
        if recovery_point is None and not self._was_clean and self._is_data_directory:
            recovery_point = 0
        return Known(
            self._was_clean, recovery_point, high_watermark, log_start_offset, cleaner_offset, is_internal
        )

    @property
    def _is_data_directory(self) -> bool:
        return any(name in KNOWN_FILES for name in self._names)

    def _check_topic_id(self, path: str, topic: str, topic_id: bytes) -> None:
        if self._topic_ids.setdefault(topic, topic_id) != topic_id:
            what = "its topic id is not that of the topic's other partitions here."
            advice = "One of them is left over from a topic of the same name that was deleted."
            self._report.add(Finding(Severity.ERROR, Kind.METADATA, path, what, advice))

    def _check_offsets(self, facts: PartitionFacts, known: Known) -> None:
        """The checkpoints against the log."""
        end, begin = facts.log_end_offset, facts.log_start_offset
        lost = "Records are lost that were on disk."
        if known.recovery_point is not None and known.recovery_point > end:
            what = f"the log ends at {end}, before its recovery point {known.recovery_point}."
            self._contradiction(facts, RECOVERY_POINTS, what, lost, Severity.WARNING)
        if known.was_clean and known.recovery_point is not None and known.recovery_point < end:
            what = f"the log ends at {end}; when it was shut down it ended at {known.recovery_point}."
            self._contradiction(facts, RECOVERY_POINTS, what, RECOVER)
        if begin > end:
            what = f"the log ends at {end}, before its log start {begin}."
            self._contradiction(facts, LOG_START_OFFSETS, what, lost, Severity.WARNING)
        if known.high_watermark is not None and known.high_watermark > end:
            what = f"the log ends at {end}, before its high watermark {known.high_watermark}."
            lost = "Records are lost that may have been acknowledged."
            self._contradiction(facts, HIGH_WATERMARKS, what, lost, Severity.NOTE)
        if known.was_clean and known.high_watermark is not None and known.high_watermark < begin:
            what = f"the high watermark is {known.high_watermark}, below the log start {begin}."
            self._contradiction(facts, HIGH_WATERMARKS, what, "A broker takes the log start for it.")
        if known.was_clean and known.cleaner_offset is not None and known.cleaner_offset > end:
            what = f"the log ends at {end}, before the offset {known.cleaner_offset} that was compacted."
            self._contradiction(facts, CLEANER_OFFSETS, what, "Compaction begins at the log start again.")

    def _contradiction(
        self,
        facts: PartitionFacts,
        name: str,
        what: str,
        advice: str,
        after_a_crash: Severity = Severity.NOTE,
    ) -> None:
        severity = Severity.ERROR if self._was_clean else after_a_crash
        partition = facts.path.rpartition("/")[2]
        path = f"{self._path}/{name}"
        self._report.add(Finding(severity, Kind.CHECKPOINT, path, f"{partition}: {what}", advice))
