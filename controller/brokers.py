"""Brokers that come, go, stop, or lose a disk: what becomes of the partitions on them.

A broker that restarted between two looks (same id, another epoch) has gone and come back: its log may be
shorter than it was, if its power went. To lead on in the same epoch it would give other records the offsets
that followers have filled already.

The two looks may be those of two controllers. Kafka's on ZooKeeper then sees nothing, as it knows only the
registrations of its own time. Here a new controller compares transaction ids: an in-sync replica whose broker
has registered after the partition's state was last written was away since. What stays possible is that a
controller writes a state after a member of it has registered again, and dies before it hears of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controller import deletion
from controller.partitions import Trigger, elect, settle, settle_without_leader, tell
from controller.plan import Plan
from controller.state import ClusterState, LiveBroker, TopicPartition
from wire.api.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from wire.errors import ErrorCode, KafkaError


def change(plan: Plan, registered: Mapping[int, LiveBroker]) -> None:
    """These are the brokers that are registered now."""
    known = plan.state.brokers
    gone = [
        broker_id
        for broker_id, broker in known.items()
        if broker_id not in registered or registered[broker_id].epoch != broker.epoch
    ]
    come = [broker_id for broker_id in registered if broker_id not in known or broker_id in gone]
    changed = gone or come or any(registered[broker_id] != broker for broker_id, broker in known.items())
    if not changed:
        return
    if gone:
        lose(plan, gone)
    plan.state.brokers = dict(registered)
    if come:
        welcome(plan, come)
    plan.batch.brokers_changed(registered)


def restarted(plan: Plan, last_writes: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[int]]:
    """The in-sync replicas that have registered after the states that name them were written.

    A partition with one replica has nobody who could know better.
    """
    state, found = plan.state, {}
    for partition, last_write in last_writes.items():
        leadership = state.leadership(partition)
        if leadership is None or len(state.assignment(partition).replicas) == 1:
            continue
        again = [
            replica
            for replica in leadership.isr
            if replica in state.brokers and state.brokers[replica].epoch > last_write
        ]
        if again:
            found[partition] = again
    return found


def lose(plan: Plan, gone: Iterable[int]) -> None:
    """Find leaders for what these brokers led, and take them out of the in-sync replicas."""
    gone = list(gone)
    for broker_id in gone:
        del plan.state.brokers[broker_id]
        plan.state.shutting_down.pop(broker_id, None)
        plan.state.offline_replicas.pop(broker_id, None)
    affected = plan.state.partitions_on(gone)
    settle(plan, affected)
    # Metadata names the replicas that are away, also where nothing else has changed.
    plan.batch.update(affected)
    deletion.replicas_left(plan, gone)


def welcome(plan: Plan, come: Iterable[int]) -> None:
    """Tell brokers that have just registered everything, and let them lead what nobody else could."""
    come = list(come)
    plan.batch.tell_everything(come)
    for partition in plan.state.partitions_on(come):
        if partition.topic not in plan.state.deletions:
            tell(plan, partition, come)
    settle_without_leader(plan)
    deletion.replicas_back(plan, come)


def shared_with_others(
    state: ClusterState, broker_id: int
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """The partitions that a broker leads, and those that it follows, where others have replicas as well."""
    shared = [
        partition
        for partition in state.partitions_on([broker_id])
        if len(state.assignment(partition).replicas) > 1 and partition.topic not in state.deletions
    ]
    led = [partition for partition in shared if _leads(state, partition, broker_id)]
    return led, [partition for partition in shared if not _leads(state, partition, broker_id)]


def shut_down(
    plan: Plan, request: ControlledShutdownRequest, partitions: Sequence[TopicPartition] | None = None
) -> ControlledShutdownResponse:
    """Move leadership off a broker that is about to stop. It may ask again while anything is left."""
    state, broker_id = plan.state, request.broker_id
    broker = state.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
    if -1 < request.broker_epoch < broker.epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    state.shutting_down[broker_id] = None
    if partitions is None:
        led, followed = shared_with_others(state, broker_id)
        partitions = led + followed
    shared = [one for one in partitions if state.has(one) and one.topic not in state.deletions]
    for partition in shared:
        _leave(plan, partition, broker_id)
    plan.batch.update(shared)
    remaining = [partition for partition in shared if _leads(state, partition, broker_id)]
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=partition) for topic, partition in remaining
        ],
    )


def _leads(state: ClusterState, partition: TopicPartition, broker_id: int) -> bool:
    leadership = state.leadership(partition)
    return leadership is not None and leadership.leader == broker_id


def _leave(plan: Plan, partition: TopicPartition, broker_id: int) -> None:
    """Take one replica out of the game: as a leader if another one can lead, as a follower at once."""
    state = plan.state
    leadership = state.leadership(partition)
    if leadership is None:
        return
    if leadership.leader == broker_id:
        elect(plan, partition, Trigger.CONTROLLED_SHUTDOWN)
        return
    plan.batch.stop([broker_id], state, partition, delete=False)
    isr = [replica for replica in leadership.isr if replica != broker_id]
    if broker_id in leadership.isr and isr:
        plan.change_leadership(partition, leadership.next(leadership.leader, isr))
        plan.batch.lead_or_follow(sorted(state.electable(partition)), partition)


def replicas_answered(plan: Plan, broker_id: int, outcomes: Mapping[TopicPartition, int]) -> None:
    """What a broker said about replicas that it was told to lead or follow: its disk may have failed."""
    offline = plan.state.offline_replicas.setdefault(broker_id, {})
    failed: list[TopicPartition] = []
    changed: list[TopicPartition] = []
    for partition, error_code in outcomes.items():
        if not plan.state.has(partition):
            continue
        if error_code == ErrorCode.KAFKA_STORAGE_ERROR and partition not in offline:
            offline[partition] = None
            failed.append(partition)
            changed.append(partition)
        elif error_code == ErrorCode.NONE and partition in offline:
            del offline[partition]
            changed.append(partition)
    settle(plan, changed)
    plan.batch.update(changed)
    deletion.replicas_failed(plan, broker_id, failed)


def disk_failed(plan: Plan, brokers: Iterable[int]) -> None:
    """Ask these brokers about every replica they have: their answers say which are lost."""
    for broker_id in brokers:
        for partition in plan.state.partitions_on([broker_id]):
            if partition.topic not in plan.state.deletions:
                tell(plan, partition, [broker_id])
