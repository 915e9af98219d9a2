"""DeleteRecords in a cluster: it is answered when every replica that lives has cut."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.kbroker.cluster.in_process import Cluster, run, until
from wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.errors import ErrorCode


async def cut(cluster: Cluster, offset: int, *, timeout_ms: int = 20_000) -> Any:
    """The answer for the one partition, by its leader, broker 1."""
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=[wanted])
    answer = await cluster.ask(1, DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 2)
    return answer.topics[0].partitions[0]


async def filled(cluster: Cluster) -> None:
    """Ten records on three brokers, all of them committed everywhere."""
    await cluster.create("t", 1, 2, 3)
    for number in range(10):
        assert (await cluster.produce(1, b"%d" % number)).error_code == 0
    await cluster.agreed()


def starts(cluster: Cluster) -> list[int]:
    return [cluster.hosted(one).log.log_start_offset for one in (1, 2, 3)]


def test_records_are_deleted_everywhere_when_that_is_answered(tmp_path: Path) -> None:
    """Conformance 66"""

    async def test(cluster: Cluster) -> None:
        await filled(cluster)
        for offset, begins in ((4, 4), (2, 4), (-1, 10)):
            answer = await cut(cluster, offset)
            assert (answer.error_code, answer.low_watermark) == (0, begins)
            assert starts(cluster) == [begins] * 3

    run(test, tmp_path)


def test_a_follower_that_does_not_cut_in_time_is_told_of(tmp_path: Path) -> None:
    """The leader has cut by then, and the follower will."""

    async def test(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.hold_back(3)
        answer = await cut(cluster, 4, timeout_ms=100)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.hosted(1).log.log_start_offset == 4
        assert not cluster.hosted(1).deletions
        cluster.let_follow(3)
        await until(lambda: starts(cluster) == [4, 4, 4])
        assert ((await cut(cluster, 4)).error_code, (await cut(cluster, 4)).low_watermark) == (0, 4)

    run(test, tmp_path, replica_lag_time_max_ms=30_000)


@pytest.mark.parametrize("meanwhile", [True, False])
def test_a_replica_whose_broker_is_dead_is_not_waited_for(tmp_path: Path, meanwhile: bool) -> None:
    """Whether it dies before or meanwhile."""

    async def test(cluster: Cluster) -> None:
        await filled(cluster)
        if not meanwhile:
            await cluster.crash(3)
            await until(lambda: 3 not in cluster.brokers[1].metadata.nodes)
            answer = await cut(cluster, 4)
        else:
            cluster.hold_back(3)
            asked = asyncio.ensure_future(cut(cluster, 4))
            await until(lambda: bool(cluster.hosted(1).deletions))
            await cluster.crash(3)
            answer = await asked
        assert (answer.error_code, answer.low_watermark) == (0, 4)

    run(test, tmp_path)


def test_a_leader_that_leads_no_more_says_so(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.hold_back(3)
        asked = asyncio.ensure_future(cut(cluster, 4))
        await until(lambda: bool(cluster.hosted(1).deletions))
        cluster.brokers[1].replicas.forget("t", 0)
        answer = await asked
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    run(test, tmp_path, replica_lag_time_max_ms=30_000)
