"""What connections share that are read from in one turn of the loop: the write, not the outcome."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.connection import Connection
from kbroker.replica_manager import AppendOutcome
from kbroker.turns import MOST_SHARED_BYTES, MOST_SHARED_READ_BYTES, SPARE_BUFFERS
from storage.appending import Appended
from tests.kbroker.handlers.test_fetch import fetch_request
from tests.kbroker.harness import WAIT_S, RawClient
from tests.kbroker.hosting import Hosting
from wire.api import ApiKey
from wire.api.leader_and_isr import LeaderAndIsrPartitionState
from wire.api.metadata import MetadataRequest
from wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from wire.codec import decode
from wire.record_batch import crc_is_valid
from wire.records import BatchBuilder, BatchHeader

VERSION = 9


def batch(value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(None, value, timestamp_ms=1)
    return builder.build()


def produce(value: bytes, correlation_id: int) -> bytes:
    data = PartitionProduceData(index=0, records=batch(value))
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    return RawClient.request(request, ApiKey.PRODUCE, VERSION, correlation_id)


def base_offset(client: RawClient, correlation_id: int) -> int:
    body = client.receive()
    assert struct.unpack_from(">i", body)[0] == correlation_id
    [answer] = decode(ProduceResponse, body[5:], VERSION).responses[0].partition_responses
    assert answer.error_code == 0
    return answer.base_offset


def learned(hosting: Hosting, number: int) -> list[RawClient]:
    """Clients that have produced before."""
    clients = [hosting.connect() for _ in range(number)]
    for client in clients:
        client.send(produce(b"first", 1))
        base_offset(client, 1)
    return clients


def counted(hosting: Hosting, partition: Any) -> list[int]:
    """How many batches each write to the log has from now on."""
    writes: list[int] = []
    append = partition.log.append_as_leader

    def counting(batches: Any, *arguments: Any, **options: Any) -> Any:
        writes.append(len(batches))
        return append(batches, *arguments, **options)

    hosting.do(lambda: setattr(partition.log, "append_as_leader", counting))
    return writes


def test_produces_of_many_connections_are_one_write(hosting: Hosting) -> None:
    """conformance 1: each connection has its replies, in the order of its requests."""
    partition = hosting.host("t")
    clients = learned(hosting, 20)
    writes = counted(hosting, partition)

    def send_all() -> None:  # on the broker's loop, which finds them all when it looks next
        for number, client in enumerate(clients):
            client.send(*(produce(b"%d-%d" % (number, i), i) for i in range(3)))

    hosting.do(send_all)
    offsets = [[base_offset(client, i) for i in range(3)] for client in clients]
    assert sorted(offset for mine in offsets for offset in mine) == list(range(20, 80))
    assert all(mine == sorted(mine) for mine in offsets)
    assert writes == [60]
    stored = bytes(partition.log.read(0, 1 << 20).records)
    for number in range(20):
        assert [stored.index(b"%d-%d" % (number, i)) for i in range(3)] == sorted(
            stored.index(b"%d-%d" % (number, i)) for i in range(3)
        )


def test_another_kind_of_request_sees_what_was_staged_before_it(hosting: Hosting) -> None:
    hosting.host("t")
    clients = learned(hosting, 3)

    def send_all() -> None:
        for client in clients:
            client.send(
                produce(b"x", 2),
                RawClient.request(MetadataRequest(topics=[]), ApiKey.METADATA, 9, 3),
                produce(b"y", 4),
            )

    hosting.do(send_all)
    for client in clients:
        first = base_offset(client, 2)
        client.reply(ApiKey.METADATA, 9, 3)
        assert base_offset(client, 4) > first


def test_a_client_that_is_gone_keeps_nobody_waiting(hosting: Hosting) -> None:
    partition = hosting.host("t")
    clients = learned(hosting, 6)

    def send_all() -> None:
        for number, client in enumerate(clients):
            client.send(produce(b"x", 2))
            if number % 2:
                client.socket.close()

    hosting.do(send_all)
    for client in clients[::2]:
        base_offset(client, 2)
    [last] = learned(hosting, 1)
    last.send(produce(b"x", 2))
    assert base_offset(last, 2) == partition.log.log_end_offset - 1


def test_what_others_wait_for_is_bounded(hosting: Hosting) -> None:
    """Large requests are not waited for, and of small ones only so many."""
    partition = hosting.host("t")
    clients = learned(hosting, 30)
    writes = counted(hosting, partition)

    def send_all(size: int) -> None:
        for client in clients:
            client.send(produce(b"x" * size, 2))

    for size in (MOST_SHARED_READ_BYTES, MOST_SHARED_READ_BYTES - 1000):
        hosting.do(lambda size=size: send_all(size))  # type: ignore[misc]
        for client in clients:
            base_offset(client, 2)
    # The log had the first ones by themselves, as far as they arrived together; nothing was one large write.
    assert sum(writes) == 60
    assert max(writes) <= MOST_SHARED_BYTES // (MOST_SHARED_READ_BYTES - 1000) + 1


def test_large_frames_in_pieces_arrive_whole_whether_there_is_a_spare_buffer_or_not(hosting: Hosting) -> None:
    """More connections are in the middle of one than there are buffers, and one of them never ends it."""
    partition = hosting.host("t")
    clients = learned(hosting, SPARE_BUFFERS + 4)
    frames = [framed(produce(b"%06d" % number * 50_000, 2)) for number in range(len(clients))]

    def arrived() -> int:
        return hosting.do(lambda: hosting.broker.connections.held_bytes)

    begun = 0
    for part in (slice(0, 100_000), slice(100_000, 180_000)):
        for client, frame in zip(clients, frames, strict=True):
            client.socket.sendall(frame[part])
            begun += part.stop - part.start
        deadline = time.monotonic() + WAIT_S
        while arrived() < begun:
            assert time.monotonic() < deadline
    clients[0].socket.close()
    offsets = {}
    for number, (client, frame) in enumerate(zip(clients, frames, strict=True)):
        if number:
            client.socket.sendall(frame[180_000:])
            offsets[base_offset(client, 2)] = number
    assert sorted(offsets) == list(range(len(clients), 2 * len(clients) - 1))
    for offset, number in offsets.items():
        stored = bytes(partition.log.read(offset, 1).records)
        assert crc_is_valid(stored, 0, BatchHeader.parse(stored))
        assert stored.count(b"%06d" % number) == 50_000
    for client in clients[1:]:  # the next ones need not be like the last one
        client.send(produce(b"s", 3), produce(b"larger" * 60_000, 4), produce(b"s", 5))
        first = base_offset(client, 3)
        assert [base_offset(client, 4), base_offset(client, 5)] == [first + 1, first + 2]
    spares, deadline = hosting.broker.turns.spares, time.monotonic() + WAIT_S
    while arrived():
        assert time.monotonic() < deadline
    assert None not in hosting.do(lambda: [spares.take() for _ in range(SPARE_BUFFERS)])


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def large(opening: bytes) -> bytes:
    """A frame that does not arrive in one read."""
    return framed(opening.ljust(300_000, b"x"))


def spares_are_free(hosting: Hosting) -> bool:
    def look() -> bool:
        spares = hosting.broker.turns.spares
        taken = [spare for _ in range(SPARE_BUFFERS) if (spare := spares.take()) is not None]
        for spare in taken:
            spares.give(spare)
        return len(taken) == SPARE_BUFFERS

    return hosting.do(look)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline


def begin(hosting: Hosting, client: RawClient, frame: bytes) -> None:
    """Send so much of a large frame that it gets a spare buffer."""
    client.socket.sendall(frame[:100_000])
    until(lambda: hosting.do(lambda: hosting.broker.connections.held_bytes) >= 100_000)
    assert not spares_are_free(hosting)


def on_each(hosting: Hosting, action: Callable[[Connection], None]) -> None:
    def act() -> None:
        for connection in list(hosting.broker.connections):
            action(connection)

    hosting.do(act)


BROKEN_OFF: list[Callable[[Hosting, RawClient], object]] = [
    lambda hosting, client: client.socket.close(),
    lambda hosting, client: on_each(hosting, Connection.drain),
    lambda hosting, client: on_each(hosting, Connection.abort),
]


@pytest.mark.parametrize("end", BROKEN_OFF, ids=["by the client", "closed", "aborted"])
def test_a_large_frame_that_is_broken_off_gives_its_buffer_back(
    hosting: Hosting, end: Callable[[Hosting, RawClient], object]
) -> None:
    client = hosting.connect()
    begin(hosting, client, large(b""))
    end(hosting, client)
    until(lambda: spares_are_free(hosting))


@pytest.mark.parametrize(
    ("opening", "calls"),
    [
        (struct.pack(">hhi", 999, 0, 1), 0),
        (struct.pack(">hhi", ApiKey.PRODUCE, VERSION, 1), 0),
        (produce(b"x" * 300_000, 1), 1),
    ],
    ids=["not served", "no request", "a bug in its handler"],
)
def test_a_large_request_that_ends_its_connection_gives_its_buffer_back(
    hosting: Hosting, opening: bytes, calls: int
) -> None:
    def fail(*_: object) -> object:
        raise ZeroDivisionError

    failing = hosting.counting(ApiKey.PRODUCE)
    failing.handle = fail
    client, frame = hosting.connect(), large(opening)
    begin(hosting, client, frame)
    client.socket.sendall(frame[100_000:])
    assert client.receive() == b""
    assert failing.calls == calls
    until(lambda: spares_are_free(hosting))


@pytest.mark.parametrize("is_known", [False, True], ids=["decoded", "streamed"])
def test_a_large_produce_that_waits_for_replicas_gives_its_buffer_back_at_once(
    hosting: Hosting, is_known: bool
) -> None:
    partition = hosting.host("t")
    [client] = learned(hosting, 1) if is_known else [hosting.connect()]
    first = partition.log.log_end_offset
    hosting.do(lambda: setattr(partition, "in_sync_replicas", [1, 2]))
    frame = framed(produce(b"%06d" % 7 * 50_000, 2))
    begin(hosting, client, frame)
    client.socket.sendall(frame[100_000:])
    until(lambda: partition.log.log_end_offset == first + 1)
    assert spares_are_free(hosting)
    hosting.do(lambda: setattr(partition, "in_sync_replicas", [1]))
    hosting.do(lambda: hosting.broker.replicas.advance_high_watermark(partition))
    assert base_offset(client, 2) == first
    assert bytes(partition.log.read(first, 1).records).count(b"%06d" % 7) == 50_000


def test_a_large_request_behind_one_that_waits_gives_its_buffer_back_at_once(hosting: Hosting) -> None:
    partition = hosting.host("t")
    client, frame = hosting.connect(), framed(produce(b"%06d" % 7 * 50_000, 2))
    waiting = fetch_request(("t", 0, 0), max_wait_ms=WAIT_S * 1000)
    client.send(RawClient.request(waiting, ApiKey.FETCH, 12, 1))
    begin(hosting, client, frame)
    client.socket.sendall(frame[100_000:])
    until(lambda: spares_are_free(hosting))
    assert partition.log.log_end_offset == 0
    learned(hosting, 1)
    client.reply(ApiKey.FETCH, 12, 1)
    assert base_offset(client, 2) == 1
    assert bytes(partition.log.read(1, 1).records).count(b"%06d" % 7) == 50_000


@pytest.mark.parametrize("change", ["leader", "gone", "stopped"])
def test_what_is_staged_is_appended_before_the_partition_changes(hosting: Hosting, change: str) -> None:
    """It was staged in the belief that this broker leads; a moment later that would not be true."""
    partition = hosting.host("t")
    replicas = hosting.broker.replicas
    data = batch(b"x")
    outcomes: list[AppendOutcome] = []
    other = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=99,
        leader_epoch=7,
        isr=[99],
        partition_epoch=7,
        replicas=[99, 1],
    )

    def staged_and_changed() -> None:
        replicas.stage(partition, data, BatchHeader.parse(data), outcomes.append)
        if change == "leader":
            replicas.become("t", partition.topic_id, other)
        elif change == "gone":
            replicas.forget("t", 0)
        else:
            replicas.stop()

    hosting.do(staged_and_changed)
    assert outcomes == [Appended(0, 0, -1, 0)]
