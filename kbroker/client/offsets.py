"""Offsets of partitions by time: the first, the next one to be written, the first at or after a moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kbroker.client.cluster import Cluster
from kbroker.client.connection import check
from wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from wire.errors import ErrorCode

TopicPartition = tuple[str, int]

EARLIEST = -2
LATEST = -1
CONSUMER, DEBUGGER = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def list_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset of each partition at that time; -1 where no record is that young."""
    wanted = list(partitions)
    return cluster.patiently(lambda: _asked(cluster, wanted, timestamp, isolation_level))


def offsets_since(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    """Where records of that time or later begin; the end where there are none."""
    found = list_offsets(cluster, partitions, timestamp_ms)
    without = [partition for partition, offset in found.items() if offset < 0]
    return {**found, **(list_offsets(cluster, without, LATEST) if without else {})}


def all_partitions(cluster: Cluster, topics: Iterable[str]) -> list[TopicPartition]:
    return [(name, one.number) for name in topics for one in cluster.topic(name).partitions]


def log_ends(
    cluster: Cluster, broker_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where the logs of a broker end, whether it leads these partitions or follows; not those it lacks."""
    found = _ask(cluster, broker_id, partitions, LATEST, READ_UNCOMMITTED, DEBUGGER)
    return {
        (topic.name, answer.partition_index): answer.offset
        for topic in found
        for answer in topic.partitions
        if answer.error_code == ErrorCode.NONE
    }


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """The partitions' numbers under their topics, as most requests want them."""
    grouped = defaultdict(list)
    for topic, number in partitions:
        grouped[topic].append(number)
    return grouped


def _asked(
    cluster: Cluster, partitions: list[TopicPartition], timestamp: int, isolation_level: int
) -> dict[TopicPartition, int]:
    by_leader = defaultdict(list)
    for partition in partitions:
        by_leader[cluster.leader_id(*partition)].append(partition)
    found = {}
    for leader, led in by_leader.items():
        for topic in _ask(cluster, leader, led, timestamp, isolation_level, CONSUMER):
            for answer in topic.partitions:
                doing = f"cannot list the offsets of {topic.name}-{answer.partition_index}"
                check(answer.error_code, doing)
                found[topic.name, answer.partition_index] = answer.offset
    return found


def _ask(
    cluster: Cluster,
    broker_id: int,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    isolation_level: int,
    replica_id: int,
) -> list[ListOffsetsTopicResponse]:
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in numbers
            ],
        )
        for name, numbers in by_topic(partitions).items()
    ]
    request = ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=topics)
    response: ListOffsetsResponse = cluster.broker(broker_id).ask(request)
    return response.topics
