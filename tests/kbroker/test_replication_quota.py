"""Throttled replication: the rate by a clock of our own, and whole brokers that keep to it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.replication_quota import ReplicationQuota, is_listed
from tests.kbroker.cluster.in_process import Cluster, run, until
from wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

SET, BROKER, EVERY_BROKER = 0, 4, ""


class Clock:
    now_ms = 5_000

    def __call__(self) -> int:
        return self.now_ms


def test_a_rate_is_taken_over_the_windows_that_it_has() -> None:
    """Eleven of a second, of which ten are full: at first ten seconds' worth goes at once, as in Kafka."""
    clock = Clock()
    quota = ReplicationQuota(lambda: 100, clock)
    quota.record(1000)
    assert quota.wait_ms() == 0
    quota.record(1)
    assert quota.wait_ms() == 10_011
    clock.now_ms += 10_011
    assert quota.wait_ms() == 0, "1,001 bytes in a little over ten seconds"
    quota.record(99)
    assert quota.wait_ms() > 0
    clock.now_ms += 989
    assert quota.wait_ms() == 0, "what is older than eleven seconds does not count"


def test_a_limit_that_changes_holds_at_once() -> None:
    limits = [10]
    quota = ReplicationQuota(lambda: limits[0], Clock(), windows=2)
    quota.record(50)
    assert quota.wait_ms() > 0
    limits[0] = 50
    assert quota.wait_ms() == 0
    limits[0] = 0
    assert quota.wait_ms() == 2000, "until all of it is forgotten"


@given(st.integers(1, 1000), st.integers(1, 500), st.integers(1, 12), st.lists(st.integers(0, 3000)))
def test_who_waits_as_told_never_exceeds_the_limit_for_long(
    limit: int, size: int, windows: int, delays: list[int]
) -> None:
    """Over any stretch: the limit, what may go at once at first, and the piece that exceeds it."""
    clock = Clock()
    quota = ReplicationQuota(lambda: limit, clock, windows=windows)
    began_ms, sent = clock.now_ms, 0
    for delay_ms in delays:
        clock.now_ms += delay_ms
        for _ in range(windows + 2):
            if not (wait_ms := quota.wait_ms()):
                break
            clock.now_ms += wait_ms
        else:
            raise AssertionError("it waits for ever")
        quota.record(size)
        sent += size
        elapsed_s = (clock.now_ms - began_ms) / 1000
        spans = elapsed_s // windows + 1
        assert sent <= limit * windows * spans + size * (spans + 1)


def test_replicas_are_listed_one_by_one_or_all_at_once() -> None:
    assert is_listed(["0:1", "3:2"], 3, 2)
    assert not is_listed(["0:1", "3:2"], 3, 1)
    assert is_listed(["*"], 9, 9)
    assert not is_listed([], 0, 1)


RATE, SIZE, PIECE = 500_000, 1_500_000, 100_000
LEAST_S = (SIZE - RATE - 2 * PIECE) / RATE
"""With two windows of a second, a second's worth may go at once."""


async def set_rate(cluster: Cluster, key: str, rate: int) -> None:
    """While the brokers run."""
    change = AlterableConfig(name=key, config_operation=SET, value=str(rate))
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=EVERY_BROKER, configs=[change])
    answer = await cluster.ask(
        1, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
    )
    assert answer.responses[0].error_code == 0, answer
    name = key.replace(".", "_")
    await until(
        lambda: all(
            getattr(broker.settings.configuration.broker, name) == rate for broker in cluster.brokers.values()
        )
    )


async def reassign(cluster: Cluster, *replicas: int) -> None:
    moved = ReassignablePartition(partition_index=0, replicas=list(replicas))
    topics = [ReassignableTopic(name="t", partitions=[moved])]
    request = AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics)
    answer = await cluster.ask(cluster.controller(), request, 0)
    assert answer.error_code == 0, answer
    assert answer.responses[0].partitions[0].error_code == 0, answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "listed"),
    [
        ("leader.replication.throttled.rate", {"leader_replication_throttled_replicas": "0:1"}),
        ("follower.replication.throttled.rate", {"follower_replication_throttled_replicas": "0:2"}),
        ("kbroker.balance.max.bytes.per.second", {}),
    ],
)
def test_a_throttled_reassignment_takes_its_time_and_others_go_on(
    tmp_path: Path, key: str, listed: dict[str, Any]
) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, **listed)
        await cluster.create("u", 1, 2)
        for _ in range(SIZE // PIECE):
            assert (await cluster.produce(1, bytes(PIECE))).error_code == 0
        await set_rate(cluster, key, RATE)
        began = time.monotonic()
        await reassign(cluster, 1, 2)
        beside = 0
        while cluster.isr() != {1, 2}:
            assert (await cluster.produce(1, b"x", topic="u")).error_code == 0
            beside += 1
            await asyncio.sleep(0)
        assert time.monotonic() - began >= LEAST_S
        assert beside >= 20, "what is not throttled waited, too"
        await cluster.agreed()

    properties = {
        "replica_fetch_max_bytes": PIECE,
        "replication_quota_window_num": 2,
        "replica_lag_time_max_ms": 10_000,
    }
    run(test, tmp_path, brokers=2, **properties)


@pytest.mark.slow
def test_a_replica_that_is_not_listed_is_not_throttled(tmp_path: Path) -> None:
    """Nor one that is being added where balancing may copy fast."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, leader_replication_throttled_replicas="0:2")
        for _ in range(SIZE // PIECE):
            assert (await cluster.produce(1, bytes(PIECE))).error_code == 0
        await reassign(cluster, 1, 2)
        await until(lambda: cluster.isr() == {1, 2})

    properties = {"leader_replication_throttled_rate": 1, "follower_replication_throttled_rate": 1}
    run(test, tmp_path, brokers=2, **properties)
