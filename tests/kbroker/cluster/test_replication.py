"""Replication among whole brokers: what acks=all promises, who is in sync, what consumers see."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from storage.checkpoints import EpochEntry
from tests.kbroker.cluster.in_process import Cluster, run, until
from wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from wire.errors import ErrorCode

T = TypeVar("T")


def test_what_is_acknowledged_with_acks_all_is_on_every_replica(tmp_path: Path) -> None:
    """conformance 89"""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 2, 1, 3)
        for number in range(20):
            answer = await cluster.produce(2, b"%d" % number)
            assert (answer.error_code, answer.base_offset) == (0, number)
            assert {cluster.hosted(one).log.log_end_offset for one in (1, 2, 3)} == {number + 1}
        await cluster.agreed()
        assert cluster.isr() == {1, 2, 3}
        assert (await cluster.produce(1, b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test, tmp_path)


def test_a_follower_that_stops_fetching_leaves_the_in_sync_replicas_and_comes_back(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        cluster.hold_back(3)
        answer = asyncio.ensure_future(cluster.produce(1, b"a"))
        await asyncio.sleep(0.1)
        assert not answer.done(), "acknowledged without an in-sync replica"
        assert (await cluster.fetch(1)).high_watermark == 0, "visible before it is committed (conformance 61)"
        assert (await answer).error_code == 0
        assert cluster.isr() == {1, 2}
        assert cluster.hosted(3).log.log_end_offset == 0
        cluster.let_follow(3)
        await until(lambda: cluster.isr() == {1, 2, 3})
        await cluster.agreed()

    run(test, tmp_path)


def test_replicas_are_looked_after_whatever_goes_wrong_once(tmp_path: Path) -> None:
    """As in Kafka's scheduler, a task that fails is run again: otherwise nobody would leave the in-sync
    replicas any more, and whoever wants all of them would wait for the dead.
    """

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        waiting = cluster.hosted(1).deletions

        def fail() -> None:
            del waiting[fail]
            raise RuntimeError("a bug")

        waiting[fail] = None
        await until(lambda: not waiting)
        cluster.hold_back(3)
        assert (await cluster.produce(1, b"a")).error_code == 0
        assert cluster.isr() == {1, 2}

    run(test, tmp_path)


def test_a_follower_goes_on_when_it_has_descriptors_again(tmp_path: Path) -> None:
    """It says nothing about the disk. Before, it followed no more until the controller ordered it anew."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        assert (await cluster.produce(1, b"a")).error_code == 0
        descriptors = cluster.brokers[2].logs.files.descriptors
        refused: list[object] = []

        def refuse(opening: Callable[[], T]) -> T:
            refused.append(opening)
            raise OSError(errno.EMFILE, "Too many open files")

        descriptors.with_room = refuse  # type: ignore[method-assign]
        cluster.hosted(2).log.release()
        assert (await cluster.produce(1, b"b", acks=1)).error_code == 0
        await until(lambda: bool(refused))
        del descriptors.with_room
        await until(lambda: cluster.values(2) == [b"a", b"b"])
        await until(lambda: cluster.isr() == {1, 2})

    run(test, tmp_path, brokers=2)


