"""The tables: which state may follow which, and what each answers."""

from __future__ import annotations

import pytest

from kbroker.coordinators.classic_group import ClassicGroup, GroupConfig
from kbroker.coordinators.classic_states import ANSWERS, TRANSITIONS, State
from tests.kbroker.coordinators.clients import Client, described, joined, stable, state
from tests.kbroker.coordinators.driver import Driver
from wire.errors import ErrorCode


def test_every_state_has_a_row_in_each_table() -> None:
    assert set(TRANSITIONS) == set(ANSWERS) == set(State)


def test_dead_is_the_end_and_every_state_can_end() -> None:
    assert TRANSITIONS[State.DEAD] == frozenset()
    assert all(State.DEAD in following for state, following in TRANSITIONS.items() if state != State.DEAD)


def test_a_generation_goes_through_all_three_states_in_order() -> None:
    assert TRANSITIONS[State.EMPTY] == {State.PREPARING_REBALANCE, State.DEAD}
    assert State.STABLE not in TRANSITIONS[State.PREPARING_REBALANCE]
    assert State.EMPTY not in TRANSITIONS[State.STABLE]


@pytest.mark.parametrize("following", [State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY])
def test_a_transition_that_is_not_in_the_table_is_a_bug(following: State) -> None:
    group = ClassicGroup("readers", GroupConfig())
    with pytest.raises(RuntimeError, match="cannot go from Empty"):
        group.move_to(following, 0)


def test_what_a_member_is_told_while_the_group_prepares_a_rebalance(driver: Driver) -> None:
    """Conformance 74: heartbeats 27; a commit of the current generation succeeds. Sync 27."""
    member, newcomer = Client(driver), Client(driver, "newcomer")
    stable(member)
    newcomer.join()
    assert state(driver) == "PreparingRebalance"
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.commit() == ErrorCode.NONE
    assert member.sync().reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_what_a_member_is_told_while_the_group_completes_a_rebalance(driver: Driver) -> None:
    """Conformance 74: heartbeats 0, a commit 27. Sync waits for the leader's."""
    leader, follower = Client(driver), Client(driver, "follower")
    joined(leader, follower)
    assert state(driver) == "CompletingRebalance"
    assert follower.heartbeat() == ErrorCode.NONE
    assert follower.commit() == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.sync().is_parked


def test_what_a_member_is_told_by_a_stable_group(driver: Driver) -> None:
    """Conformance 74, 75."""
    member = Client(driver)
    stable(member)
    assert member.heartbeat() == ErrorCode.NONE
    assert member.commit() == ErrorCode.NONE
    assert member.sync().reply.assignment == b"for client"


def test_what_a_former_member_is_told_by_an_empty_group(driver: Driver) -> None:
    """Conformance 75: 25, whatever it asks."""
    member = Client(driver)
    stable(member)
    member.leave()
    assert state(driver) == "Empty"
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit() == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync().reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.join().reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_a_stranger_is_told_about_a_group_that_does_not_exist(driver: Driver) -> None:
    """Conformance 75: 25 also for unknown groups in Heartbeat. Conformance 81: described as Dead."""
    stranger = Client(driver)
    stranger._member_id, stranger._generation = "somebody", 1
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.join().reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert described(driver).group_state == "Dead"


def test_a_stale_generation_is_told_so_in_every_state_with_members(driver: Driver) -> None:
    """Conformance 75: 22."""
    member = Client(driver)
    stable(member)
    for reach in (lambda: None, lambda: Client(driver, "newcomer").join(), member.join):
        reach()
        current, member._generation = member.generation, 99
        assert member.heartbeat() == ErrorCode.ILLEGAL_GENERATION
        assert member.commit() == ErrorCode.ILLEGAL_GENERATION
        assert member.sync().reply.error_code == ErrorCode.ILLEGAL_GENERATION
        member._generation = current
