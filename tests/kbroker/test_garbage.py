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
gc.collect()
kept = gc.get_freeze_count() > 10 * MANY
gc.collect()
print(still_looked_at, found, kept, sum(looked_at) < 50 * MANY, looked_at[-1] < 2 * MANY)
"""


def test_a_heap_that_grows_is_seldom_looked_at_as_a_whole() -> None:
    """What is looked at in all grows as the heap does, not as its square."""
    done = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"] * 5, done.stderr


REPLACED = """
import gc
from kbroker.garbage import MANY, keep_pauses_short
keep_pauses_short()
most = 0
for wave in range(12):
    held = [[] for _ in range(2 * MANY)]
    for one in held:
        one.append(one)
    gc.collect()
    del held, one
    gc.collect()
    most = max(most, gc.get_freeze_count())
print(most < 10 * MANY)
"""


def test_what_is_replaced_again_and_again_does_not_add_up() -> None:
    """Connections and logs are in cycles: 24 times `MANY` of such objects come and go."""
    done = subprocess.run([sys.executable, "-c", REPLACED], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"], done.stderr
