"""What brokers are told: LeaderAndIsr, UpdateMetadata and StopReplica, one of each a broker at most.

A `Batch` collects what a broker has to know; `take` makes the requests out of the state as it is then.

- Order per broker: UpdateMetadata that only names brokers, LeaderAndIsr, UpdateMetadata, StopReplica. A
  broker has to know of a leader's existence before it is told to follow it.
- A broker that is told everything hears all of UpdateMetadata first, as from Kafka: what it is then told to
  lead may rest on other partitions (a coordinator of transactions writes markers to them).
- Only registered brokers are told, and each request names the registration (broker epoch) it is meant for, so
  that a broker which restarted meanwhile refuses it as lower than its own. A higher one it has to accept: the
  controller may hear of a registration before the broker does. The controller epoch does the same for
  controllers.
- Versions are those of Kafka 3.9 between brokers of 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controller.state import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    ClusterState,
    LeaderAndIsr,
    LiveBroker,
    ReplicaAssignment,
    TopicPartition,
)
from wire.api.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from wire.api.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from wire.api.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from wire.errors import ErrorCode
from wire.slices import InSlices

LEADER_AND_ISR_VERSION = 7
UPDATE_METADATA_VERSION = 8
STOP_REPLICA_VERSION = 4

ControlMessage = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ControlRequest(NamedTuple):
    """A message for one life of one broker."""

    broker_id: int
    broker_epoch: int
    message: ControlMessage
    version: int


def replica_outcomes(request: ControlRequest, response: object) -> dict[TopicPartition, int]:
    """The error code of each replica that was told to lead or follow, or to be deleted.

    Where the whole request was refused, replicas to be deleted are still there; about others it says nothing.
    """
    match request.message, response:
        case LeaderAndIsrRequest() as message, LeaderAndIsrResponse(error_code=ErrorCode.NONE):
            names = {topic.topic_id: topic.topic_name for topic in message.topic_states}
            return {
                TopicPartition(names[topic.topic_id], one.partition_index): one.error_code
                for topic in response.topics
                if topic.topic_id in names
                for one in topic.partition_errors
            }
        case StopReplicaRequest() as message, StopReplicaResponse():
            deleted = [
                TopicPartition(topic.topic_name, one.partition_index)
                for topic in message.topic_states
                for one in topic.partition_states
                if one.delete_partition
            ]
            codes = {
                TopicPartition(one.topic_name, one.partition_index): one.error_code
                for one in response.partition_errors
            }
            return {partition: response.error_code or codes.get(partition, 0) for partition in deleted}
    return {}


class _Stop(NamedTuple):
    leader_epoch: int
    delete: bool


class Batch:
    """What has to be said, until it is said."""

    def __init__(self) -> None:
        self._lead_or_follow: dict[int, dict[TopicPartition, bool]] = {}
        """By broker: the partitions, and whether the replica is new."""
        self._updated: dict[TopicPartition, None] = {}
        self._everything_for: dict[int, None] = {}
        self._brokers_changed_for: dict[int, None] = {}
        self._stop: dict[int, dict[TopicPartition, _Stop]] = {}

    def lead_or_follow(
        self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False
    ) -> None:
        """Tell replicas who leads; and all brokers, too."""
        for broker_id in brokers:
            told = self._lead_or_follow.setdefault(broker_id, {})
            told[partition] = is_new or told.get(partition, False)
        self.update([partition])

    def update(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell all brokers about these partitions; of a topic that is being deleted, that it is going."""
        self._updated.update(dict.fromkeys(partitions))

    def brokers_changed(self, brokers: Iterable[int]) -> None:
        """Tell these brokers which brokers there are, before anything else."""
        self._brokers_changed_for.update(dict.fromkeys(brokers))

    def tell_everything(self, brokers: Iterable[int]) -> None:
        """Tell these brokers about every partition."""
        self._everything_for.update(dict.fromkeys(brokers))

    def stop(
        self, brokers: Iterable[int], state: ClusterState, partition: TopicPartition, *, delete: bool
    ) -> None:
        """Tell replicas to stop, and to delete their data or not."""
        leadership = state.leadership(partition)
        leader_epoch = NO_EPOCH if leadership is None else leadership.leader_epoch
        if partition.topic in state.deletions:
            leader_epoch = EPOCH_DURING_DELETE
        for broker_id in brokers:
            told = self._stop.setdefault(broker_id, {})
            is_deleted_already = partition in told and told[partition].delete
            told[partition] = _Stop(leader_epoch, delete or is_deleted_already)

    def take(self, state: ClusterState) -> InSlices[list[ControlRequest]]:
        """The requests, made from the state as it is now. It must not change meanwhile."""
        updated = yield from _topics_to_update(state, self._updated)
        everything: list[UpdateMetadataTopicState] = []
        if self._everything_for:
            everything = yield from _topics_to_update(state, state.partitions())
        live_brokers = [_live_broker(broker) for _, broker in sorted(state.brokers.items())]
        requests: list[ControlRequest] = []
        for broker_id, broker in sorted(state.brokers.items()):
            topics = updated
            messages: list[tuple[ControlMessage, int]] = []
            if broker_id in self._everything_for:
                about_everything = _update_metadata(state, broker.epoch, everything, live_brokers)
                messages.append((about_everything, UPDATE_METADATA_VERSION))
                topics = []
            elif broker_id in self._brokers_changed_for:
                about_brokers = _update_metadata(state, broker.epoch, [], live_brokers)
                messages.append((about_brokers, UPDATE_METADATA_VERSION))
            orders = yield from _orders(state, broker_id, self._lead_or_follow.get(broker_id, {}))
            if orders:
                messages.append((_leader_and_isr(state, broker.epoch, orders), LEADER_AND_ISR_VERSION))
            if topics:
                about_topics = _update_metadata(state, broker.epoch, topics, live_brokers)
                messages.append((about_topics, UPDATE_METADATA_VERSION))
            if stopped := self._stop.get(broker_id):
                messages.append((_stop_replica(state, broker.epoch, stopped), STOP_REPLICA_VERSION))
            requests += [ControlRequest(broker_id, broker.epoch, *message) for message in messages]
        return requests


