"""Leader epochs: which epoch wrote an offset, and where it ended."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage.errors import CorruptCheckpoint
from storage.leader_epochs import LeaderEpochs
from tests.storage.crashes import each_crash
from tests.storage.simulated_disk import SimulatedDisk

PATH = "/log/leader-epoch-checkpoint"


def epochs_of(disk: SimulatedDisk, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(disk, PATH)
    for entry in entries:
        epochs.assign(*entry)
    return epochs


def test_without_any_epoch_everything_is_unknown(disk: SimulatedDisk) -> None:
    epochs = epochs_of(disk)
    assert (epochs.latest, epochs.entries, epochs.dirty) == (-1, (), False)
    assert epochs.end_offset_for(0, 100) == epochs.end_offset_for(-1, 100) == (-1, -1)
    assert epochs.epoch_for(0) == -1


def test_the_end_of_an_epoch_is_where_the_next_known_one_begins(disk: SimulatedDisk) -> None:
    """Conformance 65: the largest known epoch at or below the requested one; above ours (-1, -1)."""
    epochs = epochs_of(disk, (2, 10), (3, 20), (7, 30))
    assert epochs.end_offset_for(2, 99) == (2, 20)
    assert epochs.end_offset_for(3, 99) == (3, 30)
    assert epochs.end_offset_for(5, 99) == (3, 30)
    assert epochs.end_offset_for(7, 99) == (7, 99)
    assert epochs.end_offset_for(8, 99) == (-1, -1)
    assert epochs.end_offset_for(-1, 99) == (-1, -1)


def test_an_epoch_before_all_known_ones_ended_where_they_begin(disk: SimulatedDisk) -> None:
    """What it wrote was deleted; the follower goes on from the leader's first offset."""
    assert epochs_of(disk, (4, 11), (6, 12)).end_offset_for(3, 99) == (3, 11)


def test_the_epoch_of_an_offset(disk: SimulatedDisk) -> None:
    epochs = epochs_of(disk, (2, 10), (3, 20), (7, 30))
    found = {offset: epochs.epoch_for(offset) for offset in (9, 10, 19, 20, 29, 30, 1000)}
    assert found == {9: -1, 10: 2, 19: 2, 20: 3, 29: 3, 30: 7, 1000: 7}


def test_an_epoch_keeps_its_first_offset(disk: SimulatedDisk) -> None:
    epochs = epochs_of(disk, (2, 10))
    epochs.flush()
    epochs.assign(2, 10)
    epochs.assign(2, 15)
    assert (epochs.entries, epochs.dirty) == (((2, 10),), False)
    epochs.assign(2, 8)
    assert (epochs.entries, epochs.dirty) == (((2, 8),), True)


def test_two_elections_without_writes_leave_one_entry(disk: SimulatedDisk) -> None:
    """Conformance 90: an epoch in which nothing was written must not stay beside its successor."""
    epochs = epochs_of(disk, (1, 0), (2, 10), (3, 10))
    assert epochs.entries == ((1, 0), (3, 10))
    assert epochs.end_offset_for(2, 50) == (1, 10)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ((4, 25), ((1, 0), (2, 10), (3, 20), (4, 25))),
        ((4, 20), ((1, 0), (2, 10), (4, 20))),
        ((4, 5), ((1, 0), (4, 5))),
        ((2, 15), ((1, 0), (2, 15))),
        ((1, 30), ((1, 30),)),
        ((0, 0), ((0, 0),)),
    ],
)
def test_what_contradicts_a_new_entry_goes(
    disk: SimulatedDisk, new: tuple[int, int], expected: tuple[tuple[int, int], ...]
) -> None:
    epochs = epochs_of(disk, (1, 0), (2, 10), (3, 20), new)
    assert epochs.entries == expected
    assert epochs.latest == expected[-1][0]


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_refused(disk: SimulatedDisk, entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="cannot begin at"):
        epochs_of(disk).assign(*entry)


def test_truncating_the_end_forgets_epochs_that_begin_there(disk: SimulatedDisk) -> None:
    epochs = epochs_of(disk, (2, 10), (3, 20), (7, 30))
    for end_offset, left in ((31, 3), (30, 2), (21, 2), (11, 1), (10, 0), (0, 0)):
        epochs.truncate_from_end(end_offset)
        assert len(epochs.entries) == left
    assert epochs.latest == -1


