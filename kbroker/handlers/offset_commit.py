"""OffsetCommit: store how far a group has read.

- v9+: the epoch of a member of the new protocol, and GROUP_ID_NOT_FOUND; v10: topics by id.
- Topics and partitions that do not exist are answered here and kept from the group (conformance 82).
- Very many partitions are committed in pieces (`kbroker.offset_pieces`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any

from kbroker.context import Context, InSlices, Parked
from kbroker.offset_pieces import Gathered, in_pieces
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
) -> InSlices[OffsetCommitResponse | Parked]:
    refused = []
    for topic in request.topics:
        if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topic.name = broker.metadata.topic_name(topic.topic_id) or ""
        if (unknown := unknown_part(broker, context, topic)) is not None:
            refused.append(unknown)
        yield
    pieces = in_pieces([topic for topic in request.topics if topic.partitions], "partitions")
    if not pieces:
        return OffsetCommitResponse(topics=refused)
    gathered = Gathered()
    for topics in pieces:
        piece = copy(request)
        piece.topics = topics
        gathered.expect(commit(broker, context, piece))
        yield
    gathered.is_complete()
    return gathered.parked.then(lambda answers: all_of(answers, refused))


def commit(broker: Broker, context: Context, request: OffsetCommitRequest) -> Parked:
    try:
        return broker.groups.ask(
            request.group_id,
            lambda groups, token, now_ms: groups.commit_offsets(request, context, token, now_ms),
        )
    except KafkaError as error:
        failed = Parked()
        failed.complete(OffsetCommitResponse(topics=[refusal(topic, error.code) for topic in request.topics]))
        return failed


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


def all_of(answers: Any, refused: Iterable[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    """One answer, with one entry for each topic."""
    found: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for other in chain(*(answer.topics for answer in answers), refused):
        topic = found.setdefault((other.name, other.topic_id), other)
        if topic is not other:
            topic.partitions += other.partitions
    return OffsetCommitResponse(topics=list(found.values()))
