"""Partitions that move between brokers: started, listed, and their preferred leaders elected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kbroker.client.cluster import Cluster
from kbroker.client.connection import check
from kbroker.client.offsets import TopicPartition, by_topic
from wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
)
from wire.errors import ErrorCode

PREFERRED = 0
NOT_NOW = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
"""Who prefers to lead and cannot yet will lead later."""


def under_way(cluster: Cluster) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """All partitions that are moving."""

    def ask() -> dict[TopicPartition, OngoingPartitionReassignment]:
        response = cluster.controller().ask(ListPartitionReassignmentsRequest())
        check(response.error_code, "cannot list reassignments", response.error_message)
        return {
            (topic.name, one.partition_index): one for topic in response.topics for one in topic.partitions
        }

    return cluster.patiently(ask)


def reassign(cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Have these partitions move to these replicas. They have started when this returns."""
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=one, replicas=list(targets[name, one]))
                for one in numbers
            ],
        )
        for name, numbers in by_topic(targets).items()
    ]

    def ask() -> None:
        response = cluster.controller().ask(AlterPartitionReassignmentsRequest(topics=topics))
        check(response.error_code, "cannot move partitions", response.error_message)
        for topic in response.responses:
            for one in topic.partitions:
                check(one.error_code, f"cannot move {topic.name}-{one.partition_index}", one.error_message)

    if topics:
        cluster.patiently(ask)


def elect_preferred(cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
    """Give leadership to the first replica of each, where that can be."""
    topics = [TopicPartitions(topic=name, partitions=list(one)) for name, one in by_topic(partitions).items()]

    def ask() -> None:
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=topics)
        response = cluster.controller().ask(request)
        check(response.error_code, "cannot elect leaders")
        for topic in response.replica_election_results:
            for one in topic.partition_result:
                if one.error_code not in NOT_NOW:
                    check(one.error_code, f"cannot elect a leader of {topic.topic}-{one.partition_id}")

    if topics:
        cluster.patiently(ask)
