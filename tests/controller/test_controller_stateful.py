"""Controllers among brokers that come and go, die, and lose their connections: whatever happens, these hold.

At every write: one controller acts in an epoch; a leader is elected from the in-sync replicas; epochs only
grow. When faults have stopped: one controller; every partition with an in-sync replica alive has a leader,
alive and in sync; what brokers were told is what the store says; topics that could go are gone.
(conformance 91)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from controller import events, znodes
from controller.embedded import EmbeddedTree
from controller.metadata_store import Check, Create, Operation, Result, Set
from controller.reading import Reader
from controller.state import NO_LEADER, LeaderAndIsr, TopicPartition, TopicState
from tests.controller.clusters import Broker, Cluster
from tests.controller.simulated_store import SimulatedStore, answer_of
from tests.controller.virtual_time import VirtualLoop, now_ms
from tests.controller.worlds import a_topic, at_once
from wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.api.controlled_shutdown import ControlledShutdownRequest
from wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.api.create_topics import CreateTopicsRequest
from wire.api.delete_topics import DeleteTopicsRequest
from wire.api.elect_leaders import ElectLeadersRequest
from wire.api.update_metadata import UpdateMetadataPartitionState

pytestmark = pytest.mark.slow

T = TypeVar("T")

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b")
QUIET_S = 120
"""Long enough for sessions to end and brokers to register again."""


class WatchedTree(EmbeddedTree):
    """Judges every write, and keeps what is wrong for the end: writes are made in callbacks."""

    def __init__(self) -> None:
        super().__init__(now_ms)
        self.wrong: list[str] = []
        self._controllers: dict[int, int] = {}
        """By controller epoch: the session that wrote in it."""

    def _commit(self, session_id: int, operations: Sequence[Operation]) -> list[Result]:
        before = {path: node.data for path, node in self._nodes.items()}
        results = super()._commit(session_id, operations)
        if any(one.path.startswith(znodes.TOPICS + "/") for one in operations):
            epoch = int(self._nodes[znodes.ControllerEpoch.path()].data)
            if not isinstance(operations[0], Check):
                self.wrong.append(f"a write without a fence: {operations}")
            if self._controllers.setdefault(epoch, session_id) != session_id:
                self.wrong.append(f"two controllers in epoch {epoch}")
        for one in operations:
            if isinstance(one, Set):
                self._judge(one.path, before[one.path], one.data)
            if isinstance(one, Set | Create):
                before[one.path] = one.data
        return results

    def _judge(self, path: str, old_data: bytes, data: bytes) -> None:
        if path.endswith("/state"):
            old, new = znodes.PartitionState.decode(old_data, 0), znodes.PartitionState.decode(data, 0)
            self.wrong += [f"{path}: {old} to {new}: {what}" for what in objections(old, new)]
        if path == znodes.ControllerEpoch.path() and int(data) != int(old_data) + 1:
            self.wrong.append(f"controller epoch {data!r} after {old_data!r}")


def objections(old: LeaderAndIsr, new: LeaderAndIsr) -> list[str]:
    """What is wrong with this change of a partition's state."""
    is_election = new.leader_epoch != old.leader_epoch
    rules = {
        "the in-sync replicas are never empty": bool(new.isr),
        "controller epochs do not go back": new.controller_epoch >= old.controller_epoch,
        "leader epochs go up by one": new.leader_epoch - old.leader_epoch in (0, 1),
        "a new leader has a new epoch": is_election or new.leader == old.leader,
        "a leader is in sync": new.leader == NO_LEADER or new.leader in new.isr,
        "a new leader was in sync": new.leader in (NO_LEADER, old.leader, *old.isr),
        "an election lets nobody in": not is_election or set(new.isr) <= set(old.isr),
    }
    return [what for what, holds in rules.items() if not holds]