def test_truncating_the_start_keeps_the_epoch_that_goes_on(disk: SimulatedDisk) -> None:
    epochs = epochs_of(disk, (2, 10), (3, 20), (7, 30))
    steps = {
        5: [(2, 10), (3, 20), (7, 30)],
        15: [(2, 15), (3, 20), (7, 30)],
        20: [(3, 20), (7, 30)],
        100: [(7, 100)],
    }
    for start_offset, left in steps.items():
        epochs.truncate_from_start(start_offset)
        assert list(epochs.entries) == left
    epochs.clear()
    assert not epochs.entries


def test_truncations_that_change_nothing_leave_nothing_to_flush(disk: SimulatedDisk) -> None:
    epochs = epochs_of(disk, (2, 10), (3, 20))
    epochs.flush()
    before = disk.operations
    epochs.truncate_from_end(21)
    epochs.truncate_from_start(10)
    epochs.flush()
    assert (epochs.dirty, disk.operations) == (False, before)


def test_epochs_survive_a_restart_in_kafkas_format(disk: SimulatedDisk) -> None:
    epochs = epochs_of(disk, (2, 10), (3, 20))
    assert epochs.dirty
    epochs.flush()
    assert disk.durable_contents(PATH) == b"0\n2\n2 10\n3 20\n"
    again = LeaderEpochs(disk, PATH)
    assert (again.entries, again.latest, again.dirty) == (((2, 10), (3, 20)), 3, False)


def test_conflicting_entries_of_a_file_are_resolved(disk: SimulatedDisk) -> None:
    """As Kafka does: entries are assigned one after the other."""
    disk.plant(PATH, b"0\n3\n2 10\n4 30\n3 20\n")
    assert LeaderEpochs(disk, PATH).entries == ((2, 10), (3, 20))


def test_a_negative_entry_in_a_file_is_corruption(disk: SimulatedDisk) -> None:
    disk.plant(PATH, b"0\n1\n2 -10\n")
    with pytest.raises(CorruptCheckpoint, match=r"leader-epoch-checkpoint: .*is negative"):
        LeaderEpochs(disk, PATH)


def test_a_crash_leaves_the_old_or_the_new_epochs() -> None:
    def script(disk: SimulatedDisk) -> None:
        epochs = LeaderEpochs(disk, "/epochs")
        for epoch in range(3):
            epochs.assign(epoch, 10 * epoch)
            epochs.flush()

    versions = [tuple((epoch, 10 * epoch) for epoch in range(count)) for count in range(4)]
    seen = set()

    def check(after: SimulatedDisk, at: int) -> None:
        entries = LeaderEpochs(after, "/epochs").entries
        assert entries in (versions[(at - 1) // 5], versions[(at - 1) // 5 + 1])
        seen.add(entries)

    each_crash(script, check, seeds=range(20))
    assert seen == set(versions)


class LeaderEpochsMachine(RuleBasedStateMachine):
    """Against a log of one epoch per offset, as far as both know it."""

    @initialize()
    def begin(self) -> None:
        self.disk = SimulatedDisk()
        self.epochs = LeaderEpochs(self.disk, "/epochs")
        self.start = 0
        self.log: list[int] = []
        """The epoch of every offset from `start` on."""

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    @rule(skipped=st.integers(0, 3), records=st.integers(1, 5))
    def write(self, skipped: int, records: int) -> None:
        epoch = max(self.epochs.latest, 0) + skipped
        self.epochs.assign(epoch, self.end)
        self.log += [epoch] * records

    @rule(keep=st.integers(0, 20))
    def truncate_end(self, keep: int) -> None:
        del self.log[keep:]
        self.epochs.truncate_from_end(self.end)

    @rule(drop=st.integers(0, 10))
    def truncate_start(self, drop: int) -> None:
        drop = min(drop, max(len(self.log) - 1, 0))
        self.start += drop
        del self.log[:drop]
        self.epochs.truncate_from_start(self.start)

    @rule()
    def reopen(self) -> None:
        self.epochs.flush()
        self.epochs = LeaderEpochs(self.disk, "/epochs")

    @invariant()
    def knows_the_epoch_of_every_record(self) -> None:
        assert [self.epochs.epoch_for(self.start + at) for at in range(len(self.log))] == self.log

    @invariant()
    def knows_where_every_epoch_ends(self) -> None:
        for epoch in range(self.log[0] if self.log else 0, self.log[-1] + 1 if self.log else 0):
            below = [known for known in self.log if known <= epoch]
            assert self.epochs.end_offset_for(epoch, self.end) == (max(below), self.start + len(below))


TestLeaderEpochsAgainstALog = LeaderEpochsMachine.TestCase
TestLeaderEpochsAgainstALog.pytestmark = [pytest.mark.slow]  # type: ignore[attr-defined]
