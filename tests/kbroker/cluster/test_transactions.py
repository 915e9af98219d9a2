"""Transactions in a cluster: partitions, offsets and coordinators on several brokers, some of which die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinators.key_partition import partition_of
from tests.kbroker.cluster.in_process import Cluster, run, until
from tests.kbroker.cluster.routed import PARTITIONS, Routed
from tests.kbroker.transacting import (
    GROUP,
    READ_COMMITTED,
    Transacting,
    committed_offset,
    markers,
    read_committed,
    settled,
)
from wire.errors import ErrorCode
from wire.internal import TRANSACTION_STATE

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("version", [1, 2])
LATEST = -1


def coordinator(cluster: Cluster) -> int:
    return cluster.leader(TRANSACTION_STATE, partition_of("x", PARTITIONS))


def transacted(
    test: Callable[[Cluster, Routed], Awaitable[None]], directory: Path, **properties: Any
) -> None:
    """Run a test with a cluster that has a topic, each of its partitions led by another broker."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", partitions=3)
        leaders = {cluster.leader("t", index) for index in range(3)}
        assert leaders == {1, 2, 3}
        await test(cluster, Routed(cluster))

    run(body, directory, transaction_state_log_num_partitions=PARTITIONS, **properties)


@BOTH
def test_a_transaction_spans_brokers(tmp_path: Path, version: int) -> None:
    """conformance 50, 51: the coordinator has every leader write its markers, of offsets too."""

    async def test(cluster: Cluster, speaker: Routed) -> None:
        def transact() -> None:
            one = Transacting(speaker, "x", version).initialized()
            one.find("g", GROUP)
            for is_commit, offset in ((True, 5), (False, 9)):
                for index in range(3):
                    one.begun("t", b"%d" % offset, partition=index)
                if version < 2:
                    assert settled(lambda: one.add_offsets("g")) == 0
                assert settled(lambda offset=offset: one.commit_offset("g", "t", offset)) == 0  # type: ignore[misc]
                one.settled_end(is_commit=is_commit)
            for index in range(3):
                assert read_committed(speaker, "t", index) == [b"5"]
                assert [outcome for _, _, outcome in markers(speaker, "t", index)] == ["COMMIT", "ABORT"]
            assert committed_offset(speaker, "g", "t", require_stable=True) == (0, 5)

        await asyncio.to_thread(transact)
        for index in range(3):
            await cluster.agreed("t", index)
        await cluster.agreed(TRANSACTION_STATE, partition_of("x", PARTITIONS))

    transacted(test, tmp_path)


@BOTH
def test_another_coordinator_takes_over_an_open_transaction(tmp_path: Path, version: int) -> None:
    """conformance 43, 50: the last stable offset does not go back, and the transaction goes on."""

    async def test(cluster: Cluster, speaker: Routed) -> None:
        def begin() -> Transacting:
            one = Transacting(speaker, "x", version).initialized()
            for index in range(3):
                one.begun("t", b"a", partition=index)
            return one

        def go_on(one: Transacting) -> None:
            for index in range(3):
                stable = speaker.offset("t", LATEST, index, isolation_level=READ_COMMITTED)
                assert (stable.error_code, stable.offset) == (0, 0)
                assert (
                    settled(
                        lambda index=index: one.send("t", b"b", partition=index)[0],  # type: ignore[misc]
                        ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        ErrorCode.NOT_ENOUGH_REPLICAS,
                    )
                    == 0
                )
            assert settled(lambda: one.end(is_commit=True)) == 0
            one.completed()
            for index in range(3):
                assert read_committed(speaker, "t", index) == [b"a", b"b"]

        one = await asyncio.to_thread(begin)
        first = coordinator(cluster)
        await cluster.crash(first)
        await until(lambda: coordinator(cluster) not in (-1, first))
        await asyncio.to_thread(go_on, one)

    transacted(test, tmp_path)


@BOTH
def test_a_decision_survives_its_coordinator(tmp_path: Path, version: int) -> None:
    """conformance 50: it dies right after it has answered EndTxn; there is one outcome, everywhere."""

    async def test(cluster: Cluster, speaker: Routed) -> None:
        expected: list[bytes] = []

        def transact(number: int) -> Transacting:
            one = Transacting(speaker, "x", version).initialized()
            for index in range(3):
                one.begun("t", b"%d" % number, partition=index)
            assert one.end(is_commit=number != 1) == 0
            return one

        def check(one: Transacting) -> None:
            one.completed()
            for index in range(3):
                assert read_committed(speaker, "t", index) == expected
                stable = speaker.offset("t", LATEST, index, isolation_level=READ_COMMITTED).offset
                assert stable == speaker.offset("t", LATEST, index).offset

        for number in range(3):
            one = await asyncio.to_thread(transact, number)
            expected += [b"%d" % number] if number != 1 else []
            dying = coordinator(cluster)
            await cluster.crash(dying)
            await until(lambda dying=dying: coordinator(cluster) not in (-1, dying))  # type: ignore[misc]
            await asyncio.to_thread(check, one)
            await cluster.start(dying)
            for index in range(3):
                await until(lambda index=index: cluster.isr("t", index) == {1, 2, 3})  # type: ignore[misc]

    transacted(test, tmp_path)


@BOTH
def test_markers_follow_a_partition_to_its_next_leader(tmp_path: Path, version: int) -> None:
    """conformance 50: a leader dies with the transaction open in its partition."""

    async def test(cluster: Cluster, speaker: Routed) -> None:
        def begin() -> Transacting:
            one = Transacting(speaker, "x", version).initialized()
            for index in range(3):
                one.begun("t", b"a", partition=index)
            return one

        def end(one: Transacting) -> None:
            assert settled(lambda: one.end(is_commit=True)) == 0
            one.completed()
            for index in range(3):
                assert read_committed(speaker, "t", index) == [b"a"]

        one = await asyncio.to_thread(begin)
        index = next(index for index in range(3) if cluster.leader("t", index) != coordinator(cluster))
        dying = cluster.leader("t", index)
        ending = asyncio.create_task(asyncio.to_thread(end, one))
        await cluster.crash(dying)
        await ending

    transacted(test, tmp_path)
