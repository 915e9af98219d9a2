"""What compaction leaves of batches, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch_filter import NO_OFFSET, BatchFilter, LastBatch
from storage.cleaned_transactions import CleanedTransactions
from storage.indexes import AbortedTransaction
from storage.offset_map import OffsetMap
from wire.compression import Codec
from wire.errors import WireError
from wire.record_batch import BatchHeader, crc_is_valid
from wire.record_spans import SPANS_AT_ONCE
from wire.records import ControlType, Record, TimestampType, build_batch, control_batch, empty_batch, records


@pytest.fixture(scope="module", params=[2, SPANS_AT_ONCE], autouse=True)
def in_pieces(request: pytest.FixtureRequest) -> Iterator[None]:
    """Batches are worked on in pieces of so many records."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("wire.record_spans.SPANS_AT_ONCE", request.param)
        patched.setattr("storage.batch_filter.SPANS_AT_ONCE", request.param)
        yield


NOW_MS = 1_000_000
RETENTION_MS = 5_000
ALL = 1 << 40


def record(offset: int, key: bytes | None = b"k", value: bytes | None = b"v", timestamp: int = 100) -> Record:
    return Record(offset, timestamp, key, value, ())


def marker(kind: ControlType, producer_id: int, offset: int, epoch: int = 0) -> bytes:
    return control_batch(kind, producer_id, epoch, 0, 100, base_offset=offset)


def data(offset: int, producer_id: int, count: int = 1, transactional: bool = True) -> bytes:
    """A batch of a producer, with keys of its own."""
    entries = [record(offset + i, b"%d-%d" % (producer_id, offset + i)) for i in range(count)]
    return build_batch(
        entries, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional
    )


def filter_of(
    last_offsets: Mapping[bytes, int] = {},
    aborted: Iterable[AbortedTransaction] = (),
    last_batches: Mapping[int, LastBatch] = {},
    *,
    end_offset: int = ALL,
    round_end: int = ALL,
    now_ms: int = NOW_MS,
) -> BatchFilter:
    offsets = OffsetMap(1 << 20)
    entries = sorted(last_offsets.items(), key=lambda entry: entry[1])
    offsets.put_all(((offset, key, False, 0, 0, 0) for key, offset in entries), 0)
    return BatchFilter(
        offsets,
        CleanedTransactions(iter(list(aborted))),
        last_batches,
        end_offset=end_offset,
        round_end=round_end,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
    )


def filtered(batch_filter: BatchFilter, batch: bytes) -> bytes | None:
    rest = batch_filter.filtered(BatchHeader.parse(batch), batch)
    if rest is not None:
        assert crc_is_valid(rest, 0, BatchHeader.parse(rest))
        assert BatchHeader.parse(rest).size == len(rest)
    return None if rest is None else bytes(rest)


def kept(batch_filter: BatchFilter, batch: bytes) -> list[Record] | None:
    rest = filtered(batch_filter, batch)
    return None if rest is None else list(records(rest))


# -- keys


def test_only_the_last_record_of_a_key_stays() -> None:
    """Conformance 68."""
    batch = build_batch([record(0, b"a"), record(1, b"b"), record(2, b"a")])
    assert kept(filter_of({b"a": 2, b"b": 9}), batch) == [record(2, b"a")]


def test_a_batch_of_which_all_stays_is_handed_back_as_it_came() -> None:
    batch = build_batch([record(0, b"a"), record(1, b"b")])
    header = BatchHeader.parse(batch)
    assert filter_of({b"a": 0, b"b": 1}).filtered(header, batch) is batch
    assert filter_of({}).filtered(header, batch) is batch


def test_a_batch_of_which_nothing_stays_goes() -> None:
    batch = build_batch([record(0, b"a")])
    assert filtered(filter_of({b"a": 7}), batch) is None


