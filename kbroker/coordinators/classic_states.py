"""The states of a classic group: which may follow which, and what a request is told in each.

- Empty: no members. The group stays for its offsets, or is used for nothing but offsets.
- PreparingRebalance: waiting for all members to send JoinGroup.
- CompletingRebalance: a generation has begun; waiting for its leader to send SyncGroup.
- Stable: everybody can have their assignment.
- Dead: deleted, or given up with the partition. Nothing follows, and nobody can reach such a group any more;
  a group that does not exist is described as Dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from wire.errors import ErrorCode


class State(StrEnum):
    """Under the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}


class Answers(NamedTuple):
    """What a state answers to requests that have no other fault.

    The first three come from a member with its right id and the right generation; NONE to SyncGroup means
    that it is served, at once or when the leader's assignment is there. JoinGroup, LeaveGroup and OffsetFetch
    are served in every state but Dead.
    """

    heartbeat: ErrorCode
    sync: ErrorCode
    commit: ErrorCode
    delete_group: ErrorCode


ANSWERS: Mapping[State, Answers] = {
    State.EMPTY: Answers(
        heartbeat=ErrorCode.UNKNOWN_MEMBER_ID,
        sync=ErrorCode.UNKNOWN_MEMBER_ID,
        commit=ErrorCode.UNKNOWN_MEMBER_ID,
        delete_group=ErrorCode.NONE,
    ),
    State.PREPARING_REBALANCE: Answers(
        heartbeat=ErrorCode.REBALANCE_IN_PROGRESS,
        sync=ErrorCode.REBALANCE_IN_PROGRESS,
        commit=ErrorCode.NONE,
        delete_group=ErrorCode.NON_EMPTY_GROUP,
    ),
    State.COMPLETING_REBALANCE: Answers(
        heartbeat=ErrorCode.NONE,
        sync=ErrorCode.NONE,
        commit=ErrorCode.REBALANCE_IN_PROGRESS,
        delete_group=ErrorCode.NON_EMPTY_GROUP,
    ),
    State.STABLE: Answers(
        heartbeat=ErrorCode.NONE,
        sync=ErrorCode.NONE,
        commit=ErrorCode.NONE,
        delete_group=ErrorCode.NON_EMPTY_GROUP,
    ),
    State.DEAD: Answers(
        heartbeat=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        sync=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        commit=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        delete_group=ErrorCode.GROUP_ID_NOT_FOUND,
    ),
}
