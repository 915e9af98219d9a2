"""Answers about topics that wait until the change is there: CreateTopics, CreatePartitions, DeleteTopics.

The controller has decided, and stored it; then brokers are told. As Kafka's controller does, this broker
answers when it has heard itself: each new partition has a leader, a deleted topic is not known any more. Of
those that it leads it has the logs by then. When the request's time is over first, what is not there gets
REQUEST_TIMED_OUT, although it will come; without any time at all, that is everything.

Other brokers may hear a moment later. Clients that ask them meanwhile are told to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from kbroker.context import Parked
from kbroker.metadata_cache import MetadataCache
from wire.api.create_partitions import CreatePartitionsRequest
from wire.api.create_topics import CreatableTopicResult
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID

IsThere = Callable[[], bool]


class Timer(Protocol):
    def cancel(self) -> object: ...


class Clock(Protocol):
    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> Timer: ...


class TopicChanges:
    """Those that are waited for, by topic."""

    def __init__(self, metadata: MetadataCache, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._waiting: dict[str, list[_Change]] = {}
        metadata.listen(self._heard)

    # -- what is waited for

    def created(self, answered: Parked, timeout_ms: int) -> Parked:
        """The answer to a CreateTopics that was not only to validate."""

        def wanted(response: Any) -> Iterable[tuple[Any, IsThere]]:
            for topic in response.topics:
                yield topic, partial(self._has_leaders, topic.name, topic.num_partitions)

        return self._when_heard(answered, timeout_ms, wanted)

    def grown(self, answered: Parked, request: CreatePartitionsRequest) -> Parked:
        counts = {topic.name: topic.count for topic in request.topics}

        def wanted(response: Any) -> Iterable[tuple[Any, IsThere]]:
            for topic in response.results:
                yield topic, partial(self._has_leaders, topic.name, counts[topic.name])

        return self._when_heard(answered, request.timeout_ms, wanted)

    def deleted(self, answered: Parked, timeout_ms: int) -> Parked:
        def wanted(response: Any) -> Iterable[tuple[Any, IsThere]]:
            for topic in response.responses:
                yield topic, partial(self._is_gone, topic.name, topic.topic_id)

        return self._when_heard(answered, timeout_ms, wanted)

    def _has_leaders(self, name: str, partitions: int) -> bool:
        topic = self._metadata.topics.get(name)
        return topic is not None and all(
            (state := topic.partitions.get(index)) is not None and state.leader >= 0
            for index in range(partitions)
        )

    def _is_gone(self, name: str, topic_id: bytes) -> bool:
        topic = self._metadata.topics.get(name)
        return topic is None or topic.id != topic_id

    # -- waiting

    def _when_heard(
        self,
        answered: Parked,
        timeout_ms: int,
        wanted: Callable[[Any], Iterable[tuple[Any, IsThere]]],
    ) -> Parked:
        held = Parked()

        def decided(outcome: Any) -> None:
            parts = [] if isinstance(outcome, BaseException) else wanted(outcome)
            missing = {
                result.name: (result, is_there)
                for result, is_there in parts
                if result.error_code == ErrorCode.NONE
            }
            self._wait(_Change(missing, held, outcome), timeout_ms)

        answered.when_done(decided, for_reply=held)
        return held

    def _wait(self, change: _Change, timeout_ms: int) -> None:
        for name in list(change.missing):
            change.look(name)
        if not change.missing:
            change.done()
        elif timeout_ms <= 0:
            change.time_out()
        else:
            for name in change.missing:
                self._waiting.setdefault(name, []).append(change)
            change.timer = self._clock.call_later_ms(timeout_ms, partial(self._time_out, change))

    def _heard(self, names: Iterable[str]) -> None:
        """There is news of these topics."""
        for name in names:
            for change in list(self._waiting.get(name, ())):
                try:
                    change.look(name)
                    if name not in change.missing:
                        self._forget(change, name)
                        change.end()
                except Exception as error:
                    self._failed(change, error)

    def _time_out(self, change: _Change) -> None:
        try:
            for name in change.missing:
                self._forget(change, name)
            change.time_out()
        except Exception as error:
            self._failed(change, error)

    def _failed(self, change: _Change, error: Exception) -> None:
        for name in list(self._waiting):
            if change in self._waiting[name]:
                self._forget(change, name)
        change.fail(error)

    def _forget(self, change: _Change, name: str) -> None:
        self._waiting[name].remove(change)
        if not self._waiting[name]:
            del self._waiting[name]


class _Change:
    """What one request has changed."""

    def __init__(self, missing: dict[str, tuple[Any, IsThere]], held: Parked, outcome: object) -> None:
        self.missing = missing
        """By topic: its part of the answer, and whether the change is there."""
        self._held, self._outcome = held, outcome
        self.timer: Timer | None = None

    def done(self) -> None:
        self._held.complete(self._outcome)

    def fail(self, error: Exception) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self._held.fail(error)

    def look(self, name: str) -> None:
        _, is_there = self.missing[name]
        if is_there():
            del self.missing[name]

    def end(self) -> None:
        """If nothing is missing any more."""
        if not self.missing:
            if self.timer is not None:
                self.timer.cancel()
            self.done()

    def time_out(self) -> None:
        for result, _ in self.missing.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            if isinstance(result, CreatableTopicResult):
                result.topic_id, result.configs = ZERO_UUID, []
                result.num_partitions = result.replication_factor = -1
        self.done()
