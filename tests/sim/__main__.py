"""`make sim SEEDS=...`: many runs on all cores, or one run looked at closely.

python -m tests.sim 1-10000            # a range, or one seed; those that fail are listed in the end
python -m tests.sim 4711 --verbose     # all that happened, and what the brokers logged

The exit status is 1 if any run failed. Ctrl-C ends a campaign early, with the list of those so far (130).
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tests.sim.simulation import Outcome, Simulation, simulate

PROGRESS_S = 20.0
LONGEST_RUN_S = 600
"""Of real time; most take a second or two."""
SEEDS_PER_PROCESS = 200
"""What many runs leave behind in memory goes with their process."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seeds", help="N or FIRST-LAST")
    parser.add_argument("--verbose", action="store_true", help="in one process, with all that happens")
    parser.add_argument("--seconds", type=float, help="end after so long")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if arguments.verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
        return report((simulate(seed, _talk) for seed in seeds), len(seeds), shows_all=True)
    with _outcomes(seeds, min(arguments.processes, len(seeds))) as outcomes:
        return report(outcomes, len(seeds), seconds=arguments.seconds)


@contextmanager
def _outcomes(seeds: range, processes: int) -> Iterator[Iterable[Outcome]]:
    if processes == 1:
        yield map(outcome_of, seeds)
        return
    with multiprocessing.Pool(processes, _begin_worker, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield pool.imap(outcome_of, seeds)


def _begin_worker() -> None:
    os.nice(19)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the pool, and reports


def outcome_of(seed: int, run: Callable[[int], Outcome] = simulate) -> Outcome:
    """Also of a run that raises or does not end: the campaign goes on after it."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_RUN_S)
    try:
        return run(seed)
    except Exception:
        return Outcome(seed, "none", [f"crashed: {traceback.format_exc()}"], [], {}, 0.0)
    finally:
        signal.alarm(0)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"the run has not ended within {LONGEST_RUN_S} s")


def report(
    outcomes: Iterable[Outcome], count: int, *, shows_all: bool = False, seconds: float | None = None
) -> int:
    """Print what comes, as it comes, and a summary; the exit status."""
    began_s = told_s = time.monotonic()
    failed: list[int] = []
    counts: Counter[str] = Counter()
    runs = status = 0
    try:
        for outcome in outcomes:
            runs += 1
            counts.update(outcome.counts)
            if outcome.violations or shows_all:
                _show(outcome)
            if outcome.violations:
                failed.append(outcome.seed)
                status = 1
            now_s = time.monotonic()
            if now_s - told_s > PROGRESS_S:
                told_s = now_s
                each_s = (now_s - began_s) / runs
                print(f"{runs} of {count}, {each_s:.2f} s each, {len(failed)} failed", flush=True)
            if seconds and now_s - began_s > seconds:
                break
    except KeyboardInterrupt:
        print("interrupted")
        status = 130
    each_s = (time.monotonic() - began_s) / max(runs, 1)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    print(
        f"{runs} of {count} runs, {each_s:.2f} s each, at commit {_commit()}; {len(failed)} failed: {failed}"
    )
    if failed:
        print(f"again: make sim SEEDS={failed[0]} ARGS=--verbose")
    return status


def _show(outcome: Outcome) -> None:
    print(f"seed {outcome.seed}: digest {outcome.digest}", *outcome.violations, sep="\n  ", flush=True)


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
