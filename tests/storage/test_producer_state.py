"""Producer state: what is accepted, what is a resend, what is refused; transactions; replay."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.producer_state import (
    BatchMetadata,
    CompletedTransaction,
    Duplicate,
    EndMarker,
    Origin,
    ProducerState,
    end_marker,
)
from tests.storage.producers import (
    ABORT,
    COMMIT,
    DAY_MS,
    FENCED,
    INVALID_TXN_STATE,
    MAX_SEQUENCE,
    OUT_OF_ORDER,
    Log,
    batch,
    marker_header,
)
from tests.storage.simulated_disk import SimulatedDisk
from wire.errors import ErrorCode, KafkaError
from wire.record_batch import BatchHeader
from wire.records import BatchBuilder, ControlType, Record, control_batch, records


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return Log(ProducerState(disk, "/log"))


# -- sequences


def test_sequences_go_on_where_the_last_batch_ended(log: Log) -> None:
    assert [log.append(batch(sequence, 3)) for sequence in (0, 3, 6)] == [0, 3, 6]


def test_a_batch_without_a_producer_is_nobodys(log: Log) -> None:
    for sequence in (-1, 0, 7):
        assert log.state.check_append(batch(sequence, producer_id=-1, epoch=-1)) is None


def test_an_exact_resend_of_any_of_five_batches_gets_the_first_offsets(log: Log) -> None:
    """Conformance 34: the original base offset and its append time; nothing is appended."""
    for number in range(7):
        log.append(batch(10 * number, 10, timestamp=100 + number))
    for number in range(2, 7):
        resend = batch(10 * number, 10, timestamp=999)
        assert log.append(resend) == Duplicate(10 * number, 10 * number + 9, 100 + number)
    assert log.append(batch(70, 10)) == 70


def test_a_resend_older_than_five_batches_is_out_of_order(log: Log) -> None:
    """Conformance 35: older than the window."""
    for number in range(7):
        log.append(batch(10 * number, 10))
    assert [log.refused(batch(10 * number, 10)) for number in (0, 1)] == [OUT_OF_ORDER] * 2


@pytest.mark.parametrize(("sequence", "count"), [(31, 1), (40, 10), (20, 9), (20, 11), (21, 9), (25, 10)])
def test_gaps_and_partial_overlaps_are_out_of_order(log: Log, sequence: int, count: int) -> None:
    """Conformance 35."""
    for number in range(3):
        log.append(batch(10 * number, 10))
    assert log.refused(batch(sequence, count)) == OUT_OF_ORDER
    assert log.append(batch(30, 1)) == 30


def test_an_unknown_producer_may_start_anywhere(log: Log) -> None:
    """Conformance 36: its state may have expired."""
    assert log.append(batch(12345, 2)) == 0
    assert log.append(batch(12347)) == 2
    assert log.refused(batch(0)) == OUT_OF_ORDER


def test_a_higher_epoch_starts_at_zero_and_forgets_the_old_one(log: Log) -> None:
    """Conformance 37."""
    log.append(batch(0, 5))
    log.append(batch(5, 5))
    assert log.refused(batch(10, epoch=1)) == OUT_OF_ORDER
    assert log.append(batch(0, 5, epoch=1)) == 10
    assert log.append(batch(0, 5, epoch=1)) == Duplicate(10, 14, 1000)
    assert log.refused(batch(5, 5, epoch=0)) == FENCED
    assert log.refused(batch(0, 5, epoch=0)) == FENCED


def test_after_the_last_sequence_comes_zero(log: Log) -> None:
    """Conformance 38."""
    log.append(batch(MAX_SEQUENCE - 5, 6))
    assert log.append(batch(0, 3)) == 6
    assert log.append(batch(3)) == 9


def test_a_batch_may_lie_across_the_last_sequence(log: Log) -> None:
    """Conformance 38: and is known again by its first and last sequence."""
    log.append(batch(MAX_SEQUENCE - 1, 5))
    assert log.state.producers[1].batches == [BatchMetadata(2, 4, 4, 1000)]
    assert log.append(batch(MAX_SEQUENCE - 1, 5)) == Duplicate(0, 4, 1000)
    assert log.refused(batch(MAX_SEQUENCE - 1, 4)) == OUT_OF_ORDER
    assert log.append(batch(3)) == 5


def test_producers_do_not_touch_each_other(log: Log) -> None:
    for sequence in range(3):
        for producer_id in (5, 1, 9):
            log.append(batch(sequence, producer_id=producer_id))
    assert log.append(batch(1, producer_id=9)) == Duplicate(5, 5, 1000)


def test_coordinators_and_replicas_are_not_asked_for_sequences(log: Log) -> None:
    """Offset commits of a transaction carry a producer id, but no sequence."""
    log.append(batch(0))
    for _ in range(2):
        log.append(batch(-1, transactional=True), Origin.COORDINATOR)
    assert log.refused(batch(-1, epoch=-1), Origin.COORDINATOR) == FENCED
    log.append(batch(77, epoch=-1), Origin.REPLICATION)


def test_checking_changes_nothing(log: Log) -> None:
    log.append(batch(0, 5))
    before = log.state.producers[1].to_snapshot()
    for header in (batch(0, 5), batch(5), batch(0, epoch=1), batch(5, producer_id=2)):
        log.state.check_append(header)
    for header in (batch(9), batch(3, epoch=1)):
        with pytest.raises(KafkaError):
            log.state.check_append(header)
    assert (log.state.producers[1].to_snapshot(), len(log.state.producers)) == (before, 1)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 4)), max_size=40))
def test_what_is_accepted_is_in_order_and_once(sends: list[tuple[int, int, int]]) -> None:
    """Against the plain meaning: per epoch every sequence is stored once, in order, without gaps."""
    log = Log(ProducerState(SimulatedDisk(), "/log"))
    stored: list[tuple[int, int]] = []
    batches: dict[tuple[int, int, int], int] = {}
    for epoch, sequence, count in sends:
        current = stored[-1][0] if stored else epoch
        expected = stored[-1][1] + 1 if stored and epoch == current else (0 if stored else sequence)
        answer = log.attempt(batch(sequence, count, epoch=epoch))
        if isinstance(answer, Duplicate):
            assert batches[epoch, sequence, count] == answer.base_offset
            assert epoch == current
        elif isinstance(answer, ErrorCode):
            assert answer == (FENCED if epoch < current else OUT_OF_ORDER)
            assert epoch < current or sequence != expected
        else:
            assert (epoch >= current, sequence) == (True, expected)
            batches[epoch, sequence, count] = answer
            stored += [(epoch, sequence + number) for number in range(count)]
    assert log.end == len(stored)


# -- transactions


def test_a_transaction_is_open_from_its_first_batch_to_its_marker(log: Log) -> None:
    """Conformance 43: the first unstable offset is that of the oldest open transaction."""
    log.append(batch(0, 5))
    before = log.state.first_unstable_offset
    log.append(batch(5, 2, transactional=True))
    log.append(batch(7, 2, transactional=True))
    assert before is None
    assert log.state.first_unstable_offset == 5
    assert log.state.has_ongoing_transaction(1, 0)
    assert not log.state.has_ongoing_transaction(1, 1)
    assert log.end_transaction(COMMIT) == (CompletedTransaction(1, 5, 9, False), 10)
    assert not log.state.has_ongoing_transaction(1, 0)


def test_a_finished_transaction_is_unstable_until_the_high_watermark_has_passed_its_marker(log: Log) -> None:
    log.append(batch(0, 2, transactional=True))
    log.end_transaction(ABORT)
    for high_watermark in (0, 2):
        log.state.high_watermark_updated(high_watermark)
        assert log.state.first_unstable_offset == 0
    log.state.high_watermark_updated(3)
    assert log.state.first_unstable_offset is None


def test_the_oldest_of_several_transactions_counts(log: Log) -> None:
    for producer_id in (1, 2, 3):
        log.append(batch(0, 10, producer_id=producer_id, transactional=True))
    assert log.end_transaction(ABORT, 2) == (CompletedTransaction(2, 10, 30, True), 0)
    assert log.state.first_unstable_offset == 0
    assert log.end_transaction(COMMIT, 1) == (CompletedTransaction(1, 0, 31, False), 20)
    assert log.state.first_unstable_offset == 0  # its marker is not replicated
    log.state.high_watermark_updated(31)
    assert log.state.first_unstable_offset == 0
    log.state.high_watermark_updated(32)
    assert log.state.first_unstable_offset == 20
    assert log.end_transaction(COMMIT, 3) == (CompletedTransaction(3, 20, 32, False), 33)
    log.state.high_watermark_updated(33)
    assert log.state.first_unstable_offset is None


def test_a_plain_batch_inside_a_transaction_is_refused(log: Log) -> None:
    """Conformance 45."""
    log.append(batch(0, transactional=True))
    assert log.refused(batch(1)) == INVALID_TXN_STATE
    assert log.append(batch(1, transactional=True)) == 1
    log.end_transaction(COMMIT)
    assert log.append(batch(2)) == 3


def test_a_resend_inside_a_transaction_is_known(log: Log) -> None:
    log.append(batch(0, transactional=True))
    assert log.append(batch(0, transactional=True)) == Duplicate(0, 0, 1000)


def test_a_marker_without_a_transaction_ends_nothing(log: Log) -> None:
    assert log.end_transaction(COMMIT, producer_id=8, epoch=3) is None
    assert log.state.producers[8].producer_epoch == 3
    assert log.state.first_unstable_offset is None
    # It has an epoch by now, but no batch: sequences begin at 0.
    assert log.refused(batch(5, producer_id=8, epoch=3)) == OUT_OF_ORDER
    assert log.append(batch(0, producer_id=8, epoch=3)) == 1


def test_sequences_go_on_after_a_marker_of_the_same_epoch(log: Log) -> None:
    log.append(batch(0, 3, transactional=True))
    log.end_transaction(COMMIT)
    assert log.append(batch(0, 3, transactional=True)) == Duplicate(0, 2, 1000)
    assert log.append(batch(3, transactional=True)) == 4


def test_a_marker_with_a_bumped_epoch_starts_sequences_anew(log: Log) -> None:
    """Conformance 46, 47: transaction version 2, or the fencing of an old instance."""
    log.append(batch(0, 3, transactional=True))
    log.end_transaction(COMMIT, epoch=1)
    assert log.refused(batch(3, transactional=True)) == FENCED
    assert log.refused(batch(3, epoch=1, transactional=True)) == OUT_OF_ORDER
    assert log.append(batch(0, epoch=1, transactional=True)) == 4


def test_a_marker_of_an_old_epoch_or_coordinator_is_refused(log: Log) -> None:
    """A coordinator that was replaced must not end a transaction (52), nor one of a fenced producer (47)."""
    log.append(batch(0, epoch=5, transactional=True))
    with pytest.raises(KafkaError) as caught:
        log.end_transaction(COMMIT, epoch=4)
    assert caught.value.code == FENCED
    log.end_transaction(EndMarker(True, 7), epoch=5)
    with pytest.raises(KafkaError) as caught:
        log.end_transaction(EndMarker(True, 6), epoch=5)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.end_transaction(EndMarker(True, 7), epoch=5)
    log.state.check_marker(marker_header(epoch=1), EndMarker(True, 1), Origin.REPLICATION)


def test_transaction_version_2_wants_a_larger_epoch_in_the_marker(log: Log) -> None:
    """A late marker of the transaction before must not end this one."""
    log.append(batch(0, epoch=5, transactional=True))
    with pytest.raises(KafkaError) as caught:
        log.end_transaction(COMMIT, epoch=5, version=2)
    assert caught.value.code == FENCED
    assert log.end_transaction(COMMIT, epoch=6, version=2) is not None
    # The coordinator repeats itself after a failure: nothing is open, nothing happens.
    assert log.end_transaction(COMMIT, epoch=6, version=2) is None
    log.append(batch(0, producer_id=2, epoch=32767, transactional=True))
    assert log.end_transaction(COMMIT, producer_id=2, epoch=32767, version=2) is not None


def test_completing_what_is_not_open_is_a_bug(log: Log) -> None:
    with pytest.raises(ValueError, match="was not open"):
        log.state.complete(CompletedTransaction(1, 0, 5, False))


def test_a_transaction_that_nobody_ends_is_noticed(log: Log) -> None:
    log.append(batch(0, transactional=True, timestamp=1_000_000))
    log.append(batch(0, producer_id=2, transactional=True, timestamp=9_000_000))
    late = 1_000_000 + 900_000 + 5 * 60 * 1000
    assert not log.state.has_late_transaction(late, 900_000)
    assert log.state.has_late_transaction(late + 1, 900_000)
    log.end_transaction(ABORT)
    assert not log.state.has_late_transaction(late + 1, 900_000)


# -- verification


@pytest.fixture
def verifying_log(disk: SimulatedDisk) -> Log:
    return Log(ProducerState(disk, "/log", verify_transactions=True))


def test_a_transaction_begins_only_with_the_guard_of_a_lookup(verifying_log: Log) -> None:
    """Conformance 42: refused with 48 unless the coordinator knows the partition."""
    log = verifying_log
    first = batch(0, transactional=True)
    assert log.refused(first) == INVALID_TXN_STATE
    guard = log.state.start_verification(first, 0, supports_epoch_bump=False)
    assert log.refused(first) == INVALID_TXN_STATE
    assert log.append(first, guard=guard) == 0
    assert log.append(batch(1, transactional=True)) == 1
    assert log.state.start_verification(batch(2, transactional=True), 0, supports_epoch_bump=False) is None
    assert log.append(batch(0)) == Duplicate(0, 0, 1000)


def test_a_guard_from_before_a_marker_counts_no_more(verifying_log: Log) -> None:
    log = verifying_log
    first = batch(0, transactional=True)
    stale = log.state.start_verification(first, 0, supports_epoch_bump=False)
    log.end_transaction(ABORT)
    fresh = log.state.start_verification(first, 0, supports_epoch_bump=False)
    assert log.refused(first, guard=stale) == INVALID_TXN_STATE
    assert log.append(first, guard=fresh) == 1


def test_a_marker_with_the_next_epoch_leaves_the_next_transactions_guard_alone(verifying_log: Log) -> None:
    log = verifying_log
    first = batch(0, epoch=1, transactional=True)
    guard = log.state.start_verification(first, 0, supports_epoch_bump=True)
    assert not log.state.ends_verification(first.producer_id, 1)
    log.end_transaction(COMMIT, epoch=1, version=2)
    assert log.append(first, guard=guard) == 1


@pytest.mark.parametrize("supports_epoch_bump", [False, True])
def test_a_marker_ends_the_verification_of_what_comes_too_late(
    verifying_log: Log, supports_epoch_bump: bool
) -> None:
    """Of an old protocol's producer by any epoch, of a new one's by a later one."""
    log = verifying_log
    first = batch(0, epoch=1, transactional=True)
    assert not log.state.ends_verification(first.producer_id, 1)
    log.state.start_verification(first, 0, supports_epoch_bump=supports_epoch_bump)
    assert log.state.ends_verification(first.producer_id, 2)
    assert log.state.ends_verification(first.producer_id, 1) is not supports_epoch_bump


def test_no_batch_overtakes_one_that_waits_to_be_verified(verifying_log: Log) -> None:
    """Otherwise the first could never be sent again: it would be out of order for ever."""
    log = verifying_log
    guard = log.state.start_verification(batch(7, transactional=True), 0, supports_epoch_bump=False)
    assert guard is log.state.start_verification(batch(5, transactional=True), 0, supports_epoch_bump=False)
    assert log.refused(batch(7, transactional=True), guard=guard) == OUT_OF_ORDER
    assert log.append(batch(5, 2, transactional=True), guard=guard) == 0


def test_a_lookup_that_was_refused_leaves_nothing_behind(verifying_log: Log) -> None:
    log = verifying_log
    first = batch(5, transactional=True)
    guard = log.state.start_verification(first, 0, supports_epoch_bump=False)
    assert guard is not None
    assert log.state.is_being_verified(first.producer_id)
    log.state.give_up_verification(first.producer_id, guard)
    assert not log.state.is_being_verified(first.producer_id)
    assert log.refused(first, guard=guard) == INVALID_TXN_STATE
    other = log.state.start_verification(first, 0, supports_epoch_bump=False)
    log.state.give_up_verification(first.producer_id, guard)
    assert log.append(first, guard=other) == 0


def test_with_version_2_an_unknown_producer_begins_at_zero(verifying_log: Log) -> None:
    log = verifying_log
    guard = log.state.start_verification(batch(5, transactional=True), 0, supports_epoch_bump=True)
    assert log.refused(batch(5, transactional=True), guard=guard) == OUT_OF_ORDER
    assert log.append(batch(0, transactional=True), guard=guard) == 0


def test_a_fenced_producer_is_not_even_looked_up(verifying_log: Log) -> None:
    log = verifying_log
    log.append(batch(0, epoch=3))
    with pytest.raises(KafkaError) as caught:
        log.state.start_verification(batch(0, epoch=2, transactional=True), 0, supports_epoch_bump=False)
    assert caught.value.code == FENCED
    assert log.refused(batch(0, epoch=2, transactional=True)) == FENCED


# -- replay


def stored(header: BatchHeader, base_offset: int) -> bytes:
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    for _ in range(header.count):
        builder.append(b"k", b"v", timestamp_ms=header.max_timestamp)
    return builder.build()


def replay(state: ProducerState, batches: Sequence[bytes]) -> list[tuple[CompletedTransaction, int]]:
    data = b"".join(batches)
    position, completed = 0, []
    while position < len(data):
        header = BatchHeader.parse(data, position)
        if ended := state.replay(header, data, position):
            completed.append(ended)
        state.map_end_offset = header.next_offset
        position += header.size
    return completed


def test_the_state_of_a_new_leader_comes_from_its_log(disk: SimulatedDisk) -> None:
    """Conformance 39: replayed, the same batches are accepted, known or refused as on the old leader."""
    written, replayed = Log(ProducerState(disk, "/a")), Log(ProducerState(disk, "/b"))
    batches = []
    for number in range(4):
        for producer_id in (1, 2):
            header = batch(2 * number, 2, producer_id=producer_id, transactional=producer_id == 2)
            batches.append(stored(header, written.end))
            written.append(header)
    batches.append(control_batch(ControlType.ABORT, 2, 0, 5, 3000, base_offset=written.end))
    written.end_transaction(EndMarker(False, 5), 2)
    batches.append(stored(batch(-1, producer_id=-1, epoch=-1), written.end))
    replayed.end = written.end = written.end + 1
    assert replay(replayed.state, batches) == [(CompletedTransaction(2, 2, 16, True), 17)]
    assert replayed.state.producers[2].last_timestamp == 3000
    assert replayed.state.producers[2].coordinator_epoch == 5
    for log in (written, replayed):
        assert log.append(batch(6, 2, producer_id=1)) == Duplicate(12, 13, 1000)
        assert log.refused(batch(6, 2, producer_id=2, epoch=-1)) == FENCED
        assert log.append(batch(8, producer_id=2)) == 18


def test_replay_refuses_nothing(disk: SimulatedDisk) -> None:
    """Compaction leaves gaps; the log was checked when it was written."""
    state = ProducerState(disk, "/log")
    replay(
        state,
        [stored(batch(0, epoch=2), 0), stored(batch(50, 3, epoch=2), 70), stored(batch(9, epoch=1), 90)],
    )
    assert state.producers[1].next_sequence == 10


def test_a_marker_that_compaction_emptied_ends_nothing(disk: SimulatedDisk) -> None:
    state = ProducerState(disk, "/log")
    header = marker_header()._replace(count=0, batch_length=49, base_offset=5)
    assert state.replay(header, bytes(61)) is None
    assert state.producers == {}


def test_the_contents_of_markers() -> None:
    for kind, is_commit in ((ControlType.COMMIT, True), (ControlType.ABORT, False)):
        [record] = records(control_batch(kind, 1, 0, 9, 1000))
        assert end_marker(record) == EndMarker(is_commit, 9)
    other = Record(0, 0, struct.pack(">hh", 0, ControlType.LEADER_CHANGE), b"")
    assert end_marker(other) is None


# -- expiry


def test_idle_producers_are_forgotten_by_time_alone(log: Log) -> None:
    """Conformance 39: after producer.id.expiration.ms, unless in a transaction."""
    log.append(batch(0, producer_id=1, timestamp=1000))
    log.append(batch(0, producer_id=2, timestamp=1001))
    log.append(batch(0, producer_id=3, timestamp=0, transactional=True))
    log.state.log_start_offset_incremented(3)
    log.state.expire(1000 + DAY_MS - 1)
    assert set(log.state.producers) == {1, 2, 3}
    log.state.expire(1000 + DAY_MS)
    assert set(log.state.producers) == {2, 3}
    assert log.append(batch(88, producer_id=1)) == 3
