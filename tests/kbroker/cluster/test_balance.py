"""A cluster that is looked at, and balanced, with the command and by itself."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli import main
from tests.kbroker.cluster.in_process import Cluster, run, until

Capture = pytest.CaptureFixture[str]


async def kbroker(cluster: Cluster, capsys: Capture, *arguments: str) -> str:
    """What a command prints; it is another thread, as its cluster is this one's."""
    host, port = cluster.brokers[1].address
    bootstrap = f"{host}:{port}"
    assert await asyncio.to_thread(main, [*arguments, "--bootstrap", bootstrap]) == 0
    return capsys.readouterr().out


async def described(cluster: Cluster, capsys: Capture) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(await kbroker(cluster, capsys, "cluster", "describe", "--json"))
    return document


def shares(cluster: Cluster) -> tuple[Counter[int], Counter[int]]:
    """Replicas and preferred leaders, by broker."""
    states = [
        one for topic in cluster.brokers[1].metadata.topics.values() for one in topic.partitions.values()
    ]
    return (
        Counter(replica for one in states for replica in one.replicas),
        Counter(one.replicas[0] for one in states),
    )


def test_the_command_gives_a_new_broker_its_share(tmp_path: Path, capsys: Capture) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, partitions=6)
        for index in range(6):
            await cluster.produce(1, b"%d" % index, index=index)
        await cluster.start(3)
        plan = json.loads(await kbroker(cluster, capsys, "cluster", "balance", "--dry-run", "--json"))
        assert shares(cluster)[0] == {1: 6, 2: 6}, "a dry run moves nothing"
        assert {3} < {replica for one in plan for replica in one["to"]}
        await kbroker(cluster, capsys, "cluster", "balance", "--at-once", "2")
        await until(lambda: shares(cluster) == ({1: 4, 2: 4, 3: 4}, {1: 2, 2: 2, 3: 2}))
        for index in range(6):
            await until(partial(_is_led_by_the_preferred, cluster, index))
            await cluster.agreed("t", index)
            assert cluster.values(cluster.leader("t", index), "t", index) == [b"%d" % index]
        assert "nothing to move" in await kbroker(cluster, capsys, "cluster", "balance")

    run(test, tmp_path, brokers=2)


def _is_led_by_the_preferred(cluster: Cluster, index: int) -> bool:
    return cluster.leader("t", index) == _preferred(cluster, index)


def _preferred(cluster: Cluster, index: int) -> int:
    state = cluster.brokers[1].metadata.partition("t", index)
    assert state is not None
    return state.replicas[0]


def test_the_controller_does_it_by_itself(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, partitions=4)
        await cluster.start(3)
        await until(lambda: shares(cluster)[0] == {1: 3, 2: 3, 3: 2} and not _moving(cluster))

    run(test, tmp_path, brokers=2, kbroker_auto_balance="true", kbroker_replica_recovery_delay_ms=400)


def _moving(cluster: Cluster) -> bool:
    states = cluster.brokers[1].metadata.topics["t"].partitions.values()
    return any(len(one.replicas) != 2 for one in states)


def test_what_is_not_well_is_shown_with_the_lag_of_followers(tmp_path: Path, capsys: Capture) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        await until(lambda: cluster.isr() == {1, 2, 3})
        well = await described(cluster, capsys)
        assert (well["unwell"], well["under_replicated"], well["absent_brokers"]) == ([], 0, [])
        cluster.hold_back(3)
        for number in range(5):
            await cluster.produce(1, b"%d" % number)
        await until(lambda: cluster.isr() == {1, 2})
        found = await described(cluster, capsys)
        (unwell,) = found["unwell"]
        assert (unwell["topic"], unwell["out_of_sync"], unwell["lag"]["3"]) == ("t", [3], 5)
        assert {one["id"]: one["lag"] for one in found["brokers"]}[3] == 5
        lines = (await kbroker(cluster, capsys, "cluster")).splitlines()
        assert "1 under replicated" in lines
        await cluster.crash(3)
        await until(lambda: 3 not in cluster.brokers[1].metadata.nodes)
        assert (await described(cluster, capsys))["absent_brokers"] == [3]

    run(test, tmp_path)
