"""DescribeConfigs: the configuration of topics, brokers and groups, with sources and synonyms.

- v1+: sources and synonyms; v3+: types and documentation. An unknown topic is 3 (conformance 18), one that
  cannot be is 17.
- In a cluster the configuration of a topic is read from the store, as by Kafka 3.9: what was answered to
  another broker's client a moment ago is seen, and what Kafka's brokers store without a word. Where the store
  cannot be asked, the answer is what is known.
- A broker describes itself; the empty name is the default of all brokers.
- Client metrics have three keys, which keep their defaults: there are no subscriptions to them.
- Null keys are all keys; names that are no key are left out.
- A resource that is named again is answered again, with the same answer: it is made once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from controller.topic_names import objection_to
from kbroker.config import ConfigSource
from kbroker.configuration.describing import Entry, describe_client_metrics
from kbroker.configuration.resources import (
    AllBrokersResource,
    BrokerResource,
    GroupResource,
    Resource,
    TopicResource,
)
from kbroker.context import Context, InSlices, Parked
from wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


def describe_configs(
    broker: Broker, context: Context, request: DescribeConfigsRequest
) -> InSlices[DescribeConfigsResponse] | Parked:
    membership, work = broker.membership, described(broker, request)
    named = dict.fromkeys(one.resource_name for one in request.resources if one.resource_type == TOPIC)
    topics = [name for name in named if name in broker.metadata.topics]
    if not topics or membership is None or not membership.is_shared:
        return work
    parked = Parked()
    answer = partial(broker.slices.take, work, parked.complete)
    broker.spawn(membership.learn_topics(topics, answer, has_to=False))
    return parked


def described(broker: Broker, request: DescribeConfigsRequest) -> InSlices[DescribeConfigsResponse]:
    whole: dict[tuple[int, str], DescribeConfigsResult] = {}
    results = []
    for one in request.resources:
        resource = one.resource_type, one.resource_name
        result = None if one.configuration_keys else whole.get(resource)
        if result is None:
            result = describe(broker, request, one)
            if not one.configuration_keys:
                whole[resource] = result
        results.append(result)
        yield
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def describe(
    broker: Broker, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[],
    )
    try:
        if asked.resource_type == CLIENT_METRICS and asked.resource_name:
            entries = describe_client_metrics(asked.configuration_keys)
        else:
            entries = resource(broker, asked).describe(asked.configuration_keys)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, str(error)
    else:
        result.configs = [shown(entry, request) for entry in entries]
    return result


def resource(broker: Broker, asked: DescribeConfigsResource) -> Resource:
    configuration = broker.settings.configuration
    name = asked.resource_name
    if asked.resource_type == TOPIC:
        if (objection := objection_to(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, objection)
        if name not in broker.metadata.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return TopicResource(configuration, broker.settings.stored_of_topic(name))
    if asked.resource_type == BROKER:
        if not name:
            return AllBrokersResource(configuration)
        if name != str(broker.node_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name}")
        return BrokerResource(configuration)
    if asked.resource_type == GROUP and name:
        return GroupResource(configuration, broker.settings.stored_of_group(name))
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"no configuration belongs to {name!r} of type {asked.resource_type}"
    )


def shown(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in entry.synonyms
    ]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.source == ConfigSource.DEFAULT_CONFIG,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
