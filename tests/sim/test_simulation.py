"""Clusters under faults keep what they have promised, whatever the seed; planted bugs are found."""

from __future__ import annotations

import pytest

from tests.sim.planted import PLANTED, Bug
from tests.sim.simulation import Outcome, simulate

pytestmark = pytest.mark.slow

SEEDS = 30
SEEDS_PER_BUG = 8


def told(outcome: Outcome) -> str:
    again = f"again: make sim SEEDS={outcome.seed} ARGS=--verbose"
    return "\n".join([f"seed {outcome.seed}, digest {outcome.digest}", *outcome.violations, again])


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_cluster_under_faults_keeps_its_promises(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.violations, told(outcome)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    with bug():
        assert any(simulate(seed).violations for seed in range(1, SEEDS_PER_BUG + 1))


def test_the_same_seed_makes_the_same_run() -> None:
    first, second, other = simulate(1), simulate(1), simulate(2)
    assert first == second
    assert first.digest != other.digest
