"""What clients saw, as short stories: each anomaly is found in one, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.log_config import LogConfig
from tests.sim.history import History, Place, Sent
from tests.sim.transaction_history import Outcome, Transaction, TransactionHistory
from tests.storage.partitions import append, batch, marker, new_log
from tests.storage.simulated_disk import SimulatedDisk

HERE: Place = ("t", 0)
THERE: Place = ("t", 1)


def send(history: History, number: int, *, offset: int | None = None) -> Sent:
    """A value of an idempotent producer, acknowledged if there is an offset."""
    sent = Sent(b"v%d" % number, HERE, "p", -1, True, number)
    history.sending(sent)
    if offset is not None:
        history.acknowledged(sent, offset)
    return sent


def all_is_well(history: History) -> None:
    send(history, 1, offset=0)
    send(history, 2)
    send(history, 3, offset=2)
    history.read("c", HERE, 0, b"v1")
    stored = {0: b"v1", 2: b"v3"}
    history.compare(HERE, stored)
    history.seen_at_end(HERE, stored)
    history.consumed("g", "m", HERE, 0, b"v1")
    history.consumed_at_end("g", HERE, {0: b"v1"})
    history.committed("g", HERE, 3)
    history.fetched_commit("g", HERE, 3, 3)
    history.owns("g", 1, HERE, "m")
    history.owns("g", 2, HERE, "n")
    history.late_commit("g", 2, 2)


def lost_write(history: History) -> None:
    send(history, 1, offset=0)
    history.compare(HERE, {})


def inconsistent_offset(history: History) -> None:
    send(history, 1, offset=0)
    history.read("c", HERE, 0, b"v2")


def duplicate(history: History) -> None:
    send(history, 1, offset=0)
    history.compare(HERE, {0: b"v1", 1: b"v1"})


def reordered(history: History) -> None:
    send(history, 1)
    send(history, 2)
    history.compare(HERE, {0: b"v2", 1: b"v1"})


def phantom(history: History) -> None:
    history.refused(send(history, 1))
    history.compare(HERE, {0: b"v1"})


def unseen(history: History) -> None:
    send(history, 1, offset=0)
    history.seen_at_end(HERE, {})


def unseen_by_a_group(history: History) -> None:
    history.consumed_at_end("g", HERE, {0: b"v1"})


def stale_group_read(history: History) -> None:
    history.committed("g", HERE, 3)
    history.fetched_commit("g", HERE, 2, 3)


def double_ownership(history: History) -> None:
    history.owns("g", 1, HERE, "m")
    history.owns("g", 1, HERE, "n")


def late_commit(history: History) -> None:
    history.late_commit("g", 1, 2)


@pytest.mark.parametrize(
    ("story", "anomaly"),
    [
        (all_is_well, None),
        (lost_write, "lost write"),
        (inconsistent_offset, "inconsistent offset"),
        (duplicate, "duplicate"),
        (reordered, "reordered"),
        (phantom, "phantom"),
        (unseen, "unseen"),
        (unseen_by_a_group, "unseen"),
        (stale_group_read, "stale group read"),
        (double_ownership, "double ownership"),
        (late_commit, "late commit"),
    ],
)
def test_anomalies_of_clients(story: Callable[[History], None], anomaly: str | None) -> None:
    history = History(lambda: 0.0)
    story(history)
    assert {one.partition(":")[0] for one in history.violations} == ({anomaly} if anomaly else set())


class Told:
    """A transaction that wrote `a` here and `b` there, and what is visible of it."""

    def __init__(self, history: History) -> None:
        self.history = TransactionHistory(history)
        self.one: Transaction = self.history.begins("p")
        self.history.writes(self.one, HERE, b"a")
        self.history.writes(self.one, THERE, b"b")
        self.history.writes_offset(self.one, "g", HERE, 5)

    def commits(self) -> None:
        self.history.asks(self.one, commit=True)
        self.history.ended(self.one)

    def aborts(self) -> None:
        self.history.asks(self.one, commit=False)
        self.history.ended(self.one)

    def shows(self, here: dict[int, bytes], there: dict[int, bytes]) -> None:
        self.history.compare({HERE: here, THERE: there})


def a_commit_is_well(told: Told) -> None:
    told.commits()
    told.history.read("r", HERE, 0, b"a")
    told.history.told_offset("g", HERE, 5)
    told.history.compare_reader("r", HERE, {0: b"a"}, {0: b"a"})
    told.shows({0: b"a"}, {0: b"b"})


def an_abort_is_well(told: Told) -> None:
    told.aborts()
    told.history.told_offset("g", HERE, -1)
    told.shows({}, {})


def pre_committed_read(told: Told) -> None:
    told.history.read("r", HERE, 0, b"a")


def read_beyond_what_is_stable(told: Told) -> None:
    told.history.beyond("r", HERE, 5, 4)


def aborted_read(told: Told) -> None:
    told.aborts()
    told.shows({0: b"a"}, {})


def read_of_a_refused_commit(told: Told) -> None:
    told.history.asks(told.one, commit=True)
    told.history.refused(told.one, is_certain=True)
    told.history.read("r", HERE, 0, b"a")


def torn_transaction(told: Told) -> None:
    told.commits()
    told.shows({0: b"a"}, {})


def lost_commit(told: Told) -> None:
    told.commits()
    told.shows({}, {})


def value_twice(told: Told) -> None:
    told.commits()
    told.shows({0: b"a", 1: b"a"}, {0: b"b"})


def lost_committed_read(told: Told) -> None:
    told.history.compare_reader("r", HERE, {}, {0: b"a"})


def wrong_committed_read(told: Told) -> None:
    told.history.compare_reader("r", HERE, {0: b"a"}, {})


def leaked_offset(told: Told) -> None:
    told.history.told_offset("g", HERE, 5)


def copies(told: Told, visible: dict[int, bytes]) -> None:
    told.one.copied = {b"a": (("source", 0), 7), b"b": (("source", 0), 7)}
    told.history.compare_copies({("source", 0): {7: b"x"}}, {HERE: visible})


@pytest.mark.parametrize(
    ("story", "anomaly"),
    [
        (a_commit_is_well, None),
        (an_abort_is_well, None),
        (pre_committed_read, "pre-committed read"),
        (read_beyond_what_is_stable, "pre-committed read"),
        (aborted_read, "aborted read"),
        (read_of_a_refused_commit, "aborted read"),
        (torn_transaction, "torn transaction"),
        (lost_commit, "lost commit"),
        (value_twice, "duplicate"),
        (lost_committed_read, "lost committed read"),
        (wrong_committed_read, "wrong committed read"),
        (leaked_offset, "leaked offset"),
        (lambda told: copies(told, {0: b"a"}), None),
        (lambda told: copies(told, {}), "lost copy"),
        (lambda told: copies(told, {0: b"a", 1: b"b"}), "double copy"),
    ],
)
def test_anomalies_of_transactions(story: Callable[[Told], None], anomaly: str | None) -> None:
    history = History(lambda: 0.0)
    story(Told(history))
    assert {one.partition(":")[0] for one in history.violations} == ({anomaly} if anomaly else set())


@pytest.mark.parametrize(
    ("is_commit", "decisions", "anomaly"),
    [
        (True, [Outcome(0, True)], None),
        (True, [Outcome(0, False)], "wrong marker"),
        (False, [Outcome(1, False)], "wrong marker"),
        (True, [], "wrong marker"),
        (None, [], "open transaction"),
    ],
)
def test_anomalies_of_markers(is_commit: bool | None, decisions: list[Outcome], anomaly: str | None) -> None:
    history = History(lambda: 0.0)
    log = new_log(SimulatedDisk(), LogConfig())
    append(log, batch("a", producer_id=1, epoch=0, sequence=0, transactional=True))
    if is_commit is not None:
        append(log, marker(1, commit=is_commit))
    visible = TransactionHistory(history).scan(HERE, log, {(HERE, 1): decisions})
    assert visible == ({0: b"a"} if is_commit else {})
    assert {one.partition(":")[0] for one in history.violations} == ({anomaly} if anomaly else set())
