"""Pauses for the garbage collector, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

GROWING = """
import gc
from kbroker.garbage import MANY, keep_pauses_short
keep_pauses_short()
looked_at = []
gc.callbacks.insert(0, lambda phase, info: looked_at.append(
    len(gc.get_objects()) if phase == "start" and info["generation"] == 2 else 0
))
at_first = gc.get_freeze_count()
few = [[] for _ in range(MANY // 2)]
gc.collect()
still_looked_at = gc.get_freeze_count() == at_first
many = [[one] for one in range(10 * MANY)]
cycle = []
cycle.append(cycle)
del cycle
found = gc.collect() >= 1
kept = gc.get_freeze_count() > 10 * MANY
gc.collect()
print(still_looked_at, found, kept, max(looked_at) < 4 * MANY)
"""


def test_a_heap_that_grows_is_not_looked_at_again_as_a_whole() -> None:
    done = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"] * 4, done.stderr
