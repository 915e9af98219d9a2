"""What a connection survives, what closes it, and in which order it answers: raw frames to a real process."""

from __future__ import annotations

import select
import struct
from collections.abc import Callable

import pytest

from tests.kbroker.harness import BrokerProcess, RawClient
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.codec import encode
from wire.headers import encode_request_header

Connect = Callable[[BrokerProcess], RawClient]

ALL_TOPICS = MetadataRequest(topics=None)
HEADER = encode_request_header(ApiKey.METADATA, 9, 7, "raw")


def header(key: int, version: int) -> bytes:
    """Request header v1, which every broker reads in whatever it does not know."""
    return struct.pack(">hhih", key, version, 7, 3) + b"raw"


def test_pipelined_requests_are_answered_in_order(shared_broker: BrokerProcess, connect: Connect) -> None:
    """conformance 1: many requests in one write, of two kinds."""
    client = connect(shared_broker)
    kinds = [(ApiKey.METADATA, ALL_TOPICS, 12), (ApiKey.API_VERSIONS, ApiVersionsRequest(), 2)]
    requests = [(number, *kinds[number % 2]) for number in range(500)]
    client.send(
        *(client.request(message, key, version, number) for number, key, message, version in requests)
    )
    for number, key, _, version in requests:
        client.reply(key, version, number)


def test_a_request_may_arrive_byte_by_byte(shared_broker: BrokerProcess, connect: Connect) -> None:
    client = connect(shared_broker)
    body = client.request(ALL_TOPICS, ApiKey.METADATA, 12)
    for byte in struct.pack(">i", len(body)) + body:
        client.socket.sendall(bytes([byte]))
    assert client.reply(ApiKey.METADATA, 12).topics == []


def test_a_request_may_be_larger_than_any_buffer(shared_broker: BrokerProcess, connect: Connect) -> None:
    names = [f"{number:05}" + "x" * 20_000 for number in range(100)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    reply = connect(shared_broker).ask(request, ApiKey.METADATA, 9)
    assert [topic.name for topic in reply.topics] == names


def test_trailing_bytes_and_a_null_client_id_are_accepted(
    shared_broker: BrokerProcess, connect: Connect
) -> None:
    """conformance 5"""
    client = connect(shared_broker)
    nameless = encode_request_header(ApiKey.METADATA, 9, 7, None) + encode(ALL_TOPICS, 9)
    client.send(nameless + b"left over", client.request(ALL_TOPICS, ApiKey.METADATA, 9, 8))
    assert client.reply(ApiKey.METADATA, 9).controller_id == 1
    assert client.reply(ApiKey.METADATA, 9, 8).controller_id == 1


@pytest.mark.parametrize(
    ("body", "logged"),
    [
        (header(999, 0), "client 'raw' asked for the unknown API 999 v0, but it is not served"),
        (header(-1, 0), "client 'raw' asked for the unknown API -1 v0, but it is not served"),
        (header(ApiKey.PRODUCE, 2), "client 'raw' asked for Produce v2, but only 3-13 are served"),
        (header(ApiKey.METADATA, 14), "client 'raw' asked for Metadata v14, but only 0-13 are served"),
        (header(ApiKey.METADATA, -1), "client 'raw' asked for Metadata v-1, but only 0-13 are served"),
        (b"\0", "a request of 1 bytes has no API key and version"),
        (HEADER[:7], "RequestHeader"),
        (HEADER, "MetadataRequest v9"),
        (HEADER + encode(ALL_TOPICS, 9)[:-1], "MetadataRequest v9"),
        (header(ApiKey.METADATA, 4) + struct.pack(">i", 2**31 - 1), "MetadataRequest v4"),
        (header(ApiKey.METADATA, 4) + struct.pack(">ih", 1, 30_000), "MetadataRequest v4"),
        (HEADER + b"\xff\xff\xff\xff\x0f", "MetadataRequest v9"),
        (HEADER + b"\x02\xff\xff\xff\xff\x0f", "MetadataRequest v9"),
    ],
)
def test_a_request_that_cannot_be_answered_closes_its_connection_and_no_other(
    broker: BrokerProcess, connect: Connect, body: bytes, logged: str
) -> None:
    """conformance 4: unknown key, unsupported version, truncated, absurd lengths. The log says what."""
    bystander, client = connect(broker), connect(broker)
    client.send(client.request(ALL_TOPICS, ApiKey.METADATA, 12, 1), body)
    client.reply(ApiKey.METADATA, 12, 1)
    assert client.receive() == b""
    assert bystander.ask(ALL_TOPICS, ApiKey.METADATA, 12).controller_id == 1
    last_line = broker.log.read_text().splitlines()[-1]
    assert "WARNING kbroker.connection: closing the connection from 127.0.0.1:" in last_line
    assert logged in last_line


@pytest.mark.parametrize("size", [0, -1, -(2**31), 104857601, 2**31 - 1])
def test_a_frame_size_that_cannot_be_closes_at_once(
    broker: BrokerProcess, connect: Connect, size: int
) -> None:
    """conformance 4: four bytes are enough, and what was asked before them is answered."""
    client = connect(broker)
    request = client.request(ALL_TOPICS, ApiKey.METADATA, 12, 1)
    client.socket.sendall(struct.pack(">i", len(request)) + request + struct.pack(">i", size))
    client.reply(ApiKey.METADATA, 12, 1)
    assert client.receive() == b""
    assert f"frame size {size} is not between 1 and 104857600" in broker.log.read_text()


def test_http_text_closes_the_connection_and_is_named(broker: BrokerProcess, connect: Connect) -> None:
    """conformance 4"""
    client = connect(broker)
    client.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.receive() == b""
    assert "the bytes look like an HTTP request" in broker.log.read_text()


def test_a_client_that_reads_nothing_is_not_read_from_either(broker: BrokerProcess, connect: Connect) -> None:
    """Replies as large as their requests: what the broker takes in is bounded by what it gets rid of."""
    client = connect(broker)
    topics = [MetadataRequestTopic(name=f"{number:05}" + "x" * 30_000) for number in range(30)]
    body = client.request(MetadataRequest(topics=topics), ApiKey.METADATA, 9)
    request = struct.pack(">i", len(body)) + body
    client.socket.setblocking(False)
    sent = 0
    while select.select([], [client.socket], [], 1)[1]:
        sent += client.socket.send(request[sent % len(request) :])
        assert sent < 200 << 20, "the broker reads on and on"
    client.socket.settimeout(30)
    complete, begun = divmod(sent, len(request))
    assert complete > 0
    for _ in range(complete):
        assert len(client.reply(ApiKey.METADATA, 9).topics) == 30
    client.socket.sendall(request[begun:])
    assert len(client.reply(ApiKey.METADATA, 9).topics) == 30
