"""Compaction of a log: which log is chosen and when, how far it is cleaned, what is left alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from storage.cleaner import dirt_of
from storage.log import UnifiedLog
from storage.reading import Isolation
from tests.storage.compacted_logs import (
    CONFIG,
    DAY_MS,
    DIRECTORY,
    START_MS,
    Writer,
    all_batches,
    all_records,
    clean,
    clean_again,
    cleaner_of,
    consumed,
    last_values,
    new_log,
    reopened,
    written,
)
from tests.storage.partitions import append, batch
from tests.storage.simulated_disk import SimulatedDisk
from wire.record_batch import BatchHeader
from wire.records import ControlType, Record, build_batch

# -- how far


def test_the_active_segment_is_never_touched(disk: SimulatedDisk) -> None:
    """Conformance 68."""
    writer = written(disk)
    for number in range(5):
        writer.put([(b"key-0", b"active %d" % number)])
    writer.log.flush()
    active = writer.log.segments.active
    before = active.file.read(0, active.size)
    assert clean(writer.log)
    assert writer.log.segments.active is active
    assert active.file.read(0, active.size) == before
    assert last_values(consumed(writer.log)) == writer.last_values()
    assert writer.log.first_dirty_offset == active.base_offset


@pytest.mark.parametrize(
    "limit", ["high watermark", "last stable offset", "recovery point", "compaction lag"]
)
def test_nothing_at_or_above_a_limit_is_touched(disk: SimulatedDisk, limit: str) -> None:
    """Conformance 68. And what is not durable must not make something durable go."""
    writer = written(disk, 20)
    log = writer.log
    bound = log.log_end_offset
    if limit == "last stable offset":
        writer.put([(b"open", b"")], producer_id=9, transactional=True)
        bound = log.last_stable_offset
    elif limit == "compaction lag":
        log.config = replace(log.config, min_compaction_lag_ms=DAY_MS)
        writer.now_ms += DAY_MS
    for number in range(20):
        writer.put([(b"key-%d" % (number % 7), b"later %d" % number)])
    log.roll(writer.now_ms)
    if limit != "recovery point":
        log.flush()
    if limit == "high watermark":
        log._high_watermark = bound
    end_offset = dirt_of(log, writer.now_ms).end_offset
    assert 0 < end_offset <= bound
    assert end_offset in log.segments.base_offsets
    above = [batch for header, batch in all_batches(log) if header.base_offset >= end_offset]
    assert clean(log, writer.now_ms)
    assert [batch for header, batch in all_batches(log) if header.base_offset >= end_offset] == above
    assert log.first_dirty_offset == end_offset
    below = [record.key for record in all_records(log) if record.offset < end_offset]
    assert len(below) == len(set(below))


def test_a_log_is_not_cleaned_before_something_is_closed(disk: SimulatedDisk) -> None:
    writer = Writer(new_log(disk))
    writer.put([(b"a", b"1"), (b"a", b"2")])
    writer.log.flush()
    assert cleaner_of(writer.log).choose(START_MS) is None


# -- which, and when


def logs(disk: SimulatedDisk, *numbers: int, **changes: object) -> list[UnifiedLog]:
    """Logs in which so many batches are dirty, and 40 are clean."""
    found: list[UnifiedLog] = []
    for number in numbers:
        directory = f"/data/topic-{len(found)}"
        config = replace(CONFIG, segment_bytes=700, **changes)  # type: ignore[arg-type]
        writer = Writer(new_log(disk, config, directory))
        for value in range(40):
            writer.put([(b"%d" % value, b"clean")])
        writer.roll()
        writer.log.first_dirty_offset = writer.log.log_end_offset
        for value in range(number):
            writer.put([(b"%d" % value, b"dirty")])
        writer.roll()
        found.append(writer.log)
    return found


def test_the_dirtiest_log_comes_first(disk: SimulatedDisk) -> None:
    some = logs(disk, 10, 30, 20)
    cleaner = cleaner_of(*some)
    order = []
    while (cleaning := cleaner.choose(START_MS)) is not None:
        order.append(cleaning.assignment.directory)
        cleaner.run(cleaning)
    assert order == [some[1].directory, some[2].directory, some[0].directory]


def test_a_log_is_cleaned_when_more_than_the_ratio_is_dirty(disk: SimulatedDisk) -> None:
    (log,) = logs(disk, 40)
    ratio = dirt_of(log, START_MS).ratio
    assert ratio == pytest.approx(0.5, abs=0.05)
    log.config = replace(log.config, min_cleanable_dirty_ratio=ratio)
    assert cleaner_of(log).choose(START_MS) is None
    log.config = replace(log.config, min_cleanable_dirty_ratio=ratio - 0.001)
    assert cleaner_of(log).choose(START_MS) is not None


def test_what_has_no_timestamp_is_as_young_as_its_file(disk: SimulatedDisk) -> None:
    """Kafka's `LogSegment.largestTimestamp`; min.compaction.lag.ms holds for such records as well."""
    log = new_log(disk, replace(CONFIG, min_compaction_lag_ms=DAY_MS))
    append(log, batch("a", timestamps=[-1]), batch("b", timestamps=[-1]))
    log.roll(0)
    log.flush()
    written_ms = disk.modified_ms(log.segments[0].path)
    assert cleaner_of(log).choose(written_ms + DAY_MS - 1) is None
    assert cleaner_of(log).choose(written_ms + DAY_MS) is not None


