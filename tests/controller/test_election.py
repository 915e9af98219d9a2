"""Elections as tables: who leads, who is in sync, and when nobody can be elected (conformance 91)."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import election
from controller.state import NO_LEADER, LeaderAndIsr, LeaderRecoveryState

RECOVERING = LeaderRecoveryState.RECOVERING
RECOVERED = LeaderRecoveryState.RECOVERED
EPOCH = 7


def at(leader: int, *isr: int, epoch: int = EPOCH, recovery: LeaderRecoveryState = RECOVERED) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader, isr, epoch, partition_epoch=3, controller_epoch=1, leader_recovery_state=recovery
    )


def then(leader: int, *isr: int, recovery: LeaderRecoveryState = RECOVERED) -> LeaderAndIsr:
    return at(leader, *isr, epoch=EPOCH + 1, recovery=recovery)


class Case(NamedTuple):
    replicas: tuple[int, ...]
    state: LeaderAndIsr
    electable: set[int]
    expected: LeaderAndIsr | None
    leaving: frozenset[int] = frozenset()
    unclean: bool = False
    restarted: frozenset[int] = frozenset()


@pytest.mark.parametrize(
    ("replicas", "electable", "expected"),
    [
        ((1, 2, 3), {1, 2, 3}, (1, (1, 2, 3))),
        ((3, 1, 2), {1, 2, 3}, (3, (3, 1, 2))),
        ((1, 2, 3), {2, 3}, (2, (2, 3))),
        ((1, 2, 3), {3, 4}, (3, (3,))),
        ((1, 2, 3), {4}, None),
        ((1, 2, 3), set(), None),
    ],
)
def test_a_new_partition_is_led_by_its_first_replica_alive_and_all_alive_are_in_sync(
    replicas: tuple[int, ...], electable: set[int], expected: tuple[int, tuple[int, ...]] | None
) -> None:
    outcome = election.first_leader(replicas, electable, controller_epoch=5)
    assert outcome == (None if expected is None else LeaderAndIsr(*expected, controller_epoch=5))


@pytest.mark.parametrize(
    "case",
    [
        # The leader works: only its company may change.
        Case((1, 2, 3), at(1, 1, 2, 3), {1, 2, 3}, None),
        Case((1, 2, 3), at(1, 1, 2, 3), {1, 3}, then(1, 1, 3)),
        Case((1, 2, 3), at(1, 1, 2), {1, 2}, None),
        Case((1, 2, 3), at(1, 1, 2, 3), {1}, then(1, 1)),
        Case((1, 2, 3), at(2, 2, 3), {1, 2, 3}, None),
        # It does not: the first of the assignment that is in sync.
        Case((1, 2, 3), at(1, 1, 2, 3), {2, 3}, then(2, 2, 3)),
        Case((1, 3, 2), at(1, 1, 2, 3), {2, 3}, then(3, 2, 3)),
        Case((1, 2, 3), at(1, 1, 3), {2, 3}, then(3, 3)),
        Case((1, 2, 3), at(1, 1, 2, 3), {3}, then(3, 3)),
        # Who restarted may have lost something: others lead, and it has to catch up.
        Case((1, 2, 3), at(1, 1, 2, 3), {1, 2, 3}, then(2, 2, 3), restarted=frozenset({1})),
        Case((1, 2, 3), at(1, 1, 2, 3), {1, 2, 3}, then(1, 1, 3), restarted=frozenset({2})),
        Case((1, 2, 3), at(1, 1, 2, 3), {1, 2, 3}, then(3, 3), restarted=frozenset({1, 2})),
        Case((1, 2, 3), at(1, 1, 2), {1, 2, 3}, None, restarted=frozenset({3})),
        # Where there is nobody else it leads, in a new epoch.
        Case((1, 2, 3), at(1, 1), {1, 2, 3}, then(1, 1), restarted=frozenset({1})),
        Case((1, 2, 3), at(2, 1, 2, 3), {1, 2}, then(1, 1, 2), restarted=frozenset({1, 2})),
        Case((1, 2, 3), at(NO_LEADER, 2, 3), {1, 2}, then(2, 2), restarted=frozenset({2})),
        Case((1, 2, 3), at(1, 1), {1, 2}, then(1, 1), restarted=frozenset({1}), unclean=True),
        # Nobody is in sync: no leader, and those who were stay in sync.
        Case((1, 2, 3), at(1, 1), {2, 3}, then(NO_LEADER, 1)),
        Case((1, 2, 3), at(1, 1, 2), {3}, then(NO_LEADER, 1, 2)),
        Case((1, 2, 3), at(1, 1), set(), then(NO_LEADER, 1)),
        Case((1,), at(1, 1), set(), then(NO_LEADER, 1)),
        # It had none: the first one back.
        Case((1, 2, 3), at(NO_LEADER, 1), {2, 3}, None),
        Case((1, 2, 3), at(NO_LEADER, 1), {1, 2, 3}, then(1, 1)),
        Case((1, 2, 3), at(NO_LEADER, 1, 2), {2, 3}, then(2, 2)),
        # Unclean only where it is allowed, and only if there is no other way.
        Case((1, 2, 3), at(1, 1), {2, 3}, then(2, 2, recovery=RECOVERING), unclean=True),
        Case((1, 3, 2), at(NO_LEADER, 1), {2, 3}, then(3, 3, recovery=RECOVERING), unclean=True),
        Case((1, 2, 3), at(1, 1, 2), {2, 3}, then(2, 2), unclean=True),
        Case((1, 2, 3), at(1, 1), set(), then(NO_LEADER, 1), unclean=True),
        Case((1, 2, 3), at(1, 1, 2, 3), {1, 2, 3}, None, unclean=True),
        # A leader that was still recovering has not recovered by dying.
        Case((1, 2), at(1, 1, 2, recovery=RECOVERING), {2}, then(2, 2, recovery=RECOVERING)),
        # A broker on its way out goes on leading, and is in sync, but is not elected.
        Case((1, 2, 3), at(1, 1, 2, 3), {2, 3}, None, leaving=frozenset({1})),
        Case((1, 2, 3), at(1, 1, 2, 3), {3}, then(3, 3), leaving=frozenset({2})),
        Case((1, 2, 3), at(3, 1, 2, 3), {1}, then(1, 1), leaving=frozenset({2})),
        Case((1, 2), at(1, 1, 2), set(), then(NO_LEADER, 1, 2), leaving=frozenset({2})),
    ],
)
def test_after_failures(case: Case) -> None:
    outcome = election.after_failures(
        case.replicas,
        case.state,
        electable=case.electable,
        present=case.electable | case.leaving,
        restarted=case.restarted,
        unclean=case.unclean,
    )
    assert outcome == case.expected


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 2, 3), at(2, 1, 2, 3), {1, 2, 3}, then(1, 1, 2, 3)),
        Case((1, 2, 3), at(1, 1, 2, 3), {1, 2, 3}, None),
        Case((1, 2, 3), at(2, 2, 3), {1, 2, 3}, None),
        Case((1, 2, 3), at(2, 1, 2, 3), {2, 3}, None),
    ],
)
def test_the_preferred_leader_comes_back_when_it_is_in_sync(case: Case) -> None:
    outcome = election.preferred(case.replicas, case.state, electable=case.electable)
    assert outcome == case.expected


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 2, 3), at(1, 1, 2, 3), {2, 3}, then(2, 2, 3), leaving=frozenset({1})),
        Case((1, 2, 3), at(1, 1, 3), {2, 3}, then(3, 3), leaving=frozenset({1})),
        Case((1, 2, 3), at(1, 1, 2, 3), {3}, then(3, 3), leaving=frozenset({1, 2})),
        Case((1, 2, 3), at(1, 1), {2, 3}, None, leaving=frozenset({1})),
        Case((1, 2, 3), at(1, 1, 2, 3), set(), None, leaving=frozenset({1, 2, 3})),
    ],
)
def test_controlled_shutdown_moves_leadership_and_leaves_the_in_sync_replicas(case: Case) -> None:
    outcome = election.controlled_shutdown(
        case.replicas, case.state, electable=case.electable, leaving=case.leaving
    )
    assert outcome == case.expected


@pytest.mark.parametrize(
    "case",
    [
        # `replicas` is the target here.
        Case((4, 5), at(1, 1, 2, 4, 5), {1, 2, 4, 5}, then(4, 4, 5)),
        Case((4, 1), at(1, 1, 2, 4), {1, 2, 4}, then(1, 1, 4)),
        Case((4, 1), at(1, 1, 2, 4), {2, 4}, then(4, 1, 4)),
        Case((4, 5), at(1, 1, 5, 4), {1, 5}, then(5, 5, 4)),
        Case((4, 5), at(1, 1, 2), {1, 2, 4, 5}, None),
        Case((4, 5), at(1, 1, 4), {1}, None),
    ],
)
def test_a_reassignment_ends_with_a_leader_of_its_target(case: Case) -> None:
    outcome = election.reassigned(case.replicas, case.state, electable=case.electable)
    assert outcome == case.expected


replica_sets = st.lists(st.integers(1, 5), min_size=1, max_size=5, unique=True)


@given(replica_sets, st.data())
def test_every_outcome_keeps_the_rules_of_elections(replicas: list[int], data: st.DataObject) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    electable = data.draw(st.sets(st.sampled_from(replicas)))
    leaving = data.draw(st.sets(st.sampled_from(replicas))) - electable
    state = at(data.draw(st.sampled_from([NO_LEADER, *isr])), *isr)
    outcomes = [
        election.after_failures(replicas, state, electable=electable, present=electable | leaving),
        election.preferred(replicas, state, electable=electable),
        election.controlled_shutdown(replicas, state, electable=electable, leaving=leaving),
        election.reassigned(replicas, state, electable=electable),
    ]
    for outcome in outcomes:
        if outcome is None:
            continue
        assert outcome.isr
        assert set(outcome.isr) <= set(isr)
        assert outcome.leader_epoch == EPOCH + 1
        if outcome.leader != NO_LEADER:
            assert outcome.leader in outcome.isr
            assert outcome.leader in electable | leaving
        else:
            assert outcome.isr == state.isr
