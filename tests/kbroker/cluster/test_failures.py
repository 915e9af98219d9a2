"""Brokers that stop, die and come back; who leads and who controls meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kbroker.cluster.in_process import Cluster, run, until
from wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from wire.errors import ErrorCode


def test_a_broker_that_is_stopped_hands_its_leadership_over_first(tmp_path: Path) -> None:
    """conformance 92: clients see error 6 from a broker that still answers."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        stopping = cluster.brokers[1]
        seen: list[int] = []
        leave = stopping.membership.leave  # type: ignore[union-attr]

        async def leave_and_tell() -> None:
            seen.append(cluster.hosted(2).leader_id)
            await leave()

        stopping.membership.leave = leave_and_tell  # type: ignore[union-attr, method-assign]
        await cluster.stop(1)
        assert seen == [2], "the leader was there before the old one left"
        await until(lambda: cluster.isr() == {2, 3})
        assert (await cluster.produce(2, b"a")).error_code == 0
        await cluster.start(1)
        await until(lambda: cluster.isr() == {1, 2, 3})
        await cluster.agreed()

    run(test, tmp_path)


@pytest.mark.parametrize("tries", [0, 3])
def test_handing_over_is_tried_as_often_as_configured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tries: int
) -> None:
    """Kafka counts the first try as well (`KafkaServer.doControlledShutdown`), whatever the key is called."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 3)
        await cluster.crash(3)
        await until(lambda: cluster.isr() == {1})
        await cluster.stop(1)

    run(test, tmp_path, controlled_shutdown_max_retries=tries)
    said = [record.getMessage() for record in caplog.records]
    assert said.count("no other leader for 1 partition") == tries


@pytest.mark.slow
def test_the_preferred_leader_gets_its_partitions_back(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 2, 3, 1)
        await cluster.crash(2)
        await until(lambda: cluster.leader() == 3)
        await cluster.start(2)
        await until(lambda: cluster.isr() == {1, 2, 3})
        await until(lambda: cluster.leader() == 2)

    run(
        test,
        tmp_path,
        auto_leader_rebalance_enable="true",
        leader_imbalance_check_interval_seconds=1,
    )


def test_another_broker_becomes_the_controller_and_everything_goes_on(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 2, 1, 3)
        first = cluster.controller()
        await cluster.crash(first)
        await until(lambda: cluster.controller() >= 0)
        assert cluster.controller() != first
        await until(lambda: first not in cluster.isr() and cluster.leader() >= 0)
        await cluster.create("u", *cluster.brokers)
        assert (await cluster.produce(cluster.leader("u"), b"a", topic="u")).error_code == 0
        await cluster.start(first)
        await until(lambda: cluster.isr() == {1, 2, 3})

    run(test, tmp_path)


def test_orders_of_a_controller_that_was_replaced_are_refused(tmp_path: Path) -> None:
    """conformance 91"""

    async def test(cluster: Cluster) -> None:
        from wire.api.update_metadata import UpdateMetadataRequest

        epoch = cluster.brokers[2].metadata.controller_epoch
        old = UpdateMetadataRequest(
            controller_id=1, controller_epoch=epoch - 1, broker_epoch=-1, topic_states=[], live_brokers=[]
        )
        assert (await cluster.ask(2, old, 8)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert len(cluster.brokers[2].metadata.nodes) == 3

    run(test, tmp_path)


def test_what_a_group_has_committed_is_known_to_the_next_coordinator(tmp_path: Path) -> None:
    """conformance 84"""

    async def coordinator(cluster: Cluster) -> int:
        while True:
            one = next(iter(cluster.brokers))
            request = FindCoordinatorRequest(key="g", key_type=0)
            answer = await cluster.ask(one, request, 3)
            if answer.error_code == 0 and answer.node_id in cluster.brokers:
                return int(answer.node_id)
            await asyncio.sleep(0.01)

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        at = await coordinator(cluster)
        commit = OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=7, committed_metadata=None
                        )
                    ],
                )
            ],
        )
        while True:
            answer = (await cluster.ask(at, commit, 7)).topics[0].partitions[0]
            if answer.error_code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                break
            await asyncio.sleep(0.01)
        assert answer.error_code == 0
        await cluster.crash(at)
        fetch = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        )
        while True:
            now_at = await coordinator(cluster)
            response = await cluster.ask(now_at, fetch, 7)
            if now_at != at and response.error_code == 0:
                break
            await asyncio.sleep(0.01)
        assert response.topics[0].partitions[0].committed_offset == 7

    run(test, tmp_path)


def test_only_the_controller_creates_topics_and_every_broker_takes_configurations(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        other = next(one for one in cluster.brokers if one != cluster.controller())
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        refused = await cluster.ask(other, request, 7)
        assert refused.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        change = AlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=[AlterableConfig(name="min.insync.replicas", config_operation=0, value="2")],
        )
        altered = await cluster.ask(
            other, IncrementalAlterConfigsRequest(resources=[change], validate_only=False), 1
        )
        assert altered.responses[0].error_code == 0
        await until(lambda: all(cluster.hosted(one).min_in_sync_replicas == 2 for one in cluster.brokers))

    run(test, tmp_path)


def test_a_topic_that_a_client_names_is_created_through_any_broker(tmp_path: Path) -> None:
    """conformance 11"""

    async def test(cluster: Cluster) -> None:
        other = next(one for one in cluster.brokers if one != cluster.controller())
        request = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
        await cluster.ask(other, request, 12)
        await until(lambda: cluster.leader("auto") >= 0)

    run(test, tmp_path, default_replication_factor=3)


def test_a_topic_is_deleted_everywhere(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        from wire.api.delete_topics import DeleteTopicsRequest

        await cluster.create("t", 1, 2, 3)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        assert (await cluster.ask(cluster.controller(), request, 5)).responses[0].error_code == 0
        await until(lambda: all(broker.replicas.find("t", 0) is None for broker in cluster.brokers.values()))
        await until(lambda: all("t" not in broker.metadata.topics for broker in cluster.brokers.values()))
        assert all(broker.logs.get(("t", 0)) is None for broker in cluster.brokers.values())

    run(test, tmp_path)


def test_without_a_controller_records_are_taken_and_given_as_before(tmp_path: Path) -> None:
    """The store is away: no elections, no changes of the in-sync replicas; everything else goes on."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        for broker in cluster.brokers.values():
            membership = broker.membership
            assert membership is not None
            membership._store.state = membership._store.state.SUSPENDED  # type: ignore[misc]
            membership.controller._session_changed(membership._store.state)
        assert cluster.controller() == -1
        assert (await cluster.produce(1, b"a")).error_code == 0
        assert (await cluster.fetch(1)).high_watermark == 1
        for broker in cluster.brokers.values():
            membership = broker.membership
            assert membership is not None
            membership._store.state = membership._store.state.CONNECTED  # type: ignore[misc]
            membership.controller._session_changed(membership._store.state)
        await until(lambda: cluster.controller() >= 0)
        assert (await cluster.produce(1, b"b")).error_code == 0

    run(test, tmp_path)