def test_a_record_without_key_goes() -> None:
    batch = build_batch([record(0, None), record(1, b"a")])
    assert kept(filter_of({b"a": 1}), batch) == [record(1, b"a")]


def test_behind_the_end_of_the_map_nothing_goes_because_of_its_key() -> None:
    batch = build_batch([record(8, b"a"), record(9, b"b"), record(10, b"a"), record(11, None)])
    batch_filter = filter_of({b"a": 12, b"b": 12}, end_offset=10)
    assert kept(batch_filter, batch) == [record(10, b"a"), record(11, None)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("timestamp_type", list(TimestampType))
def test_what_stays_keeps_all_but_its_neighbours(codec: Codec, timestamp_type: TimestampType) -> None:
    """Conformance 68: offsets, timestamps, headers; and what followers and producers rely on."""
    entries = [
        Record(i, 1000 - 10 * i, b"key-%d" % i, b"value" * 20, (("h", b"x"), ("n", None))) for i in range(6)
    ]
    options = {
        "codec": codec,
        "timestamp_type": timestamp_type,
        "producer_id": 77,
        "producer_epoch": 3,
        "base_sequence": 50,
        "transactional": True,
        "leader_epoch": 9,
    }
    batch = build_batch(entries, base_offset=0, **options)
    before = BatchHeader.parse(batch)
    gone = {entries[i].key: 99 for i in (0, 3, 5)}
    rest = filtered(filter_of({key: offset for key, offset in gone.items() if key is not None}), batch)
    assert rest is not None
    after = BatchHeader.parse(rest)
    assert list(records(rest)) == [one for i, one in enumerate(records(batch)) if i in (1, 2, 4)]
    stays = (
        "base_offset",
        "leader_epoch",
        "last_offset_delta",
        "attributes",
        "producer_id",
        "producer_epoch",
    )
    assert [getattr(after, name) for name in stays] == [getattr(before, name) for name in stays]
    assert after.base_sequence == before.base_sequence
    assert after.last_sequence == before.last_sequence
    assert after.count == 3
    expected = 990 if timestamp_type is TimestampType.CREATE_TIME else before.max_timestamp
    assert after.max_timestamp == expected


# -- tombstones


def test_a_tombstone_stays_and_gets_a_horizon_the_first_time() -> None:
    """Conformance 68: it stays for delete.retention.ms after it became cleanable."""
    entries = [record(0, b"a", None, timestamp=50), record(1, b"b", timestamp=60)]
    rest = filtered(filter_of({b"a": 0, b"b": 1}), build_batch(entries))
    assert rest is not None
    assert BatchHeader.parse(rest).delete_horizon_ms == NOW_MS + RETENTION_MS
    assert list(records(rest)) == entries
    assert BatchHeader.parse(rest).max_timestamp == 60


def test_a_horizon_is_set_once_and_passed_once() -> None:
    entries = [record(0, b"a", None), record(1, b"b"), record(2, b"c")]
    offsets = {b"a": 0, b"b": 1, b"c": 2}
    first = filtered(filter_of(offsets), build_batch(entries))
    assert first is not None
    just_before = NOW_MS + RETENTION_MS - 1
    assert filtered(filter_of(offsets, now_ms=just_before), first) == first
    rest = filtered(filter_of(offsets, now_ms=just_before + 1), first)
    assert rest is not None
    assert list(records(rest)) == entries[1:]
    assert filtered(filter_of(offsets, now_ms=just_before + 99), rest) == rest


def test_a_superseded_tombstone_goes_at_once() -> None:
    batch = build_batch([record(0, b"a", None), record(1, b"b")])
    rest = filtered(filter_of({b"a": 5, b"b": 1}), batch)
    assert rest is not None
    assert list(records(rest)) == [record(1, b"b")]
    assert BatchHeader.parse(rest).delete_horizon_ms is None


def test_a_tombstone_whose_key_was_not_counted_gets_no_horizon() -> None:
    """What it deletes may still be there when the horizon has passed."""
    batch = build_batch([record(5, b"a"), record(6, b"b", None)])
    assert filtered(filter_of({b"a": 5}, end_offset=6), batch) == batch


def test_an_empty_value_is_no_tombstone() -> None:
    batch = build_batch([record(0, b"a", b"")])
    assert filtered(filter_of({b"a": 0}), batch) == batch


# -- transactions


def test_aborted_data_goes_and_its_marker_stays_until_nothing_is_left() -> None:
    """Conformance 68: a marker stays while data of the transaction remains; then as long as a tombstone."""
    aborted = [AbortedTransaction(1, 0, 4, 5)]
    batch_filter = filter_of(aborted=aborted)
    assert filtered(batch_filter, data(0, 1, 2)) is None
    assert filtered(batch_filter, data(2, 1, 2)) is None
    abort = marker(ControlType.ABORT, 1, 4)
    assert filtered(batch_filter, abort) == abort

    with_horizon = filtered(filter_of(aborted=aborted), abort)
    assert with_horizon is not None
    assert BatchHeader.parse(with_horizon).delete_horizon_ms == NOW_MS + RETENTION_MS
    assert list(records(with_horizon)) == list(records(abort))
    later = NOW_MS + RETENTION_MS
    assert filtered(filter_of(now_ms=later - 1), with_horizon) == with_horizon
    assert filtered(filter_of(now_ms=later), with_horizon) is None


def test_an_aborted_record_does_not_count_though_its_key_comes_last() -> None:
    batch_filter = filter_of({b"1-0": 0}, [AbortedTransaction(1, 0, 1, 2)])
    assert filtered(batch_filter, data(0, 1)) is None


def test_the_marker_of_a_committed_transaction_stays_while_a_batch_of_it_does() -> None:
    """Conformance 68."""
    batch_filter = filter_of()
    first = data(0, 1)
    assert filtered(batch_filter, first) == first
    commit = marker(ControlType.COMMIT, 1, 1)
    assert filtered(batch_filter, commit) == commit
    spent = filtered(filter_of(), commit)
    assert spent is not None
    assert BatchHeader.parse(spent).has_delete_horizon


def test_transactions_of_one_producer_follow_one_another() -> None:
    aborted = [AbortedTransaction(1, 2, 3, 4), AbortedTransaction(1, 6, 7, 8)]
    batch_filter = filter_of(aborted=aborted)
    script = [
        (data(0, 1), True),
        (marker(ControlType.COMMIT, 1, 1), True),
        (data(2, 1), False),
        (marker(ControlType.ABORT, 1, 3), True),
        (data(4, 1), True),
        (marker(ControlType.COMMIT, 1, 5), True),
        (data(6, 1), False),
        (marker(ControlType.ABORT, 1, 7), True),
    ]
    assert [filtered(batch_filter, batch) is not None for batch, _ in script] == [
        stays for _, stays in script
    ]


def test_transactions_that_overlap_are_told_apart() -> None:
    """The entry of the one that began first comes last: entries come in the order of their markers."""
    aborted = [AbortedTransaction(2, 1, 4, 0), AbortedTransaction(1, 0, 6, 7)]
    batch_filter = filter_of(aborted=aborted)
    script = [
        (data(0, 1), False),
        (data(1, 2), False),
        (data(2, 3), True),
        (data(3, 1), False),
        (marker(ControlType.ABORT, 2, 4), True),
        (data(5, 2), True),
        (marker(ControlType.ABORT, 1, 6), True),
        (marker(ControlType.COMMIT, 3, 7), True),
        (marker(ControlType.COMMIT, 2, 8), True),
    ]
    assert [filtered(batch_filter, batch) is not None for batch, _ in script] == [
        stays for _, stays in script
    ]


def test_what_a_producer_writes_outside_of_transactions_is_never_aborted() -> None:
    batch_filter = filter_of(aborted=[AbortedTransaction(1, 0, 5, 6)])
    plain = data(3, 1, transactional=False)
    assert filtered(batch_filter, plain) == plain


def test_an_entry_without_a_marker_does_not_reach_beyond_its_end() -> None:
    """The marker may have gone; what the producer wrote later is committed."""
    transactions = CleanedTransactions(iter([AbortedTransaction(1, 0, 5, 6)]))
    assert transactions.is_aborted(BatchHeader.parse(data(3, 1)))
    assert not transactions.is_aborted(BatchHeader.parse(data(6, 1)))


def test_an_abort_marker_that_no_index_entry_explains_is_an_error() -> None:
    """Going on would keep what was aborted, and drop what it seems to supersede."""
    batch_filter = filter_of()
    filtered(batch_filter, data(0, 1))
    with pytest.raises(WireError, match="producer 1"):
        filtered(batch_filter, marker(ControlType.ABORT, 1, 1))


def test_entries_of_kept_markers_are_kept() -> None:
    entries = [AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 9, 12, 13)]
    transactions = CleanedTransactions(iter(entries))
    transactions.is_aborted(BatchHeader.parse(data(0, 1)))
    for entry in entries:
        abort = marker(ControlType.ABORT, entry.producer_id, entry.last_offset)
        transactions.is_spent(BatchHeader.parse(abort), abort)
    assert transactions.kept == entries[:1]


