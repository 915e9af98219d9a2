"""A script on a simulated disk, cut by the power at each of its operations in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_files import PowerCut
from tests.storage.simulated_nodes import Outcome


def each_crash(
    script: Callable[[SimulatedDisk], object],
    check: Callable[[SimulatedDisk, int], object],
    *,
    outcomes: Iterable[Outcome] = tuple(Outcome),
    seeds: Sequence[int] = (0,),
    prepare: Callable[[], SimulatedDisk] = SimulatedDisk,
) -> int:
    """Run `script` once to count its operations, then once per operation with a power cut in its middle.

    `check` gets every disk that may come out of it, and the number of the operation. `prepare` makes the disk
    to start from; its own operations are not cut. Returns how many disks were checked.
    """
    disk = prepare()
    before = disk.operations
    script(disk)
    checked = 0
    for at in range(before + 1, disk.operations + 1):
        crashed = prepare()
        crashed.crash(at)
        try:
            script(crashed)
        except PowerCut:
            pass
        else:
            raise RuntimeError(f"the script is not repeatable: operation {at} did not come")
        for outcome in outcomes:
            for seed in seeds if outcome in (Outcome.RANDOM, Outcome.TORN) else seeds[:1]:
                check(crashed.after_crash(outcome, seed), at)
                checked += 1
    return checked
