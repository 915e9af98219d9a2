"""Who leads a partition: every election, as a function of values.

An election returns the new state of the partition, or None if it has nobody to elect or nothing to change.
These hold for each (`tests/controller/test_election.py` has them as tables):

- Only a member of the in-sync replicas becomes leader, in the order of the assignment. `unclean` alone lets
  another one lead, whose log then counts as the whole truth: the partition is marked as recovering.
- The in-sync replicas never become empty. Where none of them is left, they stay as they are, without a
  leader: each of them has everything that was acknowledged, and the first one back may lead.
- A member that has restarted may have lost what its disk had not written. It leads on only if no other
  member is left, and then in a new epoch; else it is out of sync until it has caught up.
- Every change raises the leader epoch by one.

`electable` are the replicas that could lead: their broker and disk work, and the broker is to stay. `present`
are those and the ones whose broker is shutting down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from controller.state import NO_LEADER, LeaderAndIsr, LeaderRecoveryState


def first_leader(
    replicas: Iterable[int], electable: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """For a partition that never had one: all replicas that work are in sync, and the first one leads."""
    isr = tuple(replica for replica in replicas if replica in electable)
    return LeaderAndIsr(isr[0], isr, controller_epoch=controller_epoch) if isr else None


def after_failures(
    replicas: Iterable[int],
    state: LeaderAndIsr,
    *,
    electable: Collection[int],
    present: Collection[int],
    restarted: Collection[int] = (),
    unclean: bool = False,
) -> LeaderAndIsr | None:
    """Bring the state in line with which replicas work. Kafka: OfflinePartition election, OfflineReplica.

    Of those that work, `restarted` did not all the time since the state was written.
    """
    replicas = tuple(replicas)
    if state.leader in present and state.leader not in restarted:
        isr = tuple(replica for replica in state.isr if replica in present and replica not in restarted)
        return None if isr == state.isr else state.next(state.leader, isr)
    in_sync = [replica for replica in replicas if replica in electable and replica in state.isr]
    in_sync = [replica for replica in in_sync if replica not in restarted] or in_sync
    if in_sync:
        return state.next(in_sync[0], (replica for replica in state.isr if replica in in_sync))
    out_of_sync = [replica for replica in replicas if replica in electable]
    if unclean and out_of_sync:
        return state.next(out_of_sync[0], out_of_sync[:1], LeaderRecoveryState.RECOVERING)
    return None if state.leader == NO_LEADER else state.next(NO_LEADER, state.isr)


def preferred(
    replicas: Iterable[int], state: LeaderAndIsr, *, electable: Collection[int]
) -> LeaderAndIsr | None:
    """Give a partition back to the first replica of its assignment."""
    first = next(iter(replicas), NO_LEADER)
    if first == state.leader or first not in electable or first not in state.isr:
        return None
    return state.next(first, state.isr)


def controlled_shutdown(
    replicas: Iterable[int], state: LeaderAndIsr, *, electable: Collection[int], leaving: Collection[int]
) -> LeaderAndIsr | None:
    """Move leadership off brokers that are shutting down, and take these out of the in-sync replicas."""
    for replica in replicas:
        if replica in electable and replica in state.isr and replica not in leaving:
            return state.next(replica, (one for one in state.isr if one not in leaving))
    return None


def reassigned(
    target: Iterable[int], state: LeaderAndIsr, *, electable: Collection[int]
) -> LeaderAndIsr | None:
    """Lead from the target of a completed reassignment; those outside of it are no longer in sync."""
    target = tuple(target)
    isr = tuple(replica for replica in state.isr if replica in target)
    if state.leader in isr and state.leader in electable:
        return state.next(state.leader, isr)
    for replica in target:
        if replica in isr and replica in electable:
            return state.next(replica, isr)
    return None
