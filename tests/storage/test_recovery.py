"""Opening a log: what a clean start reads, and what is made of whatever a crash left (conformance 88)."""

from __future__ import annotations

import errno
import logging

import pytest

from storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from storage.files import File
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.reading import Isolation
from storage.recovery import load_log
from tests.storage.partitions import (
    SMALL,
    TOPIC_ID,
    append,
    batch,
    contents,
    fill,
    marker,
    new_log,
    reopened,
)
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome

LARGE = LogConfig(index_interval_bytes=300)
DIRECTORY = "/log/topic-0"


class ReadingDisk(SimulatedDisk):
    """Knows which parts of which files were read."""

    def __init__(self) -> None:
        super().__init__()
        self.make_dir("/log")
        self.sync_dir("/")
        self.reads: list[tuple[str, int, int]] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        file = super().open(path, create=create, read_only=read_only)
        read = file.read

        def noted(position: int, length: int) -> bytes:
            self.reads.append((path, position, length))
            return read(position, length)

        file.read = noted  # type: ignore[method-assign]
        return file

    def read_of(self, ending: str) -> int:
        return sum(length for path, _, length in self.reads if path.endswith(ending))


def damaged(disk: SimulatedDisk, name: str, data: bytes) -> None:
    disk.plant(f"{DIRECTORY}/{name}", data)


