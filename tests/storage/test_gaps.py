"""Segments that end too early: said after a start, never passed over in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from storage.log_config import LogConfig
from storage.log_manager import LogManager
from tests.storage.partitions import SMALL, TOPIC_ID, contents, fill, new_manager
from tests.storage.simulated_disk import SimulatedDisk
from wire.record_batch import batch_headers

KEY = ("topic", 0)
DIRECTORY = "/log/topic-0"
KEEP = replace(SMALL, retention_ms=-1)


def filled(disk: SimulatedDisk) -> list[str]:
    """A log of several segments, closed cleanly; the paths of the segments."""
    manager = new_manager(disk, config=KEEP)
    manager.start(0)
    fill(manager.create(KEY, 0, TOPIC_ID), 60)
    manager.close()
    return [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(".log")]


def restarted(disk: SimulatedDisk, config: LogConfig = KEEP) -> LogManager:
    manager = new_manager(disk, config=config)
    manager.start(0)
    manager.tick(0)
    return manager


def base(path: str) -> int:
    return int(path[-24:-4])


def cut_last_batch(disk: SimulatedDisk, path: str) -> int:
    """The offset that the segment ends at then."""
    data = disk.read(path)
    position, header = list(batch_headers(data))[-1]
    disk.plant(path, data[:position])
    return header.base_offset


def empty(disk: SimulatedDisk, path: str) -> int:
    disk.plant(path, b"")
    return base(path)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("damage", [cut_last_batch, empty])
def test_a_middle_segment_that_ends_early(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture, damage: Callable[[SimulatedDisk, str], int]
) -> None:
    """It is named with its offsets; everything else is served and stays."""
    paths = filled(disk)
    end_offset = damage(disk, paths[1])
    manager = restarted(disk)
    log = manager.get(KEY)
    assert log is not None
    assert log.gaps == [(paths[1], end_offset, base(paths[2]))]
    assert errors(caplog) == [
        f"{paths[1]} ends at offset {end_offset}, and the next segment begins at {base(paths[2])}: "
        "the records in between are lost, and readers pass over them"
    ]
    lost = set(range(end_offset, base(paths[2])))
    assert [record.offset for record in contents(log)] == sorted(set(range(60)) - lost)
    assert all(disk.exists(path) for path in paths)


def test_a_segment_that_is_missing(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    paths = filled(disk)
    disk.remove(paths[1])
    log = restarted(disk).get(KEY)
    assert log is not None
    assert log.gaps == [(paths[0], base(paths[1]), base(paths[2]))]
    assert len(errors(caplog)) == 1


def test_a_whole_log_has_none(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    filled(disk)
    log = restarted(disk).get(KEY)
    assert log is not None
    assert (log.gaps, errors(caplog)) == ((), [])


def test_compaction_leaves_gaps_that_are_in_order(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    cut_last_batch(disk, filled(disk)[1])
    log = restarted(disk, replace(KEEP, cleanup_policy=frozenset({"compact"}))).get(KEY)
    assert log is not None
    assert (log.gaps, errors(caplog)) == ((), [])


def test_an_index_that_is_wrong_hides_no_gap(disk: SimulatedDisk) -> None:
    """And it is not touched: others own it."""
    paths = filled(disk)
    end_offset = cut_last_batch(disk, paths[1])
    index = paths[1].replace(".log", ".index")
    disk.plant(index, disk.read(index)[:-4] + b"\xff\xff\xff\xff")
    before = disk.read(index)
    log = restarted(disk).get(KEY)
    assert log is not None
    assert log.gaps == [(paths[1], end_offset, base(paths[2]))]
    assert disk.read(index) == before


def test_what_lies_below_the_log_start_is_no_loss(disk: SimulatedDisk) -> None:
    paths = filled(disk)
    cut_last_batch(disk, paths[1])
    manager = new_manager(disk, config=KEEP)
    manager.start(0)
    log = manager.get(KEY)
    assert log is not None
    log.high_watermark = log.log_end_offset
    log.delete_records_before(base(paths[3]))
    manager.tick(0)
    assert log.gaps == []


def test_without_a_thread_it_is_tried_again(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    end_offset = cut_last_batch(disk, filled(disk)[1])
    manager = new_manager(disk, config=KEEP)
    manager.start(0)
    log = manager.get(KEY)
    assert log is not None

    def refuse(function: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    search = manager._gap_search
    with monkeypatch.context() as patched:
        patched.setattr(search._in_threads, "_submit", refuse)
        manager.tick(0)
    assert len(log.gaps) == 0
    manager.tick(1)
    assert [end for _, end, _ in log.gaps] == [end_offset]
