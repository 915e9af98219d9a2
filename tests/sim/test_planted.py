"""Every planted bug is found, by the anomaly that it causes: a checker that never failed proves nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from tests.sim.planted import PLANTED, Planted, StandInFailed, plant, stand_in
from tests.sim.simulation import Simulation, simulate
from tests.sim.workloads import WORKLOADS
from wire.errors import ErrorCode, KafkaError

MOST_SEEDS = 40
"""Of the workload of the first one, should runs have become others."""


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.bug.__name__)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    """Conformance 44, 46, 47, 50, 51."""

    def prepare(simulation: Simulation) -> None:
        if planted.faults:
            simulation.faults.only(*planted.faults)

    def is_found(seed: int) -> bool:
        with plant(planted.bug):
            outcome = simulate(seed, prepare)
        return any(violation.startswith(planted.anomaly) for violation in outcome.violations)

    step = len(WORKLOADS)
    assert any(map(is_found, range(planted.seed, planted.seed + MOST_SEEDS * step, step)))


class Part:
    def work(self) -> int:
        return 1


def broken() -> AbstractContextManager[object]:
    def work(self: Part) -> int:
        return len(self.no_such_attribute)  # type: ignore[attr-defined]

    return stand_in(Part, "work", work)


def refusing() -> AbstractContextManager[object]:
    def work(self: Part) -> int:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    return stand_in(Part, "work", work)


def test_a_stand_in_that_fails_by_itself_has_found_nothing() -> None:
    """Two of the planted bugs once had an AttributeError, which got runs stuck and was taken for a find."""
    failed = pytest.raises(StandInFailed, match=r"work: AttributeError\(.*no_such_attribute")
    with failed, plant(broken), pytest.raises(AttributeError):
        Part().work()
    with plant(refusing), pytest.raises(KafkaError):
        Part().work()
    assert Part().work() == 1
