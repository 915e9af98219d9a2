"""Conformance A: whatever is asked is answered, in the form of its version."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from kbroker.handlers import HANDLERS
from tests.kbroker.speaker import Speaker, batch
from wire.api import ApiKey, api
from wire.api.api_versions import ApiVersionsRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.api.metadata import MetadataRequest
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.codec import decode, encode
from wire.errors import ErrorCode
from wire.headers import encode_request_header, response_header_version
from wire.schema import REQUIRED, Primitive, fields_of

ZEROS = {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "bool": False, "float64": 0.0}
ANY = 1
TAGGED = b"\x01\x63\x03abc"
"""One tagged field that nobody knows: number 99, three bytes."""


def least(message: type) -> Any:
    """A message with as little in it as can be: no entries, zeros, what is optional left out."""
    values: dict[str, Any] = {}
    for field in fields_of(message):
        if field.default is REQUIRED:
            if field.is_array:
                values[field.name] = []
            elif isinstance(field.type, Primitive):
                values[field.name] = ZEROS.get(field.type.name, 0)
            else:
                values[field.name] = least(field.type)
    return message(**values)


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=[api(key).name for key in sorted(HANDLERS)])
def test_every_version_of_every_api_is_answered_in_its_own_form(speaker: Speaker, key: int) -> None:
    """conformance 6, 8, 9: never silence; nothing of other versions; nobody is throttled."""
    first, last = HANDLERS[key].versions
    for version in range(first, last + 1):
        request = least(api(key).request)
        if key == ApiKey.PRODUCE:
            request.acks = -1  # 0 is the one that gets no answer
        if key == ApiKey.DESCRIBE_ACLS:  # which refuses 0, as Kafka does
            request.resource_type_filter = request.pattern_type_filter = ANY
            request.operation = request.permission_type = ANY
        speaker.send(speaker.request(request, key, version))
        body = speaker.receive()
        assert struct.unpack_from(">i", body)[0] == 7, version
        body = body[4 + response_header_version(key, version) :]
        reply: Any = decode(api(key).response, body, version)
        assert encode(reply, version) == body, version
        assert getattr(reply, "throttle_time_ms", 0) == 0, version


def test_tagged_fields_that_nobody_knows_are_passed_over(speaker: Speaker) -> None:
    """conformance 8: in the header, and in the body."""
    header = encode_request_header(ApiKey.METADATA, 12, 7, "raw")
    body = encode(MetadataRequest(topics=[]), 12)
    assert header[-1] == body[-1] == 0
    speaker.send(header[:-1] + TAGGED + body[:-1] + TAGGED)
    assert speaker.reply(ApiKey.METADATA, 12).controller_id == 1


def test_an_unknown_version_of_api_versions_is_told_the_known_ones(speaker: Speaker) -> None:
    """conformance 2"""
    speaker.send(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 7, -1) + b"\0")
    known = HANDLERS[ApiKey.API_VERSIONS].versions
    assert speaker.receive() == struct.pack(">ihihhh", 7, 35, 1, 18, *known)
    software = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    assert speaker.ask(software, ApiKey.API_VERSIONS, known.last).error_code == 0


def test_a_produce_without_records_is_answered(speaker: Speaker, topic: str) -> None:
    """conformance 6: Kafka leaves that client waiting."""
    speaker.create(topic)
    piece = PartitionProduceData(index=0, records=None)
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[piece])]
    )
    reply = speaker.ask(request, ApiKey.PRODUCE, 9)
    assert reply.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_a_join_that_names_a_protocol_twice_is_answered(speaker: Speaker, topic: str) -> None:
    """conformance 6: Kafka leaves that client waiting."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=topic,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol, protocol],
    )
    reply = speaker.ask(request, ApiKey.JOIN_GROUP, 3)
    assert reply.error_code != 0


def test_a_waiting_fetch_is_answered_before_what_came_after_it(speaker: Speaker, topic: str) -> None:
    """conformance 1"""
    speaker.create(topic)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    waiting = FetchRequest(
        max_wait_ms=200, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    speaker.send(
        speaker.request(waiting, ApiKey.FETCH, 12, 1),
        speaker.request(MetadataRequest(topics=[]), ApiKey.METADATA, 12, 2),
    )
    assert speaker.reply(ApiKey.FETCH, 12, 1).error_code == 0
    assert speaker.reply(ApiKey.METADATA, 12, 2).controller_id == 1


def test_acks_0_gets_no_reply_and_a_failure_hangs_up(speaker: Speaker, topic: str) -> None:
    """conformance 7"""
    speaker.create(topic)

    def silent(name: str) -> bytes:
        piece = PartitionProduceData(index=0, records=batch())
        data = [TopicProduceData(name=name, partition_data=[piece])]
        request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=data)
        return speaker.request(request, ApiKey.PRODUCE, 9, 1)

    speaker.send(silent(topic), speaker.request(MetadataRequest(topics=[]), ApiKey.METADATA, 12, 2))
    speaker.reply(ApiKey.METADATA, 12, 2)
    deadline = time.monotonic() + 10  # it is visible once it is on the disk
    while speaker.offset(topic, -1).offset < 1:
        assert time.monotonic() < deadline
    speaker.send(silent("no-such-topic"))
    assert speaker.receive() == b""
