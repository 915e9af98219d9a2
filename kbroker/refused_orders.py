"""Orders that were refused for want of a descriptor: they are asked for again when there is one.

The controller is asked in the way in which it is told of a failed disk. Then it orders everything again that
this broker has a replica of, and takes back that some are offline.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.errors import OutOfDescriptors

REST_MS = 5_000
"""Between two questions: descriptors may be just too few."""


class RefusedOrders:
    """`ask` asks the controller."""

    def __init__(self, has_descriptor: Callable[[], bool], ask: Callable[[], object]) -> None:
        self._has_descriptor = has_descriptor
        self._ask = ask
        self._are_there = False
        self._not_before_ms = 0

    def refused(self, error: Exception) -> None:
        """For whatever reason."""
        self._are_there |= isinstance(error, OutOfDescriptors)

    def asked_in_vain(self) -> None:
        self._are_there = True

    def tick(self, now_ms: int) -> None:
        if self._are_there and now_ms >= self._not_before_ms and self._has_descriptor():
            self._are_there, self._not_before_ms = False, now_ms + REST_MS
            self._ask()
