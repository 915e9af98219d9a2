"""Metadata: the brokers, the controller, and the topics asked for.

- All topics: null; in v0 an empty list (conformance 10).
- By name: an unknown topic is created where the client (v4+), the broker's configuration and its name allow
  it; the reply to that request still says UNKNOWN_TOPIC_OR_PARTITION (11). A name that cannot be is
  INVALID_TOPIC_EXCEPTION (12). Each name is answered once.
- By id (v12+): UNKNOWN_TOPIC_ID (14). One id in the list, and names are not looked at.
- An id or a null name before v12, or neither name nor id: INVALID_REQUEST for every topic and no brokers.
  (For neither, Kafka 4.3 says UNKNOWN_SERVER_ERROR, which helps nobody.)
- Brokers are told with the address of the listener that the request came in by (19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from controller.topic_names import objection_to
from kbroker.context import Context, InSlices
from kbroker.metadata_cache import Topic
from wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from wire.errors import ErrorCode
from wire.internal import INTERNAL_TOPICS
from wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from kbroker.broker import Broker

ALL_TOPIC_OPERATIONS = 0b110111111000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: nobody says no."""
ALL_CLUSTER_OPERATIONS = 0b1111110100000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""


def metadata(broker: Broker, context: Context, request: MetadataRequest) -> InSlices[MetadataResponse]:
    asked = request.topics or []
    if not is_well_asked(asked, context.api_version):
        return refused(asked)
    cache = broker.metadata
    if request.topics is None or (not asked and context.api_version == 0):
        topics = yield from all_topics(broker, context)
    else:
        topics = yield from by_id(broker, context, asked)
        topics = topics or (yield from by_name(broker, context, request))
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=host, port=port, rack=node.rack)
            for node in cache.nodes.values()
            for host, port in (node.endpoints.get(context.listener, ("", -1)),)
            if host
        ],
        cluster_id=broker.cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


def is_well_asked(asked: Sequence[MetadataRequestTopic], version: int) -> bool:
    if version < 12:
        return all(topic.name is not None and topic.topic_id == ZERO_UUID for topic in asked)
    return all(topic.name is not None or topic.topic_id != ZERO_UUID for topic in asked)


def all_topics(broker: Broker, context: Context) -> InSlices[list[MetadataResponseTopic]]:
    topics = []
    for topic in list(broker.metadata.topics.values()):
        topics.append(known(broker, context, topic))
        yield
    return topics


def by_id(
    broker: Broker, context: Context, asked: Sequence[MetadataRequestTopic]
) -> InSlices[list[MetadataResponseTopic]]:
    answers = []
    for topic_id in dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID):
        topic = broker.metadata.topics.get(broker.metadata.topic_name(topic_id) or "")
        if topic is None:
            answers.append(without_partitions(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
        else:
            answers.append(known(broker, context, topic))
        yield
    return answers


def by_name(
    broker: Broker, context: Context, request: MetadataRequest
) -> InSlices[list[MetadataResponseTopic]]:
    answers, missing = [], []
    for name in dict.fromkeys(topic.name or "" for topic in request.topics or ()):
        topic = broker.metadata.topics.get(name)
        if topic is not None:
            answers.append(known(broker, context, topic))
        elif objection_to(name) is not None:
            answers.append(without_partitions(ErrorCode.INVALID_TOPIC_EXCEPTION, name, ZERO_UUID))
        else:
            missing.append(name)
            answers.append(without_partitions(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, ZERO_UUID))
        yield
    if missing and request.allow_auto_topic_creation:
        broker.create_topics(missing)
    return answers


def known(broker: Broker, context: Context, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=broker.metadata.described(topic, context.listener),
    )


def refused(asked: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    code = ErrorCode.INVALID_REQUEST
    topics = [without_partitions(code, topic.name or "", topic.topic_id) for topic in asked]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


def without_partitions(code: ErrorCode, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])
