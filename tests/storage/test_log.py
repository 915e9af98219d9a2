"""Appending to a log: offsets, what reaches the disk, what is refused, when it rolls, when it gives up."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from storage.appending import Appended, UnexpectedOffset
from storage.cleaner import LogCleaner
from storage.errors import LogDirectoryFailed, StorageError
from storage.files import Disk
from storage.invariants import InvariantBroken
from storage.log_config import DAY_MS, LogConfig
from storage.reading import Isolation
from storage.recovery import LogSettings, create_log, load_log
from storage.segment import LogSegment
from tests.storage.partitions import (
    SMALL,
    Batch,
    Stored,
    append,
    batch,
    contents,
    fill,
    headers_of,
    marker,
    new_log,
    reopened,
)
from tests.storage.simulated_disk import SimulatedDisk
from wire.errors import ErrorCode, KafkaError
from wire.record_batch import TimestampType, assign, batch_headers, crc_is_valid

LARGE = LogConfig()
ACTIVE = "/log/topic-0/00000000000000000000.log"


def code_of(outcome: object) -> ErrorCode:
    assert isinstance(outcome, KafkaError), outcome
    return outcome.code


def sent(producer_id: int, sequence: int, count: int = 1, *, transactional: bool = False) -> Batch:
    values = [b"v"] * count
    return batch(*values, producer_id=producer_id, epoch=0, sequence=sequence, transactional=transactional)


def writes(disk: SimulatedDisk) -> list[str]:
    return [path for _, kind, path in disk.history if kind == "append" and path.endswith(".log")]


class TestAppendingAsLeader:
    def test_batches_get_offset_and_leader_epoch_and_keep_the_rest(self, disk: SimulatedDisk) -> None:
        """Conformance 26."""
        log = new_log(disk, LARGE)
        first, second = batch("a", "b"), batch("c")
        assert append(log, first, second, epoch=7) == [Appended(0, 1, -1, 0), Appended(2, 2, -1, 0)]
        stored = disk.read(ACTIVE)
        (_, one), (position, other) = batch_headers(stored)
        assert (one.base_offset, one.leader_epoch, other.base_offset) == (0, 7, 2)
        assert stored[16:position] == first[0][16:]
        assert stored[position + 16 :] == second[0][16:]
        assert crc_is_valid(stored, position, other)
        assert [contents(log)[2], log.log_end_offset, log.size] == [Stored(2, b"c"), 3, len(stored)]

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_buffer_will_do(self, disk: SimulatedDisk, kind: type) -> None:
        log = new_log(disk, LARGE)
        data, header = batch("a")
        log.append_as_leader([(kind(data), header)], 0, 0)
        assert contents(log) == [Stored(0, b"a")]

    def test_batches_that_come_together_are_one_write(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        outcomes = log.append_as_leader([batch("a"), batch("b", "c"), batch("d")], 0, 0)
        assert [outcome.first_offset for outcome in outcomes if isinstance(outcome, Appended)] == [0, 1, 3]
        assert writes(disk) == [ACTIVE]

    def test_a_refused_batch_does_not_keep_the_others_out(self, disk: SimulatedDisk) -> None:
        """Conformance 28, 35."""
        log = new_log(disk, replace(LARGE, max_message_bytes=500))
        outcomes = log.append_as_leader(
            [sent(1, 0), batch("x" * 500), sent(1, 5), batch("y"), sent(1, 1)], 0, 0
        )
        assert [code_of(outcomes[1]), code_of(outcomes[2])] == [
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ]
        assert [stored.value for stored in contents(log)] == [b"v", b"y", b"v"]

    def test_a_batch_larger_than_a_segment_is_refused(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, SMALL)
        (outcome,) = log.append_as_leader([batch("x" * SMALL.segment_bytes)], 0, 0)
        assert code_of(outcome) is ErrorCode.RECORD_LIST_TOO_LARGE
        assert log.size == 0

    def test_a_resend_is_answered_with_the_first_offsets_and_not_written(self, disk: SimulatedDisk) -> None:
        """Conformance 34: also within one call, and with the append time even under CreateTime."""
        log = new_log(disk, LARGE)
        outcomes = log.append_as_leader([sent(1, 0, 2), sent(1, 0, 2), sent(1, 2)], 0, 50)
        assert outcomes == [
            Appended(0, 1, -1, 0),
            Appended(0, 1, 1001, 0, is_duplicate=True),
            Appended(2, 2, -1, 0),
        ]
        assert log.append_as_leader([sent(1, 0, 2)], 0, 60) == [outcomes[1]]
        assert log.log_end_offset == 3

    def test_log_append_time_replaces_the_largest_timestamp(self, disk: SimulatedDisk) -> None:
        """Conformance 30."""
        log = new_log(disk, replace(LARGE, log_append_time=True))
        assert append(log, batch("a", "b"), now_ms=5000) == [Appended(0, 1, 5000, 0)]
        (header,) = headers_of(log)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert (header.base_timestamp, header.max_timestamp) == (1000, 5000)
        assert crc_is_valid(disk.read(ACTIVE), 0, header)
        assert log.segments.active.largest_timestamp == 5000

    def test_a_new_epoch_begins_where_it_first_writes(self, disk: SimulatedDisk) -> None:
        """Conformance 65."""
        log = new_log(disk, LARGE)
        append(log, batch("a"), batch("b"), epoch=1)
        append(log, batch("c"), epoch=4)
        log.assign_leader_epoch(6)
        assert log.leader_epochs.entries == ((1, 0), (4, 2), (6, 3))
        assert [log.end_offset_for_epoch(epoch) for epoch in (1, 3, 4, 6, 7)] == [
            (1, 2),
            (1, 2),
            (4, 3),
            (6, 3),
            (-1, -1),
        ]

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_log_that_has_been_in_later_epochs_can_be_led(self, disk: SimulatedDisk, clean: bool) -> None:
        """It comes from another cluster. Kafka's `LeaderEpochFileCache.assign` drops what contradicts."""
        log = new_log(disk, replace(SMALL, cleanup_policy=frozenset({"compact"})))
        for epoch in (2, 5, 7):
            append(log, *(batch(b"x" * 400) for _ in range(3)), epoch=epoch)
        log.assign_leader_epoch(4)
        assert log.leader_epochs.entries == ((2, 0), (4, 9))
        assert isinstance(append(log, batch("new"), epoch=4)[0], Appended)
        assert [log.end_offset_for_epoch(epoch) for epoch in (2, 3, 4, 5)] == [
            (2, 9),
            (2, 9),
            (4, 10),
            (-1, -1),
        ]
        if clean:
            log.close()
        log = reopened(log, clean=clean)
        assert len(contents(log)) == 10
        assert [header.leader_epoch for header in headers_of(log)] == [2, 2, 2, 5, 5, 5, 7, 7, 7, 4]
        append(log, batch("newer"), epoch=log.leader_epochs.latest)
        log.high_watermark = log.log_end_offset
        log.flush()
        cleaner = LogCleaner(disk, [log])
        cleaning = cleaner.choose(0)
        assert cleaning is not None
        cleaner.run(cleaning)
        assert not cleaner.uncleanable, "a batch of an epoch that is not known any more is none the worse"

    def test_a_leader_whose_epoch_is_over_is_refused(self, disk: SimulatedDisk) -> None:
        """Conformance 91."""
        log = new_log(disk, LARGE)
        append(log, batch("a"), epoch=4)
        with pytest.raises(KafkaError) as caught:
            log.append_as_leader([batch("b")], 3, 0)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert log.log_end_offset == 1


