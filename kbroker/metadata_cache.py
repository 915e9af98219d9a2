"""What this broker knows of the cluster: what the controller last told it by UpdateMetadata.

Rules:
- A topic or partition is here from the first UpdateMetadata that names it to the one that names its leader as
  `LEADER_DURING_DELETE`, or that has another topic of its name. Topics are told apart by their ids: what is
  said late of an old one does not concern the new one.
- The partitions of a topic are kept as the objects of a Metadata reply, and made anew only when the topic
  changed: a thousand partitions must not cost a thousand objects a request.
- Orders of a controller that has been replaced (its epoch is lower) are refused: nothing here goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from wire.api.metadata import MetadataResponsePartition
from wire.api.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from wire.errors import ErrorCode

NO_LEADER = -1
LEADER_DURING_DELETE = -2
NO_CONTROLLER = -1


class Node(NamedTuple):
    """A broker that is alive, and where each of its listeners is reached."""

    id: int
    rack: str | None
    endpoints: dict[str, tuple[str, int]]


class Topic:
    """A topic and its partitions."""

    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: dict[int, UpdateMetadataPartitionState] = {}


class MetadataCache:
    """Brokers and topics, by id and by name."""

    def __init__(self) -> None:
        self.version = 0
        """Changes with everything here."""
        self._controller_id = NO_CONTROLLER
        self.controller_epoch = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        self._last_number = self._latest = 0
        """Of the orders that came, and of the latest that was carried out."""
        self._answers: dict[str, dict[str, list[MetadataResponsePartition]]] = {}
        """By topic and listener."""
        self._listeners: list[Callable[[Sequence[str]], object]] = []

    @property
    def controller_id(self) -> int:
        return self._controller_id

    @controller_id.setter
    def controller_id(self, broker_id: int) -> None:
        self._controller_id = broker_id
        self.version += 1

    def next_number(self) -> int:
        """For an order that has come."""
        self._last_number += 1
        return self._last_number

    def update(self, request: UpdateMetadataRequest, number: int | None = None) -> list[str]:
        """Take an order of the controller; the topics that end with it, perhaps for others of their names.

        Orders may be carried out in another order than they came. Of brokers, only the latest one tells.
        """
        number = self.next_number() if number is None else number
        self.version += 1
        if number > self._latest:
            self._latest = number
            self._update_brokers(request)
        ended = [state.topic_name for state in request.topic_states if self._ends(state)]
        for told in self._listeners:
            told([state.topic_name for state in request.topic_states])
        return ended

    def listen(self, told: Callable[[Sequence[str]], object]) -> None:
        """Be told of the topics that there is news of, after each order."""
        self._listeners.append(told)

    def _update_brokers(self, request: UpdateMetadataRequest) -> None:
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        nodes = {broker.id: _node(broker) for broker in request.live_brokers}
        if nodes != self.nodes:
            self.nodes = nodes
            self._answers.clear()

    def _ends(self, state: UpdateMetadataTopicState) -> bool:
        """Take what is said of a topic; whether what was known by its name has come to its end."""
        name = state.topic_name
        self._answers.pop(name, None)
        alive = [one for one in state.partition_states if one.leader != LEADER_DURING_DELETE]
        topic = self.topics.get(name)
        is_another = topic is not None and topic.id != state.topic_id
        if is_another and not alive:
            return False
        if topic is None or is_another:
            self._forget(name)
            topic = self.topics[name] = Topic(name, state.topic_id)
            self._names[topic.id] = name
        for partition in state.partition_states:
            if partition.leader == LEADER_DURING_DELETE:
                topic.partitions.pop(partition.partition_index, None)
            else:
                topic.partitions[partition.partition_index] = partition
        if not topic.partitions:
            self._forget(name)
        return is_another or not topic.partitions

    def _forget(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._names.pop(topic.id, None)

    # -- questions

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def partition(self, topic: str, index: int) -> UpdateMetadataPartitionState | None:
        found = self.topics.get(topic)
        return found.partitions.get(index) if found else None

    def partition_count(self, topic: str) -> int:
        found = self.topics.get(topic)
        return len(found.partitions) if found else 0

    def leader(self, topic: str, index: int) -> int:
        state = self.partition(topic, index)
        return state.leader if state is not None and state.leader in self.nodes else NO_LEADER

    def described(self, topic: Topic, listener: str) -> list[MetadataResponsePartition]:
        """The partitions as a client on this listener is to see them, in order of their index."""
        answers = self._answers.setdefault(topic.name, {})
        answer = answers.get(listener)
        if answer is None:
            in_order = sorted(topic.partitions.values(), key=lambda state: state.partition_index)
            answer = answers[listener] = [self._described(state, listener) for state in in_order]
        return answer

    def _described(self, state: UpdateMetadataPartitionState, listener: str) -> MetadataResponsePartition:
        leader = self.nodes.get(state.leader)
        code = ErrorCode.NONE
        if leader is None:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        elif listener not in leader.endpoints:
            code = ErrorCode.LISTENER_NOT_FOUND
        return MetadataResponsePartition(
            error_code=code,
            partition_index=state.partition_index,
            leader_id=state.leader if code == ErrorCode.NONE else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            offline_replicas=[
                r for r in state.replicas if r not in self.nodes or r in state.offline_replicas
            ],
        )


def _node(broker: UpdateMetadataBroker) -> Node:
    endpoints = {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in broker.endpoints}
    return Node(broker.id, broker.rack, endpoints)
