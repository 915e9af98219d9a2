"""Reading a log: whole batches, limits, and how far a reader may see."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from storage.files import Buffer, FilePart
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.reading import Isolation
from tests.storage.partitions import SMALL, append, batch, contents, fill, marker, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from wire.errors import ErrorCode, KafkaError
from wire.record_batch import assign, batch_headers

LARGE = LogConfig()


def offsets(records: Buffer) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for _, header in batch_headers(records)]


def as_part(records: object) -> FilePart | None:
    """The part of a file, where `LogRead.records` is one. Its type does not mention that."""
    return None if isinstance(records, bytes | memoryview) else cast(FilePart, records)


@pytest.fixture
def log(disk: SimulatedDisk) -> UnifiedLog:
    """Ten batches of three records, of 100 bytes and more each."""
    log = new_log(disk, LARGE)
    append(log, *(batch(*[b"v" * 20] * 3) for _ in range(10)))
    return log


class TestLimits:
    def test_an_offset_inside_a_batch_returns_the_whole_batch(self, log: UnifiedLog) -> None:
        """Conformance 53."""
        for offset in (3, 4, 5):
            assert offsets(log.read(offset, 1).records) == [(3, 5)]

    def test_only_whole_batches_within_the_limit(self, log: UnifiedLog) -> None:
        """Conformance 56."""
        size = log.size // 10
        assert offsets(log.read(0, 3 * size).records) == [(0, 2), (3, 5), (6, 8)]
        result = log.read(0, 4 * size - 1)
        assert offsets(result.records) == [(0, 2), (3, 5), (6, 8)]
        assert result.next_offset == 9

    def test_the_first_batch_is_returned_even_if_it_is_larger_than_the_limit(self, log: UnifiedLog) -> None:
        """Conformance 56."""
        for max_bytes in (0, 1, 60, 61, 62):
            assert offsets(log.read(6, max_bytes).records) == [(6, 8)]
            result = log.read(6, max_bytes, min_one_batch=False)
            assert (bytes(result.records), result.next_offset) == (b"", 6)

    @pytest.mark.parametrize("interval", [0, 100, 1000, 100_000])
    def test_the_index_does_not_change_what_is_read(self, disk: SimulatedDisk, interval: int) -> None:
        log = new_log(disk, replace(LARGE, index_interval_bytes=interval))
        fill(log, 200)
        size = log.size
        for offset in (0, 1, 57, 199):
            whole = bytes(log.read(offset, size).records)
            for max_bytes in range(100, size, 371):
                result = log.read(offset, max_bytes)
                cut = bytes(result.records)
                assert whole.startswith(cut)
                assert len(cut) <= max(max_bytes, 130)
                assert result.next_offset == offset + len(offsets(cut))
                assert len(whole) - len(cut) < 130 or len(cut) + 130 > max_bytes


class TestParts:
    """Stretches of a file that nobody has to read, only to send."""

    @pytest.mark.parametrize("interval", [0, 100, 1000, 100_000])
    def test_a_part_is_what_would_have_been_read(self, disk: SimulatedDisk, interval: int) -> None:
        """Conformance 53, 56."""
        log = new_log(disk, replace(LARGE, index_interval_bytes=interval))
        fill(log, 200)
        log.high_watermark = 150
        parts = 0
        for offset in (0, 1, 57, 149, 150):
            for isolation in (Isolation.HIGH_WATERMARK, Isolation.LOG_END):
                for max_bytes in range(100, log.size + 200, 371):
                    read = log.read(offset, max_bytes, isolation)
                    part = log.read(offset, max_bytes, isolation, part_from=100)
                    if (file_part := as_part(part.records)) is not None:
                        parts += 1
                        part = part._replace(records=file_part.read())
                    assert part == read._replace(records=bytes(read.records))
        assert parts > 100

    def test_what_was_not_checked_since_the_log_was_loaded_is_read(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        fill(log, 50)
        log.close()
        log = reopened(log, clean=True)
        log.high_watermark = 50
        first = log.read(0, log.size, part_from=100).records
        again = log.read(0, log.size, part_from=100).records
        assert as_part(first) is None
        unread = as_part(again)
        assert unread is not None
        assert unread.read() == bytes(first)


class TestWhereToRead:
    def test_the_end_yields_nothing_and_no_error(self, log: UnifiedLog) -> None:
        """Conformance 54."""
        result = log.read(30, 100)
        assert (bytes(result.records), result.next_offset) == (b"", 30)

    @pytest.mark.parametrize("offset", [-1, 31])
    def test_outside_is_an_error(self, log: UnifiedLog, offset: int) -> None:
        """Conformance 54."""
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_below_the_log_start_is_outside(self, log: UnifiedLog) -> None:
        log.delete_records_before(4)
        with pytest.raises(KafkaError):
            log.read(3, 100)
        assert offsets(log.read(4, 1).records) == [(3, 5)]

    def test_a_read_ends_with_its_segment_and_the_next_goes_on(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, SMALL)
        fill(log, 60)
        bases = log.segments.base_offsets
        assert log.read(0, 10**6).next_offset == bases[1]
        assert offsets(log.read(bases[1], 10**6).records)[0] == (bases[1], bases[1])
        assert len(contents(log)) == 60

    def test_a_gap_leads_to_the_batch_behind_it(self, disk: SimulatedDisk) -> None:
        """Also to one in another segment."""
        log = new_log(disk, LARGE)
        append(log, batch("a"))
        for offset in (10, 20):
            copied = bytearray(batch("b")[0])
            assign(copied, 0, offset, 0)
            log.append_as_follower(copied, 0)
            log.roll(0)
        log.high_watermark = log.log_end_offset
        assert [offsets(log.read(offset, 1).records) for offset in (1, 10, 11, 20)] == [
            [(10, 10)],
            [(10, 10)],
            [(20, 20)],
            [(20, 20)],
        ]


class TestWhatIsVisible:
    def test_a_consumer_sees_nothing_above_the_high_watermark(self, log: UnifiedLog) -> None:
        """Conformance 61."""
        log.high_watermark = 9
        assert offsets(log.read(0, 10**6).records) == [(0, 2), (3, 5), (6, 8)]
        assert bytes(log.read(9, 10**6).records) == b""
        assert len(offsets(log.read(0, 10**6, Isolation.LOG_END).records)) == 10

    def test_a_high_watermark_inside_a_batch_keeps_the_batch_back(self, log: UnifiedLog) -> None:
        log.high_watermark = 7
        assert offsets(log.read(0, 10**6).records) == [(0, 2), (3, 5)]
        assert bytes(log.read(6, 10**6).records) == b""

    def test_a_reader_of_committed_data_stops_before_an_open_transaction(self, disk: SimulatedDisk) -> None:
        """Conformance 44."""
        log = new_log(disk, LARGE)
        append(log, batch("a", "b"))
        append(log, batch("t", producer_id=1, epoch=0, sequence=0, transactional=True), batch("c"))
        result = log.read(0, 10**6, Isolation.COMMITTED)
        assert offsets(result.records) == [(0, 1)]
        assert (result.last_stable_offset, result.high_watermark, result.log_start_offset) == (2, 4, 0)
        append(log, marker(1, commit=True))
        assert len(offsets(log.read(0, 10**6, Isolation.COMMITTED).records)) == 4

    def test_aborted_transactions_are_found_in_later_segments(self, disk: SimulatedDisk) -> None:
        """Conformance 44: begun in one segment, aborted in another, listed for whatever they overlap."""
        log = new_log(disk, SMALL)
        append(log, batch("t", producer_id=1, epoch=0, sequence=0, transactional=True))
        fill(log, 40)
        append(log, marker(1, commit=False))
        fill(log, 40)
        end = next(one.offset for one in contents(log) if one.offset > 41)
        assert len(log.segments) > 4
        for log_ in (log, reopened(log)):
            log_.high_watermark = log_.log_end_offset
            for offset in (0, 20, 41):
                found = log_.read(offset, 300, Isolation.COMMITTED).aborted_transactions
                assert [(one.producer_id, one.first_offset, one.last_offset) for one in found] == [(1, 0, 41)]
            assert log_.read(end, 300, Isolation.COMMITTED).aborted_transactions == []


def test_only_what_is_read_for_the_first_time_is_searched_for(disk: SimulatedDisk) -> None:
    """A consumer that reads on needs one pread, whatever the index has to say."""
    log = new_log(disk, LARGE)
    fill(log, 100)
    offset = log.read(0, 1000).next_offset
    segment = log.segments.active
    reads = []
    read = segment.file.read
    segment.file.read = lambda position, length: reads.append(length) or read(position, length)  # type: ignore
    log.read(offset, 1000)
    assert len(reads) == 1
