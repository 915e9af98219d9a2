"""What clients that send and do not read cost: as little memory as docs/operations.md says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.configuration.layers import Configuration
from kbroker.connection import LARGE_REPLIES_BYTES, Connection
from kbroker.outlet import MOST_BYTES
from tests.kbroker.harness import RawClient
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import batch
from wire.api import ApiKey
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData

REPLY_BYTES = 110_000
"""Of one Fetch: less than is sent from the file."""
REQUESTS = 500
TOGETHER = 2_000_000
CLIENTS = 20


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    configuration = Configuration({"kbroker.unread.replies.max.bytes": str(TOGETHER)})
    with Hosting(tmp_path / "data", configuration=configuration) as running:
        running.host("t")
        piece = PartitionProduceData(index=0, records=batch(bytes(REPLY_BYTES)))
        topics = [TopicProduceData(name="t", partition_data=[piece])]
        reply = running.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), ApiKey.PRODUCE, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        yield running


def ask_and_read_nothing(hosting: Hosting) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])])
    hosting.connect().send(*[RawClient.request(request, ApiKey.FETCH, 11)] * REQUESTS)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def held(hosting: Hosting, clients: int) -> list[int]:
    """By connection: the bytes of replies that are in memory, once no more are made."""

    def deaf() -> list[Connection]:
        return [one for one in hosting.broker.connections if one.client_is_slow]

    until(lambda: len(hosting.do(deaf)) == clients)
    return hosting.do(lambda: [one._outlet.held_bytes for one in deaf()])


def test_a_turn_makes_no_more_replies_than_its_client_reads(hosting: Hosting) -> None:
    """500 Fetches that arrived in one read held 55 MB."""
    ask_and_read_nothing(hosting)
    [bytes_held] = held(hosting, 1)
    assert bytes_held <= MOST_BYTES + LARGE_REPLIES_BYTES + 2 * REPLY_BYTES


def test_all_unread_replies_together_keep_to_their_bound(hosting: Hosting) -> None:
    """20 connections: beyond the bound, each has what it made before it noticed that nobody reads."""
    for _ in range(CLIENTS):
        ask_and_read_nothing(hosting)
    bytes_held = sum(held(hosting, CLIENTS))
    assert bytes_held == hosting.broker.connections.owed_bytes
    assert bytes_held <= TOGETHER + CLIENTS * (LARGE_REPLIES_BYTES + 2 * REPLY_BYTES)
