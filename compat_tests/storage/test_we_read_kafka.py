"""Our logs open a data directory of a real Kafka, shut down or killed, and read what its clients read.

One broker of each version is filled (see `filled_kafka.py`), read by clients, stopped and copied; it goes on,
with a transaction left open, is read again and killed. All tests work on copies.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat_tests.apache_kafka import VERSIONS, reason_to_skip
from compat_tests.storage.filled_kafka import (
    NOTHING_FOUND,
    TOPICS,
    Partitions,
    ReadRecord,
    Seen,
    fill,
    fill_again,
    kafka_for_filling,
    leave_transaction_open,
    read_all,
)
from storage.check import check_directory
from storage.checkpoints import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS, EpochEntry, read_offsets
from storage.files import Disk
from storage.findings import Report, Severity
from storage.leader_epochs import LeaderEpochs
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.log_manager import LogManager
from storage.producer_snapshots import decode_snapshot
from storage.reading import Isolation
from tests.storage.sample_directory import at_once
from wire.internal import CONSUMER_OFFSETS, TABLES, decode_record
from wire.records import BatchHeader, ControlType, batch_headers, control_type, records

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("we read Kafka")]

DISK = Disk(durable=False)
DAY_MS = 24 * 60 * 60 * 1000
COMPACTED = ("compacted", "cleaned")


@dataclass(frozen=True)
class Left:
    """A directory as Kafka has left it, and what clients had read by then."""

    path: Path
    seen: Partitions
    interrupted: frozenset[Path]
    """The segments that it was writing when it was stopped before."""


@dataclass(frozen=True)
class Run:
    """What one broker has left, in time."""

    clean: Left
    killed: Left


@pytest.fixture(scope="module", params=VERSIONS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    if reason := reason_to_skip(request.param):
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("theirs")
    with kafka_for_filling(request.param, directory / "kafka") as kafka:
        fill(kafka)
        kafka.stop()
        first_stop = active_segments(kafka.log_dir)
        kafka.start()
        fill_again(kafka)
        seen = read_all(kafka)
        kafka.stop()
        second_stop = active_segments(kafka.log_dir)
        shutil.copytree(kafka.log_dir, directory / "clean")
        clean = Left(directory / "clean", seen, first_stop)
        kafka.start()
        fill_again(kafka)
        leave_transaction_open(kafka)
        seen = read_all(kafka)
        kafka.kill()
        shutil.copytree(kafka.log_dir, directory / "killed")
    return Run(clean, Left(directory / "killed", seen, first_stop | second_stop))


@pytest.fixture(params=["clean", "killed"])
def left(request: pytest.FixtureRequest, run: Run) -> Left:
    left: Left = getattr(run, request.param)
    return left


def active_segments(log_dir: Path) -> frozenset[Path]:
    """Relative, without extension."""
    newest = (max(path.glob("*.log"), default=None) for path in log_dir.iterdir() if path.is_dir())
    return frozenset(path.relative_to(log_dir).with_suffix("") for path in newest if path is not None)


@dataclass
class Opened:
    """A copy of the directory, open."""

    path: Path
    left: Left
    manager: LogManager

    def log(self, topic: str, partition: int) -> UnifiedLog:
        log = self.manager.get((topic, partition))
        assert log is not None
        return log


def config_for(topic: str) -> LogConfig:
    """As Kafka was told, for what shows in the files."""
    settings = TOPICS.get(topic, (0, {}))[1]
    return LogConfig(
        index_interval_bytes=int(settings.get("index.interval.bytes", "4096")),
        segment_index_bytes=int(settings.get("segment.index.bytes", "10485760")),
        cleanup_policy=frozenset({settings.get("cleanup.policy", "delete")}),
    )


def open_copy(left: Left, path: Path) -> Opened:
    manager = LogManager(
        DISK,
        [str(path)],
        config_for=config_for,
        submit=at_once,
        call=lambda function: function(),
        unique=lambda: "0" * 32,
    )
    manager.start(now_ms())
    return Opened(path, left, manager)


@pytest.fixture
def opened(left: Left, tmp_path: Path) -> Iterator[Opened]:
    """Opened with the files as they are."""
    opened = open_copy(left, shutil.copytree(left.path, tmp_path / "data"))
    yield opened
    for log in opened.manager:
        log.release()


@pytest.fixture
def rebuilt(left: Left, tmp_path: Path) -> Iterator[Opened]:
    """Opened without anything that can be made again from the batches."""
    path = shutil.copytree(left.path, tmp_path / "data")
    for file in [*path.glob("*/*index"), *path.glob("*/*.snapshot"), *path.glob("*/leader-epoch-checkpoint")]:
        file.unlink()
    (path / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    (path / RECOVERY_POINTS).unlink()
    opened = open_copy(left, path)
    yield opened
    for log in opened.manager:
        log.release()


# -- records


def all_records(log: UnifiedLog, isolation: Isolation) -> list[ReadRecord]:
    """As a client reads: batch by batch, aborted transactions and markers left out."""
    found: list[ReadRecord] = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, 5000, isolation)
        if not read.records:
            return found
        aborted = sorted((one.first_offset, one.producer_id) for one in read.aborted_transactions)
        found += visible(memoryview(read.records), offset, aborted)
        offset = read.next_offset


def visible(data: memoryview, offset: int, aborted: list[tuple[int, int]]) -> Iterator[ReadRecord]:
    dropped: set[int] = set()
    for position, header in batch_headers(data):
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        if header.is_control:
            marker = next(records(data, position, header), None)
            if marker is not None and control_type(marker) is ControlType.ABORT:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            for record in records(data, position, header):
                if record.offset >= offset:
                    yield ReadRecord(
                        record.offset,
                        record.timestamp,
                        int(header.is_log_append_time),
                        record.key,
                        record.value,
                        record.headers,
                    )


@pytest.mark.parametrize("topic", TOPICS)
def test_we_read_what_kafkas_clients_read(opened: Opened, topic: str) -> None:
    for (name, partition), seen in opened.left.seen.items():
        if name == topic:
            assert all_records(opened.log(topic, partition), Isolation.HIGH_WATERMARK) == seen.records


def test_we_leave_out_what_was_aborted(opened: Opened) -> None:
    """Conformance 44."""
    dropped = 0
    for partition, seen in opened.left.seen.items():
        assert all_records(opened.log(*partition), Isolation.COMMITTED) == seen.committed
        dropped += len(seen.records) - len(seen.committed)
    assert dropped > 50


def test_offsets_are_where_kafka_has_them(opened: Opened) -> None:
    """Conformance 43, 61, 66."""
    for partition, seen in opened.left.seen.items():
        log = opened.log(*partition)
        assert (log.log_start_offset, log.log_end_offset) == (seen.begin, seen.end)
        log.high_watermark = log.log_end_offset
        assert log.last_stable_offset == seen.last_stable_offset
    assert opened.log("trimmed", 0).log_start_offset == 137


def test_high_watermarks_are_those_of_the_checkpoint(opened: Opened) -> None:
    stored = read_offsets(DISK, str(opened.left.path / HIGH_WATERMARKS))
    assert len(stored) > 10
    for partition, offset in stored.items():
        assert opened.log(*partition).high_watermark == offset


def test_every_offset_is_found_through_kafkas_indexes(opened: Opened) -> None:
    """Conformance 53."""
    for partition, seen in opened.left.seen.items():
        log = opened.log(*partition)
        for record in seen.records:
            header = BatchHeader.parse(log.read(record.offset, 1000).records)
            assert header.base_offset <= record.offset <= header.last_offset


def test_times_are_found_as_kafka_finds_them(opened: Opened) -> None:
    """Conformance 64.

    Kafka looks into one segment, the first whose largest timestamp is large enough. If that timestamp is of a
    batch that compaction has emptied, or of one below the log start, it finds nothing; we go on to the next
    segment.
    """
    compared = 0
    for partition, seen in opened.left.seen.items():
        for timestamp, expected in seen.times.items():
            if partition[0] in (*COMPACTED, "trimmed") and expected == NOTHING_FOUND:
                continue
            found = opened.log(*partition).offset_for_timestamp(timestamp)
            assert (found.offset, found.timestamp) == expected, (partition, timestamp)
            compared += 1
    assert compared > 100


def test_internal_topics_are_decoded(opened: Opened) -> None:
    for topic in (CONSUMER_OFFSETS, "__transaction_state"):
        log = opened.log(topic, 0)
        found = 0
        for record in all_records(log, Isolation.LOG_END):
            assert topic in TABLES
            assert record.key is not None
            assert decode_record(topic, record.key, record.value) is not None
            found += 1
        assert found > 10


# -- the check


def serious(report: Report) -> str:
    return "\n".join(str(one) for one in report.findings if one.severity is not Severity.NOTE)


def test_the_check_finds_nothing_wrong_with_what_kafka_left(left: Left) -> None:
    assert serious(check_directory(DISK, str(left.path))) == ""


def test_the_check_finds_nothing_wrong_while_we_have_it_open(opened: Opened) -> None:
    assert serious(check_directory(DISK, str(opened.path))) == ""


def test_the_check_finds_nothing_wrong_with_what_we_leave(opened: Opened) -> None:
    opened.manager.close()
    report = check_directory(DISK, str(opened.path))
    assert serious(report) == ""
    assert {facts.path for facts in report.partitions} >= {
        f"{opened.path}/{topic}-{number}" for topic, number in opened.left.seen
    }


# -- what is made from the batches


def test_indexes_made_again_are_those_of_kafka(rebuilt: Opened) -> None:
    """Byte for byte, but for segments that Kafka was writing when it was stopped: it starts counting anew.

    Compaction writes its segments in larger portions, and indexes those.
    """
    rebuilt.manager.close()
    compared = 0
    for topic, number in rebuilt.left.seen:
        if topic in COMPACTED:
            continue
        theirs = rebuilt.left.path / f"{topic}-{number}"
        closed = sorted(theirs.glob("*.log"))[:-1]
        for log in closed:
            if log.relative_to(rebuilt.left.path).with_suffix("") in rebuilt.left.interrupted:
                continue
            for extension in (".index", ".timeindex", ".txnindex"):
                kafkas = log.with_suffix(extension)
                ours = rebuilt.path / kafkas.relative_to(rebuilt.left.path)
                assert ours.exists() == kafkas.exists()
                if ours.exists():
                    assert ours.read_bytes() == kafkas.read_bytes(), ours
                    compared += 1
    assert compared > 10


def test_transaction_indexes_made_again_are_those_of_kafka(rebuilt: Opened) -> None:
    """Interrupted segments, too: an entry depends on nothing but the log."""
    rebuilt.manager.close()
    compared = 0
    for number in (0, 1):
        for kafkas in (rebuilt.left.path / f"transactions-{number}").glob("*.txnindex"):
            ours = rebuilt.path / kafkas.relative_to(rebuilt.left.path)
            assert ours.read_bytes() == kafkas.read_bytes()
            compared += kafkas.stat().st_size // 34
    assert compared > 20


def test_leader_epochs_made_again_are_those_of_kafka(rebuilt: Opened) -> None:
    """Conformance 65. Where compaction took an epoch's first batch, the next one has to do."""
    for topic, number in rebuilt.left.seen:
        if topic not in COMPACTED:
            log = rebuilt.log(topic, number)
            assert list(log.leader_epochs.entries) == kafkas_epochs(rebuilt.left, log)


