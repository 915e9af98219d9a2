"""Offsets by time: what ListOffsets asks a log (conformance 63-65)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch_scan import CorruptBatch
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.reading import Isolation
from storage.timestamps import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOTHING,
    FoundOffset,
)
from tests.storage.partitions import SMALL, append, batch, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from wire.compression import Codec

LARGE = LogConfig()


def with_times(disk: SimulatedDisk, *batches: list[int], config: LogConfig = LARGE) -> UnifiedLog:
    log = new_log(disk, config)
    for timestamps in batches:
        append(log, batch(*[b"v" * 20] * len(timestamps), timestamps=timestamps, codec=Codec.GZIP))
    return log


def test_an_empty_log_has_a_beginning_and_an_end_and_nothing_else(disk: SimulatedDisk) -> None:
    log = new_log(disk)
    assert log.offset_for_timestamp(EARLIEST) == FoundOffset(0, -1, -1)
    assert log.offset_for_timestamp(LATEST) == FoundOffset(0, -1, -1)
    for timestamp in (MAX_TIMESTAMP, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, 0, 10**12):
        assert log.offset_for_timestamp(timestamp) == NOTHING == (-1, -1, -1)


def test_a_record_is_found_inside_a_compressed_batch_with_its_timestamps_in_no_order(
    disk: SimulatedDisk,
) -> None:
    log = with_times(disk, [10, 50, 30], [40, 20, 60])
    assert [log.offset_for_timestamp(timestamp).offset for timestamp in (0, 10, 11, 30, 50, 51, 60, 61)] == [
        0,
        0,
        1,
        1,
        1,
        5,
        5,
        -1,
    ]
    assert log.offset_for_timestamp(11) == FoundOffset(1, 50, 0)


@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=60),
    interval=st.sampled_from([0, 150, 4096]),
    timestamp=st.integers(0, 61),
    clean=st.booleans(),
)
def test_it_is_the_first_record_in_offset_order(
    batches: list[list[int]], interval: int, timestamp: int, clean: bool
) -> None:
    disk = SimulatedDisk()
    disk.make_dir("/log")
    log = with_times(disk, *batches, config=replace(SMALL, index_interval_bytes=interval))
    all_times = [one for timestamps in batches for one in timestamps]
    for log_ in (log, restarted(log, clean)):
        expected = next(
            (FoundOffset(offset, one, 0) for offset, one in enumerate(all_times) if one >= timestamp), NOTHING
        )
        assert log_.offset_for_timestamp(timestamp) == expected
        largest = max(all_times)
        assert log_.offset_for_timestamp(MAX_TIMESTAMP) == (all_times.index(largest), largest, 0)


def restarted(log: UnifiedLog, clean: bool) -> UnifiedLog:
    if clean:
        log.close()
    log = reopened(log, clean=clean)
    log.high_watermark = log.log_end_offset
    return log


def test_an_offset_comes_with_the_epoch_it_was_written_in(disk: SimulatedDisk) -> None:
    """Conformance 65."""
    log = new_log(disk)
    append(log, batch("a", timestamps=[10]), epoch=3)
    append(log, batch("b", timestamps=[20]), epoch=5)
    assert log.offset_for_timestamp(5) == FoundOffset(0, 10, 3)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == FoundOffset(1, 20, 5)
    assert log.offset_for_timestamp(EARLIEST) == log.offset_for_timestamp(EARLIEST_LOCAL) == (0, -1, 3)
    assert log.offset_for_timestamp(LATEST) == FoundOffset(2, -1, 5)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_where_no_record_has_a_timestamp_the_first_one_has_the_largest(
    disk: SimulatedDisk, codec: Codec
) -> None:
    """As Kafka 4.3.1 answers, but for records that were deleted."""
    log = new_log(disk, SMALL)
    for _ in range(20):
        append(log, batch("a", "b", timestamps=[-1, -1], codec=codec))
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == FoundOffset(0, -1, 0)
    assert log.offset_for_timestamp(0) == NOTHING
    log.delete_records_before(3)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == FoundOffset(3, -1, 0)
    log.delete_records_before(40)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == NOTHING


def test_deleted_records_are_not_found(disk: SimulatedDisk) -> None:
    log = with_times(disk, [10, 90, 30], [40, 20], [60])
    log.delete_records_before(2)
    assert log.offset_for_timestamp(5) == FoundOffset(2, 30, 0)
    assert log.offset_for_timestamp(EARLIEST).offset == 2
    log.delete_records_before(3)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == FoundOffset(5, 60, 0)


def test_nothing_is_found_that_the_reader_may_not_see(disk: SimulatedDisk) -> None:
    """Conformance 43, 61."""
    log = with_times(disk, [10], [20], [30])
    log.high_watermark = 2
    assert log.offset_for_timestamp(25) == NOTHING
    assert log.offset_for_timestamp(25, Isolation.LOG_END).offset == 2
    assert log.offset_for_timestamp(LATEST).offset == 2
    append(log, batch("t", producer_id=1, epoch=0, sequence=0, transactional=True, timestamps=[40]))
    append(log, batch("a", timestamps=[50]))
    assert log.offset_for_timestamp(LATEST, Isolation.COMMITTED).offset == 3
    assert log.offset_for_timestamp(40, Isolation.COMMITTED) == NOTHING
    assert log.offset_for_timestamp(MAX_TIMESTAMP).offset == 4


def test_log_append_time_is_what_counts_where_it_is_used(disk: SimulatedDisk) -> None:
    log = new_log(disk, replace(LARGE, log_append_time=True))
    append(log, batch("a", "b", timestamps=[1, 2]), now_ms=500)
    append(log, batch("c"), now_ms=600)
    assert log.offset_for_timestamp(3) == FoundOffset(0, 500, 0)
    assert log.offset_for_timestamp(501) == FoundOffset(2, 600, 0)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == FoundOffset(2, 600, 0)


def test_a_batch_that_is_damaged_is_not_decoded(disk: SimulatedDisk) -> None:
    log = with_times(disk, [10, 20])
    log.close()
    disk.corrupt(f"{log.directory}/{0:020d}.log", 80)
    log = reopened(log, clean=True)
    log.high_watermark = log.log_end_offset
    with pytest.raises(CorruptBatch, match="checksum"):
        log.offset_for_timestamp(15)
