"""Bugs in what is done for groups and transactions are found, each by the checker that is there for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from tests.sim.planted import PLANTED_IN_GROUPS, PLANTED_IN_TRANSACTIONS, Bug
from tests.sim.simulation import simulate
from tests.sim.workloads import WORKLOADS, GroupWorkload, TransactionWorkload

pytestmark = pytest.mark.slow

SEEDS_PER_BUG = 20


def is_found(bug: Bug, anomaly: str, seed: int) -> bool:
    """By this seed, or by a later one with the same workload, should runs have become others."""
    seeds = range(seed, seed + SEEDS_PER_BUG * len(WORKLOADS), len(WORKLOADS))
    with bug():
        return any(violation.startswith(anomaly) for seed in seeds for violation in simulate(seed).violations)


def parameters(planted: Mapping[Bug, tuple[str, int]]) -> Iterable[object]:
    return [pytest.param(bug, *how, id=bug.__name__) for bug, how in planted.items()]


@pytest.mark.parametrize(("bug", "anomaly", "seed"), parameters(PLANTED_IN_GROUPS))
def test_a_bug_of_groups_is_found(bug: Bug, anomaly: str, seed: int) -> None:
    assert WORKLOADS[seed % len(WORKLOADS)] is GroupWorkload
    assert is_found(bug, anomaly, seed)


@pytest.mark.parametrize(("bug", "anomaly", "seed"), parameters(PLANTED_IN_TRANSACTIONS))
def test_a_bug_of_transactions_is_found(bug: Bug, anomaly: str, seed: int) -> None:
    """Conformance 44, 46, 47, 50, 51."""
    assert WORKLOADS[seed % len(WORKLOADS)] is TransactionWorkload
    assert is_found(bug, anomaly, seed)