def test_leader_epochs_are_read_as_they_are(opened: Opened) -> None:
    several = 0
    for partition in opened.left.seen:
        log = opened.log(*partition)
        assert list(log.leader_epochs.entries) == kafkas_epochs(opened.left, log)
        several += len(log.leader_epochs.entries) > 1
    assert several


def kafkas_epochs(left: Left, log: UnifiedLog) -> list[EpochEntry]:
    """Without those at the log's end, in which nothing was written."""
    entries = LeaderEpochs(DISK, f"{left.path}/{log.name}/leader-epoch-checkpoint").entries
    return [one for one in entries if one.start_offset < log.log_end_offset]


def test_producers_made_again_are_those_of_kafka(run: Run, tmp_path: Path) -> None:
    """Conformance 39. Kafka takes a snapshot when it shuts down."""
    path = shutil.copytree(run.clean.path, tmp_path / "data")
    snapshots = {
        directory.name: max(directory.glob("*.snapshot"))
        for directory in run.clean.path.iterdir()
        if list(directory.glob("*.snapshot")) and directory.name != "__cluster_metadata-0"
    }
    for file in path.glob("*/*.snapshot"):
        file.unlink()
    (path / CLEAN_SHUTDOWN).unlink()
    (path / RECOVERY_POINTS).unlink()
    opened = open_copy(run.clean, path)
    compared = 0
    for name, snapshot in snapshots.items():
        topic, _, number = name.rpartition("-")
        log = opened.log(topic, int(number))
        assert int(snapshot.stem) == log.log_end_offset
        kafkas = {entry.producer_id: entry for entry in decode_snapshot("", snapshot.read_bytes())}
        ours = {entry.producer_id: entry.to_snapshot() for entry in log.producers.producers.values()}
        alive = {producer_id: ours[producer_id] for producer_id in kafkas}
        if topic not in COMPACTED:
            assert alive == kafkas, name
            compared += len(kafkas)
        assert all(
            is_old(entry.timestamp) for producer_id, entry in ours.items() if producer_id not in kafkas
        )
    assert compared > 8
    for log in opened.manager:
        log.release()


def is_old(timestamp: int) -> bool:
    """Written with a timestamp of long ago, so that Kafka has forgotten the producer soon."""
    return timestamp < now_ms() - 100 * DAY_MS


def now_ms() -> int:
    """Kafka has gone by the same clock."""
    return time.time_ns() // 1_000_000


def test_a_transaction_that_kafka_left_open_is_open(run: Run, tmp_path: Path) -> None:
    opened = open_copy(run.killed, shutil.copytree(run.killed.path, tmp_path / "data"))
    seen: Seen = run.killed.seen["transactions", 1]
    log = opened.log("transactions", 1)
    assert seen.last_stable_offset == log.producers.first_unstable_offset == seen.end - 10
    for one in opened.manager:
        one.release()
