"""A cluster without time: each step's writes go to a store in memory, its requests to brokers, at once.

After every step the store is read as a new controller would read it, and must say what the state says; and
what brokers were told must be what the store says. So every test of a decision also tests that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from controller import events, znodes
from controller.embedded import EmbeddedTree
from controller.metadata_store import ensure
from controller.placement import Start
from controller.plan import Effects
from controller.reading import Reader
from controller.requests import ControlRequest, replica_outcomes
from controller.state import (
    NO_LEADER,
    ClusterState,
    Endpoint,
    EntityType,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from controller.transitions import step
from tests.controller.fake_broker import FakeBroker
from tests.controller.rules import SomeRules
from tests.controller.simulated_store import answer_of
from wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

T = TypeVar("T")

CONTROLLER_EPOCH = 5
START = Start(0, 0)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The outcome of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")[:16]


def a_topic(
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    *,
    assignments: Mapping[int, tuple[int, ...]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
            for partition, replicas in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


class World:
    """Some brokers, and a controller's state that they are told of."""

    def __init__(self, *brokers: int, racks: str = "", rules: SomeRules | None = None) -> None:
        self.rules = rules or SomeRules()
        self.tree = EmbeddedTree.open(None, now_ms=lambda: 0)
        self.store = self.tree.connect(lambda callback: None)
        at_once(ensure(self.store, znodes.PERSISTENT_PATHS))
        self.reader = Reader(self.store, lambda part: None, lambda: b"new topic id ...")
        self.state = ClusterState(controller_id=1, controller_epoch=CONTROLLER_EPOCH)
        self.racks = dict(zip(brokers, racks, strict=False))
        self.fakes: dict[int, FakeBroker] = {}
        self.deaf: set[int] = set()
        """Brokers that requests do not reach."""
        self.writes = 0
        self.requests: list[ControlRequest] = []
        """Of the last step, without what answers led to."""
        self._epochs: dict[tuple[bytes, int], tuple[int, int]] = {}
        self._ids = 0
        self.join(*brokers)

    # -- what happens

    def step(self, event: events.Event) -> Any:
        """Decide an event, do what it leads to, and whatever brokers answer. The reply."""
        queue = deque([event])
        decided: list[Effects] = []
        while queue:
            effects = step(self.state, queue.popleft(), self.rules)
            decided.append(effects)
            for write in effects.writes:
                answer_of(self.store.multi(write))
                self.writes += len(write)
            self.check_store()
            for request in effects.requests:
                if request.broker_id in self.deaf:
                    continue
                answer = self.fakes[request.broker_id].handle(request)
                if replica_outcomes(request, answer):
                    queue.append(events.RequestAnswered(request, answer))
        self.check_brokers()
        self.requests = decided[0].requests
        return decided[0].reply

    def messages(self, broker_id: int) -> list[type]:
        """What the last step told a broker, by kind."""
        return [type(request.message) for request in self.requests if request.broker_id == broker_id]

    def join(self, *brokers: int) -> None:
        """Brokers register, or register again."""
        self.register(*brokers)
        self.brokers_changed()

    def register(self, *brokers: int) -> None:
        """So that the controller does not hear of it."""
        for broker_id in brokers:
            path = znodes.BrokerRegistration.path(broker_id)
            if answer_of(self.store.exists(path)):
                answer_of(self.store.delete(path))
            endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092)
            registration = znodes.BrokerRegistration((endpoint,), 0, rack=self.racks.get(broker_id))
            answer_of(self.store.create(path, registration.encode(), ephemeral=True))
            stat = answer_of(self.store.exists(path))
            assert stat is not None
            self.fakes[broker_id] = FakeBroker(broker_id, stat.czxid)

    def leave(self, *brokers: int) -> None:
        for broker_id in brokers:
            answer_of(self.store.delete(znodes.BrokerRegistration.path(broker_id)))
            del self.fakes[broker_id]
        self.brokers_changed()

    def brokers_changed(self) -> None:
        self.step(events.BrokersRegistered(at_once(self.reader.brokers())))

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsResponse:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        self._ids += 1
        ids = [topic_id(f"{topic.name}.{self._ids}") for topic in topics]
        reply = self.step(events.CreateTopics(request, ids, [START] * len(topics)))
        assert isinstance(reply, CreateTopicsResponse)
        return reply

    def topic(self, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
        """A topic with these replicas, partition by partition."""
        values = {key.replace("_", "."): value for key, value in configs.items()}
        reply = self.create(a_topic(name, assignments=dict(enumerate(replicas)), configs=values))
        assert reply.topics[0].error_code == 0, reply.topics[0].error_message

    def read(self) -> ClusterState:
        """What another controller finds."""
        state = ClusterState(2, self.state.controller_epoch + 1)
        state.brokers = at_once(self.reader.brokers())
        for topic in at_once(self.reader.topics()).states:
            state.add_topic(topic)
        state.configs = at_once(self.reader.configs())
        return state

    def take_over(self) -> None:
        """Another controller starts. It has not forgotten anything."""
        old, self.state = self.state, self.read()
        assert {name: vars_of(topic) for name, topic in self.state.topics.items()} == {
            name: vars_of(topic) for name, topic in old.topics.items()
        }
        last_writes = at_once(self.reader.topics()).last_writes
        self.step(events.ControllerStarted(at_once(self.reader.deletions()), last_writes))

    # -- what there is

    def leadership(self, topic: str, partition: int = 0) -> LeaderAndIsr:
        state = self.state.topics[topic].leadership[partition]
        assert state is not None
        return state

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.leadership(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        return self.leadership(topic, partition).isr

    def assignment(self, topic: str, partition: int = 0) -> ReplicaAssignment:
        return self.state.topics[topic].assignments[partition]

    def set_isr(self, topic: str, *isr: int, partition: int = 0) -> None:
        """As if the leader had asked for it, and got it."""
        old = self.leadership(topic, partition)
        path = znodes.PartitionState.path(TopicPartition(topic, partition))
        new = LeaderAndIsr(old.leader, isr, old.leader_epoch, old.partition_epoch + 1, old.controller_epoch)
        answer_of(self.store.set(path, znodes.PartitionState.encode(new), old.partition_epoch))
        self.step(events.IsrsChanged({TopicPartition(topic, partition): new}, []))

    # -- what must hold

    def check_store(self) -> None:
        """A new controller would find what this one believes."""
        stored = {topic.name: topic for topic in at_once(self.reader.topics()).states}
        assert {name: vars_of(topic) for name, topic in stored.items()} == {
            name: vars_of(topic) for name, topic in self.state.topics.items()
        }
        assert at_once(self.reader.configs()) == self.state.configs
        assert set(at_once(self.reader.deletions())) >= set(self.state.deletions)
        assert self.state.topic_names == {topic.topic_id: name for name, topic in self.state.topics.items()}
        for partition in self.state.partitions():
            leadership = self.state.leadership(partition)
            if leadership is not None:
                self._check_partition(partition, leadership)

    def _check_partition(self, partition: TopicPartition, now: LeaderAndIsr) -> None:
        assert now.isr
        assert now.leader == NO_LEADER or now.leader in now.isr
        key = (self.state.topics[partition.topic].topic_id, partition.partition)
        epochs = (now.leader_epoch, now.partition_epoch)
        before = self._epochs.get(key, (-1, -1))
        assert epochs[0] >= before[0]
        assert epochs[1] >= before[1]
        self._epochs[key] = epochs

    def check_brokers(self) -> None:
        """What brokers were told is what the store says."""
        state = self.state
        assert state.brokers.keys() == self.fakes.keys()
        visible = {p for p in state.partitions() if p.topic not in state.deletions and state.leadership(p)}
        for fake in self.fakes.values():
            if fake.broker_id in self.deaf:
                continue
            assert fake.live_brokers == self.fakes.keys()
            assert fake.known.keys() == visible
            for partition, heard in fake.known.items():
                leadership = state.leadership(partition)
                assert leadership is not None
                assert (heard.leader, heard.leader_epoch) == (leadership.leader, leadership.leader_epoch)
                assert (tuple(heard.isr), heard.zk_version) == (leadership.isr, leadership.partition_epoch)
                replicas = state.assignment(partition).replicas
                assert tuple(heard.replicas) == replicas
                present = state.present(partition)
                assert heard.offline_replicas == [one for one in replicas if one not in present]
            self._check_replicas(fake, visible)

    def _check_replicas(self, fake: FakeBroker, visible: set[TopicPartition]) -> None:
        for partition in visible:
            assignment, leadership = self.state.assignment(partition), self.state.leadership(partition)
            assert leadership is not None
            if fake.broker_id not in assignment.replicas:
                assert partition not in fake.replicas
            elif fake.broker_id not in self.state.shutting_down and partition not in fake.failed_disks:
                told = fake.replicas[partition]
                assert (told.leader, told.leader_epoch) == (leadership.leader, leadership.leader_epoch)
                assert tuple(told.replicas) == assignment.replicas


def vars_of(topic: Any) -> dict[str, object]:
    """The fields of a topic, for comparison."""
    return {name: getattr(topic, name) for name in topic.__slots__}


def nothing_changes(world: World, action: Callable[[], object]) -> None:
    """Assert that an action writes nothing and tells nobody anything."""
    before = world.writes
    action()
    assert world.writes == before
    assert world.requests == []


__all__ = ["CONTROLLER_EPOCH", "START", "EntityType", "World", "a_topic", "at_once", "nothing_changes"]
