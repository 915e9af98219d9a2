"""The controller at work, in virtual time: what it tells brokers, what it writes, and what others do."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from controller import events, znodes
from controller.controller import HANDED_OVER_AT_ONCE, MOST_BYTES, MOST_OPERATIONS, Settings, packed
from controller.embedded import EmbeddedTree
from controller.metadata_store import Create, Operation
from controller.requests import ControlRequest
from controller.state import LeaderAndIsr, ReplicaAssignment, TopicPartition
from tests.controller.clusters import Cluster, controller_epoch, node
from tests.controller.questions import grow
from tests.controller.rules import SomeRules
from tests.controller.virtual_time import in_virtual_time, now_ms
from tests.controller.worlds import a_topic
from wire.api.alter_partition import AlterPartitionRequest, PartitionData, TopicData
from wire.api.controlled_shutdown import ControlledShutdownRequest
from wire.api.delete_topics import DeleteTopicsRequest
from wire.api.leader_and_isr import LeaderAndIsrRequest
from wire.errors import ErrorCode

T0 = TopicPartition("t", 0)


@in_virtual_time
async def test_a_broker_alone_elects_itself_and_tells_itself_everything() -> None:
    cluster = Cluster(is_near=True)
    broker = await cluster.start(1)
    assert broker.controller.is_active
    assert broker.controller.controller_id == 1
    assert controller_epoch(cluster) == 1
    assert znodes.Controller.decode(node(cluster, "/controller")).broker_id == 1
    assert await cluster.create(a_topic("t", 3, 1)) == [ErrorCode.NONE]
    await asyncio.sleep(0)
    assert broker.fake.epoch == broker.controller.broker_epoch > 0
    assert {partition: state.leader for partition, state in broker.fake.known.items()} == {
        TopicPartition("t", index): 1 for index in range(3)
    }
    await cluster.stop_all()


@in_virtual_time
async def test_a_topic_deleted_on_a_broker_alone_can_be_created_again_at_once() -> None:
    """conformance 15"""
    cluster = Cluster(is_near=True)
    await cluster.start(1)
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
    for _ in range(3):
        assert await cluster.create(a_topic("t", 2, 1)) == [ErrorCode.NONE]
        reply = await cluster.ask(events.DeleteTopics(request, 5))
        assert [one.error_code for one in reply.responses] == [ErrorCode.NONE]
        await asyncio.sleep(0.001)
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_stops_hands_over_some_partitions_at_a_time() -> None:
    """The first have new leaders, who know it, before the last ones have lost theirs."""
    cluster = Cluster(is_near=True)
    first = await cluster.start(1)
    await cluster.start(2)
    await cluster.settle()
    count = 4 * HANDED_OVER_AT_ONCE
    created = await cluster.create(a_topic("t", assignments=dict.fromkeys(range(count), (2, 1))))
    assert created == [ErrorCode.NONE]
    await cluster.settle()
    told: list[int] = []
    leaders_left: list[int] = []

    def watch(request: ControlRequest) -> None:
        if request.broker_id == 1 and isinstance(request.message, LeaderAndIsrRequest):
            told.append(sum(len(topic.partition_states) for topic in request.message.topic_states))
            paths = [znodes.PartitionState.path(TopicPartition("t", index)) for index in range(count)]
            states = [znodes.PartitionState.decode(node(cluster, path), 0) for path in paths]
            leaders_left.append(sum(state.leader == 2 for state in states))
        send(request)

    send = first.controller._outlets.send
    first.controller._outlets = first.controller._outlets._replace(send=watch)
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.brokers[2].controller.broker_epoch)
    reply = await cluster.ask(events.ControlledShutdown(request))
    assert (reply.error_code, reply.remaining_partitions) == (ErrorCode.NONE, [])
    assert told == [HANDED_OVER_AT_ONCE] * 4
    assert leaders_left == [count - sum(told[: number + 1]) for number in range(4)]
    await cluster.stop_all()


@in_virtual_time
async def test_preferred_leaders_come_back_by_themselves() -> None:
    cluster = Cluster(seed=13, settings=Settings(True, leader_imbalance_check_interval_s=60))
    first = await cluster.start(1)
    await cluster.start(2)
    await cluster.create(a_topic("t", assignments={0: (2, 1)}))
    await cluster.brokers[2].stop()
    await cluster.settle()
    await cluster.start(2)
    await cluster.settle()
    state = first.fake.known[T0]
    assert state.leader == 1
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=first.controller.broker_epoch,
        topics=[
            isr_request("t", 0, state.leader_epoch, state.zk_version, [1, 2]),
        ],
    )
    reply = await cluster.ask(events.AlterPartition(request, 1))
    assert reply.topics[0].partitions[0].error_code == ErrorCode.NONE
    await cluster.until(lambda: first.fake.known[T0].leader == 2, timeout_s=100)
    await cluster.stop_all()


def isr_request(
    topic: str, partition: int, leader_epoch: int, partition_epoch: int, isr: list[int]
) -> TopicData:
    data = PartitionData(
        partition_index=partition, leader_epoch=leader_epoch, partition_epoch=partition_epoch, new_isr=isr
    )
    return TopicData(topic_name=topic, partitions=[data])


# -- what others write


@in_virtual_time
async def test_a_conflict_with_somebody_else_is_decided_again_from_what_is_there() -> None:
    cluster = Cluster(seed=10)
    await cluster.start(1)
    await cluster.create(a_topic("t", 1, 1))
    other = await cluster.connect()
    path = znodes.Topic.path("t")
    topic = znodes.Topic.decode((await other.get(path)).data)
    await other.set(path, topic.encode())
    reply = await cluster.ask(grow("t", 3))
    assert [result.error_code for result in reply.results] == [ErrorCode.NONE]
    assert len(znodes.Topic.decode((await other.get(path)).data).assignments) == 3
    await cluster.settle()
    assert len(cluster.active.fake.known) == 3
    await cluster.stop_all()


@in_virtual_time
async def test_topics_written_by_somebody_else_are_served() -> None:
    cluster = Cluster(seed=11)
    broker = await cluster.start(1)
    other = await cluster.connect()
    topic = znodes.Topic(bytes(range(16)), {0: ReplicaAssignment((1,))})
    await other.create(znodes.Topic.path("t"), topic.encode())
    await cluster.until(lambda: T0 in broker.fake.known)
    await other.create(znodes.DeleteTopic.path("t"))
    await cluster.until(lambda: not cluster.tree._nodes.get(znodes.Topic.path("t")))
    assert broker.fake.known == {}
    await cluster.stop_all()


@in_virtual_time
async def test_what_was_asked_for_in_the_store_is_done() -> None:
    cluster = Cluster(seed=12)
    first, second = await cluster.start(1), await cluster.start(2)
    await cluster.create(a_topic("t", assignments={0: (2, 1), 1: (2, 1)}))
    await second.stop()
    await cluster.settle()
    assert first.fake.known[T0].leader == 1
    other = await cluster.connect()
    reassignment = znodes.ReassignPartitions({TopicPartition("t", 1): (1,)})
    await other.create(reassignment.path(), reassignment.encode())
    await cluster.until(lambda: list(first.fake.known[TopicPartition("t", 1)].replicas) == [1])
    await cluster.until(lambda: reassignment.path() not in cluster.tree._nodes)
    await cluster.start(2)
    await cluster.settle()
    state = znodes.PartitionState.decode(node(cluster, znodes.PartitionState.path(T0)), 0)
    caught_up = znodes.PartitionState.encode(LeaderAndIsr(1, (1, 2), state.leader_epoch, 0, 1))
    await other.set(znodes.PartitionState.path(T0), caught_up)
    await other.create(znodes.ISR_CHANGE_PREFIX, znodes.IsrChange([T0]).encode(), sequential=True)
    election = znodes.PreferredReplicaElection([T0])
    await cluster.until(lambda: list(first.fake.known[T0].isr) == [1, 2])
    await other.create(election.path(), election.encode())
    await cluster.until(lambda: first.fake.known[T0].leader == 2)
    await cluster.until(lambda: election.path() not in cluster.tree._nodes)
    await cluster.stop_all()


# -- what it writes


def test_writes_are_packed_in_order_and_none_is_divided() -> None:
    writes: list[tuple[Operation, ...]] = [
        tuple(Create(f"/{number}/{part}", b"x") for part in range(1 + number % 3)) for number in range(700)
    ]
    transactions = list(packed(writes))
    assert [one for transaction in transactions for one in transaction] == [
        one for write in writes for one in write
    ]
    assert all(len(transaction) <= MOST_OPERATIONS for transaction in transactions)
    assert len(transactions) == 3
    half = b"x" * (MOST_BYTES // 2)
    large: list[tuple[Operation, ...]] = [(Create("/a", half), Create("/b")), (Create("/c", half),)]
    assert [len(transaction) for transaction in packed(large)] == [2, 1]
    assert list(packed([])) == []


@in_virtual_time
async def test_a_thousand_partitions_are_a_handful_of_transactions_and_two_messages() -> None:
    cluster = Cluster(is_near=True)
    broker = await cluster.start(1)
    broker.heard.clear()
    commits = 0
    commit = cluster.tree._commit

    def counting(session_id: int, operations: Any) -> Any:
        nonlocal commits
        commits += 1
        return commit(session_id, operations)

    cluster.tree._commit = counting  # type: ignore[method-assign]
    assert await cluster.create(a_topic("t", 1000, 1)) == [ErrorCode.NONE]
    assert commits == 5
    assert broker.heard == ["LeaderAndIsrRequest", "UpdateMetadataRequest"]
    await cluster.stop_all()


def test_a_broker_alone_finds_everything_after_a_restart_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    @in_virtual_time
    async def run(is_first: bool) -> None:
        tree = EmbeddedTree.open(path, now_ms=now_ms)
        cluster = Cluster(tree=tree, is_near=True)
        broker = await cluster.start(1)
        if is_first:
            await cluster.create(a_topic("t", 5, 1, configs={"retention.ms": "7"}))
        await asyncio.sleep(0.001)
        heard = {(p, one.leader, one.leader_epoch, one.zk_version) for p, one in broker.fake.known.items()}
        assert heard == {(TopicPartition("t", index), 1, 0, 0) for index in range(5)}
        assert broker.configs["topics/t"] == {"retention.ms": "7"}
        assert controller_epoch(cluster) == (1 if is_first else 2)
        await cluster.stop_all()
        tree.close()

    run(True)
    run(False)


# -- what goes wrong


def test_a_full_disk_refuses_a_topic_and_no_more(tmp_path: Path) -> None:
    @in_virtual_time
    async def run() -> None:
        tree = EmbeddedTree.open(tmp_path / "metadata.db", now_ms=now_ms)
        cluster = Cluster(tree=tree, is_near=True)
        broker = await cluster.start(1)
        await cluster.create(a_topic("before", 1, 1))
        assert tree._file is not None
        database: sqlite3.Connection = tree._file._database
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count={pages}")
        assert await cluster.create(a_topic("t", 500, 1)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert broker.controller.is_active
        database.execute("PRAGMA max_page_count=100000")
        assert await cluster.create(a_topic("t", 500, 1)) == [ErrorCode.NONE]
        await asyncio.sleep(0.001)
        assert len(broker.fake.known) == 501
        await cluster.stop_all()
        tree.close()

    run()


class BrokenRules(SomeRules):
    """Has a bug."""

    is_broken = True

    def describe_topic(self, topic: Any) -> Any:
        if self.is_broken:
            raise ZeroDivisionError
        return super().describe_topic(topic)


@in_virtual_time
async def test_a_bug_costs_one_question_and_not_the_state(caplog: pytest.LogCaptureFixture) -> None:
    rules = BrokenRules()
    cluster = Cluster(seed=21, rules=rules)
    broker = await cluster.start(1)
    assert await cluster.create(a_topic("t", 1, 1)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "ZeroDivisionError" in caplog.text
    rules.is_broken = False
    await cluster.until(lambda: broker.controller.is_active)
    assert await cluster.create(a_topic("t", 1, 1)) == [ErrorCode.NONE]
    await cluster.stop_all()
