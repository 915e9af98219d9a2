"""Clients that have gone: what they asked for in slices is not continued, and leaves nothing behind."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Generator

from kbroker.context import Context, Parked
from kbroker.handlers import Handler
from kbroker.handlers.fetch import MOST_AT_ONCE, fetch
from kbroker.replica_manager import LOOK_AGAIN, HostedPartition
from tests.kbroker.hosting import Hosting
from wire.api import ApiKey
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.metadata import MetadataRequest
from wire.schema import Versions

WAIT_S = 20


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_handler_does_not_work_on_for_a_client_that_has_gone(hosting: Hosting) -> None:
    begun, ended = list[bool](), list[bool]()

    def without_end(*_: object) -> Generator[None, None, None]:
        begun.append(True)
        try:
            while True:
                yield
        finally:
            ended.append(True)

    hosting.broker.handlers = {**hosting.broker.handlers, 3: Handler(without_end, Versions(9, 9))}
    client = hosting.connect()
    client.send(client.request(MetadataRequest(topics=[]), ApiKey.METADATA, 9))
    until(lambda: begun)
    assert not ended
    client.reset()
    until(lambda: ended)


def wide(max_wait_ms: int) -> FetchRequest:
    """So many partitions that they are looked at in slices, of which there is one."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
        for index in range(MOST_AT_ONCE + 1)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)]
    )


def waiting_fetch() -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])])


def watched(partition: HostedPartition) -> int:
    return len(partition.fetches) + len(partition.appends)


def test_a_large_fetch_that_is_given_up_is_told_of_nothing_any_more(hosting: Hosting) -> None:
    partition = hosting.host()

    def give_up() -> tuple[int, int]:
        work = fetch(hosting.broker, Context(12, None), wide(60_000))
        assert isinstance(work, Generator)
        next(work)
        during = watched(partition)
        work.close()
        return during, watched(partition)

    assert hosting.do(give_up) == (1, 0)


def test_a_large_fetch_that_is_woken_for_nobody_is_told_of_nothing_any_more(hosting: Hosting) -> None:
    partition = hosting.host()
    is_there = True

    parked: list[object] = []
    for index in range(1, MOST_AT_ONCE + 1):
        hosting.host(index=index)

    def begin() -> None:
        context = Context(12, None, is_there=lambda: is_there)
        work = fetch(hosting.broker, context, wide(60_000))
        assert isinstance(work, Generator)
        hosting.broker.slices.take(work, parked.append)

    hosting.do(begin)
    until(lambda: parked)
    assert isinstance(parked[0], Parked)
    assert hosting.do(lambda: watched(partition)) == 1
    is_there = False
    hosting.do(lambda: partition.wake(LOOK_AGAIN))
    assert hosting.do(lambda: watched(partition)) == 0


def test_half_a_request_behind_one_that_waits_counts_no_more(hosting: Hosting) -> None:
    """What is counted for ever keeps all others from being read."""
    partition, client = hosting.host(), hosting.connect()
    body = client.request(waiting_fetch(), ApiKey.FETCH, 12)
    client.socket.sendall(struct.pack(">i", len(body)) + body + struct.pack(">i", 60_000) + bytes(30_000))

    def held() -> int:
        return hosting.do(lambda: hosting.broker.connections.held_bytes)

    until(lambda: hosting.do(lambda: watched(partition)) and held())
    client.reset()
    until(lambda: not hosting.do(lambda: len(hosting.broker.connections)))
    hosting.do(lambda: partition.wake(0))
    hosting.do(lambda: None)  # a turn later the reply is there, and nobody to send it to
    assert held() == 0
