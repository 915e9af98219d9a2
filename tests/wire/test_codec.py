"""The compiled codec: every message at every version, and what it says of bytes that are wrong."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.random_messages import ALL_MESSAGES, at_version, messages, versions_of
from wire.api.api_versions import ApiVersionsResponse
from wire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, LeaderIdAndEpoch, PartitionData
from wire.api.metadata import MetadataRequest, MetadataResponse
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.codec import decode, decoder, encode, encoder
from wire.errors import WireError
from wire.primitives import Buffer, uvarint
from wire.schema import int8, int32, message, since, string


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
@pytest.mark.slow
@settings(max_examples=15)
@given(data=st.data())
def test_what_is_encoded_decodes_to_the_same_at_every_version(cls: type, data: st.DataObject) -> None:
    drawn = data.draw(messages(cls))
    for version in versions_of(cls):
        expected = at_version(drawn, version)
        encoded = encode(expected, version)
        decoded: Any
        decoded, end = decoder(cls, version)(encoded, 0)
        assert decoded == expected
        assert end == len(encoded)
        assert encode(decoded, version) == encoded
        assert decode(cls, memoryview(encoded), version) == expected


def a_fetch_request() -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=100)
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition, partition])]
    )


def test_a_field_outside_the_version_is_not_written_and_reads_as_its_default() -> None:
    """Conformance 8."""
    request = a_fetch_request()
    request.rack_id = "r1"
    assert b"r1" not in encode(request, 10)
    assert decode(FetchRequest, encode(request, 10), 10).rack_id == ""
    assert decode(FetchRequest, encode(request, 11), 11).rack_id == "r1"


def test_a_tagged_field_outside_its_versions_is_dropped() -> None:
    """Conformance 8: `high_watermark` of a follower's fetch is tagged from v18 on."""
    request = a_fetch_request()
    request.topics[0].partitions[0].high_watermark = 99
    assert encode(request, 17) == encode(a_fetch_request(), 17)
    assert encode(request, 18) != encode(a_fetch_request(), 18)


def test_unknown_tagged_fields_are_skipped_by_length() -> None:
    """Conformance 8."""
    encoded = encode(a_fetch_request(), 12)
    assert encoded.endswith(b"\0")
    for tag, value in ((9, b""), (70_000, b"x" * 300)):
        tagged = encoded[:-1] + uvarint(1) + uvarint(tag) + uvarint(len(value)) + value
        assert decode(FetchRequest, tagged, 12) == a_fetch_request()
    many = encoded[:-1] + uvarint(200) + b"".join(uvarint(n) + b"\x01z" for n in range(100, 300))
    assert decode(FetchRequest, many, 12) == a_fetch_request()


def test_trailing_bytes_are_tolerated() -> None:
    """Conformance 5."""
    decoded, end = decoder(FetchRequest, 12)(encode(a_fetch_request(), 12) + b"more", 0)
    assert decoded == a_fetch_request()
    assert end == len(encode(a_fetch_request(), 12))


def test_absent_tagged_structs_are_none_and_cost_one_byte() -> None:
    partition = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b"")
    assert encode_struct(partition, 12).endswith(b"\0")
    partition.current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    assert encode_struct(partition, 12).endswith(b"\x01\x01\x09" + struct.pack(">ii", 1, 2) + b"\0")


def encode_struct(partition: PartitionData, version: int) -> bytes:
    from wire.api.fetch import FetchableTopicResponse, FetchResponse

    topic = FetchableTopicResponse(topic="t", partitions=[partition])
    return encode(FetchResponse(responses=[topic]), version)[:-2]


def test_a_nullable_struct_is_led_by_a_byte() -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=None)
    assert encode(request, 0).endswith(b"\xff\0")
    assert decode(DescribeTopicPartitionsRequest, encode(request, 0), 0) == request