@pytest.mark.parametrize("who", ["leader", "controller", "follower"])
def test_a_broker_whose_session_ends_goes_on_in_the_next_one(tmp_path: Path, who: str) -> None:
    """It is alive and well, only ZooKeeper has given it up: its orders now are for another life."""

    async def test(cluster: Cluster) -> None:
        controller = cluster.controller()
        others = [broker_id for broker_id in cluster.brokers if broker_id != controller]
        leader, follower = others
        await cluster.create("t", leader, follower, controller)
        victim = {"leader": leader, "controller": controller, "follower": follower}[who]
        broker = cluster.brokers[victim]
        epoch = broker.broker_epoch
        written = 0
        expired = False
        while written < 60 or broker.broker_epoch == epoch or len(cluster.isr()) < 3:
            at = cluster.leader()
            if at >= 0 and (await cluster.produce(at, b"%d" % written, timeout_ms=3000)).error_code == 0:
                written += 1
            if written == 20 and not expired:
                assert broker.membership is not None
                cluster.tree.expire(broker.membership._store.session_id)
                expired = True
            await asyncio.sleep(0)
        await cluster.agreed()
        found = [value for value in cluster.values(victim) if value is not None]
        assert sorted({int(value) for value in found}) == list(range(written))
        assert broker.broker_epoch > epoch

    run(test, tmp_path)


def test_what_a_lost_broker_had_is_built_anew_and_it_comes_back_cleanly(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        await cluster.produce(1, b"a", b"b")
        await cluster.crash(3)
        await until(lambda: cluster.isr() == {1, 2, 4})
        assert cluster.values(4) == [b"a", b"b"]
        assert (await cluster.produce(1, b"c")).error_code == 0
        await cluster.start(3)
        await until(lambda: cluster.brokers[3].logs.get(("t", 0)) is None)
        assert cluster.brokers[3].replicas.find("t", 0) is None
        names = [path.name for path in (tmp_path / "broker-3").iterdir()]
        assert any(name.startswith("t-0.") and name.endswith("-stray") for name in names)

    run(test, tmp_path, brokers=4, kbroker_replica_recovery_delay_ms=200)


def test_a_leader_whose_disk_fails_is_replaced(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        await cluster.create("u", 1, 2, 3)
        await cluster.produce(1, b"a")
        cluster.hosted(1).log.fail(OSError(5, "Input/output error"))
        answer = await cluster.produce(1, b"b")
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: cluster.brokers[2].metadata.leader("t", 0) == 2)
        assert (await cluster.produce(2, b"c")).error_code == 0
        assert cluster.isr() == {2, 3}
        assert cluster.leader("u") == 1, "its other logs are fine"

    run(test, tmp_path)
