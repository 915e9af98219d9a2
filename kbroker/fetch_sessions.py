"""Fetch sessions (KIP-227): the partitions a fetcher asks for, remembered, so that it need not repeat them.

    (id 0, epoch 0)    a full fetch that wants a session; the reply may grant one, or say id 0: none
    (id, epoch n)      an incremental fetch: only what changed; the reply, too, has only what changed
    (id 0, epoch -1)   a full fetch without a session; with an id it closes that session

Rules (conformance 57, 58):
- Pure: time is passed in, session ids are drawn by a function that is passed in.
- The number of sessions is bounded. For a new one a session goes that was unused for EVICTION_MS, else one
  that is as old and smaller, else the new one is not granted: clients exist that ask for one on every poll.
- The number of their partitions is bounded, too. A session that grows beyond that ends.
- An incremental reply leaves out a partition without records whose watermarks and errors are as last told.
- A partition that gave data goes to the end of the order, so that a full reply starves nobody.
- A session can be used on several connections. A Fetch that waits while the session goes on elsewhere is
  answered with INVALID_FETCH_SESSION_EPOCH, as by Kafka, and changes nothing in the session any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from wire.api.fetch import FetchRequest, PartitionData
from wire.errors import ErrorCode, KafkaError
from wire.primitives import ZERO_UUID

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
MAX_EPOCH = 0x7FFFFFFF
MOST_PARTITIONS = 500_000
"""Of all sessions together: some hundred bytes each."""

PartitionKey = tuple[str, bytes, int]
"""The topic's name and id, of which a request has the one or the other: the zero id or the empty name stands
for what it lacks; and the partition."""


class Wanted(NamedTuple):
    """What a fetcher wants of one partition."""

    topic: str
    topic_id: bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.topic_id, self.partition


class Told(NamedTuple):
    """What the fetcher was last told of a partition, records apart."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


NOTHING_TOLD = Told(-1, -1, -1)


class Session:
    """The partitions of one fetcher, in the order in which they are served."""

    __slots__ = ("created_ms", "epoch", "session_id", "told", "used_ms", "uses_topic_ids", "wanted")

    def __init__(self, session_id: int, now_ms: int, wanted: Iterable[Wanted], uses_topic_ids: bool) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.created_ms = self.used_ms = now_ms
        self.uses_topic_ids = uses_topic_ids
        self.wanted = {one.key: one for one in wanted}
        self.told: dict[PartitionKey, Told] = {}

    def update(self, wanted: Sequence[Wanted], forgotten: Sequence[PartitionKey]) -> None:
        for one in wanted:
            self.wanted[one.key] = one
        for key in forgotten:
            self.wanted.pop(key, None)
            self.told.pop(key, None)

    def asks(self) -> list[Wanted]:
        """What is to be read for the next reply."""
        return list(self.wanted.values())

    def close(self) -> None:
        """It is used no more."""

    def changed(self, key: PartitionKey, data: PartitionData) -> bool:
        """Whether the reply must have this partition; notes that it was told."""
        told = Told(data.high_watermark, data.last_stable_offset, data.log_start_offset)
        news = told != self.told.get(key, NOTHING_TOLD)
        self.told[key] = told
        if data.error_code or data.diverging_epoch is not None:
            self.told[key] = NOTHING_TOLD  # once that is over, it is news
            return True
        if data.records:
            self.wanted[key] = self.wanted.pop(key)
            return True
        return news or data.preferred_read_replica >= 0


Make = Callable[[int, int, Iterable[Wanted], bool], Session]
"""What kind of session: its id, the time, what is wanted, and whether topics are told by their ids."""


class Plan(NamedTuple):
    """What to fetch for one request, and the session it belongs to, if any."""

    wanted: list[Wanted]
    session: Session | None
    is_incremental: bool
    epoch: int = INITIAL_EPOCH
    """The session's, once it is planned: another one means that the session has gone on without it."""

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session else 0

    @property
    def is_superseded(self) -> bool:
        """Whether a later request of the same session was planned meanwhile."""
        return self.session is not None and self.session.epoch != self.epoch


class FetchSessions:
    """All sessions of a broker."""

    def __init__(
        self, max_sessions: int, new_id: Callable[[], int], most_partitions: int = MOST_PARTITIONS
    ) -> None:
        self._max_sessions = max_sessions
        self._most_partitions = most_partitions
        self._partitions = 0
        """Of all sessions."""
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}
        """In the order in which they were last used."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def plan(self, request: FetchRequest, version: int, now_ms: int, make: Make = Session) -> Plan:
        """KafkaError 70, 71 or 106 where the session is not what the client believes."""
        wanted = wanted_by(request)
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id)
            session = None
            if epoch == INITIAL_EPOCH and version >= 7:
                session = self._new_session(make, wanted, version >= 13, now_ms)
            return Plan(wanted, session, is_incremental=False, epoch=session.epoch if session else 0)
        found = self._sessions.get(session_id)
        if found is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if found.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if found.uses_topic_ids != (version >= 13):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(found.wanted)
        found.update(wanted, forgotten_by(request))
        added = len(found.wanted) - before
        self._partitions += added
        if added > 0 and self._partitions > self._most_partitions:
            self._end(session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        found.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        del self._sessions[session_id]
        if not found.wanted:
            found.close()
            return Plan([], None, is_incremental=False)
        self._sessions[session_id] = found
        found.used_ms = now_ms
        return Plan(found.asks(), found, is_incremental=True, epoch=found.epoch)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.wanted)
            session.close()

    def _new_session(
        self, make: Make, wanted: list[Wanted], uses_topic_ids: bool, now_ms: int
    ) -> Session | None:
        if not wanted or not self._make_room(len(wanted), now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == 0:
            session_id = self._new_id()
        session = self._sessions[session_id] = make(session_id, now_ms, wanted, uses_topic_ids)
        self._partitions += len(session.wanted)
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        while self._partitions + size > self._most_partitions:
            unused = next(iter(self._sessions.values()), None)
            if unused is None or now_ms - unused.used_ms <= EVICTION_MS:
                return False
            self._end(unused.session_id)
        if len(self._sessions) < self._max_sessions:
            return True
        if not self._sessions:
            return False
        unused = next(iter(self._sessions.values()))
        if now_ms - unused.used_ms <= EVICTION_MS:
            smaller = (s for s in self._sessions.values() if len(s.wanted) < size)
            old = [s for s in smaller if now_ms - s.created_ms > EVICTION_MS]
            if not old:
                return False
            unused = min(old, key=lambda s: (len(s.wanted), s.created_ms))
        self._end(unused.session_id)
        return True


def wanted_by(request: FetchRequest) -> list[Wanted]:
    """Of a partition that is named more than once, what is said last, where it is named first."""
    wanted = [
        Wanted(
            topic.topic,
            topic.topic_id,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    return wanted if len(wanted) < 2 else list({one.key: one for one in wanted}.values())


def forgotten_by(request: FetchRequest) -> list[PartitionKey]:
    return [
        (topic.topic, topic.topic_id or ZERO_UUID, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
