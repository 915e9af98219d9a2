"""Recovery never deletes what can be read (Kafka's LogLoader.recoverLog keeps every segment behind a gap)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from storage.batch_scan import CorruptBatch, batches
from storage.checkpoints import LOG_START_OFFSETS, read_offsets
from storage.dump import dump_file
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.log_manager import LogManager
from storage.reading import Isolation
from storage.recovery import load_log
from storage.transaction_index import TransactionIndex
from tests.storage.crashes import each_crash
from tests.storage.partitions import (
    SMALL,
    TOPIC_ID,
    append,
    batch,
    contents,
    fill,
    marker,
    new_log,
    new_manager,
    reopened,
)
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.record_batch import batch_headers

KEY = ("topic", 0)
DIRECTORY = "/log/topic-0"
LOG_START_OFFSETS_PATH = f"/log/{LOG_START_OFFSETS}"
LARGE = LogConfig(index_interval_bytes=300)
COMPACT = replace(SMALL, cleanup_policy=frozenset({"compact"}))


def filled(disk: SimulatedDisk, config: LogConfig = SMALL) -> UnifiedLog:
    """60 batches of one record in several segments; nothing was flushed."""
    log = new_log(disk, config)
    fill(log, 60)
    return log


def offsets(log: UnifiedLog) -> list[int]:
    return [one.offset for one in contents(log)]


def remove_segment(disk: SimulatedDisk, path: str) -> int:
    """How many records are lost."""
    lost = len(list(batch_headers(disk.read(path))))
    disk.remove(path)
    return lost


def empty_segment(disk: SimulatedDisk, path: str) -> int:
    lost = len(list(batch_headers(disk.read(path))))
    disk.plant(path, b"")
    return lost


def cut_last_batch(disk: SimulatedDisk, path: str) -> int:
    data = disk.read(path)
    position, _ = list(batch_headers(data))[-1]
    disk.plant(path, data[:position])
    return 1


@pytest.mark.parametrize("config", [SMALL, COMPACT], ids=["delete", "compact"])
@pytest.mark.parametrize("damage", [remove_segment, empty_segment, cut_last_batch])
def test_segments_behind_a_gap_stay(
    disk: SimulatedDisk, damage: Callable[[SimulatedDisk, str], int], config: LogConfig
) -> None:
    log = filled(disk, config)
    second, third = log.segments[1].path, log.segments[2].base_offset
    names = {segment.path for segment in log.segments}
    lost = damage(disk, second)
    log = reopened(log)
    assert offsets(log) == [*range(third - lost), *range(third, 60)]
    assert log.log_end_offset == 60
    assert {segment.path for segment in log.segments} >= names - {second}
    assert log.hole == (None if config is COMPACT else third - lost)
    fill(log, 3)
    log.close()
    assert len(offsets(reopened(log, clean=True))) == 63 - lost


def test_the_log_of_a_manager_says_and_counts_the_gap(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    manager = new_manager(disk, config=replace(SMALL, retention_ms=-1))
    manager.start(0)
    log = manager.create(("topic", 0), 0, TOPIC_ID)
    fill(log, 60)
    disk.kill()
    empty_segment(disk, log.segments[1].path)
    manager = new_manager(disk, config=replace(SMALL, retention_ms=-1))
    manager.start(0)
    manager.tick(0)
    found = manager.get(("topic", 0))
    assert found is not None
    assert [end for _, end, _ in found.gaps] == [log.segments[1].base_offset]
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert [line for line in errors if "readers pass over" in line]


def test_compacted_offsets_survive_an_unclean_stop(disk: SimulatedDisk) -> None:
    """Also what producers and transactions have left in such a log."""
    log = new_log(disk, COMPACT)
    append(log, batch("t", producer_id=1, epoch=0, sequence=0, transactional=True))
    fill(log, 20)
    append(log, marker(1, commit=False))
    fill(log, 20)
    cut_last_batch(disk, log.segments[0].path)
    log = reopened(log)
    log.high_watermark = log.log_end_offset
    assert (log.log_end_offset, log.last_stable_offset) == (42, 42)
    (again,) = append(log, batch("t", producer_id=2, epoch=0, sequence=0))
    assert again.first_offset == 42


@pytest.mark.parametrize("position", range(8))
@pytest.mark.parametrize("flip", [0x01, 0x80])
@pytest.mark.parametrize("config", [SMALL, LARGE], ids=["several segments", "one segment"])
def test_one_flipped_bit_in_a_base_offset_costs_one_batch(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture, position: int, flip: int, config: LogConfig
) -> None:
    """The checksum does not cover it. Batches and segments behind it are as good as before."""
    log = filled(disk, config)
    begin = log.segments[0].position_of(12)
    assert begin is not None
    path = log.segments[0].path
    disk.corrupt(path, begin + position, flip)
    log = reopened(log)
    assert log.log_end_offset == 60
    assert log.set_aside == 0
    log.high_watermark = log.log_end_offset
    readable = []
    for offset in range(60):
        try:
            found = log.read(offset, 1)
        except CorruptBatch:
            pass  # CORRUPT_MESSAGE
        else:
            readable += [header.base_offset for _, header in batch_headers(bytes(found.records))]
    assert set(readable) >= {*range(12), *range(14, 60)}
    assert len([one for one in caplog.records if "cannot be right" in one.getMessage()]) == 1
    fill(log, 3)
    log.close()
    assert reopened(log, clean=True).log_end_offset == 63


def test_what_lies_behind_damage_is_set_aside(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    """Segments get another name, the rest of the damaged one is copied: every record is still on the disk."""
    log = filled(disk)
    bases = list(log.segments.base_offsets)
    second = log.segments[1]
    disk.corrupt(second.path, 100)
    end = bases[1]
    log = reopened(log)
    assert (log.log_end_offset, log.segments.base_offsets) == (end, bases[:2])
    names = [name for name in disk.list(DIRECTORY) if ".log.set-aside" in name]
    assert names == [f"{base:020d}.log.set-aside" for base in (end, *bases[2:])]
    assert log.set_aside == len(names)
    kept = [
        entry["base_offset"]
        for name in names
        for entry in dump_file(disk, f"{DIRECTORY}/{name}")
        if entry.get("crc_is_valid", True) and "base_offset" in entry
    ]
    assert set(kept) >= set(range(end + 1, 60))
    assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == len(names)
    log.close()
    assert reopened(log, clean=True).set_aside == len(names)


def test_what_is_set_aside_twice_is_there_twice(disk: SimulatedDisk) -> None:
    log = filled(disk)
    last = log.segments.active.base_offset
    for _ in range(2):
        disk.corrupt(log.segments[0].path, 100)
        log = reopened(log, recovery_point=0)
        fill(log, 60 - log.log_end_offset)
    names = [name for name in disk.list(DIRECTORY) if name.startswith(f"{last:020d}.log.set")]
    assert names == [f"{last:020d}.log.set-aside", f"{last:020d}.log.set-aside-2"]


def test_nothing_is_kept_of_a_torn_end(disk: SimulatedDisk) -> None:
    log = filled(disk, LARGE)
    path = log.segments.active.path
    disk.plant(path, disk.read(path)[:-10] + bytes(4096))
    log = reopened(log)
    assert (log.log_end_offset, log.set_aside) == (59, 0)
    assert not [name for name in disk.list(DIRECTORY) if "set-aside" in name]


def test_a_log_that_ends_before_its_log_start_is_set_aside(disk: SimulatedDisk) -> None:
    log = filled(disk)
    log = reopened(log, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    found = [name for name in disk.list(DIRECTORY) if ".log.set-aside" in name]
    batches_kept = 0
    for name in found:
        file = disk.open(f"{DIRECTORY}/{name}", read_only=True)
        batches_kept += len(list(batches(file, 0, file.size)))
    assert batches_kept == 60


def test_what_retention_left_below_the_log_start_does_not_matter(disk: SimulatedDisk) -> None:
    """A power cut brings back some names of segments that were deleted, and their log start is known."""
    log = filled(disk)
    bases = list(log.segments.base_offsets)
    disk.remove(log.segments[1].path)
    disk.corrupt(log.segments[0].path, 100)
    log = reopened(log, log_start_offset=bases[2], recovery_point=0)
    assert offsets(log) == list(range(bases[2], 60))
    assert (log.log_start_offset, log.set_aside, log.hole) == (bases[2], 0, None)


def test_a_deleted_segment_whose_name_is_back_without_its_data_goes_again(disk: SimulatedDisk) -> None:
    """It was never synced, and of its deletion not all was durable. The log start is known."""
    log = filled(disk)
    bases, path = list(log.segments.base_offsets), log.segments[0].path
    disk.plant(path, disk.read(path)[:50])
    for name in disk.list(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    log = reopened(log, log_start_offset=bases[2], recovery_point=0)
    assert offsets(log) == list(range(bases[2], 60))
    assert (log.set_aside, log.hole, log.segments[0].base_offset) == (0, None, bases[1])


@pytest.mark.parametrize("mask", [0x01, 0x40], ids=["far behind", "before its place"])
def test_what_is_appended_behind_a_last_batch_with_an_impossible_offset_can_be_read(
    disk: SimulatedDisk, mask: int
) -> None:
    log = new_log(disk, LARGE)
    fill(log, 20)
    position, _ = list(batch_headers(disk.read(log.segments[0].path)))[-1]
    at = position + 3 if mask == 0x01 else position + 7
    disk.corrupt(log.segments[0].path, at, mask if mask == 0x01 else 0x10)
    log = reopened(log)
    assert (log.log_end_offset, log.set_aside) == (19, 1)
    append(log, batch("again"))
    for clean in (False, True):
        if clean:
            log.close()
            log = reopened(log, clean=True)
            append(log, batch("and again"))
        assert offsets(log) == list(range(log.log_end_offset))


def test_a_hole_below_the_log_start_is_none(disk: SimulatedDisk) -> None:
    """A follower with one begins again there: it would throw everything away."""
    log = filled(disk)
    bases = list(log.segments.base_offsets)
    disk.remove(log.segments[1].path)
    log = reopened(log)
    assert log.hole == bases[1]
    log.high_watermark = log.log_end_offset
    log.delete_records_before(bases[3])
    assert log.hole is None


def test_one_damaged_marker_keeps_no_other_log_from_starting(disk: SimulatedDisk) -> None:
    """Producers are made from markers below the recovery point, whose checksum nobody computes."""
    manager = started(disk)
    other, log = manager.create(("other", 0), 0, TOPIC_ID), manager.create(KEY, 0, TOPIC_ID)
    fill(other, 5)
    append(log, batch("t", producer_id=7, epoch=0, sequence=0, transactional=True))
    append(log, marker(7, commit=True))
    fill(log, 10)
    path = log.segments[0].path
    _, (position, _), *_ = batch_headers(disk.read(path))
    for one in (other, log):
        one.flush()
    manager.tick(600_000)
    disk.kill()
    disk.corrupt(path, position + 61, 0x40)
    again = started(disk)
    found = again.get(("other", 0))
    assert found is not None
    assert offsets(found) == list(range(5))
    with pytest.raises(CorruptBatch):
        again.get(KEY)


class TestLogStartOffsets:
    """Kafka's checkpoint has the logs whose start is above the base offset of their first segment."""

    def test_a_log_that_begins_with_its_first_segment_is_not_listed(self, disk: SimulatedDisk) -> None:
        manager = started(disk, replace(SMALL, retention_bytes=1500))
        log = manager.create(KEY, 0, TOPIC_ID)
        fill(log, 60)
        log.flush()
        manager.tick(600_000)
        assert log.log_start_offset == log.segments[0].base_offset > 0
        manager.tick(1_200_000)
        assert read_offsets(disk, LOG_START_OFFSETS_PATH) == {}
        log.delete_records_before(log.log_start_offset + 1)
        manager.tick(1_800_000)
        assert read_offsets(disk, LOG_START_OFFSETS_PATH) == {KEY: log.log_start_offset}

    def test_an_older_log_that_is_moved_in_is_taken(self, disk: SimulatedDisk) -> None:
        """docs/storage.md: the files of a partition are replaced by those of another broker."""
        manager = started(disk)
        older = manager.create(("older", 0), 0, TOPIC_ID)
        fill(older, 10)
        log = manager.create(KEY, 0, TOPIC_ID)
        fill(log, 60)
        manager.truncate_fully_and_start_at(KEY, 100, 0)
        fill(log, 5)
        manager.close()
        for path in disk.files(DIRECTORY):
            disk.remove(path)
        for path, data in disk.files("/log/older-0").items():
            disk.plant(path.replace("older-0", "topic-0"), data)
        disk.remove("/log/.kafka_cleanshutdown")
        moved = started(disk).get(KEY)
        assert moved is not None
        assert (moved.log_start_offset, offsets(moved)) == (0, list(range(10)))

    @pytest.mark.parametrize("outcome", list(Outcome))
    def test_the_log_start_stays_listed_until_removed_names_are_durable(self, outcome: Outcome) -> None:
        """Any of the renames may be lost with a power cut: what is deleted must not come back."""

        def script(disk: SimulatedDisk) -> None:
            manager = started(disk, replace(SMALL, retention_bytes=1500, file_delete_delay_ms=0))
            log = manager.create(KEY, 0, TOPIC_ID)
            fill(log, 60)
            manager.flusher.request(log)
            for minute in range(6):
                manager.tick(600_000 * (minute + 1))
                starts.append((disk.operations, log.log_start_offset))

        def check(disk: SimulatedDisk, operation: int) -> None:
            promised = max((start for at, start in starts if at < operation), default=0)
            log = started(disk).get(KEY)
            if log is None:
                assert promised == 0
                return
            assert log.log_start_offset >= promised
            assert not promised or offsets(log) == list(range(log.log_start_offset, 60))

        starts: list[tuple[int, int]] = []
        assert each_crash(script, check, outcomes=[outcome], seeds=range(4), prepare=empty_disk) > 50
        assert starts[0][1] > 0