def test_what_is_older_than_the_maximum_lag_is_cleaned_however_little_it_is(disk: SimulatedDisk) -> None:
    (log,) = logs(disk, 2, min_cleanable_dirty_ratio=0.99)
    log.config = replace(log.config, max_compaction_lag_ms=DAY_MS)
    assert cleaner_of(log).choose(START_MS + DAY_MS - 1) is None
    assert cleaner_of(log).choose(START_MS + DAY_MS + 1000) is not None


def test_only_logs_whose_policy_says_so_are_cleaned(disk: SimulatedDisk) -> None:
    (log,) = logs(disk, 20, cleanup_policy=frozenset({"delete"}))
    assert cleaner_of(log).choose(START_MS) is None
    log.config = replace(log.config, cleanup_policy=frozenset({"compact", "delete"}))
    assert cleaner_of(log).choose(START_MS) is not None


def test_no_log_is_cleaned_twice_at_once(disk: SimulatedDisk) -> None:
    cleaner = cleaner_of(*logs(disk, 20, 30))
    first, second = cleaner.choose(START_MS), cleaner.choose(START_MS)
    assert first is not None
    assert second is not None
    assert first.assignment.directory != second.assignment.directory
    assert cleaner.choose(START_MS) is None
    cleaner.run(first)
    cleaner.run(second)
    assert cleaner.choose(START_MS) is None


def test_compact_and_delete_does_both(disk: SimulatedDisk) -> None:
    """Conformance 67, 68."""
    policy = frozenset({"compact", "delete"})
    writer = written(disk, cleanup_policy=policy, retention_ms=DAY_MS)
    for number in range(20):
        writer.put([(b"early-%d" % number, b"")])
    writer.roll()
    writer.now_ms += 3 * DAY_MS
    for number in range(20):
        writer.put([(b"late-%d" % (number % 3), b"%d" % number)])
    writer.roll()
    clean(writer.log, writer.now_ms)
    assert writer.log.delete_old_segments(writer.now_ms) > 0
    values = last_values(consumed(writer.log))
    assert values == writer.last_values()
    assert set(values) == {b"late-0", b"late-1", b"late-2"}
    assert len(all_records(writer.log)) == 3


# -- the map of keys


def test_a_full_map_ends_the_cleaning_there_and_the_next_goes_on(disk: SimulatedDisk) -> None:
    """Conformance 68, in bounded memory."""
    writer = Writer(new_log(disk))
    for number in range(60):
        writer.put([(b"key-%d" % (number % 20), b"%d" % number), (b"key-%d" % (number * 7 % 20), b"x")])
    writer.roll()
    log = writer.log
    ends = []
    while clean(log, max_keys=6):
        ends.append(log.first_dirty_offset)
        assert last_values(consumed(log)) == writer.last_values()
    assert len(ends) > 3
    assert ends == sorted(set(ends))
    assert ends[-1] == log.segments.active.base_offset
    assert any(offset % 2 for offset in ends), "none ended within a batch"
    keys = [record.key for record in all_records(log)]
    assert len(keys) == len(set(keys)) == 20


def test_aborted_data_behind_the_end_of_the_map_keeps_its_index_entry(disk: SimulatedDisk) -> None:
    """Conformance 44, 68: it is copied as it is, and readers have to know."""
    writer = Writer(new_log(disk, replace(CONFIG, segment_bytes=10_000)))
    for number in range(5):
        writer.put([(b"%d" % number, b"x")])
    writer.put([(b"aborted", b"x")], producer_id=3, transactional=True)
    writer.end(3, ControlType.ABORT)
    writer.roll()
    assert clean(writer.log, max_keys=2)
    assert writer.log.first_dirty_offset == 2
    assert b"aborted" in {record.key for record in all_records(writer.log)}
    assert last_values(consumed(writer.log)) == writer.last_values()
    assert last_values(consumed(reopened(writer.log, clean=True))) == writer.last_values()


# -- segments