def test_too_few_in_sync_replicas_refuse_before_the_append_and_after_it(tmp_path: Path) -> None:
    """conformance 33"""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3, min_insync_replicas=3)
        cluster.hold_back(3)
        assert (await cluster.produce(1, b"a")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert (await cluster.produce(1, b"b")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await cluster.produce(1, b"c", acks=1)).error_code == 0
        assert cluster.values(1) == [b"a", b"c"]
        data = await cluster.fetch(1)
        assert (data.high_watermark, data.records) == (0, b""), "committed below the minimum"
        cluster.let_follow(3)
        await until(lambda: cluster.isr() == {1, 2, 3})
        await cluster.agreed()
        assert (await cluster.fetch(1)).high_watermark == 2

    run(test, tmp_path)


def test_replicas_are_waited_for_no_longer_than_the_request_allows(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        cluster.hold_back(3)
        answer = await cluster.produce(1, b"a", timeout_ms=50)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        cluster.let_follow(3)
        await cluster.agreed()
        assert cluster.values(3) == [b"a"]

    run(test, tmp_path, replica_lag_time_max_ms=60_000)


def test_a_follower_is_cut_where_its_history_parts_from_the_leaders(tmp_path: Path) -> None:
    """By epoch (conformance 90): what broker 1 alone has of epoch 0 is not what broker 2 wrote in epoch 1."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        await cluster.produce(1, b"both")
        for follower in (2, 3):
            cluster.hold_back(follower)
        await cluster.produce(1, b"lost", b"lost too", b"and this", acks=1)
        await cluster.crash(1)
        await until(lambda: cluster.leader() == 2)
        assert (await cluster.produce(2, b"new")).error_code == 0
        await cluster.start(1)
        await until(lambda: cluster.isr() == {1, 2, 3})
        await cluster.agreed()
        assert cluster.values(1) == [b"both", b"new"]
        epochs = cluster.hosted(1).log.leader_epochs.entries
        assert [entry.start_offset for entry in epochs] == [0, 1]
        assert epochs == cluster.hosted(2).log.leader_epochs.entries

    run(test, tmp_path, replica_lag_time_max_ms=60_000)


def test_elections_without_writes_leave_no_conflicting_epochs(tmp_path: Path) -> None:
    """conformance 90"""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        await cluster.produce(1, b"a")
        await cluster.crash(1)
        await until(lambda: cluster.leader() == 2)
        await cluster.start(1)
        await until(lambda: cluster.isr() == {1, 2})
        await cluster.crash(2)
        await until(lambda: cluster.leader() == 1)
        await cluster.start(2)
        await until(lambda: cluster.isr() == {1, 2})
        assert (await cluster.produce(1, b"b")).error_code == 0
        await cluster.agreed()
        entries = cluster.hosted(1).log.leader_epochs.entries
        assert [entry.start_offset for entry in entries] == [0, 1]
        assert cluster.hosted(2).log.leader_epochs.entries == entries
        assert entries[0] == EpochEntry(0, 0)

    run(test, tmp_path)


def test_a_new_leader_does_not_say_less_than_the_old_one_had_committed(tmp_path: Path) -> None:
    """conformance 91: until it knows how far that was, its end is not available."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        await cluster.produce(1, b"a")
        await cluster.agreed()
        log = cluster.hosted(2).log
        await cluster.crash(1)
        await until(lambda: cluster.leader() == 2)
        cluster.hold_back(3)
        leadership = cluster.hosted(2).leadership
        assert leadership is not None
        codes: dict[int, int] = {}
        for version in (4, 7):
            while codes.get(version, 0) == 0:  # a fetch of 3 may be on its way still
                log.high_watermark = 0  # as if it had not heard yet
                leadership.followers[3].log_end_offset = -1
                codes[version] = (await cluster.end_offset(2, version=version)).error_code
        assert codes == {4: ErrorCode.LEADER_NOT_AVAILABLE, 7: ErrorCode.OFFSET_NOT_AVAILABLE}
        cluster.let_follow(3)
        await until(lambda: log.high_watermark == 1)
        assert (await cluster.end_offset(2)).offset == 1

    run(test, tmp_path)


def test_a_follower_starts_where_the_leaders_log_starts(tmp_path: Path) -> None:
    """Its own end is below: what it lacks has been deleted."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        await cluster.produce(1, b"old")
        await cluster.crash(2)
        for _ in range(3):
            assert (await cluster.produce(1, b"newer")).error_code == 0
        leader = cluster.hosted(1)
        leader.log.roll(cluster.brokers[1].now_ms())
        leader.log.delete_records_before(4)
        leader.log.remove_segments([segment for segment in leader.log.segments if segment.base_offset < 4])
        await cluster.start(2)
        await until(lambda: cluster.isr() == {1, 2})
        assert (await cluster.produce(1, b"newest")).error_code == 0
        await cluster.agreed()
        assert cluster.values(2) == [b"newest"]
        assert cluster.hosted(2).log.log_start_offset == 4

    run(test, tmp_path)


def test_the_log_start_follows_the_leaders(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        await cluster.produce(1, b"a", b"b", b"c")
        await cluster.agreed()
        cluster.hosted(1).log.delete_records_before(2)
        await cluster.produce(1, b"d")
        await until(lambda: cluster.hosted(2).log.log_start_offset == 2)

    run(test, tmp_path, brokers=2)


def test_a_replica_that_is_not_assigned_cannot_follow(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        await cluster.produce(1, b"a")
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            replica_id=3, max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
        )
        answer = (await cluster.ask(1, request, 12)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not answer.records

    run(test, tmp_path)


def test_what_is_new_to_follow_does_not_wait_for_what_is_quiet(tmp_path: Path) -> None:
    """A fetch that the leader holds back for ten seconds is given up."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("quiet", 1, 2, 3)
        await cluster.produce(1, b"a", topic="quiet")
        await cluster.create("t", 1, 2, 3)
        async with asyncio.timeout(5):
            assert (await cluster.produce(1, b"a")).error_code == 0

    run(test, tmp_path, replica_fetch_wait_max_ms=10_000, replica_lag_time_max_ms=30_000)


def test_a_partition_moves_to_other_brokers(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        for number in range(5):
            await cluster.produce(1, b"%d" % number)
        partition = ReassignablePartition(partition_index=0, replicas=[3, 2])
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=1000, topics=[ReassignableTopic(name="t", partitions=[partition])]
        )
        response = await cluster.ask(cluster.controller(), request, 0)
        assert response.error_code == 0
        await until(lambda: cluster.leader() == 3 and cluster.isr() == {2, 3})
        assert cluster.values(3) == [b"0", b"1", b"2", b"3", b"4"]
        await until(lambda: cluster.brokers[1].replicas.find("t", 0) is None)
        assert (await cluster.produce(3, b"5")).error_code == 0
        await cluster.agreed()

    run(test, tmp_path)


def test_what_a_follower_had_when_it_asked_is_not_taken_for_what_it_has(tmp_path: Path) -> None:
    """A fetch that waits is answered later than others that came after it, on another connection."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        await cluster.produce(1, b"a")
        await cluster.agreed()
        followers = cluster.hosted(1).leadership.followers  # type: ignore[union-attr]
        topic_id = cluster.hosted(1).topic_id
        wanted = FetchPartition(
            partition=0,
            fetch_offset=1,
            current_leader_epoch=cluster.hosted(1).leader_epoch,
            partition_max_bytes=1000,
        )
        cluster.hold_back(2)
        late = FetchRequest(
            replica_state=ReplicaState(replica_id=2, replica_epoch=cluster.brokers[2].broker_epoch),
            max_wait_ms=200,
            min_bytes=1_000_000,
            topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
        )
        waiting = asyncio.ensure_future(cluster.ask(1, late, 17))
        await asyncio.sleep(0.05)
        assert followers[2].log_end_offset == 1
        followers[2].fetched(0, 1, 0, 0)  # its next life has lost what was not on its disk
        await waiting
        assert followers[2].log_end_offset == 0

    run(test, tmp_path, replica_lag_time_max_ms=60_000)


def test_a_follower_gets_again_what_its_files_have_lost(tmp_path: Path) -> None:
    """Recovery keeps what lies behind a gap; but a replica that passes over it must not lead one day."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, segment_bytes=300)
        for number in range(20):
            assert (await cluster.produce(1, b"%d" % number)).error_code == 0
        await cluster.agreed()
        await cluster.crash(2)
        directory = tmp_path / "broker-2"
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            (directory / name).unlink()
        segments = sorted((directory / "t-0").glob("*.log"))
        assert len(segments) > 2
        segments[1].unlink()
        await until(lambda: cluster.isr() == {1})
        await cluster.start(2)
        await until(lambda: cluster.values(2) == [b"%d" % number for number in range(20)])
        await until(lambda: cluster.isr() == {1, 2})
        await cluster.agreed()

    run(test, tmp_path)
