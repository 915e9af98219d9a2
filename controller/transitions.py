"""`step(state, event) -> effects`: everything that the controller decides.

`TRANSITIONS` says what each event leads to; the modules it names decide:

    brokers              brokers that come, go, stop, or lose a disk
    topics, deletion     topics that begin, grow and end (the replicas' state machine)
    partitions           who leads (the partitions' state machine), by the elections of `controller.election`
    isr                  who is in sync
    reassignment         partitions that move
    recovery             replicas that are built anew
    balance              replicas and leaders that move to equal shares
    leader_elections     leaders that are asked for
    configs              what is stored for topics and brokers

- A step changes the state that it was given, and returns the writes that make it so, the requests that
  brokers are to be sent afterwards, and the reply. It does nothing else, and it depends on nothing else.
- If the writes fail, the state is ahead of the store and has to be thrown away.
- The same state and event give the same effects, in the same order.
- What names very many topics or partitions is decided in slices: such a function is a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from controller import (
    balance,
    brokers,
    configs,
    deletion,
    events,
    isr,
    leader_elections,
    quotas,
    reassignment,
    recovery,
    topics,
)
from controller.metadata_store import Delete
from controller.partitions import settle, settle_without_leader, tell
from controller.plan import Effects, Plan
from controller.refusals import refusal
from controller.requests import replica_outcomes
from controller.rules import Rules
from controller.state import ClusterState
from wire.api.stop_replica import StopReplicaRequest
from wire.errors import KafkaError
from wire.slices import InSlices, to_the_end


def step(state: ClusterState, event: events.Event, rules: Rules) -> Effects:
    return to_the_end(step_in_slices(state, event, rules))


def step_in_slices(state: ClusterState, event: events.Event, rules: Rules) -> InSlices[Effects]:
    """The same, with pauses after some hundred microseconds: nothing else may be decided in them."""
    plan = Plan(state, rules)
    try:
        reply = TRANSITIONS[type(event)](plan, event)
        if isinstance(reply, Generator):
            reply = yield from reply
    except KafkaError as error:
        if not isinstance(event, events.Question):
            raise
        return Effects([], [], refusal(event, error))
    return (yield from plan.effects(reply))


def _controller_started(plan: Plan, event: events.ControllerStarted) -> None:
    """Tell every broker everything, and see to what happened while there was no controller."""
    state = plan.state
    plan.batch.brokers_changed(state.brokers)
    plan.batch.tell_everything(state.brokers)
    topics.write_new_ids(plan, list(state.topics.values()))
    topics.to_be_deleted(plan, event.to_be_deleted)
    plan.restarted = brokers.restarted(plan, event.last_writes)
    partitions = [p for p in state.partitions() if p.topic not in state.deletions]
    for partition in partitions:
        tell(plan, partition, state.brokers)
    settle(plan, partitions)
    for partition in list(state.reassigning):
        reassignment.advance(plan, partition)


def _request_answered(plan: Plan, event: events.RequestAnswered) -> None:
    """What brokers say counts for the life in which they say it."""
    request = event.request
    broker = plan.state.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return
    outcomes = replica_outcomes(request, event.response)
    if isinstance(request.message, StopReplicaRequest):
        deletion.answered(plan, request.broker_id, outcomes)
    else:
        brokers.replicas_answered(plan, request.broker_id, outcomes)


def _isrs_changed(plan: Plan, event: events.IsrsChanged) -> None:
    isr.read_again(plan, dict(event.states))
    plan.write(*(Delete(path) for path in event.notifications))
    for partition in event.states:
        if partition in plan.state.reassigning:
            reassignment.advance(plan, partition)


def _disks_failed(plan: Plan, event: events.DisksFailed) -> None:
    brokers.disk_failed(plan, event.brokers)
    plan.write(*(Delete(path) for path in event.notifications))


def _alter_partition(plan: Plan, event: events.AlterPartition) -> object:
    """The new in-sync replicas may be those that a reassignment has been waiting for."""
    granted = isr.alter(plan, event.request, event.version)
    for partition in granted.partitions:
        if partition in plan.state.reassigning:
            reassignment.advance(plan, partition)
    return granted.response


def _absence_checked(plan: Plan, event: events.AbsenceChecked) -> None:
    """What is lost is replaced; where nobody is away, shares are made equal."""
    recovery.check(plan, event.now_ms)
    balance.check(plan)


TRANSITIONS: Mapping[type, Callable[[Plan, Any], object]] = {
    events.ControllerStarted: _controller_started,
    events.BrokersRegistered: lambda plan, event: brokers.change(plan, event.brokers),
    events.RequestAnswered: _request_answered,
    events.TopicsAppeared: lambda plan, event: topics.appeared(plan, event.topics, event.configs),
    events.TopicWritten: lambda plan, event: topics.written(
        plan, event.name, event.assignments, event.version
    ),
    events.DeletionsRequested: lambda plan, event: topics.to_be_deleted(plan, event.names),
    events.ReassignmentsRequested: lambda plan, event: reassignment.requested(
        plan, event.targets, event.version
    ),
    events.PreferredLeadersRequested: lambda plan, event: leader_elections.requested(
        plan, event.partitions, event.version
    ),
    events.IsrsChanged: _isrs_changed,
    events.DisksFailed: _disks_failed,
    events.ConfigsChanged: lambda plan, event: configs.changed_elsewhere(plan, event.configs),
    events.BrokersConfigured: lambda plan, event: settle_without_leader(plan),
    events.LeadersChecked: lambda plan, event: leader_elections.balance(plan, event.imbalance_percent),
    events.AbsenceChecked: _absence_checked,
    events.CreateTopics: lambda plan, event: topics.create(
        plan, event.request, event.topic_ids, event.starts
    ),
    events.DeleteTopics: lambda plan, event: topics.delete(plan, event.request, event.version),
    events.CreatePartitions: lambda plan, event: topics.grow(plan, event.request),
    events.IncrementalAlterConfigs: lambda plan, event: configs.alter(plan, event.request),
    events.AlterConfigs: lambda plan, event: configs.replace(plan, event.request),
    events.AlterClientQuotas: lambda plan, event: quotas.alter(plan, event.request),
    events.AlterPartition: _alter_partition,
    events.ElectLeaders: lambda plan, event: leader_elections.elect_leaders(plan, event.request),
    events.AlterReassignments: lambda plan, event: reassignment.alter(plan, event.request),
    events.ListReassignments: lambda plan, event: reassignment.under_way(plan.state, event.request),
    events.ControlledShutdown: lambda plan, event: brokers.shut_down(plan, event.request, event.partitions),
}
