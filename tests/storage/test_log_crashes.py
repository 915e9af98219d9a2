"""A power cut at every operation of a script: what was durable is there, and nothing else is (conformance
88).

The script does with two partitions what brokers do: appends, flushes, rolls, truncations, deletions,
retention, a clean restart. The oracle knows what was ever written, what a finished flush has promised,
and what was cut off.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import pytest

from storage.appending import Appended
from storage.batch_scan import batches, headers
from storage.check import check_directory
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.log_manager import LogManager
from storage.reading import aborted_transactions
from tests.storage.crashes import each_crash
from tests.storage.partitions import (
    TOPIC_ID,
    Batch,
    Stored,
    append,
    batch,
    contents,
    marker,
    new_manager,
)
from tests.storage.simulated_disk import SimulatedDisk
from wire.record_batch import BatchHeader
from wire.records import ControlType, control_type, records

CONFIG = LogConfig(
    segment_bytes=1600,
    index_interval_bytes=100,
    segment_index_bytes=800,
    file_delete_delay_ms=0,
    retention_ms=-1,
)
PLAIN, EXACT = ("plain", 0), ("exact", 1)
MINUTE_MS = 60_000


@dataclass
class Promises:
    """What the log of one partition owes its users."""

    allowed: set[Stored] = field(default_factory=set)
    """What may be found: everything ever written and not cut off."""
    durable: list[Stored] = field(default_factory=list)
    log_start_offset: int = 0


LAST: list[Script] = []
"""The run that was cut short."""


class Script:
    """One run on one disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.now_ms = 0
        self.promises = {PLAIN: Promises(), EXACT: Promises()}
        LAST[:] = [self]
        self.manager = self.start()

    def start(self) -> LogManager:
        manager = new_manager(self.disk, ["/log"], CONFIG)
        manager.start(self.now_ms)
        return manager

    def log(self, key: tuple[str, int]) -> UnifiedLog:
        return self.manager.create(key, self.now_ms, TOPIC_ID)

    def append(self, key: tuple[str, int], *batches: Batch, epoch: int = 1) -> None:
        log = self.log(key)
        for data, header in batches:
            if not header.is_control:
                self.promises[key].allowed |= {
                    Stored(log.log_end_offset + record.offset, record.value) for record in records(data)
                }
            append(log, (data, header), epoch=epoch, now_ms=self.now_ms)

    def flush(self, key: tuple[str, int]) -> None:
        log = self.log(key)
        self.manager.flusher.request(log)
        assert log.recovery_point == log.log_end_offset
        self.promises[key].durable = contents(log)

    def truncate(self, key: tuple[str, int], offset: int) -> None:
        promise = self.promises[key]
        promise.durable = [one for one in promise.durable if one.offset < offset]
        self.manager.truncate({key: offset}, self.now_ms)
        promise.allowed = {one for one in promise.allowed if one.offset < offset}

    def delete_before(self, key: tuple[str, int], offset: int) -> None:
        promise = self.promises[key]
        promise.durable = [one for one in promise.durable if one.offset >= offset]
        self.log(key).delete_records_before(offset)
        self.manager.checkpoint_log_start_offsets()
        promise.log_start_offset = offset

    def delete(self, key: tuple[str, int]) -> None:
        self.promises[key].durable = []
        self.manager.delete([key])
        self.promises[key] = Promises()

    def tick(self) -> None:
        self.now_ms += 10 * MINUTE_MS
        self.manager.tick(self.now_ms)

    def restart(self) -> None:
        self.manager.close()
        for key, promise in self.promises.items():
            promise.durable = contents(self.log(key)) if self.manager.get(key) else []
        self.manager = self.start()


EXACTLY_ONCE = 7


def idempotent(*values: str, sequence: int, epoch: int = 0, transactional: bool = False) -> Batch:
    return batch(
        *values, producer_id=EXACTLY_ONCE, epoch=epoch, sequence=sequence, transactional=transactional
    )


def script(disk: SimulatedDisk) -> Script:
    run = Script(disk)
    run.append(PLAIN, batch("a", "b"), batch("c" * 60))
    run.flush(PLAIN)
    run.append(EXACT, idempotent("1", "2", sequence=0), idempotent("3", sequence=2))
    run.append(EXACT, batch("in", producer_id=8, epoch=0, sequence=0, transactional=True))
    for number in range(12):
        run.append(PLAIN, batch(f"{number}" + "x" * 100))
    run.flush(PLAIN)
    run.append(EXACT, marker(8, commit=False), idempotent("4", sequence=3))
    run.flush(EXACT)
    run.append(PLAIN, *(batch(f"unflushed {number}" + "y" * 150) for number in range(8)))
    run.append(PLAIN, batch("large" + "u" * 1400))
    run.tick()
    run.truncate(PLAIN, run.log(PLAIN).log_end_offset - 11)
    run.append(PLAIN, batch("other", "words" + "z" * 1000), batch("follow"), epoch=2)
    run.flush(PLAIN)
    run.append(EXACT, batch("held", producer_id=9, epoch=0, sequence=0, transactional=True))
    run.append(EXACT, *(idempotent("e" * 120, sequence=number) for number in range(4, 12)))
    run.append(EXACT, batch("back", producer_id=8, epoch=0, sequence=1, transactional=True))
    run.delete_before(PLAIN, 6)
    run.tick()
    run.tick()
    run.append(EXACT, marker(8, commit=False), marker(9, commit=True))
    run.flush(EXACT)
    run.restart()
    run.append(
        EXACT,
        idempotent("5", sequence=12),
        batch("t", producer_id=8, epoch=0, sequence=2, transactional=True),
    )
    run.append(PLAIN, batch("late"), epoch=3)
    run.truncate(EXACT, run.log(EXACT).log_end_offset - 4)
    run.delete(PLAIN)
    run.append(PLAIN, batch("again"))
    run.flush(PLAIN)
    run.tick()
    run.append(EXACT, batch("end"))
    run.restart()
    return run