def test_small_segments_become_one_of_at_most_segment_bytes(disk: SimulatedDisk) -> None:
    writer = written(disk, 200, keys=50)
    log = writer.log
    count = len(log.segments)
    assert count > 8
    # Groups are made by the sizes before, so it takes a second time.
    clean_again(log)
    clean_again(log)
    assert len(log.segments) < count / 2
    assert all(segment.size <= log.config.segment_bytes for segment in log.segments)
    assert last_values(consumed(log)) == writer.last_values()
    assert last_values(consumed(reopened(log))) == writer.last_values()


def test_segments_are_not_joined_beyond_what_an_index_can_say(disk: SimulatedDisk) -> None:
    """An index entry has 31 bits for an offset relative to the segment's base."""
    log = new_log(disk, replace(CONFIG, segment_bytes=10_000))
    for base_offset in (0, 1 << 30, 1 << 31, (1 << 31) + (1 << 30), 1 << 32):
        for offset in (base_offset, base_offset + 1):
            batch = build_batch([Record(offset, START_MS, b"%d" % offset, b"x" * 200)], leader_epoch=0)
            log.append_as_follower(batch, START_MS)
        log.roll(START_MS)
    log.flush()
    log.high_watermark = log.log_end_offset
    before = all_records(log)
    clean_again(log)
    assert all_records(log) == before
    bases = log.segments.base_offsets
    assert len(bases) < 6
    for base_offset, end in pairwise(bases):
        assert end - base_offset <= 1 << 31
    assert log.log_end_offset == (1 << 32) + 2


def test_segments_are_not_joined_beyond_the_size_of_an_index(disk: SimulatedDisk) -> None:
    writer = written(disk, 60, keys=60, index_interval_bytes=1, segment_index_bytes=120)
    clean_again(writer.log)
    clean_again(writer.log)
    config = writer.log.config
    for segment in writer.log.segments:
        assert segment.offset_index.size <= config.segment_index_bytes
        assert segment.time_index.size <= config.segment_index_bytes
    assert last_values(consumed(writer.log)) == writer.last_values()


def test_a_segment_from_which_nothing_goes_is_left_alone(disk: SimulatedDisk) -> None:
    writer = Writer(new_log(disk))
    for number in range(40):
        writer.put([(b"only-%d" % number, b"once")])
    writer.roll()
    before = list(writer.log.segments)
    operations = disk.operations
    assert clean(writer.log)
    assert list(writer.log.segments) == before
    assert disk.operations == operations


def test_a_cleaned_segment_is_as_old_as_what_it_was_made_from(disk: SimulatedDisk) -> None:
    """Retention by time goes by it where batches have no timestamps."""
    writer = written(disk)
    closed = list(writer.log.segments)[:-1]
    for number, segment in enumerate(closed):
        disk.set_modified_ms(segment.path, 1000 + number)
    assert clean(writer.log)
    ages = [disk.modified_ms(segment.path) for segment in list(writer.log.segments)[:-1]]
    assert ages == sorted(ages)
    assert set(ages) <= {1000 + number for number in range(len(closed))}
    assert ages[-1] == 1000 + len(closed) - 1


def test_cleaning_the_same_offsets_again_and_again_fills_no_disk(disk: SimulatedDisk) -> None:
    """Files of deleted segments have the same names each time, within file.delete.delay.ms."""
    writer = written(disk, file_delete_delay_ms=1000)
    log = writer.log
    for number in range(4):
        clean_again(log, writer.now_ms)
        log.remove_deleted_files(number)
        for value in range(10):
            writer.put([(b"key-%d" % value, b"again")])
        writer.roll()
    log.remove_deleted_files(2000)
    log.remove_deleted_files(5000)
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")] == []
    assert log.offline is None
    assert last_values(consumed(log)) == writer.last_values()


def test_look_ups_by_time_and_offset_agree_with_what_is_left(disk: SimulatedDisk) -> None:
    """Conformance 64."""
    writer = written(disk, 80, keys=30)
    log = writer.log
    clean_again(log, writer.now_ms)
    left = all_records(log)
    for timestamp in range(START_MS, writer.now_ms + 5, 3):
        found = log.offset_for_timestamp(timestamp)
        expected = next((record for record in left if record.timestamp >= timestamp), None)
        assert found.offset == (-1 if expected is None else expected.offset)
    for offset in range(log.log_start_offset, log.log_end_offset):
        result = log.read(offset, 1, Isolation.HIGH_WATERMARK)
        header = BatchHeader.parse(result.records) if result.records else None
        following = [record.offset for record in left if record.offset >= offset]
        if header is None:
            assert not following
        else:
            assert header.last_offset >= offset
            assert not [one for one in following if one < header.base_offset]
