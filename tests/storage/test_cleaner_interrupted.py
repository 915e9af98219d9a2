"""Compaction that does not come to its end: cancelled, outrun by changes of the log, damaged, without a disk.

No record is lost, no file is left lying about, and readers see no difference.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from storage.cleaner import LogCleaner
from storage.errors import CorruptFile
from tests.storage.compacted_logs import (
    DIRECTORY,
    START_MS,
    Writer,
    all_batches,
    all_records,
    clean,
    cleaner_of,
    consumed,
    large,
    last_values,
    new_log,
    reopened,
    written,
)
from tests.storage.simulated_disk import SimulatedDisk
from wire.records import ControlType


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    return disk.files(DIRECTORY)


def leftovers(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]


# -- cancelled


def paced(action: Callable[[int], object]) -> Callable[[int], None]:
    calls = 0

    def throttle(size: int) -> None:
        nonlocal calls
        calls += 1
        action(calls)

    return throttle


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


# -- the log changes meanwhile


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
        (16, "no batch"),
        (20, "checksum"),
        (40, "checksum"),
        (70, "checksum"),
    ],
)
def test_a_damaged_batch_ends_the_cleaning_of_its_log_and_is_named(
    disk: SimulatedDisk, byte: int, why: str
) -> None:
    """Conformance 88: whichever of its bytes was hit, but for the leader epoch, which may be any."""
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


def test_a_segment_that_could_not_take_its_place_is_not_found_by_the_next_start(disk: SimulatedDisk) -> None:
    """For want of a descriptor: the log goes on, and what it has by then must not be replaced by this."""
    writer = written(disk)
    log = writer.log
    cleaner = cleaner_of(log)
    cleaning = cleaner.choose(START_MS)
    assert cleaning is not None
    cleaning.work()
    while cleaning.cleaned is None:
        assert cleaner.advance(cleaning)
        cleaning.work()
    disk.fail(errno.EMFILE, "sync_dir", DIRECTORY)
    assert not cleaner.advance(cleaning)
    assert log.offline is None
    assert leftovers(disk) == []
    disk.heal()
    assert last_values(consumed(log)) == writer.last_values()
    assert clean(log)
    assert last_values(consumed(reopened(log, clean=True))) == writer.last_values()
