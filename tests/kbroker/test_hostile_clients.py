"""Clients that send nonsense, or read nothing: nothing for others to notice, and memory stays bounded."""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.handlers import HANDLERS
from tests.kbroker.harness import WAIT_S, BrokerProcess, RawClient
from tests.kbroker.speaker import Speaker, batch, now_ms
from tests.wire.random_messages import at_version, random_message
from tests.wire.test_fuzz import mutate
from wire.api import ApiKey, api
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.codec import encode
from wire.compression import Codec
from wire.headers import encode_request_header

pytestmark = pytest.mark.slow

SECONDS = 5
AT_A_TIME = 50
MOST_GROWTH_KIB = 64 << 10


def frames(rng: random.Random) -> Iterator[bytes]:
    """Requests of every API in every version, some of them as they should be, most of them not."""
    while True:
        for key, handler in HANDLERS.items():
            version = rng.randint(handler.versions.first, handler.versions.last)
            header = encode_request_header(key, version, 7, "raw")
            body = header + encode(
                at_version(random_message(rng, api(key).request, version), version), version
            )
            if rng.random() < 0.9:
                body = mutate(rng, body) or b"\0"
            size = len(body) if rng.random() < 0.95 else rng.choice((0, -1, len(body) + 3, 1 << 30))
            yield struct.pack(">i", size) + body


def resident_kib(broker: BrokerProcess, what: str = "VmRSS") -> int:
    status = Path(f"/proc/{broker.process.pid}/status")
    if not status.exists():
        pytest.skip("there is no /proc")
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(what))


def ends(sockets: list[socket.socket]) -> None:
    """The broker closes every connection whose client has said all it had to say."""
    waiting, deadline = set(sockets), time.monotonic() + WAIT_S
    while waiting:
        assert time.monotonic() < deadline, "the broker keeps a connection"
        for one in select.select(waiting, [], [], 1)[0]:
            try:
                if not one.recv(1 << 16):
                    waiting.discard(one)
            except ConnectionResetError:
                waiting.discard(one)


