"""Work in steps, which somebody else takes: at once, or slice by slice in a thread.

Steps are a generator that yields how many bytes it is about to look at, and returns an outcome.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[int, None, T]


def outcome_of(steps: Steps[T]) -> T:
    """Take all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
