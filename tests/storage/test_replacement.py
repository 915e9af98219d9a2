"""Putting new segments in the place of old ones: after a crash there are the old ones or the new ones."""

from __future__ import annotations

import pytest

from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.replacement import replace, stage
from storage.segment import CLEANED, LogSegment
from tests.storage.crashes import each_crash
from tests.storage.partitions import Stored, append, batch, contents, fill, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.record_batch import assign

CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    cleanup_policy=frozenset({"compact"}),
)
OLD = [Stored(offset, b"%d" % offset + b"." * 50) for offset in range(20)]


def prepared() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir("/log")
    disk.sync_dir("/")
    log = new_log(disk, CONFIG)
    fill(log, 20)
    log.close()
    return disk


def opened(disk: SimulatedDisk, clean: bool = False) -> UnifiedLog:
    closed = UnifiedLog.__new__(UnifiedLog)
    closed.files, closed.directory, closed.topic, closed.partition = disk, "/log/topic-0", "topic", 0
    closed.config, closed.recovery_point, closed.log_start_offset = CONFIG, 20, 0
    log = reopened(closed, clean=clean)
    log.high_watermark = log.log_end_offset
    return log


def compacted(log: UnifiedLog, old: list[LogSegment], parts: int) -> list[LogSegment]:
    """Every third record of the old segments, in so many new ones."""
    kept = [
        one
        for one in OLD
        if old[0].base_offset <= one.offset < old[-1].base_offset + 4 and one.offset % 3 == 0
    ]
    new = []
    for part in range(parts):
        mine = kept[part * len(kept) // parts : (part + 1) * len(kept) // parts]
        base = old[0].base_offset if not part else mine[0].offset
        segment = LogSegment.create(log.files, log.directory, base, CONFIG, now_ms=0, suffix=CLEANED)
        for one in mine:
            data, header = batch(one.value or b"", timestamps=[1000 + one.offset])
            stored = bytearray(data)
            assign(stored, 0, one.offset, 0)
            segment.append([stored], [(header.size, one.offset, header.max_timestamp)])
        segment.finish()
        segment.sync()
        new.append(segment)
    return new


def compact(disk: SimulatedDisk, parts: int) -> UnifiedLog:
    log = opened(disk, clean=True)
    old = list(log.segments)[1:4]
    new = compacted(log, old, parts)
    stage(disk, log.directory, new)
    replace(log, new, old)
    return log


def after(disk: SimulatedDisk, parts: int = 1) -> list[Stored]:
    return contents(compact(disk, parts))


@pytest.mark.parametrize("parts", [1, 2])
def test_the_new_segments_are_read_and_survive_a_restart(parts: int) -> None:
    disk = prepared()
    log = compact(disk, parts)
    new = contents(log)
    assert 0 < len(new) < 20
    append(log, batch("more"))
    assert contents(log)[:-1] == new
    log.close()
    assert contents(reopened(log, clean=True)) == contents(log)
    log.remove_deleted_files(0)
    log.remove_deleted_files(0)
    assert not any(
        "." in name[24:].replace(".index", "") for name in disk.list(log.directory) if name[0] == "0"
    )


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
def test_a_power_cut_leaves_the_old_segments_or_the_new_ones(parts: int) -> None:
    """Whichever it is, it stays so; and nothing is there twice."""
    new = after(prepared(), parts)

    def check(disk: SimulatedDisk, operation: int) -> None:
        log = opened(disk)
        found = contents(log)
        assert found in (OLD, new), operation
        assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in disk.list(log.directory))
        log.close()
        assert contents(reopened(log, clean=True)) == found

    assert each_crash(lambda disk: compact(disk, parts), check, prepare=prepared, seeds=range(4)) > 200


@pytest.mark.slow
def test_a_power_cut_while_it_is_being_finished_changes_nothing() -> None:
    """Crash in the middle of step 3, then again at every operation of the start that follows."""
    new = after(prepared())
    crashed = prepared()
    log = opened(crashed, clean=True)
    old = list(log.segments)[1:4]
    segments = compacted(log, old, 1)
    stage(crashed, log.directory, segments)
    files = crashed.files()

    def staged() -> SimulatedDisk:
        disk = SimulatedDisk()
        for path, data in files.items():
            disk.plant(path, data)
        return disk

    def check(disk: SimulatedDisk, operation: int) -> None:
        assert contents(opened(disk)) == new, operation

    assert each_crash(opened, check, prepare=staged, outcomes=Outcome, seeds=range(4)) > 50
