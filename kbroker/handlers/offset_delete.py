"""OffsetDelete: delete committed offsets of a group.

Topics that a member is subscribed to keep theirs (GROUP_SUBSCRIBED_TO_TOPIC). A partition that does not exist
is UNKNOWN_TOPIC_OR_PARTITION, unless the group as a whole is refused.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker


def offset_delete(broker: Broker, context: Context, request: OffsetDeleteRequest) -> Parked:
    known, unknown = [], []
    for topic in request.topics:
        found = broker.metadata.topics.get(topic.name)
        there: Container[int] = () if found is None else found.partitions
        exist = [p for p in topic.partitions if p.partition_index in there]
        known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=exist))
        unknown.append([p.partition_index for p in topic.partitions if p.partition_index not in there])

    def with_unknown(response: object) -> object:
        if isinstance(response, OffsetDeleteResponse) and not response.error_code:
            for topic, indexes in zip(response.topics, unknown, strict=True):
                refuse(topic, indexes)
        return response

    asked = OffsetDeleteRequest(group_id=request.group_id, topics=known)
    parked = broker.groups.ask(
        request.group_id, lambda groups, token, now_ms: groups.delete_offsets(asked, token, now_ms)
    )
    return parked.then(with_unknown) if any(unknown) else parked


def refuse(topic: OffsetDeleteResponseTopic, indexes: list[int]) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic.partitions += [
        OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes
    ]
