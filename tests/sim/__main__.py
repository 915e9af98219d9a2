"""`make sim SEEDS=...`: many runs, or one run looked at closely.

python -m tests.sim 1-10000         # a range, or one seed
python -m tests.sim 4711 --verbose  # all that happened, and what the brokers logged
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.sim.simulation import Simulation, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seeds", help="N or FIRST-LAST")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--seconds", type=float, help="begin no run after so long")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    began_s = time.monotonic()
    failed: list[int] = []
    counts: Counter[str] = Counter()
    runs = 0
    if arguments.verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    for seed in range(int(first), int(last or first) + 1):
        if arguments.seconds and time.monotonic() - began_s > arguments.seconds:
            break
        outcome = simulate(seed, _talk if arguments.verbose else lambda simulation: None)
        runs += 1
        counts.update(outcome.counts)
        if outcome.violations or arguments.verbose:
            print(f"seed {seed}: digest {outcome.digest}", *outcome.violations, sep="\n  ", flush=True)
        if outcome.violations:
            failed.append(seed)
    took_s = time.monotonic() - began_s
    print(f"{runs} runs, {took_s / max(runs, 1):.2f} s each; {len(failed)} failed: {failed}")
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    if failed:
        print(f"again: make sim SEEDS={failed[0]} ARGS=--verbose")
    return bool(failed)


def _talk(simulation: Simulation) -> None:
    note = simulation.history.note

    def told(what: str, *about: object) -> None:
        note(what, *about)
        logging.getLogger("sim").warning(simulation.history.last[-1])

    simulation.history.note = told  # type: ignore[method-assign]
    simulation.cluster.note = told


if __name__ == "__main__":
    sys.exit(main())