@given(st.data())
def test_entries_are_taken_in_time_however_transactions_overlap(draws: st.DataObject) -> None:
    """Against a plain list: what the last stable offsets promise is enough to hold few entries."""
    open_since: dict[int, int] = {}
    script: list[tuple[int, int, bool]] = []
    entries: list[AbortedTransaction] = []
    for offset in range(draws.draw(st.integers(1, 40))):
        producer_id = draws.draw(st.integers(1, 4))
        ends = producer_id in open_since and draws.draw(st.booleans())
        script.append((offset, producer_id, ends))
        if ends:
            first = open_since.pop(producer_id)
            stable = min(open_since.values(), default=offset + 1)
            if draws.draw(st.booleans()):
                entries.append(AbortedTransaction(producer_id, first, offset, stable))
        else:
            open_since.setdefault(producer_id, offset)
    transactions = CleanedTransactions(iter(entries))
    for offset, producer_id, ends in script:
        inside = any(
            one.producer_id == producer_id and one.first_offset <= offset <= one.last_offset
            for one in entries
        )
        if ends:
            kind = ControlType.ABORT if inside else ControlType.COMMIT
            batch = marker(kind, producer_id, offset)
            assert not transactions.is_spent(BatchHeader.parse(batch), batch)
        else:
            assert transactions.is_aborted(BatchHeader.parse(data(offset, producer_id))) == inside
    assert transactions.kept == entries


