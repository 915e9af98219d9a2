"""Remembered replies: the same bytes as before, and never older than what the broker knows."""

from __future__ import annotations

import struct
from typing import Any

from kbroker.lasting_replies import MOST_REPLIES, LastingReplies
from kbroker.metadata_cache import MetadataCache
from tests.kbroker.harness import RawClient
from tests.kbroker.hosting import Hosting
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.errors import ErrorCode

SOFTWARE = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def metadata_of(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


def raw(client: RawClient, message: Any, key: int, version: int, correlation_id: int) -> bytes:
    client.send(client.request(message, key, version, correlation_id))
    return client.receive()


def test_the_same_question_gets_the_same_answer_under_its_own_number(hosting: Hosting) -> None:
    """conformance 2"""
    hosting.order("t", partitions=3)
    client = hosting.connect()
    questions: list[tuple[Any, ApiKey, int]] = [
        (SOFTWARE, ApiKey.API_VERSIONS, version) for version in range(5)
    ]
    questions += [(metadata_of("t"), ApiKey.METADATA, version) for version in range(14)]
    for message, key, version in questions:
        first, second = (raw(client, message, key, version, number) for number in (1, 2))
        assert struct.unpack_from(">i", first) + struct.unpack_from(">i", second) == (1, 2)
        assert first[4:] == second[4:]
        assert hosting.connect().ask(message, key, version) == client.ask(message, key, version)


def test_topics_that_come_grow_and_go_are_seen_at_once(hosting: Hosting) -> None:
    """conformance 13"""
    client = hosting.connect()

    def seen() -> dict[str, int]:
        replies = [client.ask(MetadataRequest(topics=None), ApiKey.METADATA, 9) for _ in range(2)]
        assert replies[0] == replies[1]
        return {topic.name: len(topic.partitions) for topic in replies[0].topics}

    assert seen() == {}
    hosting.order("a")
    assert seen() == {"a": 1}
    hosting.order("b", partitions=2)
    assert seen() == {"a": 1, "b": 2}
    hosting.order("a", partitions=4)
    assert seen() == {"a": 4, "b": 2}


def test_an_unknown_topic_is_looked_for_each_time(hosting: Hosting) -> None:
    """conformance 11"""
    client = hosting.connect()
    for _ in range(2):
        assert client.ask(metadata_of("t"), ApiKey.METADATA, 9).topics[0].error_code == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    hosting.order("t")
    assert client.ask(metadata_of("t"), ApiKey.METADATA, 9).topics[0].error_code == 0


def test_a_new_controller_is_told_at_once(hosting: Hosting) -> None:
    """conformance 19"""
    client = hosting.connect()
    before = client.ask(metadata_of(), ApiKey.METADATA, 9).controller_id
    hosting.do(lambda: setattr(hosting.broker.metadata, "controller_id", before + 1))
    assert client.ask(metadata_of(), ApiKey.METADATA, 9).controller_id == before + 1


def test_a_question_with_other_words_is_another_question(hosting: Hosting) -> None:
    hosting.order("a")
    hosting.order("b")
    client = hosting.connect()
    for name in ("a", "b", "a", "b"):
        assert client.ask(metadata_of(name), ApiKey.METADATA, 9).topics[0].name == name
    asked = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    assert client.ask(metadata_of(), ApiKey.METADATA, 9).cluster_authorized_operations < 0
    assert client.ask(asked, ApiKey.METADATA, 9).cluster_authorized_operations > 0


def test_what_is_remembered_is_bounded_and_of_one_version() -> None:
    metadata = MetadataCache()
    replies = LastingReplies(metadata)

    def keep(key: bytes, size: int = 10, version: int | None = None) -> object:
        made_in = metadata.version if version is None else version
        return replies.keep((b"", key, ""), size, made_in, lambda n, parts: parts.append(bytes(n)))

    for number in range(3 * MOST_REPLIES):
        keep(b"%d" % number)
        assert len(replies._replies) <= MOST_REPLIES
    keep(b"large", size=1 << 20)
    keep(b"k" * 5000)
    keep(b"late", version=metadata.version - 1)
    for key in (b"large", b"k" * 5000, b"late"):
        assert replies.find((b"", key, "")) is None
    assert replies.find((b"", b"%d" % number, "")) is not None
    metadata.controller_id = 5
    assert replies.find((b"", b"%d" % number, "")) is None
