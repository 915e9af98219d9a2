"""An offset index under random use: appends, cuts, closing and opening, against a list."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from storage.indexes import OffsetIndex, OffsetPosition
from tests.storage.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.slow

BASE = 5_000_000_000


def new_index(disk: SimulatedDisk) -> OffsetIndex:
    return OffsetIndex(disk, "/log/0.index", BASE, 10 << 20)


class OffsetIndexMachine(RuleBasedStateMachine):
    """Random use of an index, against a list."""

    offsets = Bundle("offsets")

    @initialize()
    def begin(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_dir("/log")
        self.index = new_index(self.disk)
        self.model: list[OffsetPosition] = []

    @rule(target=offsets, count=st.integers(1, 600), gap=st.integers(1, 50))
    def append(self, count: int, gap: int) -> int:
        for _ in range(count):
            last = self.model[-1] if self.model else OffsetPosition(BASE, 0)
            entry = OffsetPosition(last.offset + gap, last.position + 4096)
            self.index.append(*entry)
            self.model.append(entry)
        return self.model[-1].offset

    @rule(offset=offsets, delta=st.integers(-60, 60))
    def look_up(self, offset: int, delta: int) -> None:
        at = bisect_right([entry.offset for entry in self.model], offset + delta)
        assert self.index.lookup(offset + delta) == (self.model[at - 1] if at else (BASE, 0))

    @rule(offset=offsets, delta=st.integers(-2, 2))
    def truncate(self, offset: int, delta: int) -> None:
        self.index.truncate_to(offset + delta)
        self.model = [entry for entry in self.model if entry.offset < offset + delta]

    @rule()
    def flush(self) -> None:
        self.index.flush()

    @rule()
    def close(self) -> None:
        self.index.close()

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = new_index(self.disk)
        if self.disk.exists("/log/0.index"):
            self.index.sanity_check()

    @rule()
    def reset(self) -> None:
        self.index.reset()
        self.model = []

    @invariant()
    def agrees(self) -> None:
        assert self.index.entries == len(self.model)
        assert self.index.last_entry == (self.model[-1] if self.model else (BASE, 0))
        assert list(self.index) == self.model


TestOffsetIndexAgainstAList = OffsetIndexMachine.TestCase
