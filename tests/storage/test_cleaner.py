"""Compaction of a log: what is chosen, what is exchanged, what is left alone, and what may come between."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from storage.cleaner import LogCleaner, RateLimit, dirt_of
from storage.errors import CorruptFile
from storage.files import Disk
from storage.log import UnifiedLog
from storage.log_config import LogConfig
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
)
from tests.storage.partitions import new_manager
from tests.storage.simulated_disk import SimulatedDisk
from wire.record_batch import BatchHeader
from wire.records import ControlType, Record, build_batch


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir("/data")
    disk.sync_dir("/")
    return disk


def written(disk: SimulatedDisk, batches: int = 40, keys: int = 7, **changes: object) -> Writer:
    """A log of several closed segments in which every key comes often."""
    writer = Writer(new_log(disk, replace(CONFIG, **changes)))  # type: ignore[arg-type]
    for number in range(batches):
        writer.put([(b"key-%d" % (number % keys), b"value %d" % number), (b"all", b"%d" % number)])
    writer.roll()
    return writer


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    return disk.files(DIRECTORY)


def leftovers(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]


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
    found = []
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


def test_a_log_waits_until_nobody_works_in_its_directory(disk: SimulatedDisk) -> None:
    """A topic was deleted and made again while a thread cleaned it."""
    old = written(disk)
    logs = [old.log]
    cleaner = LogCleaner(disk, logs)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaning.work()
    move_away(old)
    logs[:] = [written(disk).log]
    assert cleaner.choose(START_MS) is None
    assert not cleaner.advance(cleaning)
    assert cleaner.choose(START_MS) is not None


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


# -- producers and transactions over a restart


def test_a_producer_goes_on_after_all_it_wrote_was_superseded(disk: SimulatedDisk) -> None:
    """Conformance 34, 70."""
    writer = Writer(new_log(disk))
    for number in range(10):
        writer.put([(b"key", b"%d" % number)] * 3, producer_id=5)
    for number in range(30):
        writer.put([(b"key", b"last %d" % number)])
    writer.roll()
    log = writer.log
    clean_again(log)
    clean_again(log)
    (header,) = [header for header, _ in all_batches(log) if header.producer_id == 5]
    assert (header.count, header.base_sequence, header.last_offset_delta) == (0, 27, 2)
    for name in disk.list(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    log.recovery_point = 0
    writer.log = log = reopened(log)
    resent = build_batch(
        [Record(i, START_MS, b"key", b"9") for i in range(3)],
        producer_id=5,
        producer_epoch=0,
        base_sequence=27,
    )
    (outcome,) = log.append_as_leader([(resent, BatchHeader.parse(resent))], 0, START_MS)
    assert outcome[:2] == (header.base_offset, header.last_offset)  # type: ignore[index]
    writer.put([(b"key", b"next")], producer_id=5)


def test_a_transaction_does_not_come_back_open_with_an_old_snapshot(disk: SimulatedDisk) -> None:
    """A snapshot from within a transaction, whose marker is gone, would hold back readers for ever."""
    writer = Writer(new_log(disk))
    writer.put([(b"key", b"aborted")], producer_id=5, transactional=True)
    for number in range(20):
        writer.put([(b"key", b"%d" % number)])
    in_transaction = [base for base in writer.log.segments.base_offsets if base > 0]
    assert in_transaction
    writer.end(5, ControlType.ABORT)
    writer.put([(b"key", b"plain")], producer_id=5)
    writer.put([(b"key", b"last")])
    writer.roll()
    log = writer.log
    for days in (0, 2, 4):
        clean_again(log, writer.now_ms + days * DAY_MS)
    assert not [header for header, _ in all_batches(log) if header.is_control]
    # The recovery point that was checkpointed is the one from before.
    for recovery_point in in_transaction:
        log.recovery_point = recovery_point
        again = reopened(log)
        assert again.last_stable_offset == again.log_end_offset
        assert last_values(consumed(again)) == writer.last_values()


# -- cancelled, outrun, refused


def paced(action: Callable[[int], object]) -> Callable[[int], None]:
    calls = 0

    def throttle(size: int) -> None:
        nonlocal calls
        calls += 1
        action(calls)

    return throttle


def large(disk: SimulatedDisk) -> Writer:
    """Enough for the throttle to be asked now and then: it is told of 256 KiB at a time."""
    writer = Writer(new_log(disk, replace(CONFIG, segment_bytes=400_000)))
    for number in range(400):
        writer.put([(b"key-%d" % (number % 90), b"%d" % number + bytes(3000))])
    writer.roll()
    return writer


def test_the_throttle_is_told_of_all_that_is_read_and_written(disk: SimulatedDisk) -> None:
    writer = large(disk)
    told: list[int] = []
    cleaner = cleaner_of(writer.log, throttle=told.append)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaner.run(cleaning)
    statistics = cleaning.statistics
    total = statistics.map_bytes_read + statistics.bytes_read + statistics.bytes_written
    assert total - sum(told) < 1 << 18
    assert max(told) < 1 << 19
    assert statistics.bytes_read == statistics.map_bytes_read > 1_000_000
    assert (statistics.keys, statistics.records_seen) == (90, 400)
    assert statistics.records_kept == len(all_records(writer.log))


@pytest.mark.parametrize("at", [1, 3, 6, 8, 9])
def test_a_cleaning_can_be_cancelled_at_any_moment(disk: SimulatedDisk, at: int) -> None:
    writer = large(disk)
    log = writer.log
    cleaner: LogCleaner

    def cancel(calls: int) -> None:
        if calls == at:
            cleaner.cancel(log)

    cleaner = cleaner_of(log, throttle=paced(cancel))
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaner.run(cleaning)
    assert log.first_dirty_offset == 0
    assert leftovers(disk) == []
    assert last_values(consumed(log)) == writer.last_values()
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaner.run(cleaning)
    assert log.first_dirty_offset == log.log_end_offset
    assert last_values(consumed(log)) == writer.last_values()


def test_a_cleaned_segment_that_nobody_wants_any_more_is_removed(disk: SimulatedDisk) -> None:
    writer = written(disk)
    before = files_of(disk)
    cleaner = cleaner_of(writer.log)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaning.work()
    assert cleaner.advance(cleaning)
    cleaning.work()
    assert cleaning.cleaned is not None
    assert leftovers(disk) != []
    cleaner.cancel_all()
    assert not cleaner.advance(cleaning)
    assert files_of(disk) == before


def truncate(writer: Writer) -> None:
    """As after an unclean election: into what was taken as final."""
    writer.truncate(writer.log.log_end_offset // 2)
    for number in range(30):
        writer.put([(b"other-%d" % number, b"leader")])
    writer.roll()


def truncate_the_end(writer: Writer) -> None:
    """All segments but one stay as they were, but not all that their records were superseded by."""
    writer.truncate(writer.log.segments[-2].base_offset)
    writer.put([(b"other", b"leader")])
    writer.roll()


def remove_the_beginning(writer: Writer) -> None:
    writer.log.delete_records_before(writer.log.segments[-2].base_offset)
    writer.log.delete_old_segments(writer.now_ms)


def go_offline(writer: Writer) -> None:
    writer.log.fail(OSError(errno.EIO, "gone"))


def move_away(writer: Writer) -> None:
    """A topic is deleted: the directory gets another name."""
    log = writer.log
    log.files.rename(log.directory, log.directory + ".x-delete")
    log.retire()


CHANGES = [truncate, truncate_the_end, remove_the_beginning, go_offline, move_away]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("during_work", [True, False])
def test_nothing_is_exchanged_in_a_log_that_changes_meanwhile(
    disk: SimulatedDisk, change: Callable[[Writer], None], steps: int, during_work: bool
) -> None:
    """Conformance 68, 90. What was exchanged before stays, what was not is as it was."""
    writer = written(disk, 60)
    log = writer.log
    cleaner = cleaner_of(log)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    for _ in range(steps):
        cleaning.work()
        assert cleaner.advance(cleaning)
    if not during_work:
        change(writer)
    cleaning.work()
    if during_work:
        change(writer)
    segments, batches = list(log.segments), [] if log.offline else all_batches(log)
    while cleaner.advance(cleaning):
        cleaning.work()
    assert list(log.segments) == segments
    assert not cleaner.uncleanable
    assert (log.offline is None) == (change not in (go_offline, move_away))
    if log.offline is None:
        assert all_batches(log) == batches
        assert log.first_dirty_offset == 0
        assert leftovers(disk) == []
        assert clean(log)
        assert {record.key for record in all_records(log)} >= {one.key for one in consumed(log)}


def test_a_truncated_log_is_dirty_from_where_it_was_cut(disk: SimulatedDisk) -> None:
    """What is written there is compared with what was clean."""
    writer = written(disk, 60, keys=20)
    log = writer.log
    assert clean(log)
    writer.truncate(60)
    assert log.first_dirty_offset == 60 == log.log_end_offset
    for number in range(20):
        writer.put([(b"key-%d" % number, b"again")])
    writer.roll()
    assert clean(log)
    keys = [record.key for record in all_records(log)]
    assert len(keys) == len(set(keys))


# -- damage, and disks that refuse


@pytest.mark.parametrize(
    ("byte", "why"),
    [
        (2, "does not belong here"),
        (9, "ends within"),
        (13, "leader epoch"),
        (16, "no batch"),
        (20, "checksum"),
        (40, "checksum"),
        (70, "checksum"),
    ],
)
def test_a_damaged_batch_ends_the_cleaning_of_its_log_and_is_named(
    disk: SimulatedDisk, byte: int, why: str
) -> None:
    """Conformance 88: whichever of its bytes was hit."""
    writer = written(disk)
    segment = writer.log.segments[1]
    path, position = segment.path, segment.position_of(segment.end_offset() - 1)
    assert position is not None
    disk.corrupt(path, position + byte)
    before = files_of(disk)
    other = Writer(new_log(disk, directory="/data/topic-1"))
    for number in range(30):
        other.put([(b"key", b"%d" % number)])
    other.roll()
    cleaner = cleaner_of(writer.log, other.log)
    while (cleaning := cleaner.choose(START_MS)) is not None:
        cleaner.run(cleaning)
    error = cleaner.uncleanable[writer.log]
    assert isinstance(error, CorruptFile)
    assert error.path == path
    assert error.position == position
    assert why in error.why
    assert writer.log.offline is None
    assert files_of(disk) == before
    assert len(all_records(other.log)) == 1


def test_damage_found_while_writing_loses_nothing(disk: SimulatedDisk) -> None:
    """It may come to be after the keys were read."""
    writer = written(disk)
    cleaner = cleaner_of(writer.log)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaning.work()
    assert cleaner.advance(cleaning)
    path = writer.log.segments[1].path
    disk.corrupt(path, 70)
    segments = list(writer.log.segments)
    cleaner.run(cleaning)
    assert cleaner.uncleanable[writer.log].path == path
    assert list(writer.log.segments)[1:] == segments[1:]
    assert leftovers(disk) == []
    assert writer.log.first_dirty_offset == 0


def test_a_lost_transaction_index_ends_the_cleaning(disk: SimulatedDisk) -> None:
    """Or what was aborted would supersede what was committed."""
    writer = Writer(new_log(disk))
    writer.put([(b"key", b"committed")])
    writer.put([(b"key", b"aborted")], producer_id=4, transactional=True)
    writer.end(4, ControlType.ABORT)
    writer.roll()
    log = writer.log
    log.close()
    disk.remove(f"{DIRECTORY}/{0:020d}.txnindex")
    log = reopened(log)
    log.recovery_point = log.log_end_offset
    cleaner = cleaner_of(log)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaner.run(cleaning)
    assert "transaction" in str(cleaner.uncleanable[log])
    assert [record.value for record in all_records(log)] == [b"committed", b"aborted"]


@pytest.mark.parametrize("kind", ["append", "create"])
def test_a_full_disk_ends_the_cleaning_and_nothing_else(disk: SimulatedDisk, kind: str) -> None:
    writer = written(disk)
    fault = disk.fail(errno.ENOSPC, kind, "*.cleaned", times=None)
    cleaner = cleaner_of(writer.log)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaner.run(cleaning)
    assert isinstance(cleaning.error, OSError)
    assert writer.log.offline is None
    assert not cleaner.uncleanable
    assert last_values(consumed(writer.log)) == writer.last_values()
    fault.times = 0
    assert clean(writer.log)
    assert leftovers(disk) == []
    assert last_values(consumed(writer.log)) == writer.last_values()


def test_an_error_in_the_code_ends_the_cleaning_of_that_log(disk: SimulatedDisk) -> None:
    def fail(size: int) -> None:
        raise ZeroDivisionError("in the throttle")

    log = large(disk).log
    cleaner = cleaner_of(log, throttle=fail)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaner.run(cleaning)
    assert "ZeroDivisionError: in the throttle" in str(cleaner.uncleanable[log])
    assert cleaner.choose(START_MS) is None
    assert log.offline is None


@pytest.mark.parametrize(("kind", "path"), [("read", "*.log"), ("sync", "*.cleaned"), ("rename", "*.swap")])
def test_a_disk_that_fails_takes_the_log_offline(disk: SimulatedDisk, kind: str, path: str) -> None:
    writer = written(disk)
    log = writer.log
    disk.fail(errno.EIO, kind, path)
    cleaner = cleaner_of(log)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaner.run(cleaning)
    assert log.offline is not None
    assert cleaner.choose(START_MS) is None
    disk.heal()
    again = reopened(log)
    assert last_values(consumed(again)) == writer.last_values()


# -- as part of a broker


def test_what_was_cleaned_is_remembered_over_a_restart(disk: SimulatedDisk) -> None:
    def start() -> tuple[object, UnifiedLog]:
        manager = new_manager(disk, ["/data"], CONFIG)
        manager.start(START_MS)
        return manager, manager.create(("topic", 0), START_MS)

    manager, log = start()
    writer = Writer(log)
    for number in range(60):
        writer.put([(b"key-%d" % (number % 5), b"%d" % number)])
    writer.roll()
    assert clean(log)
    end_offset = log.first_dirty_offset
    assert end_offset > 0
    manager.close()  # type: ignore[attr-defined]
    checkpoint = disk.read("/data/cleaner-offset-checkpoint")
    assert checkpoint == b"0\n1\ntopic 0 %d\n" % end_offset
    manager, log = start()
    assert log.first_dirty_offset == end_offset
    assert cleaner_of(log).choose(START_MS) is None
    manager.truncate({("topic", 0): 10}, START_MS)  # type: ignore[attr-defined]
    assert disk.read("/data/cleaner-offset-checkpoint") == b"0\n1\ntopic 0 %d\n" % log.log_end_offset
    manager.delete([("topic", 0)])  # type: ignore[attr-defined]
    assert disk.read("/data/cleaner-offset-checkpoint") == b"0\n0\n"


def test_a_thread_cleans_while_the_log_is_written_and_read(tmp_path: Path) -> None:
    files = Disk(durable=False)
    config = LogConfig(
        segment_bytes=50_000,
        index_interval_bytes=500,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.1,
        file_delete_delay_ms=0,
    )
    writer = Writer(new_log(files, config, f"{tmp_path}/topic-0"))
    log = writer.log
    cleaner = cleaner_of(log, max_keys=100_000)
    cleanings = 0
    number = 0
    while cleanings < 5:
        cleaning = cleaner.choose(START_MS)
        goes_on = cleaning is not None
        while True:
            thread = None
            if cleaning is not None and goes_on:
                thread = threading.Thread(target=cleaning.work)
                thread.start()
            for _ in range(20):
                number += 1
                writer.put([(b"key-%d" % (number % 300), b"%d" % number + bytes(50))] * 2)
            log.flush()
            at = max(log.log_start_offset, log.log_end_offset - 300)
            assert [one.offset for one in consumed(log, offset=at)][-1] == log.log_end_offset - 1
            log.remove_deleted_files(START_MS + number)
            if cleaning is None or thread is None:
                break
            thread.join()
            goes_on = cleaner.advance(cleaning)
            if not goes_on:
                assert cleaning.is_finished, cleaning.error
                cleanings += 1
                break
    assert log.offline is None
    assert last_values(consumed(log)) == writer.last_values()
    log.close()


def test_the_rate_limit_sleeps_as_long_as_it_takes() -> None:
    now = 0.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    throttle = RateLimit(1000, lambda: now, sleep)
    throttle(500)
    assert slept == [0.5]
    throttle(250)
    assert slept == [0.5, 0.25]
    now += 10
    throttle(1000)
    assert slept[-1] == 1.0
    assert now == pytest.approx(11.75)
