"""Clusters under faults keep what they have promised, whatever the seed."""

from __future__ import annotations

import pytest

from tests.sim.simulation import Outcome, simulate

pytestmark = pytest.mark.slow

SEEDS = 30


def told(outcome: Outcome) -> str:
    again = f"again: make sim SEEDS={outcome.seed} ARGS=--verbose"
    return "\n".join([f"seed {outcome.seed}, digest {outcome.digest}", *outcome.violations, again])


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_cluster_under_faults_keeps_its_promises(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.violations, told(outcome)


def test_the_same_seed_makes_the_same_run() -> None:
    first, second, other = simulate(1), simulate(1), simulate(2)
    assert first == second
    assert first.digest != other.digest
