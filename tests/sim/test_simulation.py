"""Clusters under faults keep what they have promised, whatever the seed; planted bugs are found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.sim.planted import PLANTED, SELDOM, Bug
from tests.sim.simulation import Outcome, simulate

pytestmark = pytest.mark.slow

SEEDS = range(1, 201)
CHUNK = 5
"""So many are a test, for the workers to share."""
SEEDS_PER_BUG = 8
SEEDS_PER_SELDOM_BUG = 40


def told(outcome: Outcome) -> str:
    again = f"again: make sim SEEDS={outcome.seed} ARGS=--verbose"
    return "\n".join([f"seed {outcome.seed}, digest {outcome.digest}", *outcome.violations, again])


@pytest.mark.parametrize(
    "seeds",
    [SEEDS[begin : begin + CHUNK] for begin in range(0, len(SEEDS), CHUNK)],
    ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}",
)
def test_clusters_under_faults_keep_their_promises(seeds: Sequence[int]) -> None:
    failed = [outcome for outcome in map(simulate, seeds) if outcome.violations]
    assert not failed, "\n".join(map(told, failed))


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    with bug():
        assert any(simulate(seed).violations for seed in range(1, SEEDS_PER_BUG + 1))


@pytest.mark.parametrize("bug", SELDOM, ids=lambda bug: bug.__name__)
def test_a_planted_bug_that_takes_certain_faults_is_found(bug: Bug) -> None:
    def is_found(seed: int) -> bool:
        outcome = simulate(seed, lambda simulation: simulation.faults.only(*SELDOM[bug]))
        return bool(outcome.violations)

    with bug():
        assert any(map(is_found, range(1, SEEDS_PER_SELDOM_BUG + 1)))


def test_the_same_seed_makes_the_same_run() -> None:
    first, second, other = simulate(1), simulate(1), simulate(2)
    assert first == second
    assert first.digest != other.digest
