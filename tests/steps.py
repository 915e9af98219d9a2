"""Counts the steps of a piece of code, to show how they grow: no clock, the same number on every machine."""

from __future__ import annotations

import sys


class TooMany(BaseException):
    """More steps than allowed: not an Exception, which the code under test may catch."""


class Steps:
    """Counts calls of functions, and generators that go on; ends what takes too many."""

    def __init__(self, most: float = float("inf")) -> None:
        self._most = most
        self.number = 0

    def __enter__(self) -> Steps:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.number += 1
            if self.number > self._most:
                raise TooMany(f"more than {self._most:.0f} steps")
