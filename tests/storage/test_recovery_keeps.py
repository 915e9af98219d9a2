"""Recovery never deletes what can be read (Kafka's LogLoader.recoverLog keeps every segment behind a gap)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from storage.batch_scan import CorruptBatch, batches
from storage.dump import dump_file
from storage.log import UnifiedLog
from storage.log_config import LogConfig
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
from wire.record_batch import batch_headers

DIRECTORY = "/log/topic-0"
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
