"""Retention: whole closed segments, the oldest first, never above the high watermark (conformance 66, 67)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.log import UnifiedLog
from storage.log_config import DAY_MS, LogConfig
from storage.retention import LOGS_AT_ONCE, expire, remove_expired_segments, retain
from tests.storage.partitions import SMALL, append, batch, contents, fill, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.errors import ErrorCode, KafkaError

KEEP = replace(SMALL, retention_ms=-1)


def filled(disk: SimulatedDisk, directory: str = "/log/topic-0", **settings: object) -> UnifiedLog:
    """Sixty records with timestamps 1000, 1001, ...; durable."""
    log = new_log(disk, replace(KEEP, **settings), directory)  # type: ignore[arg-type]
    fill(log, 60)
    log.flush()
    return log


def ends(log: UnifiedLog) -> list[int]:
    return [*log.segments.base_offsets[1:], log.log_end_offset]


class TestByTime:
    def test_a_segment_goes_when_its_largest_timestamp_is_too_old(self, disk: SimulatedDisk) -> None:
        log = filled(disk, retention_ms=100)
        first, second, *_ = ends(log)
        assert log.delete_old_segments(1000 + first - 1 + 100) == 0
        assert log.delete_old_segments(1000 + first + 100) == 1
        assert log.log_start_offset == first == log.segments.base_offsets[0]
        assert log.delete_old_segments(1000 + second - 1 + 101) == 1
        assert contents(log)[0].offset == second

    def test_one_young_record_keeps_its_segment_and_all_that_follow(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, replace(KEEP, retention_ms=100))
        append(log, batch(b"x" * 1500, timestamps=[10_000]))
        fill(log, 40)
        log.flush()
        assert log.delete_old_segments(5000) == 0
        assert log.delete_old_segments(10_101) > 1

    def test_when_all_is_too_old_the_active_segment_is_rolled_and_goes_too(self, disk: SimulatedDisk) -> None:
        log = filled(disk, retention_ms=100)
        log.delete_old_segments(DAY_MS)
        log.flush()
        remove_expired_segments(log, log.log_start_offset)
        assert (log.segments.base_offsets, log.log_start_offset, log.log_end_offset) == ([60], 60, 60)
        fill(log, 1)
        assert contents(log)[0].offset == 60

    def test_an_empty_active_segment_stays(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, replace(KEEP, retention_ms=0, retention_bytes=0))
        assert log.delete_old_segments(DAY_MS) == 0
        assert log.segments.base_offsets == [0]

    def test_without_timestamps_the_age_of_the_file_counts(self, disk: SimulatedDisk) -> None:
        disk.now_ms = 5000
        log = new_log(disk, replace(KEEP, retention_ms=100))
        append(log, batch("v", timestamps=[-1]))
        log.roll(5000)
        log.flush()
        assert log.delete_old_segments(5100) == 0
        assert log.delete_old_segments(5101) == 1


class TestBySize:
    def test_segments_go_while_the_rest_is_as_large_as_it_should_be(self, disk: SimulatedDisk) -> None:
        log = filled(disk)
        sizes = [segment.size for segment in log.segments]
        log.config = replace(KEEP, retention_bytes=sum(sizes[2:]) + 1)
        assert log.delete_old_segments(0) == 1
        log.config = replace(KEEP, retention_bytes=sum(sizes[2:]))
        assert log.delete_old_segments(0) == 1
        assert log.size == sum(sizes[2:])

    def test_the_active_segment_does_not_go_because_of_size(self, disk: SimulatedDisk) -> None:
        log = filled(disk, retention_bytes=1)
        active = log.segments.active
        log.delete_old_segments(0)
        assert list(log.segments) == [active]
        assert active.size > 0


class TestLimits:
    def test_nothing_above_the_high_watermark_goes(self, disk: SimulatedDisk) -> None:
        log = filled(disk, retention_ms=0, retention_bytes=0)
        first, second, *_ = ends(log)
        log.high_watermark = second - 1
        log.delete_old_segments(DAY_MS)
        assert log.log_start_offset == first

    def test_a_topic_that_is_only_compacted_keeps_everything(self, disk: SimulatedDisk) -> None:
        log = filled(disk, retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
        assert log.delete_old_segments(DAY_MS) == 0
        log.config = replace(log.config, cleanup_policy=frozenset({"compact", "delete"}))
        assert log.delete_old_segments(DAY_MS) > 0

    def test_files_stay_until_what_follows_them_is_durable(self, disk: SimulatedDisk) -> None:
        """Else a power cut could take what only the deleted segments knew (conformance 39)."""
        log = new_log(disk, replace(KEEP, retention_ms=0))
        append(log, batch("v", producer_id=1, epoch=0, sequence=0))
        log.roll(0)
        expire(log, DAY_MS)
        assert (log.log_start_offset, remove_expired_segments(log, log.log_start_offset)) == (1, 0)
        log.flush()
        assert remove_expired_segments(log, log.log_start_offset) == 1
        after = reopened(log, disk.after_crash(Outcome.LOST))
        (again,) = append(after, batch("v", producer_id=1, epoch=0, sequence=0))
        assert again.is_duplicate


class TestManyLogs:
    def test_some_are_looked_at_at_a_time(self, disk: SimulatedDisk) -> None:
        """Each has a file to open: 20,000 at once held up everybody for seconds."""
        logs = [filled(disk, f"/log/t-{number}", retention_bytes=0) for number in range(3 * LOGS_AT_ONCE)]
        expired = [sum(log.log_start_offset > 0 for log in logs) for _ in retain(logs, lambda: None, DAY_MS)]
        assert expired[:3] == [LOGS_AT_ONCE, 2 * LOGS_AT_ONCE, 3 * LOGS_AT_ONCE]
        assert all(len(log.segments) == 1 for log in logs)

    def test_segments_below_a_log_start_that_is_not_durable_yet_stay(self, disk: SimulatedDisk) -> None:
        logs = [
            filled(disk, f"/log/t-{number}", retention_bytes=1 << 20) for number in range(LOGS_AT_ONCE + 1)
        ]
        last = logs[-1]
        for log in logs:
            log.raise_log_start_offset(ends(log)[0])
        segments = len(last.segments)
        work = retain(logs, lambda: None, DAY_MS)
        for _ in range(2):  # now the log starts have been checkpointed, and the first files are gone
            next(work)
        assert (len(logs[0].segments), len(last.segments)) == (segments - 1, segments)
        last.delete_records_before(last.log_end_offset)
        list(work)
        assert len(last.segments) == segments - 1


class TestDeletingRecords:
    def test_the_log_start_rises_and_segments_below_it_go(self, disk: SimulatedDisk) -> None:
        """Conformance 66."""
        log = filled(disk)
        _, second, *_ = ends(log)
        assert log.delete_records_before(second + 1) == second + 1
        assert log.delete_old_segments(0) == 2
        assert log.segments.base_offsets[0] == second
        assert contents(log)[0].offset == second + 1
        fill(log, 1)
        assert log.log_end_offset == 61

    def test_lower_is_a_no_op_that_says_where_the_log_starts(self, disk: SimulatedDisk) -> None:
        log = filled(disk)
        log.delete_records_before(20)
        assert log.delete_records_before(7) == 20

    def test_minus_one_means_up_to_the_high_watermark(self, disk: SimulatedDisk) -> None:
        log = filled(disk)
        log.high_watermark = 33
        assert log.delete_records_before(-1) == 33

    @pytest.mark.parametrize("offset", [-2, 34, 61])
    def test_above_the_high_watermark_is_out_of_range(self, disk: SimulatedDisk, offset: int) -> None:
        log = filled(disk)
        log.high_watermark = 33
        with pytest.raises(KafkaError) as caught:
            log.delete_records_before(offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_epochs_begin_with_the_log(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, KEEP)
        for epoch in (1, 2, 3):
            fill(log, 10, epoch=epoch)
        log.delete_records_before(15)
        assert log.leader_epochs.entries == ((2, 15), (3, 20))


def test_deleted_files_go_after_a_while_or_on_the_next_start(disk: SimulatedDisk) -> None:
    log = filled(disk, retention_ms=100)
    log.delete_old_segments(1000 + ends(log)[0] + 100)
    deleted = [name for name in disk.list(log.directory) if name.endswith(".deleted")]
    assert f"{0:020d}.log.deleted" in deleted
    log.remove_deleted_files(0)
    log.remove_deleted_files(log.config.file_delete_delay_ms - 1)
    assert set(deleted) <= set(disk.list(log.directory))
    reopened(log)
    assert not any(name.endswith(".deleted") for name in disk.list(log.directory))


def test_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert (config.retention_ms, config.retention_bytes, config.segment_bytes) == (7 * DAY_MS, -1, 1 << 30)
    assert (config.segment_ms, config.segment_index_bytes, config.index_interval_bytes) == (
        7 * DAY_MS,
        10 << 20,
        4096,
    )
    assert (config.max_message_bytes, config.file_delete_delay_ms, config.deletes) == (1048588, 60000, True)
