"""A power cut at every operation of a cleaning: old segments or new ones are there, and readers see no
difference.

The script cleans a log three times, with two days between, so that all there is to compaction comes to pass:
keys, tombstones, aborted data, markers with and without horizon, empty batches, segments that become one.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.check import check_directory
from storage.cleaner import LogCleaner
from storage.findings import Severity
from storage.log import UnifiedLog
from storage.log_manager import LogManager
from tests.storage.compacted_logs import (
    CONFIG,
    DAY_MS,
    SETTINGS,
    Writer,
    all_batches,
    clean_again,
    consumed,
    last_values,
)
from tests.storage.crashes import each_crash
from tests.storage.partitions import inline
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.compression import Codec
from wire.records import ControlType

KEY = ("topic", 0)
DIRECTORY = "/data/topic-0"
SMALL = replace(CONFIG, segment_bytes=800, file_delete_delay_ms=1000)
SEGMENTS_AT_LEAST = 5


class Run:
    """A broker's storage with one compacted log, and what was written to it."""

    def __init__(self, disk: SimulatedDisk, written: Writer | None = None) -> None:
        self.disk = disk
        self.manager = self.start()
        self.writer = Writer(self.log)
        if written is not None:
            self.writer.events = [
                event for event in written.events if event.last_offset < self.log.log_end_offset
            ]
            self.writer.now_ms = written.now_ms

    def start(self) -> LogManager:
        numbers = iter(range(1000))
        manager = LogManager(
            self.disk,
            ["/data"],
            config_for=lambda topic: SMALL,
            submit=inline,
            call=lambda function: function(),
            unique=lambda: f"{next(numbers):032x}",
            settings=SETTINGS,
        )
        manager.start(0)
        manager.create(KEY, 0)
        return manager

    @property
    def log(self) -> UnifiedLog:
        log = self.manager.get(KEY)
        assert log is not None
        return log

    def write(self, seed: int) -> None:
        """A bit of everything: three producers, one of them without sequences, and two of transactions."""
        writer = self.writer
        for number in range(6):
            at = seed + number
            value = None if at % 5 == 2 else b"value %d" % at
            writer.put([(b"key-%d" % (at % 6), value), (b"all", b"%d" % at)], codec=Codec(at % 5))
            writer.put([(b"once-%d" % (at % 3), b"%d" % at)], producer_id=1 + at % 2)
            writer.put([(b"key-%d" % (at % 4), b"held %d" % at)], producer_id=10, transactional=True)
            writer.put([(b"apart-%d" % at, value)], producer_id=11, transactional=True)
            if number % 2:
                writer.end(10, ControlType.ABORT if at % 3 else ControlType.COMMIT, bump=at % 2 == 0)
            if number % 3 == 2:
                writer.end(11, ControlType.COMMIT if at % 4 else ControlType.ABORT)
        for producer_id in (10, 11):
            writer.end(producer_id, ControlType.ABORT)
        writer.roll()

    def clean(self) -> None:
        cleaner = LogCleaner(self.disk, self.manager)
        while (cleaning := cleaner.choose(self.writer.now_ms)) is not None:
            cleaner.run(cleaning)
            assert cleaning.error is None

    def later(self) -> None:
        self.writer.now_ms += 2 * DAY_MS
        self.manager.tick(self.writer.now_ms)


def run_before(stage: int) -> Run:
    """A log that was written to, and cleaned so many times, with more written after the first time."""
    disk = SimulatedDisk()
    disk.make_dir("/data")
    disk.sync_dir("/")
    run = Run(disk)
    run.write(0)
    assert len(run.log.segments) >= SEGMENTS_AT_LEAST
    for number in range(stage):
        run.clean()
        run.later()
        if not number:
            run.write(3)
        run.log.first_dirty_offset = 0
    run.manager.close()
    return run


def clean_all(disk: SimulatedDisk, written: Writer) -> None:
    run = Run(disk, written)
    run.later()
    run.log.first_dirty_offset = 0
    # What an earlier cleaning has left behind that could not remove its files.
    disk.plant(f"{DIRECTORY}/{1:020d}.log.cleaned", b"")
    run.clean()
    run.later()
    run.later()
    run.manager.close()


def check(disk: SimulatedDisk, written: Writer) -> None:
    run = Run(disk, written)
    log, writer = run.log, run.writer
    assert log.log_end_offset == written.log.log_end_offset
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == writer.last_stable_offset
    check_readers(run)
    # It goes on: the producers where they were, the cleaner wherever it was.
    for event in {event.producer_id: event for event in writer.events}.values():
        transactional = event.producer_id >= 10
        writer.put([(b"next", b"value")], producer_id=event.producer_id, transactional=transactional)
        if transactional:
            writer.end(event.producer_id, ControlType.COMMIT)
    writer.roll()
    check_readers(run)
    run.later()
    clean_again(log, writer.now_ms)
    check_readers(run)
    run.manager.close()
    trouble = [one for one in check_directory(disk, "/data").findings if one.severity is not Severity.NOTE]
    assert trouble == []


def check_readers(run: Run) -> None:
    found = consumed(run.log)
    assert last_values(found) == run.writer.last_values()
    assert set(found) <= set(run.writer.committed)
    end = 0
    for header, _ in all_batches(run.log):
        assert header.base_offset >= end
        end = header.next_offset
    findings = check_directory(run.disk, "/data").findings
    assert not [one for one in findings if one.severity is Severity.ERROR]


@pytest.mark.slow
@pytest.mark.parametrize("stage", range(4))
def test_a_power_cut_at_any_operation_leaves_the_old_segments_or_the_new_ones(stage: int) -> None:
    """Conformance 68, 70, 88."""
    before = run_before(stage)
    checked = each_crash(
        lambda disk: clean_all(disk, before.writer),
        lambda disk, operation: check(disk, before.writer),
        prepare=lambda: before.disk.after_crash(Outcome.KEPT),
        outcomes=(Outcome.LOST, Outcome.KEPT, Outcome.RANDOM),
        seeds=range(2),
    )
    assert checked > 300
