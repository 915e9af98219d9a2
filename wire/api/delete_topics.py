"""DeleteTopics (key 20): delete topics.

v5 answers with messages; v6 takes topics by name or by id.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import int16, int32, message, since, string, struct, uuid


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = since("6+", default=[])
    topic_names: list[string] = since("0-5", default=[])
    timeout_ms: int32


@struct
class DeleteTopicState:
    name: string | None = None
    topic_id: uuid


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int32 = since("1+", default=0)
    responses: list[DeletableTopicResult]


@struct
class DeletableTopicResult:
    name: string | None = since(nullable="6+")
    topic_id: uuid = since("6+", default=ZERO_UUID)
    error_code: int16
    error_message: string | None = since("5+", default=None)