def check(disk: SimulatedDisk, operation: int) -> None:
    """Start on what is left, look at everything, go on for a while, and stop cleanly."""
    promises = deepcopy(LAST[0].promises)
    crashed = LAST[0]
    run = Script(disk)
    LAST[0] = crashed
    for key, promise in promises.items():
        log = run.manager.get(key)
        if log is None:
            assert promise.durable == [], f"{key} is gone"
            continue
        check_contents(log, promise)
        check_transactions(log)
        check_epochs(log)
        check_resend(log)
    go_on(run)


def check_contents(log: UnifiedLog, promise: Promises) -> None:
    found = contents(log)
    assert set(found) <= promise.allowed, "invented, or cut off earlier"
    assert set(promise.durable) <= set(found), "lost"
    assert log.log_start_offset >= promise.log_start_offset
    for segment in log.segments:
        offset = segment.base_offset
        for _, header in headers(segment.file, 0, segment.size):
            assert header.base_offset == offset, "a hole within a segment"
            offset = header.next_offset
    assert offset == log.log_end_offset


def stored_headers(log: UnifiedLog) -> list[BatchHeader]:
    return [header for segment in log.segments for _, header in headers(segment.file, 0, segment.size)]


def check_transactions(log: UnifiedLog) -> None:
    """The transaction index against the batches; the last stable offset against what is open."""
    log.high_watermark = log.log_end_offset
    begun: dict[int, int] = {}
    aborted = []
    for segment in log.segments:
        for _, header, data in batches(segment.file, 0, segment.size):
            if header.is_control:
                first_offset = begun.pop(header.producer_id, None)
                (record,) = records(data, 0, header)
                if first_offset is not None and control_type(record) is ControlType.ABORT:
                    aborted.append((header.producer_id, first_offset, header.base_offset))
            elif header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
    indexed = aborted_transactions(log, log.log_start_offset, log.log_end_offset)
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in indexed] == aborted
    assert log.last_stable_offset == min([*begun.values(), log.log_end_offset])


def check_epochs(log: UnifiedLog) -> None:
    for header in stored_headers(log):
        if header.base_offset >= log.log_start_offset:
            assert log.leader_epochs.epoch_for(header.base_offset) == header.leader_epoch
    assert log.leader_epochs.latest <= max([-1, *(header.leader_epoch for header in stored_headers(log))])


def check_resend(log: UnifiedLog) -> None:
    """What an idempotent producer wrote last is known when it comes again (conformance 34, 39)."""
    sent = [
        (data, header)
        for segment in log.segments
        for _, header, data in batches(segment.file, 0, segment.size)
        if header.producer_id == EXACTLY_ONCE
    ]
    if sent:
        data, header = sent[-1]
        (outcome,) = log.append_as_leader([(data, header)], 9, 0)
        assert isinstance(outcome, Appended)
        assert outcome.is_duplicate
        assert (outcome.first_offset, outcome.last_offset) == (header.base_offset, header.last_offset)


def go_on(run: Script) -> None:
    """A log that was recovered works, and what it then holds survives a clean restart."""
    for key in (PLAIN, EXACT):
        run.append(key, batch("afterwards"), epoch=9)
    before = {key: contents(run.log(key)) for key in (PLAIN, EXACT)}
    run.manager.close()
    assert findings(run.disk) == []
    run.manager = run.start()
    assert all(directory.was_clean for directory in run.manager.directories)
    assert {key: contents(run.log(key)) for key in (PLAIN, EXACT)} == before
    run.manager.close()


def findings(disk: SimulatedDisk) -> list[str]:
    """What is wrong, but for logs that are being deleted, indexes of segments that expired, and gaps.

    A gap remains where a power cut takes what was not durable at the end of a segment, and not the next one.
    """
    lines = check_directory(disk, "/log").lines()
    in_order = ("-delete", "It is made again", "have no record", "set-aside")
    return [line for line in lines if not any(words in line for words in in_order)]


@pytest.mark.slow
def test_a_power_cut_at_any_operation_loses_nothing_durable_and_invents_nothing() -> None:
    """Conformance 88, 89."""
    assert each_crash(script, check, prepare=empty_disk) > 1000


def empty_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir("/log")
    disk.sync_dir("/")
    return disk
