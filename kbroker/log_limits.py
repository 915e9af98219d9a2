"""Log lines that others can cause as often as they like: the first in full, then a count.

Each kind of line has a name, which the caller gives. The first line of a kind is logged as it is. Those that
follow within `INTERVAL_MS` are counted; at the end of the interval one line says how many there were, and
quotes the last. After an interval without any, the next one is logged in full again.

There are at most `MOST_KINDS` kinds at a time, so a kind may be named after what a client has sent. Lines of
further kinds count as one kind. Time is passed in; `tick` writes the counts, and has to be called regularly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

from wire.words import count

INTERVAL_MS = 60_000
MOST_KINDS = 100
OTHERS = "others"


class _Kind:
    """The lines of one kind since `began_ms`."""

    __slots__ = ("began_ms", "last", "logged", "unlogged")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self.logged = self.unlogged = 0
        self.last: tuple[logging.Logger, int, str] | None = None


class LogLimits:
    """The limits of one broker."""

    def __init__(self, now_ms: Callable[[], int], interval_ms: int = INTERVAL_MS) -> None:
        """`now_ms` must not go back."""
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._kinds: dict[Hashable, _Kind] = {}

    def warning(self, logger: logging.Logger, kind: Hashable, message: str, *args: object) -> None:
        self.log(logger, logging.WARNING, kind, message, *args)

    def exception(
        self,
        logger: logging.Logger,
        kind: Hashable,
        message: str,
        *args: object,
        error: BaseException | None = None,
    ) -> None:
        """With the traceback of `error`, or else of what is being handled, where the line is in full."""
        self.log(logger, logging.ERROR, kind, message, *args, exc_info=error or True)

    def log(
        self,
        logger: logging.Logger,
        level: int,
        kind: Hashable,
        message: str,
        *args: object,
        exc_info: bool | BaseException = False,
        in_full: int = 1,
    ) -> None:
        """Log a line, or count it where this interval has had `in_full` of the kind."""
        found = self._find(kind)
        if found.logged < in_full:
            found.logged += 1
            logger.log(level, message, *args, exc_info=exc_info)
        else:
            found.unlogged += 1
            found.last = logger, level, message % args if args else message

    def _find(self, kind: Hashable) -> _Kind:
        found = self._kinds.get(kind)
        if found is None and len(self._kinds) >= MOST_KINDS:
            kind = OTHERS
            found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = _Kind(self._now_ms())
        return found

    def tick(self) -> None:
        """Write the counts of intervals that are over."""
        if self._kinds:
            self._end_intervals_begun_by(self._now_ms() - self._interval_ms)

    def report(self) -> None:
        """Write all counts now: the broker stops."""
        self._end_intervals_begun_by(self._now_ms())

    def _end_intervals_begun_by(self, latest_ms: int) -> None:
        now_ms = self._now_ms()
        for kind, found in list(self._kinds.items()):
            if found.began_ms > latest_ms:
                continue
            del self._kinds[kind]
            if found.last is not None:
                logger, level, text = found.last
                seconds = (now_ms - found.began_ms) / 1000
                more = count(found.unlogged, "more such line")
                logger.log(level, "%s in %.0f s, the last: %s", more, seconds, text)
                again = self._kinds[kind] = _Kind(now_ms)
                again.logged = found.logged  # it goes on: the next interval has a count only