class TestTransactions:
    def test_the_last_stable_offset_is_where_the_oldest_open_one_begins(self, disk: SimulatedDisk) -> None:
        """Conformance 43."""
        log = new_log(disk, LARGE)
        append(log, batch("a"), sent(1, 0, transactional=True), sent(2, 0, transactional=True))
        assert (log.last_stable_offset, log.high_watermark) == (1, 3)
        append(log, marker(1, commit=True))
        assert log.last_stable_offset == 2
        append(log, marker(2, commit=False))
        assert log.last_stable_offset == log.log_end_offset == 5

    def test_a_transaction_counts_as_open_until_its_marker_is_replicated(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, sent(1, 0, transactional=True))
        log.append_as_leader([marker(1, commit=True)], 0, 0)
        assert (log.high_watermark, log.last_stable_offset) == (1, 0)
        log.high_watermark = 2
        assert log.last_stable_offset == 2

    def test_an_aborted_one_is_listed_for_readers_of_committed_data(self, disk: SimulatedDisk) -> None:
        """Conformance 44."""
        log = new_log(disk, LARGE)
        append(log, sent(1, 0, transactional=True), batch("a"), marker(1, commit=False), batch("b"))
        result = log.read(0, 10_000, Isolation.COMMITTED)
        assert [tuple(one) for one in result.aborted_transactions] == [(1, 0, 2, 3)]
        assert log.read(3, 10_000, Isolation.COMMITTED).aborted_transactions == []
        assert log.read(0, 10_000).aborted_transactions == []

    def test_a_batch_outside_of_an_open_one_is_refused(self, disk: SimulatedDisk) -> None:
        """Conformance 45."""
        log = new_log(disk, LARGE)
        append(log, sent(1, 0, transactional=True))
        (outcome,) = log.append_as_leader([sent(1, 1)], 0, 0)
        assert code_of(outcome) is ErrorCode.INVALID_TXN_STATE

    def test_a_marker_of_a_producer_that_was_fenced_off_is_refused(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, batch("a", producer_id=1, epoch=3, sequence=0, transactional=True))
        (outcome,) = log.append_as_leader([marker(1, epoch=2, commit=True)], 0, 0)
        assert code_of(outcome) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.log_end_offset == 1


