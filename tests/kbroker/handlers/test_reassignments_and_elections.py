"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, as one broker can show them.

What clusters do with them is proven for the controller. The answers were measured on Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker
from wire.api import ApiKey
from wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from wire.errors import ErrorCode


@pytest.fixture
def speaker(shared_broker: BrokerProcess) -> Iterator[Speaker]:
    """With the topic t of two partitions."""
    speaker = Speaker(shared_broker.host, shared_broker.port)
    if speaker.metadata("t").error_code:
        speaker.create("t", 2)
    yield speaker
    speaker.socket.close()


def elect(speaker: Speaker, *asked: tuple[str, int], version: int = 2, election_type: int = 0) -> Any:
    topics = [TopicPartitions(topic=topic, partitions=[partition]) for topic, partition in asked]
    request = ElectLeadersRequest(
        election_type=election_type, topic_partitions=topics or None, timeout_ms=5000
    )
    return speaker.ask(request, ApiKey.ELECT_LEADERS, version)


def codes(reply: Any) -> list[int]:
    return [one.error_code for topic in reply.replica_election_results for one in topic.partition_result]


@pytest.mark.parametrize("version", range(3))
def test_a_leader_that_is_the_preferred_one_stays(speaker: Speaker, version: int) -> None:
    reply = elect(speaker, ("t", 0), ("t", 9), ("unknown", 0), version=version)
    assert reply.error_code == 0
    assert codes(reply) == [ErrorCode.ELECTION_NOT_NEEDED, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]


def test_an_unclean_election_is_not_needed_where_there_is_a_leader(speaker: Speaker) -> None:
    assert codes(elect(speaker, ("t", 0), election_type=1)) == [ErrorCode.ELECTION_NOT_NEEDED]


def test_asked_for_all_partitions_nothing_is_told_of_those_that_need_nothing(speaker: Speaker) -> None:
    reply = elect(speaker)
    assert (reply.error_code, codes(reply)) == (0, [])


def test_there_are_two_types_of_elections(speaker: Speaker) -> None:
    assert elect(speaker, ("t", 0), election_type=7).error_code == ErrorCode.INVALID_REQUEST


def reassign(
    speaker: Speaker, partition: int, replicas: list[int] | None, topic: str = "t", version: int = 1
) -> int:
    partitions = [ReassignablePartition(partition_index=partition, replicas=replicas)]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=5000, topics=[ReassignableTopic(name=topic, partitions=partitions)]
    )
    reply = speaker.ask(request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, version)
    assert reply.error_code == 0
    code: int = reply.responses[0].partitions[0].error_code
    return code


@pytest.mark.parametrize(
    ("partition", "replicas", "code"),
    [
        (0, [1], ErrorCode.NONE),
        (0, [9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (9, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reassignments_are_judged_one_by_one(
    speaker: Speaker, partition: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    assert reassign(speaker, partition, replicas) == code


def test_a_topic_that_is_not_there_cannot_be_reassigned(speaker: Speaker) -> None:
    assert reassign(speaker, 0, [1], "unknown", version=0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nothing_is_under_way(speaker: Speaker) -> None:
    """To where it is already, a partition has moved before one can ask."""
    assert reassign(speaker, 1, [1]) == ErrorCode.NONE
    some = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])]
    for topics in (None, some):
        request = ListPartitionReassignmentsRequest(timeout_ms=5000, topics=topics)
        reply = speaker.ask(request, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0)
        assert (reply.error_code, reply.topics) == (0, [])
