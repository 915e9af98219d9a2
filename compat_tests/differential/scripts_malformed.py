"""Frames that are not right. Each has a connection of its own; others must not notice (conformance 4, 5)."""

from __future__ import annotations

from compat_tests.differential.conversation import Conversation, script
from tests.kbroker.harness import RawClient
from wire.api import ApiKey
from wire.api.list_groups import ListGroupsRequest
from wire.api.metadata import MetadataRequest
from wire.headers import encode_request_header

MAX = 2**31 - 1


def framed(body: bytes, size: int | None = None) -> bytes:
    return (len(body) if size is None else size).to_bytes(4, "big", signed=True) + body


@script
def frames_that_are_not_right(talk: Conversation) -> None:
    """conformance 4, 5"""
    header = encode_request_header(ApiKey.METADATA, 1, 7, "raw")
    none = MetadataRequest(topics=[])
    metadata = RawClient.request(none, ApiKey.METADATA, 1)
    for label, data in {
        "size 0": framed(b""),
        "size -1": framed(b"", -1),
        "size -2147483648": framed(b"", -MAX - 1),
        "size too large": framed(b"", 104857601),
        "largest size": framed(b"", MAX),
        "one byte": framed(b"\0"),
        "key without version": framed(b"\0\3"),
        "no correlation id": framed(b"\0\3\0\1"),
        "no client id": framed(b"\0\3\0\1\0\0\0\7"),
        "no body": framed(header),
        "a client id that is cut off": framed(b"\0\3\0\1\0\0\0\7\0\x09raw"),
        "a long array": framed(header + b"\x7f\xff\xff\xff"),
        "a negative array": framed(b"\0\x0f\0\0\0\0\0\7\0\3raw\x80\0\0\0"),
        "a long string": framed(header + b"\0\0\0\1\x7f\xff"),
        "a negative string": framed(header + b"\0\0\0\1\x80\0"),
        "a null where there is none": framed(header + b"\0\0\0\1\xff\xff"),
        "not UTF-8": framed(header + b"\0\0\0\1\0\2\xc3\x28"),
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "TLS": bytes.fromhex("160301020001000190" + "00" * 60),
        "a part of a frame": metadata[:3],
        "unknown API": framed(b"\x03\xe7\0\0\0\0\0\7\0\3raw"),
        "negative API": framed(b"\xff\xff\0\0\0\0\0\7\0\3raw"),
        "unknown version": framed(b"\0\3\0\x63\0\0\0\7\0\3raw\0"),
        "negative version": framed(b"\0\3\xff\xff\0\0\0\7\0\3raw\0"),
        "Produce v2": framed(b"\0\0\0\2\0\0\0\7\0\3raw\0\1\0\0\x10\0\0\0\0\0"),
        "Fetch v3": framed(b"\0\1\0\3\0\0\0\7\0\3raw" + b"\xff" * 4 + b"\0" * 12 + b"\0\0\0\0"),
    }.items():
        talk.send_bytes(label, data)
    talk.ask("Metadata", 9, "afterwards", topics=[])


@script
def frames_that_are_odd_and_right(talk: Conversation) -> None:
    """conformance 5, 8"""
    empty = RawClient.request(ListGroupsRequest(states_filter=["Dead"]), ApiKey.LIST_GROUPS, 4)
    for label, data in {
        "bytes after the body": empty + b"more",
        "a null client id": empty.replace(b"\0\3raw", b"\xff\xff"),
        "an empty client id": empty.replace(b"\0\3raw", b"\0\0"),
        "a tag that nobody knows": empty[:-1] + b"\1\x55\3abc",
        "a tag in the header": empty.replace(b"raw\0", b"raw\1\x55\3abc"),
        "a tag twice": empty[:-1] + b"\2\x55\3abc\x55\3abc",
        "tags out of order": empty[:-1] + b"\2\x55\3abc\x54\3abc",
        "a tag that is cut off": empty[:-1] + b"\1\x55\x7fabc",
    }.items():
        talk.send_bytes(label, framed(data))


@script
def replies_in_order(talk: Conversation) -> None:
    """conformance 1"""
    talk.create("t")
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic": talk.name("t"), "partitions": [row]}]
    talk.send("Fetch", 11, max_wait_ms=300, min_bytes=1, topics=topics)
    talk.send("Metadata", 9, topics=[{"name": talk.name("t")}])
    talk.send("ListOffsets", 5, replica_id=-1, topics=[])
    talk.note("first", talk.reply("Fetch", 11))
    talk.note("second", talk.reply("Metadata", 9))
    talk.note("third", talk.reply("ListOffsets", 5))
