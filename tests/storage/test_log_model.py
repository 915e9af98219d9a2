"""The log against a list: whatever is done to it, in whatever order, it holds what the list holds.

Appends of several kinds as leader and as follower, reads of any size, rolls, truncations, deletions,
retention, and restarts of every kind: clean, after kill -9 (the cache survives) and after a power cut
(what was not synced is lost, torn or mixed).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage.appending import Appended
from storage.batch_scan import CorruptBatch, headers
from storage.log_config import LogConfig
from storage.reading import Isolation
from storage.timestamps import MAX_TIMESTAMP, NOTHING
from tests.storage.partitions import Batch, append, batch, headers_of, marker, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.compression import Codec
from wire.errors import ErrorCode, KafkaError
from wire.record_batch import BatchHeader, assign, batch_headers
from wire.records import ControlType, Record, control_type, records

CONFIG = LogConfig(
    segment_bytes=1500,
    segment_ms=1000,
    index_interval_bytes=150,
    segment_index_bytes=240,
    file_delete_delay_ms=0,
    retention_ms=-1,
)


class Entry(NamedTuple):
    """A batch, as the list holds it."""

    data: bytes
    header: BatchHeader

    def records(self) -> Iterator[Record]:
        return records(self.data, 0, self.header)


class LogMachine(RuleBasedStateMachine):
    """`entries` is all that was written and not cut off; `start` and `end` say what of it is in the log."""

    @initialize()
    def create(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_dir("/log")
        self.disk.sync_dir("/")
        self.log = new_log(self.disk, CONFIG)
        self.log.flush()
        self.entries: list[Entry] = []
        self.start = self.end = 0
        self.durable = self.checkpointed = 0
        self.epoch = 0
        self.now_ms = 1000

    # -- what the list says

    @property
    def stored(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.header.last_offset >= self.start]

    def next_sequence(self, producer_id: int) -> int:
        """A log that has none of a producer's batches any more may remember it, or may not (36)."""
        begin = self.log.segments[0].base_offset
        of_producer = [entry.header for entry in self.entries if entry.header.producer_id == producer_id]
        in_files = [header.last_sequence + 1 for header in of_producer if header.base_offset >= begin]
        remembered = self.log.producers.producers.get(producer_id)
        if any(header.last_sequence >= 0 for header in of_producer if header.base_offset >= begin):
            return max(in_files)
        return 0 if remembered is None else max(0, remembered.next_sequence)

    def transactions(self) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """First offsets of the open ones, by producer; first and last offset of the aborted ones."""
        begun: dict[int, int] = {}
        aborted = []
        for data, header in self.entries:
            if header.is_control:
                first_offset = begun.pop(header.producer_id, None)
                if first_offset is None:
                    continue  # it was lost below the log start
                if control_type(next(records(data, 0, header))) is ControlType.ABORT:
                    aborted.append((header.producer_id, first_offset, header.base_offset))
            elif header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
        return begun, aborted

    def remember(self, data: bytes, base_offset: int, epoch: int) -> None:
        stored = bytearray(data)
        assign(stored, 0, base_offset, epoch)
        entry = Entry(bytes(stored), BatchHeader.parse(stored))
        self.entries.append(entry)
        self.end = entry.header.next_offset

    # -- appending

    def add(self, *batches: Batch) -> None:
        for (data, header), outcome in zip(
            batches, append(self.log, *batches, epoch=self.epoch, now_ms=self.now_ms), strict=True
        ):
            assert outcome == Appended(self.end, self.end + header.last_offset_delta, -1, self.start)
            self.remember(data, self.end, self.epoch)

    @rule(
        shifts=st.lists(st.integers(-300, 300), min_size=1, max_size=5),
        size=st.integers(0, 200),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
    )
    def produce(self, shifts: list[int], size: int, codec: Codec) -> None:
        times = [self.now_ms + shift for shift in shifts]
        self.add(batch(*[b"v" * size] * len(shifts), timestamps=times, codec=codec))

    @rule(count=st.integers(2, 12))
    def produce_many_at_once(self, count: int) -> None:
        batches = [batch(b"%d" % number, b"x" * 40, timestamps=[self.now_ms] * 2) for number in range(count)]
        outcomes = self.log.append_as_leader(batches, self.epoch, self.now_ms)
        self.log.high_watermark = self.log.log_end_offset
        for (data, _), outcome in zip(batches, outcomes, strict=True):
            assert isinstance(outcome, Appended)
            assert outcome.first_offset == self.end
            self.remember(data, self.end, self.epoch)

    @rule(producer_id=st.integers(0, 2), count=st.integers(1, 3))
    def produce_exactly_once(self, producer_id: int, count: int) -> None:
        sequence = self.next_sequence(producer_id)
        times = [self.now_ms] * count
        self.add(
            batch(*[b"e"] * count, producer_id=producer_id, epoch=0, sequence=sequence, timestamps=times)
        )

    @rule(producer_id=st.integers(0, 2))
    def resend(self, producer_id: int) -> None:
        """Conformance 34."""
        sent = [entry for entry in self.entries if entry.header.producer_id == producer_id]
        if sent and producer_id in self.log.producers.producers:
            data, header = sent[-1]
            (outcome,) = self.log.append_as_leader([(data, header)], self.epoch, self.now_ms)
            assert outcome == Appended(
                header.base_offset, header.last_offset, header.max_timestamp, self.start, is_duplicate=True
            )

    @rule(producer_id=st.integers(3, 5))
    def produce_in_a_transaction(self, producer_id: int) -> None:
        sequence, times = self.next_sequence(producer_id), [self.now_ms]
        self.add(
            batch(
                b"t",
                producer_id=producer_id,
                epoch=0,
                sequence=sequence,
                transactional=True,
                timestamps=times,
            )
        )

    @rule(commit=st.booleans(), data=st.data())
    def end_a_transaction(self, commit: bool, data: st.DataObject) -> None:
        begun, _ = self.transactions()
        if begun:
            producer_id = data.draw(st.sampled_from(sorted(begun)))
            self.add(marker(producer_id, commit=commit, timestamp=self.now_ms))

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=6), size=st.integers(0, 400))
    def copy_from_a_leader(self, gaps: list[int], size: int) -> None:
        """As a follower, of a log in which compaction has left gaps."""
        sent = bytearray()
        offset = self.end
        for gap in gaps:
            data, _ = batch(b"f" * size, b"f", timestamps=[self.now_ms] * 2)
            copied = bytearray(data)
            assign(copied, 0, offset + gap, self.epoch)
            sent += copied
            self.remember(data, offset + gap, self.epoch)
            offset = self.end
        self.log.append_as_follower(bytes(sent) + sent[:40], self.now_ms)
        self.log.high_watermark = self.log.log_end_offset

    # -- time passes

    @rule(ms=st.integers(0, 800))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def elect(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(checkpoint=st.booleans())
    def flush(self, checkpoint: bool) -> None:
        self.log.flush()
        self.durable = self.end
        if checkpoint:
            self.checkpointed = self.log.recovery_point

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.log.release_idle_files()

    # -- cutting

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        assert self.log.truncate_to(offset, self.now_ms) == (offset < self.end)
        if offset < self.end:
            self.cut(offset)

    def cut(self, offset: int) -> None:
        """The log ends after the last batch below the offset; or, with none left, where a segment begins."""
        self.entries = [entry for entry in self.entries if entry.header.last_offset < offset]
        self.end = self.log.log_end_offset
        assert self.entries[-1].header.next_offset <= self.end if self.entries else True
        assert self.end <= offset
        self.start = min(self.start, self.end)
        self.durable = min(self.durable, self.end)
        self.checkpointed = min(self.checkpointed, self.end)

    @rule(skip=st.integers(0, 1000))
    def truncate_fully(self, skip: int) -> None:
        self.start = self.end = self.durable = self.checkpointed = self.end + skip
        self.log.truncate_fully_and_start_at(self.start, self.now_ms)
        self.entries.clear()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        """Conformance 66."""
        offset = data.draw(st.integers(0, self.log.last_stable_offset))
        self.start = max(self.start, offset)
        assert self.log.delete_records_before(offset) == self.start

    @rule(retention_bytes=st.integers(0, 5000), retention_ms=st.integers(0, 3000))
    def expire(self, retention_bytes: int, retention_ms: int) -> None:
        """Conformance 67."""
        if self.transactions()[0]:
            return
        bases = {*self.log.segments.base_offsets, self.start, self.end}
        self.log.config = replace(CONFIG, retention_bytes=retention_bytes, retention_ms=retention_ms)
        self.log.delete_old_segments(self.now_ms)
        self.log.config = CONFIG
        assert self.log.log_start_offset in bases
        self.start = self.log.log_start_offset
        self.log.remove_deleted_files(self.now_ms)

    # -- restarting

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.log = reopened(self.log, clean=True, now_ms=self.now_ms)
        self.durable = self.checkpointed = self.end
        self.log.high_watermark = self.log.log_end_offset

    @rule()
    def kill(self) -> None:
        """Conformance 89: after kill -9 nothing that was acknowledged is missing."""
        self.disk.kill()
        self.recover(self.disk)
        assert self.log.log_end_offset == self.end

    @rule(outcome=st.sampled_from(Outcome), seed=st.integers(0, 2**32))
    def cut_power(self, outcome: Outcome, seed: int) -> None:
        """Conformance 88."""
        self.disk = self.disk.after_crash(outcome, seed)
        self.recover(self.disk)
        assert self.durable <= self.log.log_end_offset <= self.end
        there = {header.base_offset for header in headers_of(self.log)}
        lost = [entry for entry in self.stored if entry.header.base_offset not in there]
        assert all(entry.header.last_offset >= self.durable for entry in lost)
        assert self.log.hole is not None or not [
            entry for entry in lost if entry.header.base_offset < max(there, default=-1)
        ], "what lies behind something that is lost is kept, but not without a word"
        lost += self.lost_below_the_start()
        self.entries = [entry for entry in self.entries if entry not in lost]
        self.end = self.log.log_end_offset
        if not self.log.size:
            self.entries.clear()

    def lost_below_the_start(self) -> list[Entry]:
        """What was not durable there may go, and the log with it may forget that it began a transaction."""
        on_disk = set[int]()
        for segment in self.log.segments:
            with suppress(CorruptBatch):
                on_disk.update(header.base_offset for _, header in headers(segment.file, 0, segment.size))
        below = [entry for entry in self.entries if self.durable <= entry.header.last_offset < self.start]
        return [entry for entry in below if entry.header.base_offset not in on_disk]

    def recover(self, disk: SimulatedDisk) -> None:
        self.log = reopened(
            self.log, disk, recovery_point=self.checkpointed, log_start_offset=self.start, now_ms=self.now_ms
        )
        self.log.high_watermark = self.log.log_end_offset

    # -- reading

    @rule(
        data=st.data(),
        max_bytes=st.integers(0, 3000),
        isolation=st.sampled_from(Isolation),
        min_one_batch=st.booleans(),
    )
    def read(self, data: st.DataObject, max_bytes: int, isolation: Isolation, min_one_batch: bool) -> None:
        """Conformance 44, 53, 54, 56."""
        offset = data.draw(st.integers(self.start, self.end))
        begun, aborted = self.transactions()
        visible = min([*begun.values(), self.end]) if isolation is Isolation.COMMITTED else self.end
        visible = max(visible, self.start)
        result = self.log.read(offset, max_bytes, isolation, min_one_batch=min_one_batch)
        expected = [
            entry
            for entry in self.entries
            if offset <= entry.header.last_offset < visible and offset < visible
        ]
        found = [header for _, header in batch_headers(result.records)]
        assert bytes(result.records) == b"".join(entry.data for entry in expected[: len(found)])
        assert len(result.records) <= max(
            max_bytes, expected[0].header.size if expected and min_one_batch else 0
        )
        if expected and min_one_batch:
            assert found
        if found:
            assert offset < result.next_offset
            assert found[-1].last_offset < result.next_offset
            if len(found) < len(expected):
                assert result.next_offset <= expected[len(found)].header.base_offset
        if isolation is Isolation.COMMITTED:
            overlapping = {one for one in aborted if one[1] < result.next_offset and one[2] >= offset}
            listed = {
                (one.producer_id, one.first_offset, one.last_offset) for one in result.aborted_transactions
            }
            assert listed == (overlapping if found else set())

    @rule(offset=st.one_of(st.integers(-5, -1), st.integers(1, 5)))
    def read_outside(self, offset: int) -> None:
        """Conformance 54."""
        with pytest.raises(KafkaError) as caught:
            self.log.read(self.start + offset if offset < 0 else self.end + offset, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(shift=st.integers(-4000, 500))
    def look_up_a_time(self, shift: int) -> None:
        """Conformance 64, 65."""
        timestamp = max(0, self.now_ms + shift)
        expected = NOTHING
        for entry in self.stored:
            for record in entry.records():
                if expected is NOTHING and record.timestamp >= timestamp and record.offset >= self.start:
                    expected = NOTHING._replace(
                        offset=record.offset,
                        timestamp=record.timestamp,
                        leader_epoch=entry.header.leader_epoch,
                    )
        assert self.log.offset_for_timestamp(timestamp) == expected

    @precondition(lambda self: self.start == self.log.segments[0].base_offset)
    @rule()
    def look_up_the_largest_time(self) -> None:
        """Conformance 63."""
        found = [(record.timestamp, -record.offset) for entry in self.stored for record in entry.records()]
        expected = max(found, default=(-1, 1))
        result = self.log.offset_for_timestamp(MAX_TIMESTAMP)
        assert (result.timestamp, -result.offset) == expected

    @rule(epoch=st.integers(0, 20))
    def look_up_an_epoch(self, epoch: int) -> None:
        """Conformance 65."""
        begins = [(entry.header.leader_epoch, entry.header.base_offset) for entry in self.stored]
        known = sorted({one for one, _ in begins})
        if known and known[0] <= epoch < known[-1]:
            following = known[bisect_left(known, epoch + 1)]
            expected = max(one for one in known if one <= epoch)
            end = next(base for one, base in begins if one == following)
            assert self.log.end_offset_for_epoch(epoch) == (expected, max(end, self.start))

    # -- always

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        found = b""
        offset = self.start
        while offset < self.end:
            result = self.log.read(offset, 400, Isolation.LOG_END)
            found += result.records
            if not result.records:
                break
            offset = result.next_offset
        assert found == b"".join(entry.data for entry in self.stored)

    @invariant()
    def knows_what_is_stable(self) -> None:
        """Conformance 43."""
        begun, _ = self.transactions()
        assert self.log.last_stable_offset == max(self.start, min([*begun.values(), self.end]))


@pytest.mark.slow
def test_the_log_holds_what_a_list_holds() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=150, stateful_step_count=60))


def test_the_log_holds_what_a_list_holds_for_a_little_while() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=15, stateful_step_count=20))