def started(disk: SimulatedDisk, config: LogConfig = SMALL) -> LogManager:
    manager = new_manager(disk, config=replace(config, retention_ms=-1))
    manager.start(0)
    return manager


def empty_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir("/log")
    disk.sync_dir("/")
    return disk


def test_a_log_whose_maker_was_killed_keeps_its_name(disk: SimulatedDisk) -> None:
    """Its first flush would have made the name and the topic id durable: recovery does, before it is used."""
    disk.sync_dir("/")
    fill(started(disk).create(KEY, 0, TOPIC_ID), 3)
    disk.kill()
    started(disk)
    for outcome in Outcome:
        log = started(disk.after_crash(outcome)).get(KEY)
        assert log is not None
        assert (offsets(log), log.topic_id) == ([0, 1, 2], TOPIC_ID)


def test_zeros_at_the_head_of_a_transaction_index_hide_nothing(disk: SimulatedDisk) -> None:
    """A power cut may leave them where the file's size was durable before its first bytes."""
    log = new_log(disk, LARGE)
    for number in range(2):
        append(log, batch("t", producer_id=number, epoch=0, sequence=0, transactional=True))
        append(log, marker(number, commit=False))
        fill(log, 3)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    disk.plant(path, bytes(34) + disk.read(path)[34:])
    for clean in (True, False):
        log = reopened(log, clean=clean, recovery_point=log.log_end_offset)
        log.high_watermark = log.log_end_offset
        found = log.read(0, 10_000, Isolation.COMMITTED).aborted_transactions
        assert [(one.producer_id, one.first_offset, one.last_offset) for one in found] == [
            (0, 0, 1),
            (1, 5, 6),
        ]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_crash_in_the_middle_of_recovery_hides_no_aborted_transaction(outcome: Outcome) -> None:
    """Those below the recovery point that are made once more, since the indexes say to begin before it."""

    def crashed() -> SimulatedDisk:
        disk = empty_disk()
        log = new_log(disk, LARGE)
        for number in range(6):
            append(log, batch("t" * 200, producer_id=number, epoch=0, sequence=0, transactional=True))
            append(log, marker(number, commit=False))
            fill(log, 1)
            if number == 3:
                log.flush()
        disk.kill()
        return disk

    def recover(disk: SimulatedDisk, recovery_point: int = 12) -> UnifiedLog:
        return load_log(disk, DIRECTORY, "topic", 0, LARGE, recovery_point=recovery_point, now_ms=0)

    def check(disk: SimulatedDisk, operation: int) -> None:
        durable = [(number, 3 * number, 3 * number + 1) for number in range(4)]
        index = TransactionIndex(disk, f"{DIRECTORY}/{0:020d}.txnindex", 0)
        if outcome is Outcome.KEPT:
            assert [one[:3] for one in index][:4] == durable, "taken away for a while"
        log = recover(disk)
        log.high_watermark = log.log_end_offset
        found = log.read(0, 10_000, Isolation.COMMITTED).aborted_transactions
        assert [one[:3] for one in found][:4] == durable

    assert each_crash(recover, check, outcomes=[outcome], seeds=range(20), prepare=crashed) > 5


def test_a_log_without_a_batch_before_its_end_is_read_to_the_end(disk: SimulatedDisk) -> None:
    """Or else a coordinator would load it for ever, from the same offset on."""
    log = filled(disk)
    log.close()
    bases = log.segments.base_offsets
    for base in bases[:-1]:
        disk.remove(f"{DIRECTORY}/{base:020d}.log")
    disk.plant(f"{DIRECTORY}/{bases[0]:020d}.log", b"")
    disk.plant(f"{DIRECTORY}/{bases[-1]:020d}.log", b"")
    log = reopened(log, recovery_point=0)
    assert (log.log_start_offset, log.log_end_offset) == (0, bases[-1])
    assert log.read(0, 1 << 20, Isolation.LOG_END).next_offset == log.log_end_offset
