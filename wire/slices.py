"""Work that takes long, as a generator: it yields wherever something else may be done first.

Who drives it decides how much is done in one go. Decoders, encoders, handlers and the controller's decisions
come in this form where a message may be large.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

InSlices = Generator[None, None, T]


def to_the_end(work: InSlices[T]) -> T:
    """All of it at once: for those who know that there is little to do."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            outcome: T = done.value
            return outcome
