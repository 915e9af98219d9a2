"""Retention and ListOffsets, where batches are stored whose headers do not say the largest timestamp.

Sarama 1.43.2 writes -1, and brokers that believed it have stored it. What Kafka answers here it answers since
it computes the largest timestamp when it appends.
"""

from __future__ import annotations

import pytest

from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.timestamps import MAX_TIMESTAMP, NOTHING
from tests.storage.check.checked_sample import findings
from tests.storage.partitions import Batch, append, batch, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from wire.compression import Codec
from wire.record_batch import HEADER_SIZE, BatchHeader, assembled, assign

CONFIG = LogConfig(index_interval_bytes=200, retention_ms=20_000)


def lying(*timestamps: int, says: int = -1, codec: Codec = Codec.NONE) -> Batch:
    data, header = batch(*[b"v" * 50] * len(timestamps), timestamps=timestamps, codec=codec)
    header = header._replace(max_timestamp=says)
    wrong = assembled(0, header.leader_epoch, header[5:], data[HEADER_SIZE:])
    return wrong, BatchHeader.parse(wrong)


def stored(disk: SimulatedDisk, *batches: Batch, is_clean: bool) -> UnifiedLog:
    """As the next process finds them."""
    log = new_log(disk, CONFIG)
    append(log, *batches)
    if is_clean:
        log.close()
    else:
        log.flush()
    log = reopened(log, clean=is_clean, recovery_point=log.log_end_offset if is_clean else 0)
    log.high_watermark = log.log_end_offset
    return log


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
class TestLargestTimestampsThatAreTooEarly:
    def test_they_hide_no_record(self, disk: SimulatedDisk, is_clean: bool, codec: Codec) -> None:
        """Kafka: 0, 1, 2, 3, 4."""
        right = batch(b"v" * 50, timestamps=[300])
        before, after = [lying(100, codec=codec), lying(200, codec=codec)], [lying(400), lying(500)]
        log = stored(disk, *before, right, *after, is_clean=is_clean)
        found = [log.offset_for_timestamp(timestamp).offset for timestamp in (100, 200, 300, 400, 500, 501)]
        assert found == [0, 1, 2, 3, 4, -1]
        assert log.offset_for_timestamp(MAX_TIMESTAMP)[:2] == (4, 500)

    def test_where_no_header_is_right(self, disk: SimulatedDisk, is_clean: bool, codec: Codec) -> None:
        times = [(when, when + 5, when + 2) for when in range(1000, 1400, 10)]
        log = stored(disk, *(lying(*three, codec=codec) for three in times), is_clean=is_clean)
        assert log.offset_for_timestamp(1203) == (61, 1205, 0)
        assert log.offset_for_timestamp(1394)[:2] == (118, 1395), "later than the first record of all batches"
        assert log.offset_for_timestamp(1396) == NOTHING
        assert log.offset_for_timestamp(MAX_TIMESTAMP)[:2] == (118, 1395)

    def test_young_records_are_not_deleted(self, disk: SimulatedDisk, is_clean: bool, codec: Codec) -> None:
        """retention.ms is 20 s; the newest are 6 s old when the others are 20 s old and more."""
        young = [lying(14_000 + number, codec=codec) for number in range(40)]
        log = stored(disk, batch(b"v" * 50, timestamps=[1000]), *young, is_clean=is_clean)
        assert log.delete_old_segments(21_500) == 0
        assert log.log_start_offset == 0
        assert log.delete_old_segments(14_039 + 20_000) == 0
        assert log.delete_old_segments(14_039 + 20_001) == 1

    def test_checking_finds_nothing_wrong(self, disk: SimulatedDisk, is_clean: bool, codec: Codec) -> None:
        log = stored(disk, *(lying(1000 + one, codec=codec) for one in range(40)), is_clean=is_clean)
        assert log.segments.active.largest_timestamp == 1039
        log.is_changed = True
        log.close()
        assert findings(disk, log.directory) == []


def test_what_a_follower_copies_is_found_at_once(disk: SimulatedDisk) -> None:
    log = new_log(disk, CONFIG)
    for offset, times in ((0, (100, 105)), (2, (200, 207, 203))):
        copied = bytearray(lying(*times)[0])
        assign(copied, 0, offset, 0)
        log.append_as_follower(copied, 0)
    log.high_watermark = log.log_end_offset
    found = [log.offset_for_timestamp(timestamp).offset for timestamp in (100, 101, 106, 201, 207, 208)]
    assert found == [0, 1, 2, 3, 3, -1]
    assert log.segments.active.largest_timestamp == 200, "as far as can be told without looking"


def test_a_largest_timestamp_that_is_too_late_hides_no_other(disk: SimulatedDisk) -> None:
    log = stored(disk, batch("a", timestamps=[700]), lying(100, says=10**12), batch("c"), is_clean=True)
    assert log.offset_for_timestamp(MAX_TIMESTAMP)[:2] == (2, 1000)


def test_the_latest_of_what_is_left_of_a_batch_is_not_the_latest_of_all(disk: SimulatedDisk) -> None:
    """Its own latest record was deleted."""
    log = stored(disk, batch("a", "b", timestamps=[900, 100]), batch("c", timestamps=[500]), is_clean=True)
    log.delete_records_before(1)
    assert log.offset_for_timestamp(MAX_TIMESTAMP)[:2] == (2, 500)
