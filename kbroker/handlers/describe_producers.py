"""DescribeProducers: the producers that a partition remembers, for whoever looks for a hanging transaction.

Of each producer id its last epoch, sequence number and time, and where its open transaction began, if any.
Only the leader answers; a name that cannot be a topic's is INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.topic_names import objection_to
from kbroker.context import Context, InSlices
from storage.producer_entry import ProducerEntry
from wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

NO_SEQUENCE = -1


def describe_producers(
    broker: Broker, context: Context, request: DescribeProducersRequest
) -> InSlices[DescribeProducersResponse]:
    described: dict[tuple[str, int], PartitionResponse] = {}
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            place = topic.name, index
            if place not in described:
                described[place] = describe(broker, *place)
            partitions.append(described[place])
            yield
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def describe(broker: Broker, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=[])
    try:
        if (objection := objection_to(topic)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, objection)
        log = broker.replicas.leader_of(topic, index).log
        log.check_online()
        answer.active_producers = [state_of(entry) for entry in log.producers.producers.values()]
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, str(error)
    return answer


def state_of(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