@pytest.mark.parametrize(
    ("cut", "where"),
    [
        (2, "replica_id at byte 0"),
        (17, "session_id at byte 17"),
        (29, "topics[0].partitions at byte 29"),
        (30, "topics[0].partitions at byte 29"),
    ],
)
def test_a_truncated_message_names_the_field_and_the_byte(cut: int, where: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(FetchRequest, encode(a_fetch_request(), 12)[:cut], 12)
    assert str(caught.value).startswith(f"FetchRequest v12: {where}: ")


def test_an_error_names_the_element_of_the_array() -> None:
    data = struct.pack(">ih", 3, 1) + b"a" + struct.pack(">h", 1) + b"b" + struct.pack(">h", 9) + b"c"
    with pytest.raises(WireError, match=r"topics\[2\].name at byte 12: claims 9 where 1 bytes remain"):
        decode(MetadataRequest, data, 0)


def test_every_truncation_is_a_wire_error() -> None:
    """Conformance 4: a truncated body never decodes."""
    encoded = encode(a_fetch_request(), 12)
    for cut in range(len(encoded)):
        with pytest.raises(WireError):
            decode(FetchRequest, encoded[:cut], 12)


@pytest.mark.parametrize("count", [-2, 1_000, 0x7FFFFFFF])
def test_an_element_count_beyond_the_bytes_is_refused_without_allocating(count: int) -> None:
    """Conformance 4."""
    data = struct.pack(">i", count) + bytes(64)
    tracemalloc.start()
    try:
        if count < 0:
            assert decode(MetadataRequest, data, 1).topics is None
        else:
            with pytest.raises(WireError, match=f"topics at byte 4: claims {count}"):
                decode(MetadataRequest, data, 1)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_an_array_that_must_not_be_null_is_refused_when_null() -> None:
    with pytest.raises(WireError, match="topics at byte 4: null where the field must not be null"):
        decode(MetadataRequest, struct.pack(">i", -1), 0)


def test_a_string_length_beyond_the_bytes_is_refused() -> None:
    """Conformance 4."""
    data = struct.pack(">ih", 1, 0x7FFF) + b"abc"
    with pytest.raises(WireError, match=r"topics\[0\].name at byte 6: claims 32767 where 3 bytes remain"):
        decode(MetadataRequest, data, 0)


def test_a_compact_string_ends_at_32767_bytes() -> None:
    long = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="x" * 32767, partition_data=[])]
    )
    assert decode(ProduceRequest, encode(long, 9), 9) == long
    long.topic_data[0].name += "x"
    with pytest.raises(WireError, match=r"topic_data\[\].name"):
        encode(long, 9)
    too_long = bytes(7) + b"\x02" + uvarint(32769) + b"x" * 32768
    with pytest.raises(WireError, match="longer than 32767"):
        decode(ProduceRequest, too_long, 9)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(WireError, match=r"topics\[0\].name .*can't decode"):
        decode(MetadataRequest, struct.pack(">ih", 1, 2) + b"\xff\xfe", 0)


def test_a_varint_of_more_than_32_bits_is_refused() -> None:
    with pytest.raises(WireError, match="varint does not fit"):
        decode(MetadataRequest, b"\xff\xff\xff\xff\xff\x01", 12)


def test_a_tagged_field_must_fill_its_length() -> None:
    @message(versions="0", flexible="0+")
    class Tagged:
        value: int32 = since(default=0, tag=0)

    assert decode(Tagged, b"\x01\x00\x04" + struct.pack(">i", 7), 0).value == 7
    with pytest.raises(WireError, match="value at byte 7"):
        decode(Tagged, b"\x01\x00\x05" + bytes(5), 0)


def test_an_unfit_value_names_the_field_that_it_was_given_for() -> None:
    request = a_fetch_request()
    request.topics[0].partitions[1].fetch_offset = 1 << 63
    with pytest.raises(
        WireError, match=r"cannot encode FetchRequest v11: topics\[\].partitions\[\].fetch_offset"
    ):
        encode(request, 11)
    request = a_fetch_request()
    request.topics = None  # type: ignore[assignment]
    with pytest.raises(WireError, match="cannot encode FetchRequest v11: topics"):
        encode(request, 11)


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(WireError, match="MetadataResponse v99 is not known; versions 0-13 are"):
        decode(MetadataResponse, b"", 99)


def test_records_are_a_view_of_a_memoryview_and_a_copy_of_bytes() -> None:
    partition = PartitionProduceData(index=0, records=b"batch")
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )
    buffer = bytearray(encode(request, 9))
    view = decode(ProduceRequest, memoryview(buffer), 9)
    copy = decode(ProduceRequest, bytes(buffer), 9)
    buffer[:] = bytes(len(buffer))
    assert view.topic_data[0].partition_data[0].records == bytes(5)
    assert copy.topic_data[0].partition_data[0].records == b"batch"
    assert view.topic_data[0].name == "t"


def test_records_are_not_copied_by_the_encoder() -> None:
    batch = bytes(100_000)
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )
    buffers: list[Buffer] = []
    encoder(ProduceRequest, 9)(request, buffers)
    assert any(buffer is batch for buffer in buffers)


def test_a_missing_field_is_refused_when_a_message_is_made() -> None:
    with pytest.raises(TypeError, match="max_wait_ms"):
        FetchRequest(min_bytes=1, topics=[])  # type: ignore[call-arg]


def test_messages_compare_and_show_their_fields() -> None:
    @message(versions="0")
    class Point:
        x: int8
        name: string | None = None

    assert Point(x=1) == Point(x=1, name=None)
    assert Point(x=1) != Point(x=2)
    assert repr(Point(x=1)) == "Point(x=1, name=None)"
    assert (
        ApiVersionsResponse(error_code=0, api_keys=[]).api_keys
        is not ApiVersionsResponse(error_code=0, api_keys=[]).api_keys
    )
