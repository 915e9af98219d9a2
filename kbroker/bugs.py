"""Exceptions that nobody expects: what hears of them, and how others are called who may raise one.

A bug must hurt no more than the request that has met it. So whoever has a list of others to call (waiters,
those who are told of something, timers) calls each by `tell`, or catches what it raises: all of them are
called, and what comes after that is done. A request that waits catches what its own callbacks raise, and has
its connection closed (`answering`): its outcome is not known.

Each exception is counted, and logged with its traceback; more of the same are one line a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from kbroker.log_limits import LogLimits

logger = logging.getLogger(__name__)

P = ParamSpec("P")


class Bugs:
    """Those of one broker."""

    def __init__(self, log_limits: LogLimits | None = None) -> None:
        self._log_limits = log_limits or LogLimits(lambda: 0)
        self.count = 0
        self.heard: Callable[[Exception], object] = lambda error: None
        """Called after each has been logged."""

    def met(self, where: str, error: Exception, kind: str = "") -> None:
        """Count and log an exception; `where` completes "met by", and is its kind if none is given."""
        self.count += 1
        name = "bug", kind or where, type(error)
        self._log_limits.exception(logger, name, "a bug in the broker, met by %s", where, error=error)
        self.heard(error)

    def tell(self, told: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Call somebody who must not keep the caller from going on."""
        try:
            told(*arguments, **options)
        except Exception as error:
            self.met("a callback", error)


NOBODYS_BUGS = Bugs()
"""Of what is used without a broker."""


class Waiting(Protocol):
    """A request that waits for its reply."""

    def failed(self, error: Exception) -> None:
        """It cannot be answered any more: have its connection closed."""


W = TypeVar("W", bound=Waiting)


def answering(method: Callable[Concatenate[W, P], object]) -> Callable[Concatenate[W, P], None]:
    """A method by which a waiting request is told of something: others wait for the same."""

    def careful(self: W, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            method(self, *arguments, **options)
        except Exception as error:
            self.failed(error)

    return careful
