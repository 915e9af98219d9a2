"""Taking batches off the end of a log, and what goes with them."""

from __future__ import annotations

import pytest

from storage.log import UnifiedLog
from storage.log_config import DAY_MS, LogConfig
from storage.reading import Isolation
from tests.storage.partitions import SMALL, append, batch, contents, fill, marker, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.record_batch import assign

LARGE = LogConfig()


@pytest.fixture
def log(disk: SimulatedDisk) -> UnifiedLog:
    """Sixty batches of one record in several segments, in three epochs."""
    log = new_log(disk, SMALL)
    for epoch in (1, 2, 5):
        fill(log, 20, epoch=epoch)
    return log


@pytest.mark.parametrize("offset", [0, 1, 15, 30, 59])
def test_everything_from_the_offset_on_is_gone(log: UnifiedLog, offset: int) -> None:
    before = contents(log)
    assert log.truncate_to(offset, 0)
    assert contents(log) == before[:offset]
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert log.segments.active.largest_timestamp == (1000 + offset - 1 if log.segments.active.size else -1)
    fill(log, 3, epoch=9)
    assert [one.offset for one in contents(log)] == list(range(offset + 3))


def test_beyond_the_end_there_is_nothing_to_cut(log: UnifiedLog) -> None:
    """But for an epoch in which nothing was written: it may contradict the leader (conformance 90)."""
    log.assign_leader_epoch(8)
    assert not log.truncate_to(60, 0)
    assert not log.truncate_to(99, 0)
    assert (log.log_end_offset, log.leader_epochs.latest) == (60, 5)


def test_a_batch_that_reaches_across_goes_as_a_whole(disk: SimulatedDisk) -> None:
    log = new_log(disk, LARGE)
    append(log, batch("a", "b"), batch("c", "d", "e"))
    log.truncate_to(4, 0)
    assert log.log_end_offset == 2
    assert [one.value for one in contents(log)] == [b"a", b"b"]


def test_a_gap_is_cut_off_with_what_follows(disk: SimulatedDisk) -> None:
    log = new_log(disk, LARGE)
    append(log, batch("a"))
    copied = bytearray(batch("b")[0])
    assign(copied, 0, 10, 0)
    log.append_as_follower(copied, 0)
    log.truncate_to(5, 0)
    assert log.log_end_offset == 1


def test_epochs_end_with_the_log(log: UnifiedLog) -> None:
    """Conformance 90."""
    for offset, left in ((40, [(1, 0), (2, 20)]), (20, [(1, 0)])):
        log.truncate_to(offset, 0)
        assert list(log.leader_epochs.entries) == left


def test_producers_are_what_they_were_then(disk: SimulatedDisk) -> None:
    log = new_log(disk, SMALL)
    for sequence in range(30):
        append(log, batch("v" * 100, producer_id=1, epoch=0, sequence=sequence))
    log.truncate_to(12, 0)
    (again,) = append(log, batch("w", producer_id=1, epoch=0, sequence=12))
    assert (again.first_offset, again.is_duplicate) == (12, False)


def test_a_transaction_whose_marker_is_cut_off_is_open_again(disk: SimulatedDisk) -> None:
    log = new_log(disk, LARGE)
    append(log, batch("a"), batch("t", producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, marker(1, commit=False), batch("b"))
    log.truncate_to(2, 0)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 1
    append(log, marker(1, commit=True))
    assert log.read(0, 1000, Isolation.COMMITTED).aborted_transactions == []
    assert log.last_stable_offset == 3


def test_it_is_durable_before_it_returns(log: UnifiedLog, disk: SimulatedDisk) -> None:
    log.flush()
    log.truncate_to(25, 0)
    for outcome in Outcome:
        after = reopened(log, disk.after_crash(outcome), recovery_point=25)
        assert [one.offset for one in contents(after)] == list(range(25))


def test_files_of_what_was_cut_off_go_after_a_while(log: UnifiedLog, disk: SimulatedDisk) -> None:
    bases = log.segments.base_offsets[:]
    log.truncate_to(1, 0)
    gone = f"{log.directory}/{bases[-1]:020d}.log.deleted"
    assert disk.exists(gone)
    log.remove_deleted_files(0)
    log.remove_deleted_files(SMALL.file_delete_delay_ms - 1)
    assert disk.exists(gone)
    log.remove_deleted_files(SMALL.file_delete_delay_ms)
    assert not any(name.endswith(".deleted") for name in disk.list(log.directory))


class TestStartingAllOver:
    def test_the_log_goes_on_where_it_is_told(self, log: UnifiedLog, disk: SimulatedDisk) -> None:
        log.truncate_fully_and_start_at(1000, 0)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
        assert (log.segments.base_offsets, contents(log), log.leader_epochs.entries) == ([1000], [], ())
        fill(log, 3, epoch=6)
        log.remove_deleted_files(0)
        log.remove_deleted_files(DAY_MS)
        log.close()
        after = reopened(log, clean=True)
        assert [one.offset for one in contents(after)] == [1000, 1001, 1002]

    def test_also_where_a_segment_began_before(self, log: UnifiedLog) -> None:
        log.truncate_fully_and_start_at(0, 0)
        fill(log, 2)
        assert [one.offset for one in contents(log)] == [0, 1]

    def test_below_the_first_segment_is_all_over(self, log: UnifiedLog) -> None:
        log.truncate_fully_and_start_at(1000, 0)
        fill(log, 3, epoch=6)
        log.truncate_to(400, 0)
        assert (log.log_start_offset, log.log_end_offset) == (400, 400)