# -- control records


def test_control_records_are_never_deduplicated_by_key() -> None:
    """Conformance 69: they all share one key per type, which here even has a later offset."""
    commits = [marker(ControlType.COMMIT, producer_id, producer_id) for producer_id in range(1, 5)]
    (key,) = {one.key for batch in commits for one in records(batch)}
    assert key is not None
    batch_filter = filter_of({key: 999})
    for producer_id, commit in enumerate(commits, 1):
        filtered(batch_filter, data(0, producer_id))
        assert filtered(batch_filter, commit) == commit


def test_control_records_that_end_no_transaction_stay() -> None:
    change = build_batch([record(0, b"\x00\x00\x00\x02", b"\x00\x00")], control=True)
    batch_filter = filter_of(now_ms=NOW_MS + 10 * RETENTION_MS)
    assert filtered(batch_filter, change) == change


# -- producers


def emptied(batch: bytes) -> tuple[int, ...]:
    header = BatchHeader.parse(batch)
    return (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def test_the_last_batch_of_a_live_producer_stays_without_records() -> None:
    """Conformance 70."""
    batch = data(10, 1, 3, transactional=False)
    gone = {b"1-%d" % offset: 99 for offset in (10, 11, 12)}
    rest = filtered(filter_of(gone, last_batches={1: LastBatch(12, 0)}), batch)
    assert rest is not None
    assert BatchHeader.parse(rest).count == 0
    assert len(rest) == 61
    assert emptied(rest) == emptied(batch)
    assert filtered(filter_of(gone, last_batches={1: LastBatch(12, 0)}), rest) == rest
    assert filtered(filter_of(gone, last_batches={1: LastBatch(40, 0)}), rest) is None
    assert filtered(filter_of(gone), rest) is None


def test_the_last_batch_of_a_live_producer_stays_though_it_was_aborted() -> None:
    """Conformance 70. Its marker and index entry stay with it."""
    batch = data(0, 1)
    aborted = [AbortedTransaction(1, 0, 1, 2)]
    batch_filter = filter_of(aborted=aborted, last_batches={1: LastBatch(0, 0)})
    rest = filtered(batch_filter, batch)
    assert rest is not None
    assert BatchHeader.parse(rest).is_transactional
    again = filter_of(aborted=aborted, last_batches={1: LastBatch(0, 0)}, now_ms=NOW_MS + 9 * RETENTION_MS)
    abort = marker(ControlType.ABORT, 1, 1)
    assert [filtered(again, rest), filtered(again, abort)] == [rest, abort]


def test_a_spent_marker_stays_for_its_epoch_where_nothing_else_tells_it() -> None:
    """Conformance 70, of a producer that wrote nothing in its newest epoch. Kafka empties it."""
    with_horizon = filtered(filter_of(), marker(ControlType.COMMIT, 1, 5, epoch=4))
    late = NOW_MS + RETENTION_MS
    assert with_horizon is not None
    last_batches = {1: LastBatch(NO_OFFSET, 4)}
    assert filtered(filter_of(last_batches=last_batches, now_ms=late), with_horizon) == with_horizon
    assert filtered(filter_of(last_batches={1: LastBatch(NO_OFFSET, 5)}, now_ms=late), with_horizon) is None
    assert filtered(filter_of(last_batches={1: LastBatch(3, 4)}, now_ms=late), with_horizon) is None


def test_a_marker_that_kafka_emptied_stays_as_long_as_it_has_to() -> None:
    empty = empty_batch(BatchHeader.parse(marker(ControlType.COMMIT, 1, 5, epoch=4)))
    assert filtered(filter_of(last_batches={1: LastBatch(NO_OFFSET, 4)}), empty) == empty
    assert filtered(filter_of(), empty) is None


def test_the_last_batch_of_what_is_cleaned_stays() -> None:
    """So that where the cleaned part ends can be seen in it."""
    batch = build_batch([record(8, b"a"), record(9, b"b")])
    offsets = {b"a": 20, b"b": 21}
    rest = filtered(filter_of(offsets, round_end=10), batch)
    assert rest is not None
    assert (BatchHeader.parse(rest).last_offset, BatchHeader.parse(rest).count) == (9, 0)
    assert filtered(filter_of(offsets, round_end=11), batch) is None


# -- damage


def test_records_that_do_not_add_up_are_an_error() -> None:
    batch = bytearray(build_batch([record(0, b"a")]))
    batch[61] += 2
    with pytest.raises(WireError, match="record 0 of 1"):
        filtered(filter_of(), bytes(batch))


def test_offsets_in_disorder_are_an_error_and_not_a_strange_batch() -> None:
    """Kafka does not look at the offset deltas of an uncompressed batch (conformance 23)."""
    batch = bytearray(build_batch([record(0, b"a"), record(1, b"b"), record(2, b"c")]))
    second_record = 61 + (len(batch) - 61) // 3
    batch[second_record + 3] = 10
    with pytest.raises(WireError, match="offset"):
        filtered(filter_of({b"a": 9}), bytes(batch))
