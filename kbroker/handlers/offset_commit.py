"""OffsetCommit: store how far a group has read.

- v9+: the epoch of a member of the new protocol, and GROUP_ID_NOT_FOUND; v10: topics by id.
- Topics and partitions that do not exist are answered here and kept from the group (conformance 82).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

FIRST_VERSION_WITH_TOPIC_IDS = 10


def offset_commit(
    broker: Broker, context: Context, request: OffsetCommitRequest
) -> OffsetCommitResponse | Parked:
    if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        for topic in request.topics:
            topic.name = broker.metadata.topic_name(topic.topic_id) or ""
    refused = [one for topic in request.topics if (one := unknown_part(broker, context, topic)) is not None]
    request.topics = [topic for topic in request.topics if topic.partitions]
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    try:
        parked = broker.groups.ask(
            request.group_id,
            lambda groups, token, now_ms: groups.commit_offsets(request, context, token, now_ms),
        )
    except KafkaError as error:
        failed = [refusal(topic, error.code) for topic in request.topics]
        return OffsetCommitResponse(topics=merged(failed, refused))
    if not refused:
        return parked
    return parked.then(lambda response: with_refused(response, refused))


def unknown_part(
    broker: Broker, context: Context, topic: OffsetCommitRequestTopic
) -> OffsetCommitResponseTopic | None:
    """Take what does not exist out of the request; the answer for it."""
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    known = broker.metadata.topics.get(topic.name)
    exist: Container[int] = () if known is None else known.partitions
    missing = [p for p in topic.partitions if p.partition_index not in exist]
    if not missing:
        return None
    topic.partitions = [p for p in topic.partitions if p.partition_index in exist]
    unknown_id = by_id and known is None
    code = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers = [
        OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code) for p in missing
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def refusal(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    answers = [
        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
        for partition in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def with_refused(response: object, refused: list[OffsetCommitResponseTopic]) -> object:
    if isinstance(response, OffsetCommitResponse):
        response.topics = merged(response.topics, refused)
    return response


def merged(
    topics: list[OffsetCommitResponseTopic], others: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """One entry for each topic."""
    found = {(topic.name, topic.topic_id): topic for topic in topics}
    for other in others:
        topic = found.setdefault((other.name, other.topic_id), other)
        if topic is not other:
            topic.partitions += other.partitions
    return list(found.values())
