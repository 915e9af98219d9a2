"""Clusters under faults keep what they have promised, whatever the seed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.sim.simulation import Outcome, simulate

pytestmark = pytest.mark.slow

SEEDS = range(1, 201)
CHUNK = 5
"""So many are a test, for the workers to share."""


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


def test_the_same_seed_makes_the_same_run() -> None:
    first, second, other = simulate(1), simulate(1), simulate(2)
    assert first == second
    assert first.digest != other.digest
