"""Records as stretches of bytes, against the decoder of `wire.records`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.compression import Codec
from wire.errors import WireError
from wire.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid
from wire.record_spans import SPANS_AT_ONCE, Span, batch_of_spans, record_data
from wire.record_spans import record_spans as pieces_of
from wire.records import BatchBuilder, Record, TimestampType, build_batch, records

pytestmark = pytest.mark.usefixtures("piece")


@pytest.fixture(scope="module", params=[2, SPANS_AT_ONCE])
def piece(request: pytest.FixtureRequest) -> Iterator[int]:
    """Batches are worked on in pieces of so many records."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("wire.record_spans.SPANS_AT_ONCE", request.param)
        yield request.param


def record_spans(header: BatchHeader, data: bytes) -> list[Span]:
    return list(chain.from_iterable(pieces_of(header, data)))


SIZES = st.sampled_from([0, 1, 63, 64, 65, 8191, 8192, 20_000])
VALUES = st.none() | st.binary(max_size=20) | SIZES.map(bytes)
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 20) | st.sampled_from([63, 64, 8192, 1_100_000]),
        st.integers(-(2**40), 2**40) | st.integers(0, 200),
        VALUES,
        VALUES,
        st.lists(st.tuples(st.text(max_size=5), VALUES), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def batch_with(entries: list, codec: Codec, timestamp_type: TimestampType, horizon: int | None) -> bytes:  # type: ignore[type-arg]
    builder = BatchBuilder(
        codec=codec,
        timestamp_type=timestamp_type,
        base_offset=1000,
        delete_horizon_ms=horizon,
        producer_id=5,
        producer_epoch=1,
        base_sequence=7,
        transactional=True,
        leader_epoch=3,
    )
    offset = 999
    for gap, timestamp, key, value, headers in entries:
        offset += gap
        builder.append(key, value, headers, timestamp_ms=2**41 + timestamp, offset=offset)
    return builder.build(offset + 2)


@given(RECORDS, st.sampled_from(Codec), st.sampled_from(TimestampType), st.none() | st.just(2**42), st.data())
def test_what_is_put_together_again_decodes_to_the_same_records(
    entries: list,  # type: ignore[type-arg]
    codec: Codec,
    timestamp_type: TimestampType,
    horizon: int | None,
    draws: st.DataObject,
) -> None:
    batch = batch_with(entries, codec, timestamp_type, horizon)
    header = BatchHeader.parse(batch)
    data = record_data(header, batch)
    spans = record_spans(header, data)
    decoded = list(records(batch))
    assert [(offset, key, is_null) for offset, key, is_null, _, _, _ in spans] == [
        (record.offset, record.key, record.value is None) for record in decoded
    ]
    stays = draws.draw(st.sets(st.integers(0, len(spans) - 1), min_size=1).map(sorted))
    half = len(stays) // 2
    pieces = [[spans[i] for i in some] for some in (stays[:half], [], stays[half:])]
    rest = batch_of_spans(header, data, pieces)
    after = BatchHeader.parse(rest)
    assert list(records(rest)) == [decoded[i] for i in stays]
    assert crc_is_valid(rest, 0, after)
    assert after.size == len(rest)
    assert after.count == len(stays)
    assert after.max_timestamp == max(decoded[i].timestamp for i in stays)
    stays_relative = horizon is not None or timestamp_type is TimestampType.LOG_APPEND_TIME
    first = header.base_timestamp if stays_relative else decoded[stays[0]].timestamp
    assert after.base_timestamp == first, (
        "Kafka's MemoryRecords.filterTo begins anew with the first that stays"
    )
    as_before = {"batch_length": 0, "crc": 0, "count": 0, "max_timestamp": 0, "base_timestamp": 0}
    assert after._replace(**as_before) == header._replace(**as_before)


def test_no_piece_has_more_records_than_it_should(piece: int) -> None:
    """What is known of one takes a multiple of its bytes, and a batch may have millions."""
    batch = build_batch(Record(number, 0, b"k", None) for number in range(2 * piece + 1))
    header = BatchHeader.parse(batch)
    assert [len(one) for one in pieces_of(header, record_data(header, batch))] == [piece, piece, 1]


def test_a_batch_without_records_has_no_spans() -> None:
    batch = build_batch([Record(0, 0, b"k", b"v")])
    header = BatchHeader.parse(batch)._replace(count=0, batch_length=HEADER_SIZE - 12)
    assert record_spans(header, record_data(header, batch[:HEADER_SIZE])) == []


GOOD = [Record(0, 0, b"key", b"value"), Record(1, 0, None, b"value"), Record(2, 0, b"key", None)]


@pytest.mark.parametrize("size", range(len(build_batch(GOOD)) - HEADER_SIZE))
def test_data_that_ends_early_is_an_error(size: int) -> None:
    batch = build_batch(GOOD)
    header = BatchHeader.parse(batch)
    with pytest.raises(WireError, match=r"record [012] of 3"):
        record_spans(header, record_data(header, batch)[:size])


@pytest.mark.parametrize(
    ("byte", "value", "why"),
    [
        (0, 0x01, "does not end within"),
        (0, 0x00, "its key does not end"),
        (0, 0x7E, "does not end within"),
        (3, 0x01, "offset does not follow"),
        (4, 0x3A, "its key does not end"),
    ],
)
def test_lengths_that_lead_astray_are_an_error(byte: int, value: int, why: str) -> None:
    batch = build_batch(GOOD)
    header = BatchHeader.parse(batch)
    data = bytearray(record_data(header, batch))
    data[byte] = value
    with pytest.raises(WireError, match=why):
        record_spans(header, bytes(data))


def test_bytes_behind_the_records_are_an_error() -> None:
    batch = build_batch(GOOD)
    header = BatchHeader.parse(batch)
    with pytest.raises(WireError, match="3 records"):
        record_spans(header, record_data(header, batch) + b"\0")


def test_an_offset_beyond_the_batch_is_an_error() -> None:
    batch = build_batch(GOOD)
    header = BatchHeader.parse(batch)._replace(last_offset_delta=1)
    with pytest.raises(WireError, match="offset 2 of 1"):
        record_spans(header, record_data(header, batch))


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_are_records_or_a_wire_error(data: bytes, count: int) -> None:
    header = BatchHeader.parse(build_batch(GOOD))._replace(count=count, last_offset_delta=2**31 - 1)
    try:
        spans = record_spans(header, data)
    except WireError:
        return
    assert len(spans) == count
    assert [span[4] for span in spans] == [0, *(span[5] for span in spans)][:count]
