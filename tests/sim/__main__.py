"""`make sim SEEDS=...`: many runs on all cores, or one run looked at closely.

python -m tests.sim 1-10000            # a range, or one seed; ends at the first one that fails
python -m tests.sim 1-10000 --go-on    # or does not
python -m tests.sim 4711 --verbose     # all that happened, and what the brokers logged
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.sim.simulation import Outcome, Simulation, simulate

PROGRESS_S = 20.0
SEEDS_PER_PROCESS = 200
"""What many runs leave behind in memory goes with their process."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seeds", help="N or FIRST-LAST")
    parser.add_argument("--verbose", action="store_true", help="in one process, with all that happens")
    parser.add_argument("--go-on", action="store_true", help="after a failure, too")
    parser.add_argument("--seconds", type=float, help="end after so long")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if arguments.verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
        return _report((simulate(seed, _talk) for seed in seeds), len(seeds), arguments)
    with _outcomes(seeds, min(arguments.processes, len(seeds))) as outcomes:
        return _report(outcomes, len(seeds), arguments)


@contextmanager
def _outcomes(seeds: range, processes: int) -> Iterator[Iterable[Outcome]]:
    if processes == 1:
        yield map(simulate, seeds)
        return
    with multiprocessing.Pool(processes, os.nice, (19,), maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield pool.imap(simulate, seeds)


def _report(outcomes: Iterable[Outcome], count: int, arguments: argparse.Namespace) -> int:
    began_s = told_s = time.monotonic()
    failed: list[int] = []
    counts: Counter[str] = Counter()
    runs = 0
    for outcome in outcomes:
        runs += 1
        counts.update(outcome.counts)
        if outcome.violations or arguments.verbose:
            print(
                f"seed {outcome.seed}: digest {outcome.digest}", *outcome.violations, sep="\n  ", flush=True
            )
        if outcome.violations:
            failed.append(outcome.seed)
            if not arguments.go_on:
                break
        now_s = time.monotonic()
        if now_s - told_s > PROGRESS_S:
            told_s = now_s
            print(f"{runs} of {count}, {(now_s - began_s) / runs:.2f} s each", flush=True)
        if arguments.seconds and now_s - began_s > arguments.seconds:
            break
    took_s = time.monotonic() - began_s
    print(f"{runs} runs, {took_s / max(runs, 1):.2f} s each; {len(failed)} failed: {failed}")
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    if failed:
        print(f"again, at commit {_commit()}: make sim SEEDS={failed[0]} ARGS=--verbose")
    return bool(failed)


def _commit() -> str:
    """Of the source, as far as git knows."""
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return asked.stdout.strip()


def _talk(simulation: Simulation) -> None:
    note = simulation.history.note

    def told(what: str, *about: object) -> None:
        note(what, *about)
        logging.getLogger("sim").warning(simulation.history.last[-1])

    simulation.history.note = told  # type: ignore[method-assign]
    simulation.cluster.note = told


if __name__ == "__main__":
    sys.exit(main())
