"""What is counted while a broker works, to be read by `kbroker.metrics`: plain numbers on plain objects.

Rules:
- Counting happens on the hot path, whether anybody looks or not. So it is an addition, or a search among a
  few bounds, and never makes an object.
- Numbers of a topic are kept for as many topics as metrics may tell apart; all other topics share theirs.
- Clocks are passed in, or what they have shown. Times are in seconds.
- Errors are counted as Kafka does: each error code in a response, wherever in it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Generator
from functools import cache
from typing import Any

from storage.files import sync_data
from wire.schema import Primitive, fields_of

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
MOST_TOPICS = 1000


class Histogram:
    """How many took how long; the last count is of those beyond all bounds."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, duration_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s

    def copy(self) -> Histogram:
        copied = Histogram()
        copied.counts, copied.sum_s = list(self.counts), self.sum_s
        return copied


class ApiMeasures:
    """The requests of one API that have been answered, and the errors in the answers."""

    __slots__ = ("durations", "errors")

    def __init__(self) -> None:
        self.durations = Histogram()
        self.errors: dict[int, int] = {}

    def failed(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def count_errors(self, response: Any) -> None:
        table: type = type(response)
        codes, below = error_places(table)
        for name in codes:
            if code := getattr(response, name):
                self.failed(code)
        for name in below:
            for one in getattr(response, name) or ():
                self.count_errors(one)

    def count_errors_in_slices(self, response: object) -> Generator[None, None, None]:
        """The same for a large response."""
        table: type = type(response)
        codes, below = error_places(table)
        for name in codes:
            if code := getattr(response, name):
                self.failed(code)
        for name in below:
            for one in getattr(response, name) or ():
                yield from self.count_errors_in_slices(one)
                yield


@cache
def error_places(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a table that are error codes, and the arrays whose elements have some."""
    fields = fields_of(cls)
    codes = tuple(one.name for one in fields if one.name.endswith("error_code") and not one.is_array)
    below = tuple(
        one.name
        for one in fields
        if one.is_array and not isinstance(one.type, Primitive) and any(error_places(one.type))
    )
    return codes, below


class TimedSync:
    """Makes data durable, in any thread, and measures how long that takes."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.durations = Histogram()
        self._clock_s = clock_s
        self._adding = threading.Lock()

    def __call__(self, descriptor: int) -> None:
        began_s = self._clock_s()
        sync_data(descriptor)
        with self._adding:
            self.durations.add(self._clock_s() - began_s)


class Traffic:
    """What has gone in and out of a topic here. Repeated batches count where new ones come with them."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "replication_bytes_in", "replication_bytes_out")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0
        self.replication_bytes_in = self.replication_bytes_out = 0


class TrafficByTopic:
    """Each topic's, as far as there is room; who shares the rest goes on sharing it."""

    def __init__(self) -> None:
        self.most = MOST_TOPICS
        self.topics: dict[str, Traffic] = {}
        self.others = Traffic()
        self._sharing: set[str] = set()

    def of(self, topic: str) -> Traffic:
        found = self.topics.get(topic)
        if found is not None:
            return found
        if len(self.topics) >= self.most or topic in self._sharing:
            self._sharing.add(topic)
            return self.others
        made = self.topics[topic] = Traffic()
        return made

    def forget(self, topic: str) -> None:
        """It is not here any more."""
        self.topics.pop(topic, None)
        self._sharing.discard(topic)
