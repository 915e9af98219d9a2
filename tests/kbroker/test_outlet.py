"""Sending: from the log to the socket without a detour, in order, and no more than a slow client takes."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest

from kbroker.outlet import MOST_BYTES
from storage.log_config import LogConfig
from tests.kbroker.hosting import Hosting
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records import BatchBuilder, batch_headers

VALUE_BYTES = 500_000
BATCHES = 16
EVERYTHING = BATCHES * (VALUE_BYTES + 100)


@pytest.fixture
def filled(hosting: Hosting) -> Hosting:
    """8 MB in one partition."""
    hosting.host("t", config=LogConfig(max_message_bytes=1 << 20))
    client = hosting.connect()
    for number in range(BATCHES):
        builder = BatchBuilder()
        builder.append(None, bytes((number,)) * VALUE_BYTES, timestamp_ms=time.time_ns() // 1_000_000)
        data = PartitionProduceData(index=0, records=builder.build())
        topics = [TopicProduceData(name="t", partition_data=[data])]
        client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), ApiKey.PRODUCE, 9)
    return hosting


def fetch_of(offset: int = 0, max_bytes: int = EVERYTHING) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[wanted])])


def records_of(reply: Any) -> bytes:
    return bytes(reply.responses[0].partitions[0].records)


def stored(hosting: Hosting) -> bytes:
    """What is in the log file."""
    partition = hosting.broker.replicas.find("t", 0)
    assert partition is not None
    return bytes(hosting.do(lambda: partition.log.read(0, EVERYTHING).records))


def test_a_large_fetch_is_what_is_in_the_log(filled: Hosting) -> None:
    """conformance 62"""
    records = records_of(filled.ask(fetch_of(), ApiKey.FETCH, 12))
    assert records == stored(filled)
    assert len(list(batch_headers(records))) == BATCHES


@pytest.mark.parametrize("max_bytes", [1_000_000, 3_333_333])
def test_a_large_fetch_ends_with_a_whole_batch(filled: Hosting, max_bytes: int) -> None:
    """conformance 56"""
    records = records_of(filled.ask(fetch_of(3, max_bytes), ApiKey.FETCH, 12))
    assert len(records) <= max_bytes
    assert [header.base_offset for _, header in batch_headers(records)] == list(
        range(3, 3 + max_bytes // (VALUE_BYTES + 75))
    )


def test_replies_to_a_slow_client_keep_their_order(filled: Hosting) -> None:
    """conformance 1"""
    client = filled.connect()
    requests: list[tuple[Any, int, int]] = [(fetch_of(), 1, 12), (ApiVersionsRequest(), 18, 0)] * 3
    client.send(*(client.request(*request, number) for number, request in enumerate(requests)))
    expected = stored(filled)
    for number, (_, key, version) in enumerate(requests):
        reply = client.reply(key, version, number)
        assert key != ApiKey.FETCH or records_of(reply) == expected


def test_a_client_that_does_not_read_is_not_served_without_end(filled: Hosting) -> None:
    client = filled.connect()
    asked = 10
    client.send(*(client.request(fetch_of(), ApiKey.FETCH, 12, number) for number in range(asked)))

    def connection() -> Any:
        return next(
            one for one in filled.broker.connections if one.client_address and one._outlet.waiting_bytes
        )

    deadline = time.monotonic() + 10
    while True:  # until the first replies fill the socket
        waiting = filled.do(lambda: [one._outlet.waiting_bytes for one in filled.broker.connections])
        if max(waiting) > MOST_BYTES or time.monotonic() > deadline:
            break
    assert MOST_BYTES < max(waiting) <= MOST_BYTES + EVERYTHING + 1000
    assert filled.do(lambda: len(connection()._backlog)) >= asked - 3
    # It is served on when it reads.
    for number in range(asked):
        assert len(records_of(client.reply(ApiKey.FETCH, 12, number))) > EVERYTHING - BATCHES * 100


def test_a_slow_reader_is_not_idle_while_it_reads(filled: Hosting) -> None:
    """It has not read enough yet to be served on."""
    client, asked = filled.connect(), 10
    client.send(*(client.request(fetch_of(), ApiKey.FETCH, 12, number) for number in range(asked)))

    def slow() -> Any:
        return next(
            (one for one in filled.broker.connections if one._outlet.waiting_bytes > MOST_BYTES), None
        )

    deadline = time.monotonic() + 10
    while (connection := filled.do(slow)) is None:
        assert time.monotonic() < deadline
    filled.do(lambda: setattr(connection, "has_moved", False))
    waiting = filled.do(lambda: len(connection._backlog))
    while not filled.do(lambda: connection.has_moved):
        assert client.socket.recv(1 << 16)
    assert filled.do(lambda: len(connection._backlog)) == waiting, "it was served on"


@pytest.mark.parametrize(("max_bytes", "is_held"), [(1000, True), (EVERYTHING, False)])
def test_what_waits_in_files_is_not_held(filled: Hosting, max_bytes: int, is_held: bool) -> None:
    """A batch that is larger than the limit is read; more of the log is left where it is."""
    client = filled.connect()
    asked = 40
    client.send(*(client.request(fetch_of(0, max_bytes), ApiKey.FETCH, 12, n) for n in range(asked)))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        waiting = filled.do(
            lambda: [(one._outlet.waiting_bytes, one.owed_bytes) for one in filled.broker.connections]
        )
        waiting_bytes, owed_bytes = max(waiting)
        if waiting_bytes > MOST_BYTES:
            break
    assert waiting_bytes > MOST_BYTES
    assert owed_bytes == pytest.approx(waiting_bytes if is_held else 0, abs=1000)
    for number in range(asked):
        client.reply(ApiKey.FETCH, 12, number)
    assert filled.do(lambda: [one.owed_bytes for one in filled.broker.connections if one.owed_bytes]) == []


def test_a_client_that_leaves_in_the_middle_of_a_reply_leaves_nothing_behind(filled: Hosting) -> None:
    opened = len(list(Path("/proc/self/fd").iterdir()))
    clients = [filled.connect() for _ in range(5)]
    for client in clients:
        client.send(client.request(fetch_of(), ApiKey.FETCH, 12, 1))
        assert struct.unpack(">i", client.socket.recv(4))[0] > VALUE_BYTES
    for client in clients:
        client.socket.close()
    deadline = time.monotonic() + 10
    while len(list(Path("/proc/self/fd").iterdir())) > opened and time.monotonic() < deadline:
        filled.ask(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
        filled._clients.pop().socket.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= opened
