"""Groups in a cluster: when they have a coordinator, and how long it waits for its replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kbroker.coordinators.key_partition import old_partition_of, partition_of
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


async def coordinator(cluster: Cluster, broker_id: int = 1, group: str = GROUP) -> tuple[int, int]:
    """The error, and who it is."""
    answer = await cluster.ask(broker_id, FindCoordinatorRequest(key=group), 3)
    return answer.error_code, answer.node_id


async def until_coordinated(cluster: Cluster, group: str = GROUP) -> int:
    """Asking again, as clients do, since that is what has the topic made."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await coordinator(cluster, group=group))[0] != ErrorCode.NONE:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found[1]


async def commit(cluster: Cluster, broker_id: int, offset: int, group: str = GROUP) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await cluster.ask(broker_id, OffsetCommitRequest(group_id=group, topics=[topic]), 7)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(cluster: Cluster, broker_id: int) -> int:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    answer = await cluster.ask(broker_id, OffsetFetchRequest(group_id=GROUP, topics=topics), 5)
    return int(answer.topics[0].partitions[0].committed_offset)


async def commits(cluster: Cluster, broker_id: int, offset: int, group: str = GROUP) -> int:
    """Once the coordinator is loaded."""
    while (code := await commit(cluster, broker_id, offset, group)) in NOT_YET:  # noqa: ASYNC110
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


def test_what_an_earlier_kbroker_put_elsewhere_is_moved_by_the_broker_that_leads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All were stopped, and the last one is started first: docs/storage.md. The others follow."""
    group = next(
        one
        for one in (f"group of {number * number}" for number in range(99))
        if misplaced(one) != partition_of(one, 3)
    )

    async def test(cluster: Cluster) -> None:
        with monkeypatch.context() as earlier:
            earlier.setattr("kbroker.coordinator_runtime.partition_of", old_partition_of)
            await cluster.create("t", 1, 2)
            found = await until_coordinated(cluster, group=group)
            assert await commits(cluster, found, 7, group) == ErrorCode.NONE
            for index in range(3):
                await until(lambda index=index: cluster.isr(CONSUMER_OFFSETS, index) == {1, 2})  # type: ignore[misc]
            await cluster.stop(2)
            await cluster.stop(1)
        await cluster.start(1)
        assert await until_coordinated(cluster, group=group) == 1
        assert await until_committed(cluster, 1, group) == 7
        await cluster.start(2)
        right, wrong = partition_of(group, 3), misplaced(group)
        for index in (right, wrong):
            await until(lambda index=index: cluster.isr(CONSUMER_OFFSETS, index) == {1, 2})  # type: ignore[misc]
            await cluster.agreed(CONSUMER_OFFSETS, index)
        await cluster.crash(1)
        await until(lambda: cluster.leader(CONSUMER_OFFSETS, right) == 2)
        assert await until_committed(cluster, 2, group) == 7

    run(test, tmp_path, brokers=2, offsets_topic_replication_factor=2)


def misplaced(group: str) -> int:
    return old_partition_of(group, 3)


async def until_committed(cluster: Cluster, broker_id: int, group: str) -> int:
    """Once the coordinator is loaded, and has the group."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            answer = await cluster.ask(broker_id, OffsetFetchRequest(group_id=group, topics=topics), 5)
            if answer.error_code == ErrorCode.NONE:
                return int(answer.topics[0].partitions[0].committed_offset)
            await asyncio.sleep(0.01)
