"""Metadata: the brokers, the controller, and the topics asked for.

This broker is its whole cluster and has no topics yet, and creates none.

- All topics (null; in v0 an empty list): an empty list.
- A topic by name gets UNKNOWN_TOPIC_OR_PARTITION. Each name is answered once.
- A topic by id (v12+) gets UNKNOWN_TOPIC_ID and no name. One id in the list, and names are not looked at.
- An id or a null name before v12, or neither name nor id: INVALID_REQUEST for every topic and no brokers.
  (For neither, Kafka 4.3 says UNKNOWN_SERVER_ERROR, which helps nobody.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.context import Context
from wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from kbroker.broker import Broker


def metadata(broker: Broker, context: Context, request: MetadataRequest) -> MetadataResponse:
    asked = request.topics or []
    if not is_well_asked(asked, context.api_version):
        return refused(asked)
    host, port = broker.listener
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=broker.node_id, host=host, port=port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics_by_id(asked) or topics_by_name(asked),
    )


def is_well_asked(asked: Sequence[MetadataRequestTopic], version: int) -> bool:
    if version < 12:
        return all(topic.name is not None and topic.topic_id == ZERO_UUID for topic in asked)
    return all(topic.name is not None or topic.topic_id != ZERO_UUID for topic in asked)


def topics_by_id(asked: Sequence[MetadataRequestTopic]) -> list[MetadataResponseTopic]:
    ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
    return [without_partitions(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id) for topic_id in ids]


def topics_by_name(asked: Sequence[MetadataRequestTopic]) -> list[MetadataResponseTopic]:
    names = dict.fromkeys(topic.name for topic in asked)
    return [without_partitions(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, ZERO_UUID) for name in names]


def refused(asked: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    code = ErrorCode.INVALID_REQUEST
    topics = [without_partitions(code, topic.name or "", topic.topic_id) for topic in asked]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


def without_partitions(code: ErrorCode, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])
