"""Compaction against a model: whatever is written, cleaned, cut and reopened, readers get the same values."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from storage.check import check_directory
from storage.cleaner import dirt_of
from storage.findings import Severity
from storage.producer_state import ProducerEntry
from tests.storage.compacted_logs import (
    CONFIG,
    DAY_MS,
    DIRECTORY,
    Writer,
    all_batches,
    all_records,
    clean,
    clean_again,
    consumed,
    last_values,
    new_log,
    reopened,
)
from tests.storage.simulated_disk import SimulatedDisk
from wire.compression import Codec
from wire.records import ControlType

KEYS = st.sampled_from(
    [b"a", b"b", b"c", b"d", b"e", b"key of more than thirty-one bytes, which is digested"]
)
VALUES = st.none() | st.binary(max_size=30)
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
CODECS = st.sampled_from(list(Codec))
TRANSACTIONAL = st.integers(10, 13)

PUT = st.tuples(st.just("put"), st.sampled_from([-1, -1, 1, 2, 3]), PAIRS, CODECS)
PUT_IN_TRANSACTION = st.tuples(st.just("put in transaction"), TRANSACTIONAL, PAIRS, CODECS)
END = st.tuples(
    st.just("end"), TRANSACTIONAL, st.sampled_from([ControlType.COMMIT, ControlType.ABORT]), st.booleans()
)
ROLL = st.tuples(st.just("roll"))
CLEAN = st.tuples(
    st.just("clean"), st.sampled_from([0, 1, DAY_MS, 3 * DAY_MS]), st.sampled_from([1, 3, 1000])
)
REOPEN = st.tuples(st.just("reopen"), st.booleans())
TRUNCATE = st.tuples(st.just("truncate"), st.integers(0, 100))
RAISE_START = st.tuples(st.just("raise log start"), st.integers(0, 100))
HISTORIES = st.lists(
    st.one_of(
        PUT, PUT, PUT_IN_TRANSACTION, PUT_IN_TRANSACTION, END, ROLL, CLEAN, REOPEN, TRUNCATE, RAISE_START
    ),
    max_size=40,
)


Step = tuple[Any, ...]

CUT_WHERE_THE_MAP_WAS_FULL: list[Step] = [
    ("put", -1, [(b"a", None), (b"b", b"")], Codec.NONE),
    ("put", -1, [(b"b", None), (b"c", None), (b"d", None)], Codec.NONE),
    ("roll",),
    ("clean", 0, 3),
    ("put", -1, [(b"a", None)], Codec.NONE),
    ("truncate", 0),
]
"""The cleaning ends within the second batch, which a truncation to that offset removes."""


class Subject:
    """A log, what was written to it, and what has to hold."""

    def __init__(self, segment_bytes: int) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_dir("/data")
        self.disk.sync_dir("/")
        self.log = new_log(self.disk, replace(CONFIG, segment_bytes=segment_bytes))
        self.writer = Writer(self.log)

    def apply(self, step: Step) -> None:
        match step:
            case ("put", producer_id, pairs, codec):
                self.writer.put(pairs, producer_id=producer_id, codec=codec)
            case ("put in transaction", producer_id, pairs, codec):
                self.writer.put(pairs, producer_id=producer_id, transactional=True, codec=codec)
            case ("end", producer_id, kind, bump):
                self.writer.end(producer_id, kind, bump=bump)
            case ("roll",):
                self.writer.roll()
            case ("clean", elapsed_ms, max_keys):
                self.writer.now_ms += elapsed_ms
                self.clean(max_keys)
            case ("reopen", is_clean):
                self.log = self.writer.log = reopened(self.log, clean=is_clean)
            case ("truncate", percent):
                low, high = self.end_of_what_was_cleaned(), self.log.log_end_offset
                self.writer.truncate(low + (high - low) * percent // 100)
            case ("raise log start", percent):
                self.log.delete_records_before(self.log.last_stable_offset * percent // 100)

    def end_of_what_was_cleaned(self) -> int:
        """Nobody can say what the last values are of a log that is cut below this.

        The first dirty offset lies within a batch where the map of keys was full. A truncation to it
        removes the whole batch, and so records that older ones were removed for.
        """
        first_dirty = self.log.first_dirty_offset
        ends = [header.next_offset for header, _ in all_batches(self.log) if header.base_offset < first_dirty]
        return max([first_dirty, *ends])

    def clean(self, max_keys: int = 1000) -> None:
        log = self.log
        log.flush()
        offsets = log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
        end_offset = dirt_of(log, self.writer.now_ms).end_offset
        untouchable = [batch for header, batch in all_batches(log) if header.base_offset >= end_offset]
        active = log.segments.active
        expected = last_values(consumed(log))
        assert expected == self.writer.last_values()
        clean(log, self.writer.now_ms, max_keys=max_keys)
        assert offsets == (
            log.log_start_offset,
            log.last_stable_offset,
            log.high_watermark,
            log.log_end_offset,
        )
        assert log.segments.active is active
        assert [
            batch for header, batch in all_batches(log) if header.base_offset >= end_offset
        ] == untouchable
        self.check()

    def check(self) -> None:
        log, writer = self.log, self.writer
        found = consumed(log)
        assert last_values(found) == writer.last_values()
        assert set(found) <= set(writer.committed)
        assert found == sorted(found)
        headers = [header for header, _ in all_batches(log)]
        ends = [header.last_offset for header in headers]
        assert all(header.base_offset > end for header, end in zip(headers[1:], ends, strict=False))
        for offset in range(log.log_start_offset, log.log_end_offset + 1, 7):
            assert consumed(log, offset=offset) == [one for one in found if one.offset >= offset]
        report = check_directory(log.files, DIRECTORY)
        errors = [one for one in report.findings if one.severity is Severity.ERROR]
        assert not errors

    def check_no_key_twice(self) -> None:
        """In what is clean and can be read."""
        clean = range(self.log.log_start_offset, self.log.first_dirty_offset)
        counts = Counter(record.key for record in all_records(self.log) if record.offset in clean)
        assert not [key for key, count in counts.items() if count > 1]

    def check_producers_after_recovery(self) -> None:
        """Conformance 70: state is a function of the log, also of a compacted one."""
        known = self.log.producers.producers
        for name in self.disk.list(DIRECTORY):
            if name.endswith(".snapshot"):
                self.disk.remove(f"{DIRECTORY}/{name}")
        self.log.recovery_point = 0
        log = self.log = self.writer.log = reopened(self.log)
        assert log.last_stable_offset == max(self.writer.last_stable_offset, log.log_start_offset)
        found = log.producers.producers
        assert {key: state_of(entry) for key, entry in known.items()} == {
            key: state_of(entry) for key, entry in found.items()
        }
        for producer_id in known:
            self.writer.put([(b"next", b"value")], producer_id=producer_id, transactional=producer_id >= 10)

    def finish(self) -> None:
        self.writer.roll()
        self.clean()
        self.check_no_key_twice()
        self.check_producers_after_recovery()
        self.check()


def random_step(chance: random.Random) -> Step:
    keys = [b"key-%d" % number for number in range(12)]
    pairs = [
        (chance.choice(keys), chance.choice([None, b"", b"value" * chance.randrange(6)]))
        for _ in range(chance.randint(1, 6))
    ]
    put = ("put", chance.choice([-1, 1, 2, 3]), pairs, chance.choice(list(Codec)))
    in_transaction = ("put in transaction", chance.randint(10, 13), pairs, chance.choice(list(Codec)))
    kind = chance.choice([ControlType.COMMIT, ControlType.ABORT])
    rare: list[Step] = [
        ("clean", chance.choice([0, DAY_MS // 2, 2 * DAY_MS]), chance.choice([1, 3, 1000])),
        ("reopen", chance.random() < 0.5),
        ("truncate", chance.randint(90, 100)),
        ("raise log start", chance.randint(0, 20)),
        ("roll",),
    ]
    end = ("end", chance.randint(10, 13), kind, chance.random() < 0.5)
    return chance.choices([put, in_transaction, end, chance.choice(rare)], [6, 5, 4, 2])[0]


def state_of(entry: ProducerEntry) -> tuple[object, ...]:
    return (
        entry.producer_epoch,
        entry.next_sequence,
        entry.batches[-1][:3] if entry.batches else None,
        entry.transaction_first_offset,
    )


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@given(HISTORIES, st.sampled_from([700, 2000, 10_000]))
def test_a_reader_ends_up_with_the_same_values(history: list[Step], segment_bytes: int) -> None:
    """Conformance 68, 69, 70."""
    subject = Subject(segment_bytes)
    for step in history:
        subject.apply(step)
    subject.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_reader_ends_up_with_the_same_values_after_a_long_history(seed: int) -> None:
    """Conformance 68, 69, 70: as above, with more segments and more cleanings than hypothesis gets to."""
    chance = random.Random(seed)
    subject = Subject(chance.choice([700, 1500, 4000]))
    for _ in range(400):
        subject.apply(random_step(chance))
    subject.finish()


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@example(CUT_WHERE_THE_MAP_WAS_FULL, 700)
@given(HISTORIES, st.sampled_from([700, 2000]))
def test_cleaning_what_is_clean_changes_nothing(history: list[Step], segment_bytes: int) -> None:
    """Neither at the same time nor, once all horizons have passed, later."""
    subject = Subject(segment_bytes)
    for step in history:
        subject.apply(step)
    writer, log = subject.writer, subject.log
    writer.roll()
    for _ in range(3):
        writer.now_ms += 2 * DAY_MS
        # Data goes, then the horizon of its marker is set.
        for _ in range(2):
            clean_again(log, writer.now_ms)
        batches = all_batches(log)
        clean_again(log, writer.now_ms)
        assert all_batches(log) == batches
    writer.now_ms += 2 * DAY_MS
    clean_again(log, writer.now_ms)
    assert all_batches(log) == batches
    subject.check()
