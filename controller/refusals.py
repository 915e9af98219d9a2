"""The answer to a question as a whole that is refused: each API has its own place for the error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controller import events
from controller.topics import TOPIC_IDS_SINCE
from wire.api import alter_client_quotas, alter_configs, incremental_alter_configs
from wire.api.alter_partition import AlterPartitionResponse
from wire.api.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from wire.api.controlled_shutdown import ControlledShutdownResponse
from wire.api.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from wire.api.create_topics import CreatableTopicResult, CreateTopicsResponse
from wire.api.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from wire.api.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from wire.api.list_partition_reassignments import ListPartitionReassignmentsResponse
from wire.errors import KafkaError
from wire.primitives import ZERO_UUID


def refusal(question: events.Question, error: KafkaError) -> object:
    """The reply that says why, to everything that was asked."""
    return REFUSALS[type(question)](question, error)


def _create_topics(question: events.CreateTopics, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        throttle_time_ms=0,
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
            for topic in question.request.topics
        ],
    )


def _delete_topics(question: events.DeleteTopics, error: KafkaError) -> DeleteTopicsResponse:
    asked = [(topic.name, topic.topic_id) for topic in question.request.topics]
    if question.version < TOPIC_IDS_SINCE:
        asked = [(name, ZERO_UUID) for name in question.request.topic_names]
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=str(error)
            )
            for name, topic_id in asked
        ],
    )


def _create_partitions(question: events.CreatePartitions, error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
            for topic in question.request.topics
        ],
    )


def _incremental_alter_configs(
    question: events.IncrementalAlterConfigs, error: KafkaError
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in question.request.resources
        ],
    )


def _alter_configs(question: events.AlterConfigs, error: KafkaError) -> alter_configs.AlterConfigsResponse:
    return alter_configs.AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in question.request.resources
        ],
    )


def _alter_client_quotas(
    question: events.AlterClientQuotas, error: KafkaError
) -> alter_client_quotas.AlterClientQuotasResponse:
    return alter_client_quotas.AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            alter_client_quotas.EntryDataResponse(
                error_code=error.code, error_message=str(error), entity=entry.entity
            )
            for entry in question.request.entries
        ],
    )


def _alter_partition(question: events.AlterPartition, error: KafkaError) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])


def _elect_leaders(question: events.ElectLeaders, error: KafkaError) -> ElectLeadersResponse:
    """Version 0 has an error for each partition only."""
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=partition, error_code=error.code, error_message=str(error))
                    for partition in topic.partitions
                ],
            )
            for topic in question.request.topic_partitions or []
        ],
    )


def _alter_reassignments(
    question: events.AlterReassignments, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), responses=[]
    )


def _list_reassignments(
    question: events.ListReassignments, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), topics=[]
    )


def _controlled_shutdown(
    question: events.ControlledShutdown, error: KafkaError
) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=error.code, remaining_partitions=[])


REFUSALS: Mapping[type, Callable[[Any, KafkaError], object]] = {
    events.CreateTopics: _create_topics,
    events.DeleteTopics: _delete_topics,
    events.CreatePartitions: _create_partitions,
    events.IncrementalAlterConfigs: _incremental_alter_configs,
    events.AlterConfigs: _alter_configs,
    events.AlterClientQuotas: _alter_client_quotas,
    events.AlterPartition: _alter_partition,
    events.ElectLeaders: _elect_leaders,
    events.AlterReassignments: _alter_reassignments,
    events.ListReassignments: _list_reassignments,
    events.ControlledShutdown: _controlled_shutdown,
}