class TestAppendingAsFollower:
    def copied(self, *batches: Batch, at: int = 0, epoch: int = 2, gap: int = 0) -> bytes:
        data = bytearray()
        for content, header in batches:
            stored = bytearray(content)
            assign(stored, 0, at, epoch)
            data += stored
            at += header.last_offset_delta + 1 + gap
        return bytes(data)

    def test_offsets_and_epochs_are_kept_and_gaps_allowed(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        data = self.copied(batch("a", "b"), batch("c"), batch("d"), at=5, gap=10)
        assert log.append_as_follower(data, 0) == Appended(5, 28, -1, 0)
        assert disk.read(ACTIVE) == data
        assert writes(disk) == [ACTIVE]
        assert (log.log_end_offset, log.leader_epochs.entries) == (29, ((2, 5),))

    def test_an_incomplete_batch_at_the_end_is_left_out(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        data = self.copied(batch("a"), batch("b"))
        log.append_as_follower(data[:-1], 0)
        assert log.log_end_offset == 1
        assert log.append_as_follower(data[-20:], 0) is None

    @pytest.mark.parametrize("position", [5, 11, 16, 40, 100])
    def test_damaged_bytes_are_refused_as_a_whole(self, disk: SimulatedDisk, position: int) -> None:
        log = new_log(disk, LARGE)
        data = bytearray(self.copied(batch("a"), batch("b")))
        data[position] ^= 0x40
        with pytest.raises(KafkaError):
            log.append_as_follower(bytes(data), 0)
        assert (log.log_end_offset, log.size, log.offline) == (0, 0, None)

    def test_what_begins_before_the_log_end_is_refused(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, batch("a", "b"))
        with pytest.raises(UnexpectedOffset) as caught:
            log.append_as_follower(self.copied(batch("c"), at=1), 0)
        assert caught.value.first_offset == 1
        assert log.log_end_offset == 2

    def test_producers_and_transactions_are_taken_over(self, disk: SimulatedDisk) -> None:
        """Conformance 39: the next leader knows them."""
        log = new_log(disk, LARGE)
        data = self.copied(sent(1, 0, 3), sent(2, 0, transactional=True), marker(2, commit=False))
        log.append_as_follower(data, 0)
        log.high_watermark = log.log_end_offset
        assert log.append_as_leader([sent(1, 0, 3)], 3, 0) == [Appended(0, 2, 1002, 0, is_duplicate=True)]
        assert len(log.read(0, 1000, Isolation.COMMITTED).aborted_transactions) == 1

    def test_it_rolls_between_batches(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, SMALL)
        data = self.copied(*(batch(b"x" * 400) for _ in range(10)))
        log.append_as_follower(data, 0)
        assert len(log.segments) > 2
        assert b"".join(disk.read(segment.path) for segment in log.segments) == data

    def test_a_segment_that_begins_behind_a_gap_is_named_after_its_batch(self, disk: SimulatedDisk) -> None:
        """Kafka rolls at the first offset of what it appends, and so its indexes and snapshots are named."""
        log = new_log(disk, SMALL)
        big = batch(b"x" * 1500)
        log.append_as_follower(self.copied(big, batch("b"), big, at=5, gap=10), 0)
        assert log.segments.base_offsets == [0, 27]
        assert log.producers.latest_snapshot_offset == 27
        for clean in (False, True):
            if clean:
                log.close()
            log = reopened(log, clean=clean)
            assert [header.base_offset for header in headers_of(log)] == [5, 16, 27]
            assert (log.segments.base_offsets, log.log_end_offset) == ([0, 27], 28)

    def test_a_reader_at_the_end_goes_on_behind_a_gap_in_the_next_segment(self, disk: SimulatedDisk) -> None:
        """The position it read up to is remembered, and is now the end of a segment that has no more."""
        log = new_log(disk, SMALL)
        log.append_as_follower(self.copied(batch(b"x" * 1500), at=0, gap=0), 0)
        assert log.read(0, 4000, Isolation.LOG_END).next_offset == 1
        log.append_as_follower(self.copied(batch(b"y" * 1500), at=3, gap=0), 0)
        assert log.segments.base_offsets == [0, 3]
        found = log.read(1, 4000, Isolation.LOG_END)
        assert [header.base_offset for _, header in batch_headers(found.records)] == [3]

    def test_an_epoch_of_ours_in_which_nothing_was_written_gives_way(self, disk: SimulatedDisk) -> None:
        """Conformance 90."""
        log = new_log(disk, LARGE)
        append(log, batch("a"), epoch=1)
        log.assign_leader_epoch(5)
        log.append_as_follower(self.copied(batch("b"), at=1, epoch=3), 0)
        assert log.leader_epochs.entries == ((1, 0), (3, 1))


class TestRolling:
    def test_by_size_so_that_no_segment_is_larger(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, SMALL)
        fill(log, 100)
        assert len(log.segments) > 5
        sizes = [segment.size for segment in log.segments]
        batch_size = headers_of(log)[0].size
        assert all(SMALL.segment_bytes - batch_size - 2 <= size <= SMALL.segment_bytes for size in sizes[:-1])
        assert [one.offset for one in contents(log)] == list(range(100))

    def test_within_one_call(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, SMALL)
        log.append_as_leader([batch(b"x" * 400) for _ in range(12)], 0, 0)
        assert log.segments.base_offsets == [0, 4, 8]
        assert log.log_end_offset == 12

    def test_by_the_time_between_the_first_batch_and_the_new_one(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, replace(LARGE, segment_ms=100))
        for timestamp in (500, 600, 550, 601, 9):
            append(log, batch("v", timestamps=[timestamp]), now_ms=10**9)
        assert log.segments.base_offsets == [0, 3]

    def test_by_the_clock_where_there_are_no_timestamps(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, replace(LARGE, segment_ms=100), now_ms=1000)
        for now_ms in (1050, 1100, 1101):
            append(log, batch("v", timestamps=[-1]), now_ms=now_ms)
        assert log.segments.base_offsets == [0, 2]

    def test_earlier_by_the_jitter_that_was_drawn(self, disk: SimulatedDisk) -> None:
        config = replace(LARGE, segment_ms=100, segment_jitter_ms=40)
        log = new_log(disk, config)
        log.segments.active.roll_jitter_ms = 30
        for timestamp in (0, 70, 71):
            append(log, batch("v", timestamps=[timestamp]))
        assert log.segments.base_offsets == [0, 2]

    def test_earlier_in_the_first_segment_and_after_a_restart_too(self, disk: SimulatedDisk) -> None:
        """Kafka's `LogSegment.open` draws for every segment."""
        config = replace(LARGE, segment_ms=100, segment_jitter_ms=40)
        drawn = LogSettings(jitter=lambda limit: limit - 10)
        log = create_log(disk, "/log/topic-0", "topic", 0, config, now_ms=0, settings=drawn)
        assert log.segments.active.roll_jitter_ms == 30
        append(log, batch("v", timestamps=[0]))
        log.close()
        log = load_log(
            disk,
            "/log/topic-0",
            "topic",
            0,
            config,
            recovery_point=1,
            was_clean=True,
            now_ms=0,
            settings=drawn,
        )
        for timestamp in (70, 71):
            append(log, batch("v", timestamps=[timestamp]))
        assert log.segments.base_offsets == [0, 2]

    @pytest.mark.parametrize(
        ("policy", "lag_ms", "bases"), [("compact", 100, [0, 3]), ("delete", 100, [0]), ("compact", 0, [0])]
    )
    def test_by_the_most_that_compaction_may_lag(
        self, disk: SimulatedDisk, policy: str, lag_ms: int, bases: list[int]
    ) -> None:
        """Kafka's `LogConfig.maxSegmentMs`: what is not closed is not compacted."""
        config = replace(LARGE, max_compaction_lag_ms=lag_ms, cleanup_policy=frozenset({policy}))
        log = new_log(disk, config)
        for timestamp in (500, 600, 550, 601, 9):
            append(log, batch("v", timestamps=[timestamp]))
        assert log.segments.base_offsets == bases

    def test_after_a_restart_by_the_first_batch_in_the_file(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, replace(LARGE, segment_ms=100))
        append(log, batch("v", timestamps=[500]), batch("v", timestamps=[510]))
        log.close()
        log = reopened(log, clean=True, now_ms=10**9)
        append(log, batch("v", timestamps=[600]), batch("v", timestamps=[601]), now_ms=10**9)
        assert log.segments.base_offsets == [0, 3]

    def test_when_an_index_is_full(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, replace(LARGE, segment_index_bytes=48, index_interval_bytes=0))
        fill(log, 20)
        assert len(log.segments) > 4
        assert [one.offset for one in contents(log)] == list(range(20))
        assert all(segment.time_index.entries <= 4 for segment in log.segments)

    def test_when_an_offset_does_not_fit_the_indexes(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, batch("a"))
        copied = bytearray(batch("b")[0])
        assign(copied, 0, 2**31, 0)
        log.append_as_follower(copied, 0)
        assert log.segments.base_offsets == [0, 2**31]
        far = bytearray(batch("c")[0])
        assign(far, 0, 2**33, 0)
        log.append_as_follower(far, 0)
        assert log.segments.base_offsets == [0, 2**31, 2**33]

    def test_on_demand_unless_there_is_nothing(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        log.roll(0)
        assert log.segments.base_offsets == [0]
        append(log, batch("a"))
        log.roll(0)
        log.roll(0)
        assert log.segments.base_offsets == [0, 1]

    def test_a_snapshot_of_the_producers_is_taken(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, sent(1, 0, 3))
        log.roll(0)
        assert log.producers.latest_snapshot_offset == 3


class TestOffsets:
    def test_the_high_watermark_stays_within_the_log(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, batch("a", "b", "c"))
        log.high_watermark = 99
        assert log.high_watermark == 3
        log.delete_records_before(2)
        log.high_watermark = 0
        assert log.high_watermark == 2

    def test_offsets_out_of_order_are_a_bug_that_is_noticed(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, batch("a", "b", "c"))
        log.high_watermark = 1
        with pytest.raises(InvariantBroken):
            log.raise_log_start_offset(2)
        with pytest.raises(InvariantBroken):
            log.set_offsets(0, 3, 4)


class TestFailures:
    @pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
    @pytest.mark.parametrize("leaves_part", [False, True])
    def test_a_write_that_fails_takes_the_log_offline_with_all_of_the_call(
        self, disk: SimulatedDisk, error: int, leaves_part: bool
    ) -> None:
        log = new_log(disk, LARGE)
        append(log, sent(1, 0))
        disk.fail(error, "append", "*.log", after_bytes=40, leaves_part=leaves_part)
        with pytest.raises(LogDirectoryFailed) as caught:
            log.append_as_leader([sent(1, 1), batch("c")], 0, 0)
        assert caught.value.errno == error
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        for use in (
            lambda: log.read(0, 1000),
            lambda: log.append_as_leader([batch("d")], 0, 0),
            lambda: log.append_as_follower(b"", 0),
            lambda: log.flush(),
            lambda: log.truncate_to(0, 0),
            lambda: log.offset_for_timestamp(0),
            lambda: log.delete_records_before(0),
            lambda: log.close(),
        ):
            with pytest.raises(StorageError, match="topic-0"):
                use()
        disk.heal()
        after = reopened(log)
        assert contents(after) == [Stored(0, b"v")]
        assert append(after, sent(1, 1)) == [Appended(1, 1, -1, 0)]

    def test_a_full_disk_leaves_the_other_logs_alone(self, disk: SimulatedDisk) -> None:
        log, other = new_log(disk, LARGE), new_log(disk, LARGE, "/log/topic-1")
        append(other, batch("a"))
        disk.fail(errno.ENOSPC, "append", "/log/topic-0/*", times=None)
        with pytest.raises(StorageError):
            append(log, batch("a"))
        append(other, batch("b"))
        assert len(contents(other)) == 2

    def test_a_directory_that_is_read_only_can_still_say_so(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        disk.fail(errno.EROFS, "mutation", times=None)
        with pytest.raises(LogDirectoryFailed, match="Read-only"):
            append(log, batch("a"))

    @pytest.mark.parametrize("kind", ["create", "append", "truncate"])
    def test_a_roll_that_fails_takes_the_log_offline(self, disk: SimulatedDisk, kind: str) -> None:
        log = new_log(disk, SMALL)
        fill(log, 3)
        before = contents(log)
        disk.fail(errno.EIO, kind, "/log/topic-0/*", times=None)
        with pytest.raises(StorageError):
            log.roll(0) if kind != "truncate" else log.truncate_to(1, 0)
        assert log.offline is not None
        disk.heal()
        assert contents(reopened(log)) == before

    def test_a_sync_that_fails_takes_the_log_offline_for_good(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, batch("a"))
        disk.fail(errno.EIO, "sync", "*.log")
        with pytest.raises(LogDirectoryFailed):
            log.flush()
        assert log.recovery_point == 0
        with pytest.raises(LogDirectoryFailed):
            log.flush()

    def test_a_read_that_fails_takes_the_log_offline(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        append(log, batch("a"))
        disk.fail(errno.EIO, "read", "*.log")
        with pytest.raises(LogDirectoryFailed):
            log.read(0, 100)
        assert log.offline is not None

    def test_a_bug_takes_the_log_offline_instead_of_reaching_the_disk(
        self, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = new_log(disk, LARGE)

        def broken(*_: object) -> None:
            raise InvariantBroken("it must not be")

        monkeypatch.setattr(LogSegment, "index_batch", broken)
        with pytest.raises(StorageError, match="it must not be"):
            append(log, batch("a"))
        assert log.offline is not None


class TestFlushing:
    def test_what_was_flushed_survives_a_power_cut(self, disk: SimulatedDisk) -> None:
        """Conformance 89."""
        log = new_log(disk, SMALL)
        fill(log, 50)
        log.flush()
        assert log.recovery_point == log.log_end_offset == 50
        fill(log, 5)
        assert [one.offset for one in contents(reopened(log, disk.after_crash()))][:50] == list(range(50))

    def test_after_so_many_messages_where_the_topic_says_so(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, replace(LARGE, flush_messages=10))
        fill(log, 9)
        assert log.recovery_point == 0
        fill(log, 1)
        assert log.recovery_point == 10

    def test_a_truncation_while_a_flush_runs_keeps_the_recovery_point_down(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, LARGE)
        fill(log, 10)
        flush = log.begin_flush()
        log.truncate_to(3, 0)
        fill(log, 5, epoch=1)
        flush.run()
        log.finish_flush(flush)
        assert log.recovery_point <= 3

    def test_files_are_not_taken_from_a_flush_that_runs(self, disk: SimulatedDisk) -> None:
        log = new_log(disk, replace(SMALL, retention_bytes=0))
        fill(log, 50)
        log.flush()
        fill(log, 50)
        flush = log.begin_flush()
        log.delete_old_segments(0)
        log.remove_deleted_files(DAY_MS)
        log.remove_deleted_files(2 * DAY_MS)
        log.release_idle_files()
        flush.run()
        log.finish_flush(flush)
        assert log.recovery_point == 100


def test_the_real_disk_gives_back_what_was_written(tmp_path: object) -> None:
    log = new_log(Disk(), SMALL, f"{tmp_path}/topic-0")
    fill(log, 100)
    before = contents(log)
    log.close()
    log = reopened(log, clean=True)
    assert contents(log) == before
    fill(log, 10, epoch=1)
    log.release()
    assert len(contents(reopened(log))) == 110
    log.release()
