"""Keys and values of the internal topics: their leading type and version, tombstones, unknown types."""

from __future__ import annotations

import random
import struct

import pytest

from tests.wire.random_messages import random_message, versions_of
from wire.errors import WireError
from wire.internal import (
    CONSUMER_OFFSETS,
    TABLES,
    TRANSACTION_STATE,
    decode_record,
    encode_record_key,
    encode_record_value,
    record_types,
)
from wire.internal.offsets_and_groups import OffsetCommitKey, OffsetCommitValue
from wire.internal.transaction_state import TransactionLogKey


@pytest.mark.parametrize("topic", TABLES)
def test_every_record_type_round_trips_with_its_type_and_version(topic: str) -> None:
    rng = random.Random(topic)
    for record_type, (key_class, value_class) in record_types(topic).items():
        for version in versions_of(value_class):
            key, value = random_message(rng, key_class, 0), random_message(rng, value_class, version)
            encoded_key, encoded_value = encode_record_key(key), encode_record_value(value, version)
            assert struct.unpack_from(">h", encoded_key) == (record_type,)
            assert struct.unpack_from(">h", encoded_value) == (version,)
            assert decode_record(topic, encoded_key, encoded_value) == (key, value)
            assert decode_record(topic, memoryview(encoded_key), None) == (key, None)


def test_a_committed_offset_has_the_bytes_that_kafka_writes() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=7, leader_epoch=-1, metadata="", commit_timestamp=99)
    assert encode_record_key(key) == b"\0\x01" + b"\0\x01g" + b"\0\x01t" + b"\0\0\0\x03"
    assert encode_record_value(value, 3) == struct.pack(">hqihq", 3, 7, -1, 0, 99)


def test_the_record_types_are_kafkas() -> None:
    names = {t: key.__name__ for t, (key, _) in record_types(CONSUMER_OFFSETS).items()}
    assert names[1] == "OffsetCommitKey"
    assert names[2] == "GroupMetadataKey"
    assert names[3] == "ConsumerGroupMetadataKey"
    assert names[11] == "ShareGroupMetadataKey"
    assert record_types(TRANSACTION_STATE)[0][0] is TransactionLogKey


def test_an_unknown_record_type_is_passed_over() -> None:
    assert decode_record(CONSUMER_OFFSETS, struct.pack(">h", 999) + b"whatever", b"") is None


def test_a_record_that_is_too_short_or_too_new_is_refused() -> None:
    key = encode_record_key(OffsetCommitKey(group="g", topic="t", partition=3))
    with pytest.raises(WireError, match="the key of an internal record has 1 bytes"):
        decode_record(CONSUMER_OFFSETS, b"\0", None)
    with pytest.raises(WireError, match="OffsetCommitValue v77 is not known"):
        decode_record(CONSUMER_OFFSETS, key, struct.pack(">h", 77))
