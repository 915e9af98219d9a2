"""What stays for good is not looked at again and again by the garbage collector: that holds the event loop.

To look for cycles among the objects of 10,000 partitions takes 0.1 s and more, each time. So when a full
collection is over and has left `MANY` objects, these are taken for such that stay: they are still freed when
nothing refers to them, but cycles among them are not found any more. What has gone all the same (connections,
logs) must not add up, so all are looked at once more when there are twice as many of them as the last time.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

MANY = 100_000
"""30 ms on a small machine."""
OLDEST = 2


class _Stays:
    def __init__(self) -> None:
        gc.freeze()
        self._looked_at = gc.get_freeze_count()
        """How many were there when all of them were looked at."""

    def collected(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] != OLDEST or len(gc.get_objects(OLDEST)) <= MANY:
            return
        is_all = not gc.get_freeze_count()
        gc.freeze()
        if is_all:
            self._looked_at = gc.get_freeze_count()
        elif gc.get_freeze_count() > 2 * self._looked_at + MANY:
            gc.unfreeze()  # the next full collection sees everything


def keep_pauses_short() -> None:
    """From now on, in this process. All that there is stays."""
    stays = _Stays()
    gc.enable()
    gc.callbacks.append(stays.collected)
