"""The controller at work: elections, fencing, lost connections, conflicts; in virtual time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from controller import events, znodes
from controller.controller import MOST_BYTES, MOST_OPERATIONS, Settings, packed
from controller.embedded import EmbeddedTree
from controller.membership import DuplicateBrokerId, next_broker_id, prepare
from controller.metadata_store import Create, Operation, Watch
from controller.producer_ids import next_block
from controller.refusals import REFUSALS
from controller.state import Endpoint, EntityType, LeaderAndIsr, ReplicaAssignment, TopicPartition
from tests.controller import virtual_time
from tests.controller.clusters import Broker, Cluster
from tests.controller.rules import SET, SomeRules
from tests.controller.simulated_store import SimulatedStore
from tests.controller.virtual_time import now_ms
from tests.controller.worlds import a_topic
from wire.api import alter_configs, incremental_alter_configs
from wire.api.alter_client_quotas import AlterClientQuotasRequest, EntryData
from wire.api.alter_partition import AlterPartitionRequest, PartitionData, TopicData
from wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from wire.api.controlled_shutdown import ControlledShutdownRequest
from wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.api.create_topics import CreateTopicsRequest
from wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID

T0 = TopicPartition("t", 0)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        virtual_time.run(test(*arguments, **named))

    return run


def node(cluster: Cluster, path: str) -> bytes:
    return cluster.tree._node(path).data


def controller_epoch(cluster: Cluster) -> int:
    return znodes.ControllerEpoch.decode(node(cluster, znodes.ControllerEpoch.path())).epoch


def grow(name: str, count: int) -> events.CreatePartitions:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return events.CreatePartitions(CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False))


def set_config(name: str, key: str, value: str) -> events.IncrementalAlterConfigs:
    config = incremental_alter_configs.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=2, resource_name=name, configs=[config]
    )
    return events.IncrementalAlterConfigs(
        incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    )


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
async def test_one_of_several_is_elected_and_another_when_it_goes() -> None:
    cluster = Cluster(seed=3)
    await asyncio.gather(*(cluster.start(broker_id) for broker_id in (1, 2, 3)))
    await cluster.settle()
    first = cluster.active
    assert {broker.controller.controller_id for broker in cluster.running()} == {first.broker_id}
    assert await cluster.create(a_topic("t", 6, 3)) == [ErrorCode.NONE]
    await first.stop()
    await cluster.settle()
    second = cluster.active
    assert second is not first
    assert controller_epoch(cluster) == 2
    leaders = {state.leader for state in second.fake.known.values()}
    assert leaders == {broker.broker_id for broker in cluster.running()}
    await cluster.stop_all()


@in_virtual_time
async def test_a_dead_controller_is_replaced_when_its_session_ends() -> None:
    cluster = Cluster(seed=4)
    first = await cluster.start(1)
    await cluster.start(2)
    await first.die()
    await cluster.settle(5)
    assert [broker.controller.is_active for broker in cluster.running()] == [False]
    await cluster.until(lambda: cluster.brokers[2].controller.is_active)
    await cluster.stop_all()


@in_virtual_time
async def test_a_controller_that_is_cut_off_stops_acting_at_once() -> None:
    cluster = Cluster(seed=5)
    first, second = await cluster.start(1), await cluster.start(2)
    first.store.cut()
    await asyncio.sleep(0)
    assert not first.controller.is_active
    assert first.controller.controller_id == -1
    assert await cluster.create(a_topic("t", 1, 1), broker=first) == [ErrorCode.NOT_CONTROLLER]
    await cluster.until(lambda: second.controller.is_active)
    first.store.restore()
    await cluster.settle()
    assert cluster.active is second
    assert first.controller.controller_id == 2
    assert first.fake.epoch == first.controller.broker_epoch
    assert second.fake.live_brokers == {1, 2}
    await cluster.stop_all()


@in_virtual_time
async def test_a_controller_that_was_cut_off_for_a_moment_goes_on_in_its_epoch() -> None:
    cluster = Cluster(seed=6)
    first, _, third = await cluster.start(1), await cluster.start(2), await cluster.start(3)
    await cluster.create(a_topic("t", assignments={0: (3, 2)}))
    await cluster.settle()
    first.store.cut()
    await third.stop()
    await asyncio.sleep(1)
    first.store.restore()
    await cluster.settle()
    assert cluster.active is first
    assert controller_epoch(cluster) == 1
    # What happened meanwhile, and set off no watch, has been seen to.
    assert first.fake.known[T0].leader == 2
    await cluster.stop_all()


class Stumbling(SimulatedStore):
    """Loses its connection, and has it back, in the moment when the brokers have been read."""

    stumbles = 1

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[list[str]]:
        answer = super().children(path, watch)
        if path == znodes.BROKER_IDS and self.stumbles:
            self.stumbles -= 1
            assert isinstance(answer, asyncio.Future)
            answer.add_done_callback(lambda _: (self.cut(), self.restore()))
        return answer


@in_virtual_time
async def test_watches_that_are_lost_while_everything_is_read_are_set_again() -> None:
    cluster = Cluster(seed=24)
    first = await cluster.start_on(Stumbling(cluster.tree, cluster.delay), 1)
    await cluster.settle()
    await cluster.start(2)
    await cluster.settle()
    assert cluster.active is first
    assert first.fake.live_brokers == {1, 2}
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_listens_elsewhere_is_made_known() -> None:
    cluster = Cluster(seed=25)
    first, second = await cluster.start(1), await cluster.start(2)
    await cluster.settle()
    sent = len(first.heard)
    endpoint = Endpoint("PLAINTEXT", "elsewhere", 1)
    moved = znodes.BrokerRegistration((endpoint,), 0).encode()
    await second.store.set(znodes.BrokerRegistration.path(2), moved)
    await cluster.settle()
    assert first.heard[sent:] == ["UpdateMetadataRequest"] * 2
    assert first.fake.hosts == {1: "host1", 2: "elsewhere"}
    await cluster.stop_all()


@pytest.mark.parametrize("lose", [True, False])
@in_virtual_time
async def test_a_write_cut_off_under_way_is_there_or_not_but_never_half(lose: bool) -> None:
    cluster = Cluster(seed=7)
    broker = await cluster.start(1)
    await cluster.settle()
    creating = asyncio.ensure_future(cluster.create(a_topic("t", 5, 1)))
    await asyncio.sleep(0.0001)
    broker.store.cut(lose_requests=lose)
    assert await creating == [ErrorCode.NOT_CONTROLLER]
    broker.store.restore()
    await cluster.until(lambda: broker.controller.is_active)
    await cluster.settle()
    assert len(broker.fake.known) == (0 if lose else 5)
    assert await cluster.create(a_topic("t", 5, 1)) == [
        ErrorCode.NONE if lose else ErrorCode.TOPIC_ALREADY_EXISTS
    ]
    await cluster.stop_all()


@in_virtual_time
async def test_a_controller_that_does_not_know_it_was_replaced_cannot_write() -> None:
    """conformance 91"""
    cluster = Cluster(seed=8)
    broker = await cluster.start(1)
    await cluster.settle()
    other = await cluster.connect()
    epoch = await other.get(znodes.ControllerEpoch.path())
    await other.set(znodes.ControllerEpoch.path(), b"9", epoch.stat.version)
    assert await cluster.create(a_topic("t", 1, 1), broker=broker) == [ErrorCode.NOT_CONTROLLER]
    assert await other.exists(znodes.Topic.path("t")) is None
    await cluster.settle()
    # The office was still its own, so it takes it up again, at the epoch that is.
    assert cluster.active is broker
    assert broker.fake.controller_epoch == 9
    await cluster.stop_all()


@in_virtual_time
async def test_the_office_can_be_taken_away_by_hand() -> None:
    cluster = Cluster(seed=9)
    await cluster.start(1)
    await cluster.start(2)
    other = await cluster.connect()
    await other.delete(znodes.Controller.path())
    await cluster.settle()
    assert controller_epoch(cluster) == 2
    assert {broker.controller.controller_id for broker in cluster.running()} == {cluster.active.broker_id}
    await cluster.stop_all()


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


@in_virtual_time
async def test_a_broker_hears_how_a_topic_is_configured_before_it_is_told_to_lead_it() -> None:
    cluster = Cluster(is_near=True)
    broker = await cluster.start(1)
    broker.heard.clear()
    await cluster.create(a_topic("t", 1, 1, configs={"retention.ms": "5"}))
    assert broker.heard == ["topics/t", "LeaderAndIsrRequest", "UpdateMetadataRequest"]
    assert broker.configs["topics/t"] == {"retention.ms": "5"}
    await cluster.ask(set_config("t", "cleanup.policy", "compact"))
    assert broker.configs["topics/t"] == {"retention.ms": "5", "cleanup.policy": "compact"}
    await cluster.ask(events.DeleteTopics(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5))
    await asyncio.sleep(0.001)
    assert broker.configs["topics/t"] == {}
    await cluster.stop_all()


@in_virtual_time
async def test_all_brokers_hear_of_configurations_whoever_sets_them() -> None:
    cluster = Cluster(seed=14)
    first, second = await cluster.start(1), await cluster.start(2)
    await cluster.create(a_topic("t", assignments={0: (1, 2)}))
    await cluster.ask(set_config("t", "retention.ms", "5"))
    await cluster.until(lambda: second.configs.get("topics/t") == {"retention.ms": "5"})
    other = await cluster.connect()
    entity = (EntityType.TOPIC, "t")
    values = {"unclean.leader.election.enable": "true"}
    await other.set(znodes.Config.path(entity), znodes.Config.encode(values))
    await other.create("/config/users/u", znodes.Config.encode({"producer_byte_rate": "1"}))
    for path in ("topics/t", "users/u"):
        await other.create(znodes.CONFIG_CHANGE_PREFIX, znodes.ConfigChange(path).encode(), sequential=True)
    await cluster.until(lambda: first.configs.get("topics/t") == second.configs.get("topics/t") == values)
    await cluster.until(lambda: "users/u" in first.configs and "users/u" in second.configs)
    # The controller has taken it in as well: a replica that was not in sync may lead now.
    await second.stop()
    await cluster.settle()
    third = await cluster.start(2)
    await cluster.settle()
    await first.stop()
    await cluster.until(lambda: third.controller.is_active)
    await cluster.until(lambda: third.fake.known[T0].leader == 2)
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_starts_hears_of_every_configuration() -> None:
    cluster = Cluster(seed=15)
    await cluster.start(1)
    await cluster.create(a_topic("t", 1, 1, configs={"retention.ms": "5"}))
    other = await cluster.connect()
    nodes = ["/config/users/u", "/config/users/u/clients", "/config/users/u/clients/c", "/config/ips/1.2.3.4"]
    for path in nodes:
        is_config = not path.endswith("clients")
        await other.create(path, znodes.Config.encode({"a": path}) if is_config else b"")
    second = await cluster.start(2)
    assert second.configs == {
        "topics/t": {"retention.ms": "5"},
        "users/u": {"a": "/config/users/u"},
        "users/u/clients/c": {"a": "/config/users/u/clients/c"},
        "ips/1.2.3.4": {"a": "/config/ips/1.2.3.4"},
    }
    await cluster.stop_all()


@in_virtual_time
async def test_old_announcements_are_removed() -> None:
    cluster = Cluster(seed=16)
    await cluster.start(1)
    await cluster.create(a_topic("t", 1, 1))
    await cluster.ask(set_config("t", "retention.ms", "5"))
    await asyncio.sleep(20 * 60)
    await cluster.ask(set_config("t", "retention.ms", "6"))
    await cluster.settle()
    assert len(cluster.tree._node(znodes.CONFIG_CHANGES).children) == 1
    await cluster.stop_all()


@in_virtual_time
async def test_a_second_broker_of_the_same_id_is_kept_out() -> None:
    cluster = Cluster(seed=17)
    await cluster.start(1)
    started = asyncio.get_running_loop().time()
    twin = Broker(cluster, 1, await cluster.connect())
    with pytest.raises(DuplicateBrokerId):
        await twin.controller.start()
    assert 60 <= asyncio.get_running_loop().time() - started < 61
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_was_killed_is_back_as_soon_as_its_old_session_has_ended() -> None:
    cluster = Cluster(seed=18)
    await cluster.start(1)
    second = await cluster.start(2)
    await cluster.create(a_topic("t", 4, 2))
    await second.die()
    started = asyncio.get_running_loop().time()
    again = await cluster.start(2)
    assert 5 < asyncio.get_running_loop().time() - started < 8
    await cluster.settle()
    assert len(again.fake.known) == 4
    assert again.fake.epoch > second.fake.epoch
    await cluster.stop_all()


@in_virtual_time
async def test_a_broker_that_waits_for_its_old_session_to_end_may_lose_its_connection_meanwhile() -> None:
    """And with it what it watches."""
    cluster = Cluster(seed=19)
    await cluster.start(1)
    second = await cluster.start(2)
    await second.die()
    started = asyncio.get_running_loop().time()
    store = SimulatedStore(cluster.tree, cluster.delay)
    starting = asyncio.create_task(cluster.start_on(store, 2))
    await asyncio.sleep(2)
    store.cut()
    await asyncio.sleep(1)
    store.restore()
    await starting
    assert asyncio.get_running_loop().time() - started < 8
    await cluster.stop_all()


QUESTIONS: list[events.Question] = [
    events.CreateTopics(CreateTopicsRequest(topics=[a_topic("t")]), [bytes(16)], []),
    events.DeleteTopics(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1), 6
    ),
    grow("t", 3),
    set_config("t", "a", "b"),
    events.AlterConfigs(
        alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t", configs=[])],
            validate_only=False,
        )
    ),
    events.AlterClientQuotas(
        AlterClientQuotasRequest(entries=[EntryData(entity=[], ops=[])], validate_only=False)
    ),
    events.AlterPartition(AlterPartitionRequest(broker_id=1, topics=[]), 3),
    events.ElectLeaders(ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])])),
    events.AlterReassignments(AlterPartitionReassignmentsRequest(topics=[])),
    events.ListReassignments(ListPartitionReassignmentsRequest(topics=None)),
    events.ControlledShutdown(ControlledShutdownRequest(broker_id=1, broker_epoch=1)),
]


def error_codes(value: Any) -> list[int]:
    """Every error code in a reply."""
    if isinstance(value, list):
        return [code for one in value for code in error_codes(one)]
    if not hasattr(value, "__slots__"):
        return []
    codes = [getattr(value, "error_code", 0)]
    return [code for code in codes if code] + [
        code for name in value.__slots__ for code in error_codes(getattr(value, name))
    ]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
@in_virtual_time
async def test_every_question_to_another_broker_is_answered_with_not_controller(
    question: events.Question,
) -> None:
    cluster = Cluster(seed=19)
    await cluster.start(1)
    other = await cluster.start(2)
    codes = error_codes(await cluster.ask(question, other))
    assert codes
    assert set(codes) == {ErrorCode.NOT_CONTROLLER}
    await cluster.stop_all()


def test_every_question_can_be_refused() -> None:
    assert {type(question) for question in QUESTIONS} == REFUSALS.keys()


@in_virtual_time
async def test_questions_that_wait_at_the_end_are_refused() -> None:
    cluster = Cluster(seed=20)
    broker = await cluster.start(1)
    creating = asyncio.ensure_future(cluster.create(a_topic("a", 1, 1)))
    waiting = asyncio.ensure_future(cluster.create(a_topic("b", 1, 1)))
    await asyncio.sleep(0)
    await broker.stop()
    assert await waiting == [ErrorCode.NOT_CONTROLLER]
    creating.cancel()


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


@in_virtual_time
async def test_the_cluster_has_one_id_whoever_comes_first() -> None:
    cluster = Cluster(seed=22)
    stores = [await cluster.connect() for _ in range(3)]
    ids = await asyncio.gather(*(prepare(store, f"id {index}") for index, store in enumerate(stores)))
    assert len(set(ids)) == 1
    assert await prepare(stores[0], "another") == ids[0]


@in_virtual_time
async def test_broker_ids_and_producer_ids_are_given_out_once() -> None:
    """conformance 41"""
    cluster = Cluster(seed=23)
    stores = [await cluster.connect() for _ in range(4)]
    await prepare(stores[0], "id")
    broker_ids = await asyncio.gather(*(next_broker_id(store) for store in stores))
    assert sorted(broker_ids) == [1001, 1002, 1003, 1004]
    blocks = await asyncio.gather(*(next_block(store, 1) for store in stores * 3))
    ids = [one for block in blocks for one in block]
    assert sorted(ids) == list(range(12_000))


def test_producer_ids_do_not_repeat_after_a_restart(tmp_path: Path) -> None:
    """conformance 41"""
    seen: list[int] = []
    for _ in range(3):
        tree = EmbeddedTree.open(tmp_path / "metadata.db", now_ms=lambda: 0)
        store = tree.connect(lambda callback: None)
        virtual_time.run(prepare(store, "id"))
        seen += virtual_time.run(next_block(store, 1))
        tree.close()
    assert seen == list(range(3000))