class Chaos(RuleBasedStateMachine):
    """What can happen to a cluster."""

    @initialize(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 3))
    def begin(self, seed: int, count: int) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.chance = random.Random(seed)
        self.run(self._begin(seed, count))

    async def _begin(self, seed: int, count: int) -> None:
        self.tree = WatchedTree()
        self.cluster = Cluster(tree=self.tree, seed=seed)
        for broker_id in BROKERS[:count]:
            await self.cluster.start(broker_id)
        await self.cluster.settle(1)

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)

    # -- faults

    @precondition(lambda self: len(self.cluster.running()) < len(BROKERS))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        running = {broker.broker_id for broker in self.cluster.running()}
        broker_id = data.draw(st.sampled_from([one for one in BROKERS if one not in running]))
        self.run(self.cluster.start(broker_id))

    @rule(data=st.data(), politely=st.booleans())
    def stop(self, data: st.DataObject, politely: bool) -> None:
        broker = self._some_broker(data)
        if broker is not None:
            self.run(self._stop(broker, politely))

    async def _stop(self, broker: Broker, politely: bool) -> None:
        controllers = [one for one in self.cluster.running() if one.controller.is_active]
        if politely and controllers:
            request = ControlledShutdownRequest(
                broker_id=broker.broker_id, broker_epoch=broker.controller.broker_epoch
            )
            controllers[0].controller.ask(events.ControlledShutdown(request), lambda reply: None)
            await asyncio.sleep(self.chance.choice([0.01, 1]))
        await broker.stop()

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        broker = self._some_broker(data)
        if broker is not None:
            self.run(broker.die())

    @rule(data=st.data(), lose=st.booleans())
    def cut(self, data: st.DataObject, lose: bool) -> None:
        broker = self._some_broker(data)
        if broker is not None:
            self.run(self._call(partial(store_of(broker).cut, lose_requests=lose)))

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        broker = self._some_broker(data)
        if broker is not None:
            self.run(self._call(store_of(broker).restore))

    async def _call(self, what: Callable[[], object]) -> None:
        what()

    @rule()
    def oust(self) -> None:
        """Take the office away from whoever holds it; it hears of that later."""
        if znodes.Controller.path() in self.tree._nodes:
            self.run(self._call(self._oust))

    def _oust(self) -> None:
        store = self.tree.connect(lambda callback: None)
        answer_of(store.delete(znodes.Controller.path()))

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.03, 0.1, 1, 10]))
    def wait(self, seconds: float) -> None:
        self.run(self.cluster.settle(seconds))

    # -- work

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 4), replicas=st.integers(1, 3))
    def create_topic(self, name: str, partitions: int, replicas: int) -> None:
        for broker in self._active():
            broker.controller.create_topics(_creation(name, partitions, replicas), lambda reply: None)

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        self._ask(events.DeleteTopics(DeleteTopicsRequest(topic_names=[name], timeout_ms=1), 5))

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 6))
    def grow_topic(self, name: str, count: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False)
        self._ask(events.CreatePartitions(request))

    @rule()
    def elect_preferred_leaders(self) -> None:
        self._ask(events.ElectLeaders(ElectLeadersRequest(topic_partitions=None)))

    @rule(
        name=st.sampled_from(TOPICS),
        partition=st.integers(0, 3),
        replicas=st.none() | st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True),
    )
    def reassign(self, name: str, partition: int, replicas: list[int] | None) -> None:
        wanted = ReassignablePartition(partition_index=partition, replicas=replicas)
        topic = ReassignableTopic(name=name, partitions=[wanted])
        self._ask(events.AlterReassignments(AlterPartitionReassignmentsRequest(topics=[topic])))

    @rule(data=st.data(), grow=st.booleans())
    def change_isr(self, data: st.DataObject, grow: bool) -> None:
        """A leader, by what it knows, asks for all of its replicas or for fewer."""
        led = [
            (broker, partition)
            for broker in self.cluster.running()
            for partition, state in sorted(broker.fake.replicas.items())
            if state.leader == broker.broker_id
        ]
        if not led:
            return
        broker, partition = data.draw(st.sampled_from(led))
        state = broker.fake.replicas[partition]
        isr = state.replicas if grow else [one for one in state.isr if one == state.leader]
        self._ask_for_isr(broker, partition, isr)

    # -- what must hold in the end

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            self.run(self._end())
        finally:
            self.runner.close()

    async def _end(self) -> None:
        if not self.cluster.running():
            await self.cluster.start(1)
        for broker in self.cluster.running():
            store_of(broker).restore()
        await self.cluster.settle(QUIET_S)
        assert self.tree.wrong == []
        self._judge_the_end()
        await self.cluster.stop_all()

    def _judge_the_end(self) -> None:
        running = {broker.broker_id: broker for broker in self.cluster.running()}
        active = self.cluster.active
        assert {one.controller.controller_id for one in running.values()} == {active.broker_id}
        store = self.tree.connect(lambda callback: None)
        reader = Reader(store, lambda part: None, lambda: bytes(16))
        topics = {topic.name: topic for topic in at_once(reader.topics()).states}
        state = active.controller._state
        assert state is not None
        assert {name: fields(topic) for name, topic in topics.items()} == {
            name: fields(topic) for name, topic in state.topics.items()
        }
        going = at_once(reader.deletions())
        assert sorted(state.deletions) == going
        for name in going:
            replicas = {
                one for assignment in topics[name].assignments.values() for one in assignment.replicas
            }
            assert not replicas <= running.keys(), "nothing keeps this topic from going"
        for topic in topics.values():
            if topic.name not in going:
                for partition in topic.partitions():
                    self._judge_partition(partition, topic, running)
        for broker in running.values():
            assert broker.fake.live_brokers == running.keys()
            expected = {p for t in topics.values() if t.name not in going for p in t.partitions()}
            has_led = {p for p in expected if p.partition in topics[p.topic].leadership}
            assert broker.fake.known.keys() == has_led

    def _judge_partition(
        self, partition: TopicPartition, topic: TopicState, running: dict[int, Broker]
    ) -> None:
        leadership = topic.leadership.get(partition.partition)
        assignment = topic.assignments[partition.partition]
        alive = [one for one in assignment.replicas if one in running]
        if leadership is None:
            assert not alive
            return
        if any(one in running for one in leadership.isr):
            assert leadership.leader in running, "it could have a leader"
            assert all(one in running for one in leadership.isr)
        else:
            assert leadership.leader == NO_LEADER
        assert set(leadership.isr) <= set(assignment.replicas)
        for broker in running.values():
            heard = broker.fake.known[partition]
            assert as_told(heard) == as_stored(leadership)
            assert tuple(heard.replicas) == assignment.replicas
            told = broker.fake.replicas.get(partition)
            if broker.broker_id in assignment.replicas:
                assert told is not None
                assert (told.leader, told.leader_epoch) == (leadership.leader, leadership.leader_epoch)
            else:
                # Who was away when the replica was taken from it is never told, nor is it by Kafka.
                assert told is None or told.leader_epoch < leadership.leader_epoch

    # -- how

    def _some_broker(self, data: st.DataObject) -> Broker | None:
        running = self.cluster.running()
        return data.draw(st.sampled_from(running)) if running else None

    def _active(self) -> list[Broker]:
        return [broker for broker in self.cluster.running() if broker.controller.is_active]

    def _ask(self, question: events.Question) -> None:
        for broker in self._active():
            broker.controller.ask(question, lambda reply: None)

    def _ask_for_isr(self, broker: Broker, partition: TopicPartition, isr: list[int]) -> None:
        known = broker.fake.replicas[partition]
        asked = PartitionData(
            partition_index=partition.partition,
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=one) for one in isr],
        )
        topic = TopicData(topic_id=broker.fake.topic_ids[partition.topic], partitions=[asked])
        request = AlterPartitionRequest(
            broker_id=broker.broker_id, broker_epoch=broker.fake.epoch, topics=[topic]
        )

        def answered(reply: object) -> None:
            assert isinstance(reply, AlterPartitionResponse)
            now = broker.fake.replicas.get(partition)
            for result in (one for topic in reply.topics for one in topic.partitions):
                if result.error_code != 0 or now is None or result.leader_epoch != now.leader_epoch:
                    continue
                if result.partition_epoch > now.partition_epoch:
                    now.isr, now.partition_epoch = result.isr, result.partition_epoch

        for controller in self._active():
            controller.controller.ask(events.AlterPartition(request, 3), answered)


def _creation(name: str, partitions: int, replicas: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[a_topic(name, partitions, replicas)])


def store_of(broker: Broker) -> SimulatedStore:
    assert isinstance(broker.store, SimulatedStore)
    return broker.store


def fields(topic: TopicState) -> dict[str, object]:
    return {name: getattr(topic, name) for name in topic.__slots__}


def as_told(state: UpdateMetadataPartitionState) -> tuple[object, ...]:
    return state.leader, state.leader_epoch, tuple(state.isr), state.zk_version


def as_stored(state: LeaderAndIsr) -> tuple[object, ...]:
    return state.leader, state.leader_epoch, state.isr, state.partition_epoch


TestChaos = Chaos.TestCase
TestChaos.settings = settings(
    max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck), deadline=None
)
