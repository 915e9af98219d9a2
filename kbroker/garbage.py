"""What stays for good is not looked at again and again by the garbage collector: that holds the event loop.

To look for cycles among the objects of 10,000 partitions takes 0.1 s and more, each time. So when a full
collection is over and has left `MANY` objects, these are taken for such that stay: they are still freed when
nothing refers to them, but cycles among them are not found any more. Only a heap that grows comes so far.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

MANY = 100_000
"""30 ms on a small machine."""
OLDEST = 2


def keep_pauses_short() -> None:
    """From now on, in this process. All that there is stays."""
    gc.freeze()
    gc.enable()
    gc.callbacks.append(_collected)


def _collected(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == OLDEST and len(gc.get_objects(OLDEST)) > MANY:
        gc.freeze()
