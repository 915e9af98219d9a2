"""Bugs in what is done for groups and transactions are found, each by the checker that is there for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from tests.sim.planted import PLANTED_IN_GROUPS, PLANTED_IN_TRANSACTIONS, Bug
from tests.sim.simulation import simulate
from tests.sim.workloads import WORKLOADS, GroupWorkload, TransactionWorkload

pytestmark = pytest.mark.slow

GROUP_SEEDS = range(WORKLOADS.index(GroupWorkload), 60, len(WORKLOADS))
TRANSACTION_SEEDS = range(WORKLOADS.index(TransactionWorkload), 60, len(WORKLOADS))


def is_found(bug: Bug, anomaly: str, seeds: range) -> bool:
    with bug():
        return any(violation.startswith(anomaly) for seed in seeds for violation in simulate(seed).violations)


def parameters(planted: Mapping[Bug, str]) -> Iterable[object]:
    return [pytest.param(bug, anomaly, id=bug.__name__) for bug, anomaly in planted.items()]


@pytest.mark.parametrize(("bug", "anomaly"), parameters(PLANTED_IN_GROUPS))
def test_a_bug_of_groups_is_found(bug: Bug, anomaly: str) -> None:
    assert is_found(bug, anomaly, GROUP_SEEDS)


@pytest.mark.parametrize(("bug", "anomaly"), parameters(PLANTED_IN_TRANSACTIONS))
def test_a_bug_of_transactions_is_found(bug: Bug, anomaly: str) -> None:
    """Conformance 44, 46, 50, 51."""
    assert is_found(bug, anomaly, TRANSACTION_SEEDS)
