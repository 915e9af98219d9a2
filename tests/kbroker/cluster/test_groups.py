"""Groups in a cluster: when they have a coordinator, and how long it waits for its replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kbroker.coordinators.key_partition import partition_of
from tests.kbroker.cluster.in_process import PATIENCE_S, Cluster, run, until
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from wire.errors import ErrorCode
from wire.internal import CONSUMER_OFFSETS

GROUP = "g"
INDEX = partition_of(GROUP, 3)


async def coordinator(cluster: Cluster, broker_id: int = 1) -> tuple[int, int]:
    """The error, and who it is."""
    answer = await cluster.ask(broker_id, FindCoordinatorRequest(key=GROUP), 3)
    return answer.error_code, answer.node_id


async def until_coordinated(cluster: Cluster) -> int:
    """Asking again, as clients do, since that is what has the topic made."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await coordinator(cluster))[0] != ErrorCode.NONE:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found[1]


async def commit(cluster: Cluster, broker_id: int, offset: int) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await cluster.ask(broker_id, OffsetCommitRequest(group_id=GROUP, topics=[topic]), 7)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(cluster: Cluster, broker_id: int) -> int:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    answer = await cluster.ask(broker_id, OffsetFetchRequest(group_id=GROUP, topics=topics), 5)
    return int(answer.topics[0].partitions[0].committed_offset)


async def commits(cluster: Cluster, broker_id: int, offset: int) -> int:
    """Once the coordinator is loaded."""
    while (code := await commit(cluster, broker_id, offset)) in NOT_YET:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return code


NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


def test_groups_are_coordinated_once_enough_brokers_are_there(tmp_path: Path) -> None:
    """Conformance 84; until then `__consumer_offsets` cannot be made with the replicas that it is to have."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        for broker_id in (1, 2, 1, 2):
            assert await coordinator(cluster, broker_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        await cluster.start(3)
        found = await until_coordinated(cluster)
        assert await commits(cluster, found, 7) == ErrorCode.NONE
        await until(lambda: cluster.isr(CONSUMER_OFFSETS, INDEX) == {1, 2, 3})
        assert await committed(cluster, found) == 7

    run(test, tmp_path, brokers=2)


def test_a_broker_that_dies_before_there_are_groups_is_waited_for(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        await cluster.crash(3)
        await until(lambda: all(set(one.metadata.nodes) == {1, 2} for one in cluster.brokers.values()))
        assert await coordinator(cluster) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        await cluster.start(3)
        found = await until_coordinated(cluster)
        assert await commits(cluster, found, 7) == ErrorCode.NONE

    run(test, tmp_path)


def test_a_commit_waits_for_replicas_as_long_as_is_configured(tmp_path: Path) -> None:
    """What Kafka answers to REQUEST_TIMED_OUT behind it; the commit holds once the replicas have it."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        found = await until_coordinated(cluster)
        assert await commits(cluster, found, 7) == ErrorCode.NONE
        other = 3 - found
        await until(lambda: cluster.isr(CONSUMER_OFFSETS, INDEX) == {1, 2})
        cluster.hold_back(other, CONSUMER_OFFSETS, INDEX)
        assert await commit(cluster, found, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        cluster.let_follow(other, CONSUMER_OFFSETS, INDEX)
        await cluster.agreed(CONSUMER_OFFSETS, INDEX)
        assert await committed(cluster, found) == 8

    properties = {
        "offsets_commit_timeout_ms": 300,
        "offsets_topic_replication_factor": 2,
        "replica_lag_time_max_ms": 30_000,
    }
    run(test, tmp_path, brokers=2, **properties)