def _orders(
    state: ClusterState, broker_id: int, partitions: Mapping[TopicPartition, bool]
) -> InSlices[dict[str, list[LeaderAndIsrPartitionState]]]:
    """What a broker is to do with those of these partitions that it still has a replica of, by topic."""
    topics: dict[str, list[LeaderAndIsrPartitionState]] = {}
    for partition, is_new in partitions.items():
        if not state.has(partition):
            continue
        leadership, assignment = state.leadership(partition), state.assignment(partition)
        if leadership is not None and broker_id in assignment.replicas:
            order = _order(partition.partition, leadership, assignment, is_new=is_new)
            topics.setdefault(partition.topic, []).append(order)
        yield
    return topics


def _leader_and_isr(
    state: ClusterState, broker_epoch: int, topics: Mapping[str, list[LeaderAndIsrPartitionState]]
) -> LeaderAndIsrRequest:
    leaders = dict.fromkeys(order.leader for orders in topics.values() for order in orders)
    return LeaderAndIsrRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=topic, topic_id=state.topics[topic].topic_id, partition_states=states
            )
            for topic, states in topics.items()
        ],
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
            for broker_id in leaders
            if broker_id in state.brokers
            for endpoint in state.brokers[broker_id].endpoints[:1]
        ],
    )


def _order(
    partition: int, leadership: LeaderAndIsr, assignment: ReplicaAssignment, *, is_new: bool
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=partition,
        controller_epoch=leadership.controller_epoch,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        partition_epoch=leadership.partition_epoch,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
        is_new=is_new,
        leader_recovery_state=int(leadership.leader_recovery_state),
    )


def _topics_to_update(
    state: ClusterState, partitions: Iterable[TopicPartition]
) -> InSlices[list[UpdateMetadataTopicState]]:
    """What all brokers hear of these partitions. One that never had a leader is not mentioned."""
    topics: dict[str, list[UpdateMetadataPartitionState]] = {}
    for partition in partitions:
        leadership = state.leadership(partition) if state.has(partition) else None
        if partition.topic in state.deletions:
            leadership = LeaderAndIsr(LEADER_DURING_DELETE, (), controller_epoch=state.controller_epoch)
        if leadership is not None:
            heard = _heard_of(state, partition, leadership)
            topics.setdefault(partition.topic, []).append(heard)
        yield
    return [
        UpdateMetadataTopicState(
            topic_name=topic, topic_id=state.topics[topic].topic_id, partition_states=states
        )
        for topic, states in topics.items()
    ]


def _heard_of(
    state: ClusterState, partition: TopicPartition, leadership: LeaderAndIsr
) -> UpdateMetadataPartitionState:
    replicas = state.assignment(partition).replicas
    present = state.present(partition)
    return UpdateMetadataPartitionState(
        partition_index=partition.partition,
        controller_epoch=leadership.controller_epoch,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        zk_version=leadership.partition_epoch,
        replicas=list(replicas),
        offline_replicas=[replica for replica in replicas if replica not in present],
    )


def _update_metadata(
    state: ClusterState,
    broker_epoch: int,
    topics: list[UpdateMetadataTopicState],
    live_brokers: list[UpdateMetadataBroker],
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=topics,
        live_brokers=live_brokers,
    )


def _live_broker(broker: LiveBroker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=int(endpoint.security_protocol),
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


def _stop_replica(
    state: ClusterState, broker_epoch: int, partitions: Mapping[TopicPartition, _Stop]
) -> StopReplicaRequest:
    topics: dict[str, list[StopReplicaPartitionState]] = {}
    for partition, stop in partitions.items():
        stopped = StopReplicaPartitionState(
            partition_index=partition.partition,
            leader_epoch=stop.leader_epoch,
            delete_partition=stop.delete,
        )
        topics.setdefault(partition.topic, []).append(stopped)
    return StopReplicaRequest(
        controller_id=state.controller_id,
        controller_epoch=state.controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            StopReplicaTopicState(topic_name=topic, partition_states=states)
            for topic, states in topics.items()
        ],
    )
