"""Compaction as part of a broker: over restarts, at its pace, and beside those who write and read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.cleaner import RateLimit
from storage.files import Disk
from storage.log import UnifiedLog
from storage.log_config import LogConfig
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
    large,
    last_values,
    new_log,
    reopened,
)
from tests.storage.partitions import new_manager
from tests.storage.simulated_disk import SimulatedDisk
from wire.record_batch import BatchHeader
from wire.records import ControlType, Record, build_batch

# -- over restarts


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


# -- at its pace


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


class Sleeper:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.woken: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.woken()


def test_the_rate_limit_sleeps_as_long_as_it_takes() -> None:
    sleeper = Sleeper()
    throttle = RateLimit(lambda: 1000, lambda: sleeper.now, sleeper.sleep)
    slept = sleeper.slept
    throttle(500)
    assert slept == [0.5]
    throttle(250)
    assert slept == [0.5, 0.25]
    sleeper.now += 10
    throttle(1000)
    assert slept[-1] == 1.0
    assert sleeper.now == pytest.approx(11.75)


def test_another_rate_holds_for_what_has_passed_already() -> None:
    """A thread that sleeps for a day by mistake has to be woken by what mends the mistake."""
    sleeper, rate = Sleeper(), [1.0]

    def raised() -> None:
        rate[0] = 100_000.0

    sleeper.woken = raised
    throttle = RateLimit(lambda: rate[0], lambda: sleeper.now, sleeper.sleep)
    throttle(100_000)
    assert sleeper.slept == [1.0]


@pytest.mark.parametrize("rate", [0.0, -1.0, 1.7976931348623157e308])
def test_a_rate_that_is_none_is_no_limit(rate: float) -> None:
    sleeper = Sleeper()
    RateLimit(lambda: rate, lambda: sleeper.now, sleeper.sleep)(1 << 40)
    assert sleeper.slept == []


# -- beside others


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
