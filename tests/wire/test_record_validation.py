"""What a producer may send, and the code that Kafka answers to what it may not."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.compression import Codec, compress
from wire.errors import ErrorCode
from wire.record_batch import assembled
from wire.record_validation import (
    MAX_RECORD_ERRORS,
    InvalidBatch,
    TimestampBounds,
    validate_produced,
    validate_records,
)
from wire.records import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchBuilder,
    BatchHeader,
    Buffer,
    ControlType,
    Record,
    TimestampType,
    build_batch,
    control_batch,
    crc_of,
    empty_batch,
    with_log_append_time,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000
LONG_MAX = 2**63 - 1
THREE = [Record(n, NOW + n, b"key", b"value-%d" % n) for n in range(3)]


def altered(batch: bytes, **fields: int) -> bytes:
    """The batch with these header fields, under a CRC that is right."""
    header = BatchHeader.parse(batch)._replace(**fields)
    return assembled(header.base_offset, header.leader_epoch, header[5:], batch[HEADER_SIZE:])


def refusal(batch: Buffer) -> ErrorCode:
    with pytest.raises(InvalidBatch) as caught:
        validate_produced(batch)
    assert caught.value.record_errors == []
    return caught.value.code


# -- the header and the checksum


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_what_producers_send_is_accepted(codec: Codec, buffer: Callable[[bytes], Buffer]) -> None:
    plain = build_batch(THREE, codec=codec)
    idempotent = build_batch(THREE, codec=codec, producer_id=0, producer_epoch=0, base_sequence=0)
    transactional = build_batch(
        THREE, codec=codec, producer_id=7, producer_epoch=1, base_sequence=2**31 - 1, transactional=True
    )
    for batch in (plain, idempotent, transactional):
        assert validate_produced(buffer(batch)) == BatchHeader.parse(batch)


def test_the_leader_epoch_a_producer_writes_does_not_matter() -> None:
    """Conformance 22: it lies outside the CRC, and is overwritten."""
    assert validate_produced(build_batch(THREE, leader_epoch=99)).leader_epoch == 99


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_only_magic_2_may_be_stored(magic: int) -> None:
    """Conformance 21."""
    batch = bytearray(build_batch(THREE))
    batch[16] = magic
    assert refusal(batch) is ErrorCode.INVALID_RECORD
    assert refusal(batch[:40]) is ErrorCode.INVALID_RECORD  # old messages may be shorter than our header
    with pytest.raises(InvalidBatch, match=f"magic {magic};"):
        validate_produced(batch)


def test_a_bad_crc_is_corrupt() -> None:
    """Conformance 22."""
    batch = build_batch(THREE)
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        assert refusal(damaged) is ErrorCode.CORRUPT_MESSAGE


def test_a_truncated_or_empty_batch_is_invalid() -> None:
    """Conformance 22; an empty buffer stands for the `records` that Kafka never answers, conformance 6."""
    batch = build_batch(THREE)
    for size in range(len(batch)):
        assert refusal(batch[:size]) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("more", [build_batch(THREE), build_batch(THREE)[:-1], b"\0", bytes(61)])
def test_more_than_one_batch_is_invalid(more: bytes) -> None:
    """Conformance 22."""
    assert refusal(build_batch(THREE) + more) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 49, 2**31 - 1])
def test_a_length_that_lies_is_invalid(length: int) -> None:
    batch = bytearray(build_batch(THREE))
    struct.pack_into(">i", batch, 8, length)
    assert refusal(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("base_offset", [777, 1, -1])
def test_the_base_offset_of_a_client_is_0(base_offset: int) -> None:
    """Conformance 23."""
    assert refusal(altered(build_batch(THREE), base_offset=base_offset)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("count", "last_offset_delta"),
    [(3, 3), (3, 1), (2, 2), (4, 2), (0, -1), (0, 0), (-1, -2), (1, 2**31 - 1), (-(2**31), 2**31 - 1)],
)
def test_counts_that_contradict_each_other_are_invalid(count: int, last_offset_delta: int) -> None:
    """Conformance 23."""
    lying = altered(build_batch(THREE), count=count, last_offset_delta=last_offset_delta)
    assert refusal(lying) is ErrorCode.INVALID_RECORD


def test_an_empty_batch_is_for_compaction_only() -> None:
    """Conformance 23."""
    assert refusal(empty_batch(BatchHeader.parse(build_batch(THREE)))) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("base_sequence", [-1, -2, -(2**31)])
def test_a_producer_id_needs_a_sequence(base_sequence: int) -> None:
    """Conformance 23."""
    lying = altered(build_batch(THREE), producer_id=0, producer_epoch=0, base_sequence=base_sequence)
    assert refusal(lying) is ErrorCode.INVALID_RECORD


def test_a_control_batch_of_a_client_is_invalid() -> None:
    """Conformance 24."""
    assert refusal(control_batch(ControlType.COMMIT, 1, 0, 0, NOW)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_is_invalid(codec_id: int) -> None:
    """Conformance 25: never UNKNOWN_SERVER_ERROR."""
    batch = altered(build_batch(THREE), attributes=codec_id)
    assert refusal(batch) is ErrorCode.INVALID_RECORD
    with pytest.raises(InvalidBatch, match=f"codec {codec_id}"):
        validate_produced(batch)


def test_the_append_time_is_the_brokers_to_set() -> None:
    assert refusal(with_log_append_time(build_batch(THREE), NOW)) is ErrorCode.INVALID_TIMESTAMP
    append_time = build_batch(THREE, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert refusal(append_time) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"base_offset": 5}, ErrorCode.INVALID_RECORD),
        ({"count": 9}, ErrorCode.CORRUPT_MESSAGE),
        ({"attributes": 0x20}, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_the_base_offset_is_looked_at_before_the_crc_and_all_else_after_it(
    fields: dict[str, int], code: ErrorCode
) -> None:
    """Conformance 22: what the CRC covers is not worth reading if it is wrong."""
    batch = bytearray(altered(build_batch(THREE), **fields))
    batch[20] ^= 1
    assert refusal(batch) is code


# -- every record


def test_records_that_keep_the_rules_are_accepted_with_their_largest_timestamp() -> None:
    for codec in Codec:
        batch = build_batch(reversed_in_time := [*THREE[:2], Record(2, NOW - 5, b"k", None)], codec=codec)
        header = validate_produced(batch)
        largest = validate_records(
            batch, header, require_keys=True, timestamps=TimestampBounds.around(NOW, LONG_MAX, HOUR)
        )
        assert largest == max(record.timestamp for record in reversed_in_time) == header.max_timestamp


def test_a_header_that_lies_about_the_largest_timestamp_is_found_out() -> None:
    lying = altered(build_batch(THREE), max_timestamp=NOW + 10**9)
    header = validate_produced(lying)
    assert validate_records(lying, header) == NOW + 2 != header.max_timestamp


def record_errors(
    batch: bytes, *, require_keys: bool = False, timestamps: TimestampBounds | None = None
) -> InvalidBatch:
    header = validate_produced(batch)
    with pytest.raises(InvalidBatch) as caught:
        validate_records(batch, header, require_keys=require_keys, timestamps=timestamps)
    return caught.value


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 2, 4, 5, 2**31 - 1])
def test_the_count_is_that_of_the_records_inside(codec: Codec, count: int) -> None:
    """Conformance 23."""
    error = record_errors(altered(build_batch(THREE, codec=codec), count=count, last_offset_delta=count - 1))
    assert error.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", Codec)
def test_offset_deltas_count_up_from_0(codec: Codec) -> None:
    """Conformance 23, where checking them is allowed."""
    builder = BatchBuilder(codec=codec)
    for offset in (0, 2, 5):
        builder.append(b"k", b"v", timestamp_ms=NOW, offset=offset)
    error = record_errors(altered(builder.build(), last_offset_delta=2))
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == [(1, "offset delta 2 instead of 1"), (2, "offset delta 5 instead of 2")]


@pytest.mark.parametrize("codec", list(Codec)[1:])
@pytest.mark.parametrize("section", [b"", b"\xff" * 50, b"no such frame"])
def test_undecodable_data_is_invalid(codec: Codec, section: bytes) -> None:
    """Conformance 25: never UNKNOWN_SERVER_ERROR."""
    plain = build_batch(THREE)
    error = record_errors(altered(plain[:HEADER_SIZE] + section, attributes=codec))
    assert error.code is ErrorCode.INVALID_RECORD
    cut = compress(codec, plain[HEADER_SIZE:])[:-1]
    assert (
        record_errors(altered(plain[:HEADER_SIZE] + cut, attributes=codec)).code is ErrorCode.INVALID_RECORD
    )


def test_data_of_another_codec_than_the_header_says_is_invalid() -> None:
    """Conformance 25."""
    gzipped = build_batch(THREE, codec=Codec.GZIP)
    for codec in Codec:
        if codec is not Codec.GZIP:
            assert record_errors(altered(gzipped, attributes=codec)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_batch_that_unpacks_to_more_than_the_limit_is_invalid(codec: Codec) -> None:
    """Conformance 97."""
    batch = build_batch([Record(0, NOW, b"k", bytes(1 << 20))], codec=codec)
    header = validate_produced(batch)
    with pytest.raises(InvalidBatch, match="allowed") as caught:
        validate_records(batch, header, limit=1 << 20)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert validate_records(batch, header, limit=(1 << 20) + 100) == NOW


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec) -> None:
    """Conformance 32."""
    keys = [b"k", None, b"", None]
    batch = build_batch([Record(n, NOW, key, b"v") for n, key in enumerate(keys)], codec=codec)
    error = record_errors(batch, require_keys=True)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]
    assert all("key" in reason for _, reason in error.record_errors)
    assert validate_records(batch, validate_produced(batch)) == NOW


@pytest.mark.parametrize("codec", Codec)
def test_a_timestamp_too_far_in_the_future_is_refused_with_its_index(codec: Codec) -> None:
    """Conformance 29."""
    bounds = TimestampBounds.around(NOW, LONG_MAX, HOUR)
    times = [NOW + HOUR, NOW + HOUR + 1, 0, NO_TIMESTAMP, NOW + 2 * HOUR]
    batch = build_batch([Record(n, time, None, b"v") for n, time in enumerate(times)], codec=codec)
    assert bounds.may_refuse(validate_produced(batch))
    error = record_errors(batch, timestamps=bounds)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1, 4]


def test_old_timestamps_pass_unless_the_topic_bounds_them() -> None:
    """Conformance 29."""
    batch = build_batch(
        [Record(n, time, None, b"v") for n, time in enumerate((NOW, 1, NO_TIMESTAMP, NOW - HOUR))]
    )
    header = validate_produced(batch)
    unbounded = TimestampBounds.around(NOW, LONG_MAX, HOUR)
    assert not unbounded.may_refuse(header)
    assert validate_records(batch, header, timestamps=unbounded) == NOW
    bounded = TimestampBounds.around(NOW, HOUR, HOUR)
    assert bounded.may_refuse(header)
    error = record_errors(batch, timestamps=bounded)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]


def test_one_bad_timestamp_makes_the_whole_refusal_one_of_timestamps() -> None:
    """As in Kafka; conformance 29 and 32."""
    batch = build_batch([Record(0, NOW, None, b"v"), Record(1, NOW + 2 * HOUR, b"k", b"v")])
    error = record_errors(batch, require_keys=True, timestamps=TimestampBounds.around(NOW, LONG_MAX, HOUR))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_only_the_first_errors_of_many_are_told() -> None:
    batch = build_batch([Record(n, NOW, None, b"") for n in range(3 * MAX_RECORD_ERRORS)])
    error = record_errors(batch, require_keys=True)
    assert [index for index, _ in error.record_errors] == list(range(MAX_RECORD_ERRORS))


# -- any bytes at all


def outcome(batch: Buffer) -> ErrorCode:
    try:
        header = validate_produced(batch)
        validate_records(batch, header, require_keys=True, timestamps=TimestampBounds(0, NOW), limit=1 << 16)
    except InvalidBatch as error:
        return error.code
    return ErrorCode.NONE


NAMED = {ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_TIMESTAMP}


@given(data=st.binary(max_size=150))
def test_random_bytes_raise_nothing_but_refusals_that_say_why(data: bytes) -> None:
    """Conformance 25: never UNKNOWN_SERVER_ERROR."""
    assert outcome(data) is ErrorCode.INVALID_RECORD
    assert outcome(altered(build_batch(THREE)[:HEADER_SIZE] + data, attributes=len(data) % 5)) in NAMED


@pytest.mark.parametrize("codec", Codec)
def test_damaged_batches_raise_nothing_but_refusals_that_say_why(codec: Codec) -> None:
    """Conformance 25. The CRC is mostly made right again, so that it is not all that finds the damage."""
    chance = random.Random(codec)
    whole = build_batch([THREE[n % 3]._replace(offset=n) for n in range(20)], codec=codec)
    seen = set()
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 1, 4))):
            damaged[chance.randrange(16, len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 0x2A))
        if chance.random() < 0.8:
            struct.pack_into(">I", damaged, 17, crc_of(damaged, 0, len(damaged)))
        seen.add(outcome(damaged))
    assert {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE} < seen <= NAMED