class TestAfterACleanShutdown:
    def test_no_segment_and_no_index_is_read(self) -> None:
        disk = ReadingDisk()
        log = new_log(disk, SMALL)
        fill(log, 100)
        log.close()
        disk.reads.clear()
        log = reopened(log, clean=True)
        assert (log.log_end_offset, log.recovery_point) == (100, 100)
        assert [path for path, _, _ in disk.reads] == []

    def test_what_has_not_changed_is_not_written_again(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, SMALL)
        fill(log, 100)
        log.close()
        log = reopened(log, clean=True)
        contents(log)
        before = disk.operations
        log.close()
        assert disk.operations == before

    def test_everything_is_as_it_was(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, SMALL)
        append(log, batch("v", producer_id=1, epoch=0, sequence=0))
        append(log, batch("t", producer_id=2, epoch=0, sequence=0, transactional=True), epoch=3)
        fill(log, 50, epoch=4)
        log.delete_records_before(1)
        before = contents(log)
        log.close()
        log = reopened(log, clean=True)
        log.high_watermark = log.log_end_offset
        assert contents(log) == before
        assert (log.topic_id, log.log_start_offset, log.last_stable_offset) == (TOPIC_ID, 1, 1)
        assert log.leader_epochs.entries == ((0, 1), (3, 1), (4, 2))[1:]
        (again,) = append(log, batch("v", producer_id=1, epoch=0, sequence=0), epoch=4)
        assert (again.first_offset, again.is_duplicate) == (0, True)

    def test_without_a_recovery_point_the_end_is_looked_up(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        fill(log, 20)
        log.close()
        assert reopened(log, clean=True, recovery_point=-1).log_end_offset == 20
        log = load_log(disk, DIRECTORY, "topic", 0, LARGE, was_clean=True, now_ms=0)
        assert log.log_end_offset == 20


class TestAfterACrash:
    def test_only_what_lies_above_the_recovery_point_is_read(self) -> None:
        disk = ReadingDisk()
        log = new_log(disk, LARGE)
        fill(log, 1000)
        log.roll(0)
        fill(log, 5)
        log.flush()
        log.checkpoint()
        fill(log, 20)
        active = log.segments.active
        disk.kill()
        disk.reads.clear()
        assert reopened(log).log_end_offset == 1025
        assert {path for path, _, _ in disk.reads if path.endswith(".log")} == {active.path}

    def test_producers_begin_with_the_last_snapshot(self) -> None:
        disk = ReadingDisk()
        log = new_log(disk, LogConfig())
        for number in range(50):
            append(log, batch(b"v" * (1 << 19), producer_id=1, epoch=0, sequence=number, timestamps=[number]))
        log.flush()
        log.checkpoint()
        log.flush()
        assert log.producers.latest_snapshot_offset == 50
        disk.kill()
        disk.reads.clear()
        log = reopened(log)
        assert disk.read_of(".log") < 3 << 19
        (again,) = append(log, batch(b"v" * (1 << 19), producer_id=1, epoch=0, sequence=49, timestamps=[49]))
        assert again.is_duplicate

    @pytest.mark.parametrize("cut", [1, 20, 60, 61, 100])
    def test_the_log_ends_before_the_first_incomplete_batch(self, disk: SimulatedDisk, cut: int) -> None:
        log = new_log(disk, LARGE)
        fill(log, 20)
        path = log.segments.active.path
        disk.plant(path, disk.read(path)[:-cut])
        log = reopened(log)
        assert [one.offset for one in contents(log)] == list(range(19))
        assert log.segments.active.size == disk.size(path)
        fill(log, 3)
        assert [one.offset for one in contents(log)] == list(range(22))

    @pytest.mark.parametrize("position", [8, 16, 20, 23, 57, 70])
    def test_the_log_ends_before_the_first_damaged_batch(self, disk: SimulatedDisk, position: int) -> None:
        log = new_log(disk, LARGE)
        fill(log, 20)
        begin = log.segments.active.position_of(12)
        assert begin is not None
        disk.corrupt(log.segments.active.path, begin + position, 0x10)
        log = reopened(log)
        assert log.log_end_offset == 12
        fill(log, 1)
        log.close()
        assert len(contents(reopened(log, clean=True))) == log.log_end_offset

    def test_zeros_at_the_end_are_cut_off(self, disk: SimulatedDisk) -> None:
        """As after a power cut on a file system that had grown the file."""
        log = new_log(disk, LARGE)
        fill(log, 20)
        path = log.segments.active.path
        before = disk.read(path)
        disk.plant(path, before + bytes(5000))
        log = reopened(log)
        assert log.log_end_offset == 20
        assert disk.read(path) == before

    def test_indexes_are_what_they_were(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, batch("t", producer_id=1, epoch=0, sequence=0, transactional=True))
        fill(log, 50)
        append(log, marker(1, commit=False))
        fill(log, 50)
        log.close()
        expected = {
            name: disk.read(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY) if "index" in name
        }
        for recovery_point in (0, 1, 30, 52, 60, 102):
            for name in expected:
                damaged(disk, name, b"")
            log = reopened(log, recovery_point=recovery_point if recovery_point < 52 else 0)
            assert {name: disk.read(f"{DIRECTORY}/{name}") for name in expected} == expected
            log.release()

    def test_what_was_recovered_is_durable(self, disk: SimulatedDisk) -> None:
        """Or else a second crash could take what a reader has seen by now."""
        log = new_log(disk, SMALL)
        fill(log, 60)
        log.flush()
        fill(log, 60)
        disk.kill()
        log = reopened(log)
        assert log.recovery_point == 120
        assert len(contents(reopened(log, disk.after_crash()))) == 120

    def test_the_log_tells_how_far_it_is_with_large_segments(
        self, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = new_log(disk, SMALL)
        fill(log, 60)
        largest = max(segment.size for segment in log.segments)
        monkeypatch.setattr("storage.recovery.LARGE_BYTES", largest)
        with caplog.at_level(logging.INFO, "storage.recovery"):
            reopened(log)
        large = [number for number, one in enumerate(log.segments, 1) if one.size == largest]
        lines = [record.getMessage() for record in caplog.records]
        assert [line.split("segment ")[1] for line in lines] == [
            f"{number} of {len(log.segments)}" for number in large
        ]

    def test_a_device_that_fails_is_no_damaged_log(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, SMALL)
        fill(log, 60)
        before = disk.files()
        disk.fail(errno.EIO, "read", "*.log", times=None)
        with pytest.raises(OSError, match="Input/output"):
            reopened(log)
        assert {path: data for path, data in disk.files().items() if path.endswith(".log")} == {
            path: data for path, data in before.items() if path.endswith(".log")
        }


@pytest.fixture
def history(disk: SimulatedDisk) -> UnifiedLog:
    """Several segments, epochs, producers, an aborted and an open transaction; closed."""
    log = new_log(disk, SMALL)
    append(log, batch("a", producer_id=1, epoch=0, sequence=0), epoch=1)
    append(log, batch("t", producer_id=2, epoch=0, sequence=0, transactional=True), epoch=1)
    fill(log, 30, epoch=2)
    append(log, marker(2, commit=False), epoch=2)
    append(log, batch("u", producer_id=3, epoch=0, sequence=0, transactional=True), epoch=5)
    fill(log, 30, epoch=5)
    append(log, batch("b", producer_id=1, epoch=0, sequence=1), epoch=5)
    log.close()
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "empty", "shorter", "zeros", "noise"])
@pytest.mark.parametrize("kind", [".index", ".timeindex", ".snapshot", LEADER_EPOCHS, PARTITION_METADATA])
def test_a_file_that_is_lost_takes_nothing_with_it(
    history: UnifiedLog, disk: SimulatedDisk, kind: str, damage: str, clean: bool
) -> None:
    """Conformance 88."""
    expected = contents(history)
    epochs = history.leader_epochs.entries
    for name in disk.list(DIRECTORY):
        if name.endswith(kind):
            data = disk.read(f"{DIRECTORY}/{name}")
            if damage == "missing":
                disk.remove(f"{DIRECTORY}/{name}")
            else:
                new = {
                    "empty": b"",
                    "shorter": data[:-3],
                    "zeros": bytes(len(data)),
                    "noise": b"\xa5" + data[1:],
                }
                damaged(disk, name, new[damage])
    log = reopened(history, clean=clean)
    log.high_watermark = log.log_end_offset
    assert contents(log) == expected
    assert (log.last_stable_offset, log.leader_epochs.entries) == (33, epochs)
    assert log.offset_for_timestamp(1040).offset == 40
    aborted = log.read(1, 10**6, Isolation.COMMITTED).aborted_transactions
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in aborted] == [(2, 1, 32)]
    (again,) = append(log, batch("b", producer_id=1, epoch=0, sequence=1), epoch=5)
    assert again.is_duplicate
    log.close()
    assert contents(reopened(log, clean=True)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_log_begins_where_it_began_or_is_lost_as_a_whole(disk: SimulatedDisk, seed: int) -> None:
    """Names reach the disk in any order. A replica without its first segment would look complete."""
    log = new_log(disk)
    while len(log.segments) < 3:
        fill(log, 5)
    disk.cut_power()
    after = disk.after_crash(Outcome.RANDOM, seed)
    if after.exists(DIRECTORY):
        assert reopened(log, after).log_start_offset == 0


def test_a_topic_id_that_was_never_written_is_missing_from_then_on(disk: SimulatedDisk) -> None:
    """The power went before the new log was flushed. `kbroker check` takes a file that makes no sense ill."""
    log = new_log(disk)
    damaged(disk, PARTITION_METADATA, b"")
    assert reopened(log).topic_id is None
    assert not disk.exists(f"{DIRECTORY}/{PARTITION_METADATA}")


@pytest.mark.parametrize("damage", [b"", b"\0" * 34, b"short"])
def test_a_lost_transaction_index_is_made_again_where_the_log_is_read(
    history: UnifiedLog, disk: SimulatedDisk, damage: bytes
) -> None:
    """Conformance 44. Where it is not read, a missing one looks as if nothing was aborted; fsck tells."""
    for name in disk.list(DIRECTORY):
        if name.endswith(".txnindex"):
            damaged(disk, name, damage)
    log = reopened(history, recovery_point=0)
    log.high_watermark = log.log_end_offset
    (aborted,) = log.read(1, 10**6, Isolation.COMMITTED).aborted_transactions
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (2, 1, 32)


def test_an_index_without_a_segment_is_removed(history: UnifiedLog, disk: SimulatedDisk) -> None:
    damaged(disk, f"{999:020d}.index", b"12345678")
    reopened(history, clean=True)
    assert not disk.exists(f"{DIRECTORY}/{999:020d}.index")


def test_a_log_whose_files_are_gone_goes_on_at_its_start(history: UnifiedLog, disk: SimulatedDisk) -> None:
    for name in disk.list(DIRECTORY):
        disk.remove(f"{DIRECTORY}/{name}")
    log = reopened(history, log_start_offset=20)
    assert (log.log_start_offset, log.log_end_offset, contents(log)) == (20, 20, [])


def test_a_log_that_ends_before_its_start_goes_on_there(history: UnifiedLog) -> None:
    log = reopened(history, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (500, 500, [500])


def test_epochs_beyond_the_log_are_forgotten(history: UnifiedLog, disk: SimulatedDisk) -> None:
    """Conformance 90."""
    damaged(disk, LEADER_EPOCHS, b"0\n4\n1 0\n2 2\n5 33\n9 999\n")
    assert reopened(history, clean=True).leader_epochs.entries == ((1, 0), (2, 2), (5, 33))


def test_opening_after_a_clean_shutdown_writes_nothing(history: UnifiedLog, disk: SimulatedDisk) -> None:
    """A thousand logs open without a thousand syncs. What is cut off would be cut off again."""
    damaged(disk, LEADER_EPOCHS, b"0\n4\n1 0\n2 2\n5 33\n9 999\n")
    before = disk.files()
    assert reopened(history, clean=True).leader_epochs.entries == ((1, 0), (2, 2), (5, 33))
    assert disk.files() == before


def test_epochs_that_recovery_found_are_durable_when_the_recovery_point_is(disk: SimulatedDisk) -> None:
    """Two crashes in a row: the second start does not read again what the first one has read."""
    log = new_log(disk, LARGE)
    append(log, batch("a"), epoch=1)
    log.leader_epochs.flush()
    append(log, batch("b"), epoch=2)
    fill(log, 50, epoch=3)
    epochs = log.leader_epochs.entries
    recovered = reopened(log, recovery_point=0)
    assert recovered.recovery_point == log.log_end_offset
    assert reopened(recovered).leader_epochs.entries == epochs


def test_an_epoch_in_which_nothing_was_written_gives_way_to_what_was(disk: SimulatedDisk) -> None:
    """A leader for a moment, then a follower who takes what the leader before had written; and a crash."""
    log = new_log(disk, LARGE)
    append(log, batch("a"), epoch=0)
    log.assign_leader_epoch(1)
    log.leader_epochs.flush()
    log.truncate_to(1, 0)
    append(log, batch("b"), epoch=0)
    append(log, batch("c"), epoch=4)
    assert log.leader_epochs.entries == ((0, 0), (4, 2))
    assert reopened(log, recovery_point=1).leader_epochs.entries == ((0, 0), (4, 2))


def test_what_recovery_knows_of_producers_at_the_begin_of_a_segment_is_synced(disk: SimulatedDisk) -> None:
    """Once older segments are gone, nothing else says which transactions were open there."""
    written = new_log(disk)
    fill(written, 30)
    disk.kill()
    begin = reopened(written).segments.active.base_offset
    done = [kind for _, kind, path in disk.history if path.endswith(f"{begin:020d}.snapshot")]
    assert begin > 0
    assert done[-2:] == ["append", "sync"]