def test_malformed_frames_close_their_connection_and_harm_nobody(broker: BrokerProcess) -> None:
    """conformance 4. Memory stays bounded; nothing is a bug. The seed is in the failure's message."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    bystander = RawClient(broker.host, broker.port)
    source, sent, before = frames(rng), 0, resident_kib(broker)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        sockets = []
        for _ in range(AT_A_TIME):
            one = socket.create_connection((broker.host, broker.port), timeout=WAIT_S)
            sockets.append(one)
            one.sendall(next(source))
            one.shutdown(socket.SHUT_WR)
        ends(sockets)
        for one in sockets:
            one.close()
        sent += len(sockets)
        bystander.send(encode_request_header(18, 0, sent, None))
        assert struct.unpack_from(">i", bystander.receive())[0] == sent
    assert sent >= AT_A_TIME
    log = broker.log.read_text()
    assert "a bug in the broker" not in log, f"seed {seed}"
    assert resident_kib(broker) - before < MOST_GROWTH_KIB, f"seed {seed}"
    bystander.socket.close()


def test_clients_that_read_nothing_cannot_make_the_broker_grow(tmp_path: Path) -> None:
    """Forty of them ask for 50 MB again and again. Others are served all the time."""
    broker = BrokerProcess(tmp_path / "broker.log", "--set", "kbroker.unread.replies.max.bytes=20000000")
    try:
        fetch_and_read_nothing(broker)
    finally:
        assert broker.stop() == 0


def fetch_and_read_nothing(broker: BrokerProcess) -> None:
    speaker = Speaker(broker.host, broker.port)
    speaker.create("t")
    for _ in range(50):
        assert speaker.produce("t", batch(bytes(1_000_000))).error_code == 0
    before = resident_kib(broker)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=50_000_000, topics=topics)
    deaf = [RawClient(broker.host, broker.port) for _ in range(40)]
    for client in deaf:
        client.send(*[RawClient.request(request, ApiKey.FETCH, 11)] * 20)
        assert len(speaker.metadata("t").partitions) == 1
    assert (resident_kib(broker) - before) / 1024 < 20 + 50 + 40 * 3
    for client in deaf:
        client.socket.close()
    speaker.socket.close()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_bombs_do_not_make_the_broker_grow(broker: BrokerProcess, codec: Codec) -> None:
    """conformance 97: 60 MiB in each of eight batches, for topics that want to know what is in them."""
    speaker = Speaker(broker.host, broker.port)
    configs: dict[str, dict[str, object]] = {
        "plain": {},
        "compacted": {"cleanup_policy": "compact"},
        "other": {"compression_type": "gzip" if codec is Codec.ZSTD else "zstd"},
    }
    for topic, config in configs.items():
        speaker.create(topic, 1, **config)
        assert speaker.produce(topic, batch(codec=codec, timestamp_ms=1)).error_code == 0
    sent_ms = now_ms()
    bomb = batch(bytes(60 << 20), codec=codec, timestamp_ms=sent_ms)
    before = resident_kib(broker)
    clients = [RawClient(broker.host, broker.port) for _ in range(8)]
    for topic in configs:
        piece = PartitionProduceData(index=0, records=bomb)
        topics = [TopicProduceData(name=topic, partition_data=[piece])]
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
        for client in clients:
            client.send(client.request(request, ApiKey.PRODUCE, 9))
        for client in clients:
            reply = client.reply(ApiKey.PRODUCE, 9).responses[0].partition_responses[0]
            assert reply.error_code == 0, reply
        assert resident_kib(broker, "VmHWM") - before < MOST_GROWTH_KIB, topic
    assert speaker.offset("plain", sent_ms).offset == 1
    assert resident_kib(broker, "VmHWM") - before < MOST_GROWTH_KIB
    for client in clients:
        client.socket.close()
    speaker.socket.close()


def test_bad_frames_by_the_hundred_are_one_line_and_a_count(broker: BrokerProcess) -> None:
    """An absurd size, a request that is cut off, and a version that is not served: one line for each kind."""
    cut_off = encode_request_header(ApiKey.METADATA, 12, 7, "raw")
    not_served = encode_request_header(ApiKey.PRODUCE, 2, 7, "raw")
    kinds = [b"\xff\xff\xff\xff", *(struct.pack(">i", len(body)) + body for body in (cut_off, not_served))]
    for _ in range(100):
        clients = [RawClient(broker.host, broker.port) for _ in kinds]
        for client, kind in zip(clients, kinds, strict=True):
            client.socket.sendall(kind)
        for client in clients:
            assert client.receive() == b""
            client.socket.close()
    assert broker.stop() == 0
    warnings = [line for line in broker.log.read_text().splitlines() if " WARNING " in line]
    assert len([line for line in warnings if "99 more such lines" in line]) == 3
    assert len(warnings) == 6


def open_descriptors(broker: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def trickling(broker: BrokerProcess) -> socket.socket:
    """Has declared 100 MB, and sent as much of its first 1.5 MB as is taken: more than is read at a time."""
    one = socket.create_connection((broker.host, broker.port))
    one.setblocking(False)
    begun = memoryview(struct.pack(">i", 100_000_000) + bytes(1_500_000))
    deadline = time.monotonic() + 1
    while begun and time.monotonic() < deadline and select.select([], [one], [], 0.01)[1]:
        begun = begun[one.send(begun) :]
    return one


def test_clients_that_trickle_into_large_requests_starve_nobody(tmp_path: Path) -> None:
    """They fill what requests may hold, and hold more than a Produce whose first bytes have come. It gets
    through all the same; when they have left, all descriptors are closed.
    """
    limits = {"kbroker.queued.max.request.bytes": 20_000_000, "message.max.bytes": 8_000_000}
    options = [word for key, value in limits.items() for word in ("--set", f"{key}={value}")]
    broker = BrokerProcess(tmp_path / "broker.log", *options)
    try:
        speaker = Speaker(broker.host, broker.port)
        speaker.create("t")
        assert speaker.produce("t").error_code == 0
        before = open_descriptors(broker)
        hostile = [trickling(broker) for _ in range(40)]
        random_bytes = random.Random(1).randbytes(7_000_000)
        for _ in range(3):
            assert speaker.produce("t", batch(random_bytes)).error_code == 0
        for one in hostile:
            one.close()
        deadline = time.monotonic() + WAIT_S
        while open_descriptors(broker) > before:
            assert time.monotonic() < deadline, f"{open_descriptors(broker)} open, {before} before"
            time.sleep(0.1)
        speaker.socket.close()
    finally:
        assert broker.stop() == 0
