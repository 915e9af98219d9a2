"""Replies that stay the same as long as the cluster does: encoded once, sent to whoever asks the same again.

Every client asks for ApiVersions when it connects and for Metadata from then on, all of them in nearly the
same words. Decoding such a question and building its answer takes several times as long as sending it.

Rules:
- A reply is remembered by the whole request but for its correlation id, and by the listener, whose addresses
  it may tell. Whoever lets it depend on more (a principal) puts that into the key.
- A reply with an error in it is not remembered: it may have effects (a topic is being created), or not last.
- Whatever the broker learns of the cluster makes it forget all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from wire.api import ApiKey
from wire.primitives import Buffer

if TYPE_CHECKING:
    from kbroker.metadata_cache import MetadataCache

MOST_REPLIES = 256
MOST_REPLY_BYTES = 64 * 1024
MOST_REQUEST_BYTES = 1024
CORRELATION_ID = slice(4, 8)
"""Where a request has it."""

LASTING: dict[int, Callable[[Any], bool]] = {
    ApiKey.API_VERSIONS: lambda response: not response.error_code,
    ApiKey.METADATA: lambda response: (
        not response.error_code and not any(topic.error_code for topic in response.topics)
    ),
}
"""The APIs, and which of their responses last."""

Key = tuple[bytes, bytes, str]


class Encoded(NamedTuple):
    """A response without its header."""

    data: bytes


def key_of(request: memoryview, listener: str) -> Key:
    return bytes(request[: CORRELATION_ID.start]), bytes(request[CORRELATION_ID.stop :]), listener


class LastingReplies:
    """What is remembered; belongs to one version of the metadata."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._version = metadata.version
        self._replies: dict[Key, Encoded] = {}

    def find(self, key: Key) -> Encoded | None:
        if self._version != self._metadata.version:
            self._version = self._metadata.version
            self._replies.clear()
        return self._replies.get(key)

    def keep(
        self, key: Key, response: object, version: int, encode: Callable[[Any, list[Buffer]], None]
    ) -> object:
        """Remember a response that was made in this version of the metadata; what to answer with."""
        if len(key[1]) > MOST_REQUEST_BYTES or version != self._metadata.version:
            return response
        parts: list[Buffer] = []
        encode(response, parts)
        encoded = Encoded(b"".join(parts))
        if len(encoded.data) <= MOST_REPLY_BYTES:
            if len(self._replies) >= MOST_REPLIES:
                self._replies.clear()
            self._replies[key] = encoded
        return encoded
