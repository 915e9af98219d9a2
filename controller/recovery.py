"""Replicas of brokers that stay away are built anew on others, through ordinary reassignments.

- A broker counts as lost when it has been away for `replica_recovery_delay_ms`, as long as this controller
  has been looking; -1 is never. What matters is the time by a clock that nobody sets.
- The new replica comes last, so that nobody's leadership changes. It goes to the living broker with the
  fewest replicas, of a rack that the partition is not in, if there is one.
- Only where every lost replica of a partition can be replaced, and one that is left is in sync: a
  reassignment that cannot be completed helps nobody.
- A broker builds at most `MOST_AT_ONCE` replicas at a time. The others have their turn at a later check.
- Partitions that somebody is moving already are left alone. Whoever cancels one of these reassignments while
  the broker stays away has it started again; an operator who does not want that sets the delay to -1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from controller.plan import Plan
from controller.reassignment import Wanted, start
from controller.state import ClusterState, TopicPartition

MOST_AT_ONCE = 20


def check(plan: Plan, now_ms: int) -> None:
    """See who is away, and rebuild what was on those who are lost."""
    state, delay_ms = plan.state, plan.rules.replica_recovery_delay_ms
    assigned = {replica: None for p in state.partitions() for replica in state.assignment(p).replicas}
    away = [broker_id for broker_id in assigned if broker_id not in state.brokers]
    state.away_since_ms = {broker_id: state.away_since_ms.get(broker_id, now_ms) for broker_id in away}
    if delay_ms >= 0:
        lost = [broker_id for broker_id in away if now_ms - state.away_since_ms[broker_id] >= delay_ms]
        if lost:
            start(plan, _rebuilt(state, frozenset(lost)))


def _rebuilt(state: ClusterState, lost: Collection[int]) -> Wanted:
    """The new assignments of partitions that lack replicas."""
    loads = Counter(replica for p in state.partitions() for replica in state.assignment(p).target)
    building = Counter(replica for p in state.reassigning for replica in state.assignment(p).adding)
    wanted: Wanted = {}
    for partition in state.partitions():
        if partition.topic in state.deletions or partition in state.reassigning:
            continue
        assignment = state.assignment(partition)
        left = [replica for replica in assignment.replicas if replica not in lost]
        missing = len(assignment.replicas) - len(left)
        if not missing or not _is_in_sync(state, partition, left):
            continue
        added = _substitutes(state, assignment.replicas, left, missing, loads, building)
        if len(added) == missing:
            loads.update(added)
            building.update(added)
            wanted[partition] = assignment.reassign_to((*left, *added))
    return wanted


def _is_in_sync(state: ClusterState, partition: TopicPartition, replicas: Collection[int]) -> bool:
    leadership = state.leadership(partition)
    return leadership is not None and any(
        replica in leadership.isr and replica in state.electable(partition) for replica in replicas
    )


def _substitutes(
    state: ClusterState,
    replicas: Collection[int],
    left: Collection[int],
    count: int,
    loads: Counter[int],
    building: Counter[int],
) -> list[int]:
    """That many brokers that hold no replica yet, or as many as there are."""
    racks = {broker.broker_id: broker.rack for broker in state.staying_brokers()}
    used = [racks[replica] for replica in left if racks.get(replica) is not None]
    free = [one for one in racks if one not in replicas and building[one] < MOST_AT_ONCE]
    chosen: list[int] = []
    while free and len(chosen) < count:
        best = min(free, key=lambda one: (racks[one] is not None and racks[one] in used, loads[one], one))
        free.remove(best)
        chosen.append(best)
        used.append(racks[best])
    return chosen
