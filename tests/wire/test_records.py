"""Record batches: what was built is read, edits leave the rest alone, and no bytes get past the bounds."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.compression import Codec, CompressionError, compress
from wire.errors import WireError
from wire.record_batch import assembled
from wire.records import (
    HEADER_SIZE,
    BatchBuilder,
    BatchHeader,
    Buffer,
    ControlType,
    Record,
    TimestampType,
    assign,
    assigned_prefix,
    batch_headers,
    build_batch,
    control_batch,
    control_type,
    coordinator_epoch,
    crc_is_valid,
    crc_of,
    empty_batch,
    recompressed,
    records,
    with_log_append_time,
    with_max_timestamp,
)
from wire.steps import outcome_of

TIME = 1_700_000_000_000
THREE = [
    Record(0, TIME, b"a", b"one"),
    Record(1, TIME + 5, None, b"two", (("trace", b"1"), ("none", None))),
    Record(2, TIME - 5, b"c", None),
]
BUFFERS = [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))]


def batch_with(section: bytes, count: int, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """A batch with a correct length and CRC around whatever `section` is."""
    plain = BatchHeader.parse(build_batch(THREE))
    header = plain._replace(count=count, last_offset_delta=count - 1, attributes=codec)._replace(**fields)
    return assembled(header.base_offset, header.leader_epoch, header[5:], section)


def varint(number: int) -> bytes:
    raw = number << 1 ^ number >> 63
    groups = [raw >> shift & 0x7F for shift in range(0, max(raw.bit_length(), 1), 7)]
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def with_length(body: bytes) -> bytes:
    return varint(len(body)) + body


GOOD = with_length(b"\0\0\0" + varint(1) + b"k" + varint(1) + b"v" + b"\0")


# -- the header


def test_every_field_of_the_header_is_read() -> None:
    fields = (1 << 40, 49, 7, 2, 0xFFFFFFFF, 0x7F, 3, TIME, TIME + 9, 1 << 50, 12, 2**31 - 1, 4)
    raw = struct.pack(">qiibIhiqqqhii", *fields)
    assert len(raw) == HEADER_SIZE
    assert tuple(BatchHeader.parse(raw)) == fields
    assert tuple(BatchHeader.parse(memoryview(b"xyz" + raw), 3)) == fields


def test_the_header_speaks_of_offsets_and_sizes() -> None:
    header = BatchHeader.parse(build_batch(THREE, base_offset=0))._replace(base_offset=100, batch_length=88)
    assert (header.size, header.last_offset, header.next_offset) == (100, 102, 103)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("timestamp_type", TimestampType)
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("control", [True, False])
@pytest.mark.parametrize("delete_horizon_ms", [None, TIME + 77])
def test_attributes_are_what_the_builder_was_told(
    codec: Codec,
    timestamp_type: TimestampType,
    transactional: bool,
    control: bool,
    delete_horizon_ms: int | None,
) -> None:
    header = BatchHeader.parse(
        build_batch(
            THREE,
            codec=codec,
            timestamp_type=timestamp_type,
            transactional=transactional,
            control=control,
            delete_horizon_ms=delete_horizon_ms,
        )
    )
    assert header.codec is codec
    assert header.timestamp_type is timestamp_type
    assert header.is_log_append_time == (timestamp_type is TimestampType.LOG_APPEND_TIME)
    assert header.is_transactional == transactional
    assert header.is_control == control
    assert header.has_delete_horizon == (delete_horizon_ms is not None)
    assert header.delete_horizon_ms == delete_horizon_ms


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_is_named(codec_id: int) -> None:
    """Conformance 25."""
    header = BatchHeader.parse(build_batch(THREE))._replace(attributes=codec_id)
    with pytest.raises(CompressionError, match=f"codec {codec_id}"):
        _ = header.codec


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last_sequence"),
    [(-1, 5, -1), (0, 0, 0), (7, 5, 12), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2)],
)
def test_after_the_largest_sequence_comes_0(
    base_sequence: int, last_offset_delta: int, last_sequence: int
) -> None:
    """Conformance 38."""
    header = BatchHeader.parse(build_batch(THREE))
    header = header._replace(base_sequence=base_sequence, last_offset_delta=last_offset_delta)
    assert header.last_sequence == last_sequence


@pytest.mark.parametrize("size", [0, 1, 12, 60])
def test_a_header_takes_61_bytes(size: int) -> None:
    with pytest.raises(WireError, match=f"are {size}"):
        BatchHeader.parse(bytes(size))
    with pytest.raises(WireError):
        BatchHeader.parse(bytes(100), 100 - size)


def test_whole_batches_are_found_one_after_another_and_an_incomplete_tail_is_not() -> None:
    batches = [build_batch(THREE[:n], base_offset=0) for n in (1, 2, 3)]
    log = b"".join(batches)
    ends = [sum(map(len, batches[:n])) for n in range(4)]
    for cut in range(len(log) + 1):
        found = list(batch_headers(memoryview(log)[:cut]))
        assert [(position, position + header.size) for position, header in found] == [
            (start, end) for start, end in pairwise(ends) if end <= cut
        ]
    assert [position for position, _ in batch_headers(log, ends[1])] == ends[1:3]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_no_batch_can_have_is_an_error(length: int) -> None:
    log = bytearray(build_batch(THREE) * 2)
    second = len(log) // 2
    struct.pack_into(">i", log, second + 8, length)
    headers = batch_headers(log)
    assert next(headers)[0] == 0
    with pytest.raises(WireError, match=f"byte {second} .* length {length}"):
        next(headers)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_an_error(magic: int) -> None:
    batch = bytearray(build_batch(THREE))
    batch[16] = magic
    with pytest.raises(WireError, match="magic"):
        list(batch_headers(batch))
    with pytest.raises(WireError, match="no batch"):
        list(records(batch))


# -- the checksum, and edits


@pytest.mark.parametrize("buffer", BUFFERS)
def test_the_crc_covers_the_attributes_and_all_behind_them(buffer: Callable[[bytes], Buffer]) -> None:
    """Conformance 22."""
    batch = build_batch(THREE)
    for position in range(len(batch)):
        damaged = bytearray(b"before" + batch + b"after")
        damaged[6 + position] ^= 0x10
        header = BatchHeader.parse(damaged, 6)._replace(batch_length=len(batch) - 12)
        assert crc_is_valid(buffer(bytes(damaged)), 6, header) == (position < 17)
    assert crc_of(buffer(batch), 0, len(batch)) == BatchHeader.parse(batch).crc


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_gets_its_place_in_the_log_without_touching_anything_else(codec: Codec) -> None:
    """Conformance 26."""
    batch = build_batch(THREE, codec=codec)
    header = BatchHeader.parse(batch)
    log = bytearray(b"before" + batch + b"after")
    assign(log, 6, 2**62, 2**31 - 1)
    assigned = BatchHeader.parse(log, 6)
    assert assigned == header._replace(base_offset=2**62, leader_epoch=2**31 - 1)
    assert crc_is_valid(log, 6, assigned)
    assert log[:6] == b"before"
    assert log[6:-5] == assigned_prefix(header, 2**62, 2**31 - 1) + batch[16:]
    assert [record[1:] for record in records(log, 6)] == [record[1:] for record in THREE]
    assert [record.offset for record in records(log, 6)] == [2**62, 2**62 + 1, 2**62 + 2]


def test_assigning_through_a_memoryview_changes_the_buffer_below() -> None:
    buffer = bytearray(build_batch(THREE))
    assign(memoryview(buffer), 0, 5, 6)
    assert BatchHeader.parse(buffer)[:3] == (5, len(buffer) - 12, 6)


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_is_a_matter_of_the_header(codec: Codec) -> None:
    """Conformance 30."""
    batch = build_batch(THREE, codec=codec)
    before = BatchHeader.parse(batch)
    stamped = with_log_append_time(batch, TIME + 1000)
    after = BatchHeader.parse(stamped)
    assert after == before._replace(
        attributes=before.attributes | 8, max_timestamp=TIME + 1000, crc=after.crc
    )
    assert crc_is_valid(stamped, 0, after)
    assert stamped[HEADER_SIZE:] == batch[HEADER_SIZE:]
    assert list(records(stamped)) == [record._replace(timestamp=TIME + 1000) for record in THREE]
    assert with_max_timestamp(stamped, TIME + 5) == batch


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_recompression_changes_the_codec_and_nothing_else(source: Codec, target: Codec) -> None:
    """Conformance 31."""
    batch = build_batch(
        THREE * 1, codec=source, producer_id=1, producer_epoch=0, base_sequence=5, leader_epoch=3
    )
    result = outcome_of(recompressed(batch, target))
    header = BatchHeader.parse(result)
    assert header.codec is target
    assert crc_is_valid(result, 0, header)
    back = outcome_of(recompressed(result, source))
    assert outcome_of(recompressed(back, Codec.NONE)) == outcome_of(recompressed(batch, Codec.NONE))
    assert list(records(result)) == THREE


def test_an_emptied_batch_keeps_its_place_and_its_producer() -> None:
    """Conformance 70."""
    batch = build_batch(
        THREE,
        codec=Codec.ZSTD,
        producer_id=8,
        producer_epoch=1,
        base_sequence=40,
        transactional=True,
        leader_epoch=2,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    before, empty = BatchHeader.parse(batch), empty_batch(BatchHeader.parse(batch))
    after = BatchHeader.parse(empty)
    assert len(empty) == after.size == HEADER_SIZE
    assert (after.count, after.base_timestamp, after.codec, after.attributes) == (0, -1, Codec.NONE, 0x18)
    kept = ("base_offset", "last_offset", "max_timestamp", "producer_id", "producer_epoch", "last_sequence")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert crc_is_valid(empty, 0, after)
    assert list(records(empty)) == []


# -- records, there and back

INT64 = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(TIME - 10**6, TIME + 10**6)
NULLABLE = st.none() | st.binary(max_size=80)
HEADERS = st.lists(st.tuples(st.text(max_size=20), NULLABLE), max_size=3).map(tuple)
BODIES = st.lists(
    st.tuples(NEAR | INT64, NULLABLE, NULLABLE, HEADERS, st.integers(1, 5)), min_size=1, max_size=20
)


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=40)
@given(bodies=BODIES, first=st.integers(0, 2**60), gap_behind=st.integers(0, 1000), horizon=st.none() | NEAR)
def test_what_is_built_is_read(
    codec: Codec, bodies: list[Any], first: int, gap_behind: int, horizon: int | None
) -> None:
    builder = BatchBuilder(codec=codec, base_offset=first, delete_horizon_ms=horizon)
    expected = []
    offset = first - 1
    for timestamp, key, value, headers, gap in bodies:
        offset += gap
        builder.append(key, value, headers, timestamp_ms=timestamp, offset=offset)
        expected.append(Record(offset, timestamp, key, value, headers))
    batch = builder.build(last_offset=offset + gap_behind)
    header = BatchHeader.parse(batch)
    assert list(records(batch)) == expected
    assert crc_is_valid(batch, 0, header)
    assert (header.base_offset, header.last_offset, header.count) == (first, offset + gap_behind, len(bodies))
    assert header.max_timestamp == max(record.timestamp for record in expected)
    assert header.base_timestamp == (expected[0].timestamp if horizon is None else horizon)
    assert builder.count == len(bodies)
    assert builder.estimated_size == len(outcome_of(recompressed(batch, Codec.NONE)))
    if horizon is None and not gap_behind:
        assert build_batch(records(batch), codec=codec, base_offset=first) == batch


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_are_found_at_any_position_and_outlive_their_buffer(
    codec: Codec, buffer: Callable[[bytes], Buffer]
) -> None:
    log = buffer(b"before" + build_batch(THREE, codec=codec) + b"after")
    read = list(records(log, 6))
    if isinstance(log, bytearray):
        log[:] = bytes(len(log))
    assert read == THREE
    assert all(isinstance(record.value, bytes | None) for record in read)


def test_header_keys_that_are_no_utf_8_survive() -> None:
    """Conformance 26."""
    section = with_length(b"\0\0\0\1\1" + varint(1) + varint(3) + b"\xffk\xc3" + b"\1")
    batch = batch_with(section, 1)
    (record,) = records(batch)
    assert record.headers == (("\udcffk\udcc3", None),)
    assert build_batch([record])[HEADER_SIZE:] == section


def test_any_negative_length_is_null_as_in_kafka() -> None:
    section = with_length(
        b"\0\0\0" + varint(-7) + varint(-(2**31)) + varint(1) + varint(1) + b"h" + varint(-2)
    )
    assert list(records(batch_with(section, 1, base_timestamp=5))) == [
        Record(0, 5, None, None, (("h", None),))
    ]


def test_timestamps_wrap_as_in_java() -> None:
    section = with_length(b"\0" + varint(1) + b"\0\1\1\0")
    (record,) = records(batch_with(section, 1, base_timestamp=2**63 - 1))
    assert record.timestamp == -(2**63)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_holds_more_than_the_limit_is_refused_unless_it_is_there_already(codec: Codec) -> None:
    """Conformance 97."""
    batch = build_batch([Record(0, TIME, None, bytes(100_000))], codec=codec)
    assert len(next(records(batch, limit=200_000)).value or b"") == 100_000
    if codec is Codec.NONE:
        assert len(next(records(batch, limit=1)).value or b"") == 100_000
    else:
        with pytest.raises(CompressionError, match="allowed"):
            records(batch, limit=100_000)


# -- records that do not add up


@pytest.mark.parametrize(
    ("section", "count", "message"),
    [
        (GOOD, 2, r"record 1 of 2, at byte 9 .* ends within it"),
        (GOOD + varint(100) + b"\0\0\0", 2, r"record 1 of 2, at byte 9 .* length is 100, with 3 bytes left"),
        (GOOD + varint(-1) + b"\0" * 20, 2, r"record 1 .* length is -1"),
        (varint(0) + b"\0" * 20, 1, r"record 0 .* length is 0"),
        (b"\xff\xff\xff\xff\xff\1" + GOOD, 1, r"record 0 of 1, at byte 0 .* varint has more than 5 bytes"),
        (with_length(b"\0" + b"\x80" * 10 + b"\1" + GOOD), 1, r"record 0 .* varint has more than 10 bytes"),
        (with_length(b"\0\0" + b"\x80" * 5 + b"\1" + GOOD), 1, r"record 0 .* varint has more than 5 bytes"),
        (with_length(b"\0\0\0" + varint(50) + b"k\1\0"), 1, r"record 0 .* ends within it"),
        (with_length(b"\0\0\0" + varint(2**31 - 1) + b"k\1\0"), 1, r"record 0 .* ends within it"),
        (
            with_length(b"\0\0\0\1" + varint(5) + b"v\0") + GOOD,
            2,
            r"record 0 .* fields end at byte \d+ instead of 8",
        ),
        (with_length(b"\0\0\0\1\1\0" + b"more"), 1, r"record 0 .* fields end at byte 7 instead of 11"),
        (with_length(b"\0\0\0\1\1") + GOOD, 2, r"record 0 "),
        (with_length(b"\0\0\0\1\1" + varint(-1)), 1, r"record 0 .* declares -1 headers"),
        (with_length(b"\0\0\0\1\1" + varint(2**31 - 1)), 1, r"record 0 .* declares 2147483647 headers"),
        (
            with_length(b"\0\0\0\1\1" + varint(1) + varint(-1) + b"\1"),
            1,
            r"record 0 .* key of a header is null",
        ),
        (with_length(b"\0\0\0\1\1" + varint(1) + varint(9) + b"k\1"), 1, r"record 0 "),
        (GOOD + GOOD, 1, r"9 bytes follow record 0"),
        (GOOD + b"\0", 1, r"1 bytes follow record 0"),
        (GOOD, 0, r"9 bytes follow"),
        (GOOD, -1, r"no batch"),
        (b"", 1, r"record 0 of 1, at byte 0"),
        (GOOD, 2**31 - 1, r"record 1 of 2147483647"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_an_error_names_the_record_and_the_byte(
    section: bytes, count: int, message: str, codec: Codec
) -> None:
    data = compress(codec, section) if codec else section
    with pytest.raises(WireError, match=message):
        list(records(batch_with(data, count, codec)))


def test_records_before_the_bad_one_are_still_handed_out() -> None:
    read = records(batch_with(GOOD + b"\0", 2))
    assert next(read).value == b"v"
    with pytest.raises(WireError, match="record 1 of 2"):
        next(read)


def test_a_batch_that_reaches_beyond_its_buffer_is_refused() -> None:
    batch = build_batch(THREE)
    with pytest.raises(WireError, match="ends at"):
        records(batch[:-1])
    with pytest.raises(WireError, match="no batch"):
        records(batch, header=BatchHeader.parse(batch)._replace(batch_length=-1))


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_undecodable_data_is_a_compression_error(codec: Codec) -> None:
    """Conformance 25."""
    with pytest.raises(CompressionError):
        records(batch_with(b"\xff" * 50, 3, codec))


def test_an_unknown_codec_is_a_compression_error() -> None:
    with pytest.raises(CompressionError, match="codec 6"):
        records(batch_with(GOOD, 1, attributes=6))


# -- control records


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_says_how_the_transaction_ended_and_who_says_so(kind: ControlType) -> None:
    batch = control_batch(kind, 9, 4, 77, TIME, base_offset=50, leader_epoch=3)
    header = BatchHeader.parse(batch)
    assert (header.is_control, header.is_transactional, header.count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, -1)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (50, 50, 3)
    (record,) = records(batch)
    assert (control_type(record), coordinator_epoch(record), record.timestamp) == (kind, 77, TIME)


def test_a_control_type_of_the_future_is_unknown() -> None:
    assert control_type(Record(0, 0, struct.pack(">hh", 0, 99), b"")) is ControlType.UNKNOWN
    assert control_type(Record(0, 0, struct.pack(">hhi", 1, 1, 0), b"")) is ControlType.COMMIT


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0", struct.pack(">hh", -1, 1) + b"\0\0"])
def test_a_control_record_that_is_none_is_an_error(data: bytes | None) -> None:
    with pytest.raises(WireError, match="control record"):
        control_type(Record(0, 0, data, b""))
    with pytest.raises(WireError, match="control record"):
        coordinator_epoch(Record(0, 0, b"", data))


# -- what the builder refuses


def test_offsets_rise_within_what_a_batch_can_say() -> None:
    builder = BatchBuilder(base_offset=10)
    with pytest.raises(ValueError, match="offset 9"):
        builder.append(None, b"", timestamp_ms=0, offset=9)
    builder.append(None, b"", timestamp_ms=0, offset=12)
    with pytest.raises(ValueError, match="offset 12 after 12"):
        builder.append(None, b"", timestamp_ms=0, offset=12)
    with pytest.raises(ValueError, match="2147483658"):
        builder.append(None, b"", timestamp_ms=0, offset=10 + 2**31)
    with pytest.raises(ValueError, match="cannot end at 11"):
        builder.build(last_offset=11)
    builder.append(None, b"", timestamp_ms=0, offset=10 + 2**31 - 1)
    assert BatchHeader.parse(builder.build()).last_offset == 10 + 2**31 - 1


def test_a_batch_takes_a_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder(delete_horizon_ms=5).build()
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


# -- any bytes at all


def look_at_everything(data: Buffer) -> None:
    """Only WireError may come out of it."""
    with suppress(WireError):
        for position, header in batch_headers(data):
            crc_is_valid(data, position, header)
            for record in records(data, position, header, limit=1 << 16):
                with suppress(WireError):
                    control_type(record)
                    coordinator_epoch(record)
    with suppress(WireError):
        list(records(data, limit=1 << 16))
    with suppress(WireError):
        outcome_of(recompressed(data, Codec.NONE, limit=1 << 16))


@given(data=st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_wire_errors(data: bytes) -> None:
    look_at_everything(data)
    look_at_everything(batch_with(data, len(data) % 5, attributes=len(data) % 8))


@pytest.mark.parametrize("codec", Codec)
def test_damaged_batches_raise_nothing_but_wire_errors_in_little_memory(codec: Codec) -> None:
    chance = random.Random(codec)
    many = [THREE[n % 3]._replace(offset=n) for n in range(40)]
    whole = build_batch(many, codec=codec) + control_batch(ControlType.COMMIT, 1, 2, 3, TIME)
    look_at_everything(whole)
    tracemalloc.start()
    try:
        for _ in range(300):
            damaged = bytearray(whole)
            for _ in range(chance.choice((1, 2, 8))):
                damaged[chance.randrange(len(damaged))] = chance.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
                )
            if chance.random() < 0.2:
                del damaged[chance.randrange(len(damaged)) :]
            look_at_everything(damaged)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_damaged_records_raise_nothing_but_wire_errors() -> None:
    """Under a header that is right, so that the damage reaches the records."""
    chance = random.Random(7)
    section = build_batch([THREE[n % 3]._replace(offset=n) for n in range(6)])[HEADER_SIZE:]
    for _ in range(2500):
        damaged = bytearray(section)
        for _ in range(chance.choice((1, 1, 3))):
            damaged[chance.randrange(len(damaged))] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        try:
            read = list(records(batch_with(bytes(damaged), 6)))
        except WireError:
            continue
        assert len(read) == 6
        assert sum(len(record.key or b"") + len(record.value or b"") for record in read) < len(section)
