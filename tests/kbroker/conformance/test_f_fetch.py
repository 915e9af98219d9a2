"""Conformance F, where it takes a whole broker; most of it is in `tests/kbroker/handlers/test_fetch.py`."""

from __future__ import annotations

import time
from typing import Any

from tests.kbroker.speaker import Speaker, batch
from wire.api import ApiKey
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from wire.errors import ErrorCode
from wire.records import batch_headers

SESSIONS = 1000
"""As many as a broker keeps by default."""


def session_fetch(speaker: Speaker, session_id: int, epoch: int, *wanted: tuple[str, int]) -> Any:
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
        )
        for topic, offset in wanted
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics
    )
    return speaker.ask(request, ApiKey.FETCH, 12)


def test_any_offset_inside_a_batch_gives_the_whole_of_it(speaker: Speaker, topic: str) -> None:
    """conformance 53"""
    speaker.create(topic)
    speaker.produce(topic, batch(b"a", b"b", b"c"))
    speaker.produce(topic, batch(b"d"))
    for offset in range(3):
        stored = bytes(speaker.fetch(topic, offset).records)
        assert [header.base_offset for _, header in batch_headers(stored)] == [0, 3]


def test_the_end_is_waited_for_and_beyond_it_is_an_error_at_once(speaker: Speaker, topic: str) -> None:
    """conformance 54, 61"""
    speaker.create(topic)
    speaker.produce(topic, batch(b"a", b"b"))
    began = time.monotonic()
    at_end = speaker.fetch(topic, 2, max_wait_ms=150)
    assert time.monotonic() - began >= 0.14
    assert (at_end.error_code, at_end.records, at_end.high_watermark) == (0, b"", 2)
    began = time.monotonic()
    beyond = speaker.fetch(topic, 3, max_wait_ms=20_000)
    assert time.monotonic() - began < 10
    assert (beyond.error_code, beyond.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert (beyond.last_stable_offset, beyond.log_start_offset) == (-1, -1)


def test_new_data_wakes_who_waits_for_it(speaker: Speaker, connect: Any, topic: str) -> None:
    """conformance 55"""
    speaker.create(topic)
    waiting = connect()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    waiting.send(waiting.request(request, ApiKey.FETCH, 12))
    began = time.monotonic()
    speaker.produce(topic)
    answer = waiting.reply(ApiKey.FETCH, 12).responses[0].partitions[0]
    assert time.monotonic() - began < 10
    assert (answer.high_watermark, bool(answer.records)) == (1, True)


def test_a_session_tells_what_changed_until_it_is_closed(speaker: Speaker, topic: str) -> None:
    """conformance 57"""
    speaker.create(topic)
    speaker.create(f"{topic}-2")
    opened = session_fetch(speaker, 0, 0, (topic, 0), (f"{topic}-2", 0))
    assert (opened.error_code, len(opened.responses)) == (0, 2)
    assert session_fetch(speaker, opened.session_id, 1).responses == []
    speaker.produce(topic)
    told = session_fetch(speaker, opened.session_id, 2)
    assert (told.session_id, [one.topic for one in told.responses]) == (opened.session_id, [topic])
    wrong = session_fetch(speaker, opened.session_id, 9)
    assert (wrong.error_code, wrong.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    closed = session_fetch(speaker, opened.session_id, -1, (topic, 0))
    assert (closed.error_code, closed.session_id, len(closed.responses)) == (0, 0, 1)
    gone = session_fetch(speaker, opened.session_id, 3)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_who_opens_a_session_at_every_poll_is_served_on_and_on(speaker: Speaker, topic: str) -> None:
    """conformance 58: more than the cache has room for."""
    speaker.create(topic)
    for _ in range(SESSIONS + 100):
        assert session_fetch(speaker, 0, 0, (topic, 0)).error_code == 0


def test_leader_epochs_are_compared_wherever_they_are_sent(speaker: Speaker, topic: str) -> None:
    """conformance 59: in Fetch, ListOffsets and OffsetForLeaderEpoch."""
    speaker.create(topic)

    def by_offsets(epoch: int) -> int:
        wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
        topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        code: int = speaker.ask(request, ApiKey.LIST_OFFSETS, 4).topics[0].partitions[0].error_code
        return code

    def by_epoch(epoch: int) -> int:
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        )
        code: int = speaker.ask(request, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4).topics[0].partitions[0].error_code
        return code

    def by_fetch(epoch: int) -> int:
        code: int = speaker.fetch(topic, current_leader_epoch=epoch).error_code
        return code

    for ask in (by_offsets, by_epoch, by_fetch):
        assert [ask(epoch) for epoch in (-1, 0, 1)] == [0, 0, ErrorCode.UNKNOWN_LEADER_EPOCH]
