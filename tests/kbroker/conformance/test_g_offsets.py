"""Conformance G: offsets by time and by epoch, and records that are deleted."""

from __future__ import annotations

import pytest

from tests.kbroker.speaker import Speaker, batch, now_ms
from wire.api import ApiKey
from wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from wire.compression import Codec
from wire.errors import ErrorCode
from wire.records import BatchBuilder

LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
NOWHERE = (-1, -1, -1)


def found(speaker: Speaker, topic: str, timestamp: int) -> tuple[int, int, int]:
    """Offset, timestamp, leader epoch; without an error."""
    answer = speaker.offset(topic, timestamp)
    assert answer.error_code == 0
    return answer.offset, answer.timestamp, answer.leader_epoch


def test_an_empty_log_has_ends_and_nothing_else(speaker: Speaker, topic: str) -> None:
    """conformance 63"""
    speaker.create(topic)
    ends = [found(speaker, topic, timestamp)[:2] for timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL)]
    assert ends == [(0, -1)] * 3
    for timestamp in (LARGEST_TIMESTAMP, LATEST_TIERED, EARLIEST_PENDING, 0, now_ms()):
        assert found(speaker, topic, timestamp) == NOWHERE


def test_special_timestamps_name_places_in_the_log(speaker: Speaker, topic: str) -> None:
    """conformance 63, 65"""
    speaker.create(topic)
    for timestamp_ms in (1000, 3000, 2000):
        speaker.produce(topic, batch(timestamp_ms=timestamp_ms))
    speaker.delete_records(topic, 1)
    assert found(speaker, topic, LATEST) == (3, -1, 0)
    assert found(speaker, topic, EARLIEST) == found(speaker, topic, EARLIEST_LOCAL) == (1, -1, 0)
    assert found(speaker, topic, LARGEST_TIMESTAMP) == (1, 3000, 0)
    assert found(speaker, topic, LATEST_TIERED) == NOWHERE


@pytest.mark.parametrize(("timestamp", "first_version"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_timestamp_needs_its_version(
    speaker: Speaker, topic: str, timestamp: int, first_version: int
) -> None:
    """conformance 63"""
    speaker.create(topic)
    assert speaker.offset(topic, timestamp, version=first_version).error_code == 0
    before = speaker.offset(topic, timestamp, version=first_version - 1)
    assert before.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_the_first_record_in_offset_order_that_is_late_enough_is_found(
    speaker: Speaker, topic: str, codec: Codec
) -> None:
    """conformance 64: at record precision, out of order, inside a compressed batch."""
    speaker.create(topic)
    for timestamps in ((100, 300, 200), (50, 400, 250)):
        builder = BatchBuilder(codec=codec)
        for timestamp_ms in timestamps:
            builder.append(None, b"v", timestamp_ms=timestamp_ms)
        assert speaker.produce(topic, builder.build()).error_code == 0
    wanted = {0: 0, 100: 0, 101: 1, 200: 1, 300: 1, 301: 4, 400: 4}
    assert {target: found(speaker, topic, target)[0] for target in wanted} == wanted
    assert found(speaker, topic, 150) == (1, 300, 0)
    assert found(speaker, topic, 401) == NOWHERE


def test_an_epoch_ends_where_the_next_begins_and_unknown_ones_nowhere(speaker: Speaker, topic: str) -> None:
    """conformance 65"""
    speaker.create(topic)
    speaker.produce(topic, batch(b"a", b"b"))

    def end(epoch: int) -> tuple[int, int]:
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        )
        answer = speaker.ask(request, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.leader_epoch, answer.end_offset

    assert end(0) == (0, 2)
    assert end(1) == end(99) == (-1, -1)


def test_deleting_records_raises_the_start_of_the_log_and_nothing_else(speaker: Speaker, topic: str) -> None:
    """conformance 66"""
    speaker.create(topic)
    for value in (b"a", b"b", b"c", b"d"):
        speaker.produce(topic, batch(value))

    def delete(offset: int) -> tuple[int, int]:
        answer = speaker.delete_records(topic, offset)
        return answer.error_code, answer.low_watermark

    assert delete(2) == (0, 2)
    assert delete(1) == (0, 2)
    assert delete(5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert speaker.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in speaker.records(topic, 2)] == [b"c", b"d"]
    assert delete(-1) == (0, 4)
    assert speaker.produce(topic).base_offset == 4
    assert speaker.fetch(topic, 4).log_start_offset == 4
    assert speaker.delete_records("no-such-topic", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
