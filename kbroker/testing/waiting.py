"""Waiting for something to become true, and telling in detail why it has not.

A predicate is asked again and again until what it returns is true. Topics that are not there yet, and
assertions in the predicate that fail, count as not yet true; every other exception is the caller's to see.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kbroker.client.errors import ClientError

LONGEST = 300

NOT_YET = (ClientError, AssertionError)


class WaitFailed(AssertionError):
    """What was waited for has not come true in time."""


class Attempts:
    """What the last attempt came to."""

    def __init__(self, predicate: Callable[[], Any]) -> None:
        self._predicate = predicate
        self._outcome = "was never asked"
        self.seen: list[tuple[str, object]] = []
        """What the predicate asked the broker, and what it heard."""

    def begin(self) -> None:
        self.seen.clear()

    def returned(self, value: object) -> None:
        self._outcome = f"returned {shortened(value)}"

    def raised(self, error: BaseException) -> None:
        self._outcome = f"raised {type(error).__name__}: {shortened(str(error), repr_of=str)}"

    def failure(self, timeout_s: float, log: str) -> WaitFailed:
        lines = [f"not true within {timeout_s:g} s:", textwrap.indent(source_of(self._predicate), "    ")]
        lines.append(f"  The last time, it {self._outcome}{', having seen' if self.seen else ''}")
        lines += [f"    {question} -> {shortened(answer)}" for question, answer in self.seen]
        if log:
            lines += ["  The broker's log ends with", textwrap.indent(log, "    ")]
        return WaitFailed("\n".join(lines))


def shortened(value: object, repr_of: Callable[[Any], str] = repr) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | tuple) and len(value) > 1:
        return shortened(f"{len(value)} of them, the last is {value[-1]!r}", str)
    text = repr_of(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def source_of(predicate: Callable[[], Any]) -> str:
    """The lines that it stands in, or its name."""
    with suppress(OSError, TypeError):
        return textwrap.dedent(inspect.getsource(predicate)).strip()
    return repr(predicate)
