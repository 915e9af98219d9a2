"""The checkers of the simulation, where they were wrong once. Each test names the seed that showed it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from storage.log_config import LogConfig
from storage.reading import Isolation
from tests.sim.__main__ import outcome_of, report
from tests.sim.clients import World
from tests.sim.cluster import Cluster
from tests.sim.copier import Copier
from tests.sim.history import History
from tests.sim.loop import SimulatedLoop
from tests.sim.simulation import Outcome
from tests.sim.transaction_history import EndAnswer, TransactionHistory
from tests.sim.watcher import OpenTransactions
from tests.storage.partitions import append, batch, marker, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from wire.api.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from wire.errors import ErrorCode
from wire.records import batch_headers


def new_history() -> History:
    return History(lambda: 0.0)


def test_markers_below_the_latest_snapshot_may_count_whatever_segment_they_are_in() -> None:
    """Seed 30761: after a clean stop, and in two segments. Others count once they are replicated."""
    log = new_log(SimulatedDisk(), LogConfig())
    append(log, *(batch("v", producer_id=one, epoch=0, sequence=0, transactional=True) for one in (1, 2)))
    append(log, marker(1, commit=False))
    log.roll(0)
    append(log, marker(2, commit=True))
    replicated = OpenTransactions()
    for _, header in batch_headers(log.read(0, 1 << 20, Isolation.LOG_END).records):
        if header.base_offset < 2:
            replicated.take(header)
    assert (replicated.end, replicated.last_stable_offset) == (2, 0)
    assert replicated.last_stable_offsets(log) == {0, 1}
    log.close()
    log = reopened(log, clean=True)
    log.high_watermark = 2
    assert log.last_stable_offset == 2
    assert replicated.last_stable_offsets(log) == {0, 1, 2}


@pytest.mark.parametrize(
    ("again", "found"),
    [
        (EndAnswer(False, 7, 4), []),
        (EndAnswer(True, 7, 4), ["late end"]),
        (EndAnswer(False, 7, 5), ["late end"]),
    ],
)
def test_a_coordinator_that_was_replaced_may_repeat_its_answer(again: EndAnswer, found: list[str]) -> None:
    """Seed 3803: it changed nothing. Another outcome, or another epoch, is of the next transaction."""
    history = new_history()
    TransactionHistory(history).late_end_answered("new", EndAnswer(False, 7, 4), again)
    assert [violation.partition(":")[0] for violation in history.violations] == found


def test_a_group_has_nothing_to_commit_of_an_empty_partition() -> None:
    """Seed 40223: every record that was sent to one of the sources was lost before it was acknowledged."""
    history = new_history()
    ends = {("t", 0): 0, ("t", 1): 4}
    assert not history.has_committed("copiers", ends)
    history.committed("copiers", ("t", 1), 4)
    assert history.has_committed("copiers", ends)


class Told(Copier):
    """A member whose coordinator says that one offset is 16, and the other one pending."""

    async def ask_coordinator(self, *question: Any, **how: Any) -> Any:
        self.must_join = True  # as its heartbeat was told meanwhile
        partitions = [
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=offset, metadata="", error_code=code
            )
            for index, offset, code in ((0, 16, ErrorCode.NONE), (1, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        ]
        topic = OffsetFetchResponseTopics(name="t", partitions=partitions)
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


def test_a_member_answers_for_the_offsets_that_it_was_told() -> None:
    """Seed 4079: the position that it had only read up to, 31, was taken for one that was committed."""
    loop = SimulatedLoop()
    history, places = new_history(), [("t", 0), ("t", 1)]
    world = World(Cluster(loop, 1, 3, history.note), history, 1)
    transactions = TransactionHistory(history)
    transactions.writes_offset(transactions.begins("copier"), "g", ("t", 0), 16)
    transactions.all[0].is_asked_to_commit = True
    member = Told(world, transactions, "copier", "g", places, places, is_new=True)
    member.must_join = False
    member.positions = {("t", 0): 14, ("t", 1): 31}
    try:
        loop.run_until_complete(member.find_positions(places))
    finally:
        loop.close()
        asyncio.set_event_loop(None)
    assert member.positions[("t", 0)] == 16
    assert history.violations == []


# -- campaigns


def run(seed: int) -> Outcome:
    if seed == 2:
        raise ZeroDivisionError("in a checker")
    violations = ["divergence: of two replicas"] if seed == 3 else []
    return Outcome(seed, f"digest-{seed}", violations, [], {"kill": seed}, 1.0)


def test_a_campaign_goes_on_after_failures_and_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert report((outcome_of(seed, run) for seed in range(1, 6)), 5) == 1
    told = capsys.readouterr().out
    assert "seed 2: digest none\n  crashed: Traceback" in told
    assert "ZeroDivisionError: in a checker" in told
    assert "seed 3: digest digest-3\n  divergence: of two replicas" in told
    assert "5 of 5 runs" in told
    assert "2 failed: [2, 3]" in told


def test_a_campaign_without_failures_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(map(run, (4, 5)), 2) == 0
    assert "0 failed: []" in capsys.readouterr().out
