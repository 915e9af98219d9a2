"""The follower's side of a fetch session (KIP-227): says only what has changed since the last request.

Pure. A session begins with a full request, which names all partitions; if the leader grants one, the requests
after it name those that are asked for differently, and those that are not wanted any more. Any doubt (a
refusal, a lost connection) is ended by `begin_anew`: the next request is a full one, and names the session
that the leader may forget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

MOST = 0x7FFFFFFF
FULL = 0


class Key(NamedTuple):
    topic_id: bytes
    partition: int


class Place(NamedTuple):
    """Where a follower is in a partition."""

    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


class Limits(NamedTuple):
    """Of one request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class FetcherSession:
    """With one leader."""

    def __init__(self) -> None:
        self.session_id = 0
        self._epoch = FULL
        self.known: dict[Key, Place] = {}
        """What the leader has been asked for."""

    def begin_anew(self) -> None:
        self._epoch = FULL
        self.known = {}

    def request(
        self,
        wanted: Mapping[Key, Place],
        unwanted: Iterable[Key],
        limits: Limits,
        replica_id: int,
        broker_epoch: int,
    ) -> FetchRequest:
        """Ask for `wanted`, too, or from there on, and for `unwanted` no more."""
        known = self.known
        asked = {key: place for key, place in wanted.items() if known.get(key) != place}
        gone = [key for key in unwanted if known.pop(key, None) is not None]
        known.update(asked)
        return FetchRequest(
            replica_id=replica_id,  # for leaders that do not know the replica's state
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch),
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self.session_id,
            session_epoch=self._epoch,
            topics=_topics(asked, limits.partition_max_bytes),
            forgotten_topics_data=_forgotten(gone),
        )

    def answered(self, session_id: int) -> bool:
        """A request was answered without an error of its own. False if there is no session: begin anew."""
        self.session_id = session_id
        if session_id == 0:
            self.begin_anew()
            return False
        self._epoch = 1 if self._epoch == MOST else self._epoch + 1
        return True


def _topics(asked: Mapping[Key, Place], partition_max_bytes: int) -> list[FetchTopic]:
    topics: dict[bytes, list[FetchPartition]] = {}
    for key, place in asked.items():
        topics.setdefault(key.topic_id, []).append(
            FetchPartition(
                partition=key.partition,
                partition_max_bytes=partition_max_bytes,
                fetch_offset=place.fetch_offset,
                current_leader_epoch=place.current_leader_epoch,
                last_fetched_epoch=place.last_fetched_epoch,
                log_start_offset=place.log_start_offset,
            )
        )
    return [FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]


def _forgotten(gone: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, list[int]] = {}
    for key in gone:
        topics.setdefault(key.topic_id, []).append(key.partition)
    return [
        ForgottenTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
    ]
