"""One replica of a partition on this broker: its log, its place in the cluster, and who waits for it.

What becomes of it is up to `kbroker.replica_manager`. Who waits here is told by `wake` (Fetches of consumers,
soon), `wake_followers` and `look_at_deletions` (at once); nobody keeps another from being told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kbroker.bugs import NOBODYS_BUGS
from kbroker.fetch_sessions import PartitionKey
from kbroker.follower_sessions import FollowerSession
from kbroker.measures import Traffic
from kbroker.partition import Leadership
from kbroker.produced_batches import ProduceRules
from kbroker.waking import Waker
from storage.appending import Appended
from storage.log import UnifiedLog
from wire.errors import ErrorCode, KafkaError
from wire.primitives import Buffer
from wire.records import BatchHeader

LOOK_AGAIN = 1 << 31
"""Passed in place of a number of visible bytes: makes every waiting Fetch read again."""

AppendOutcome = Appended | KafkaError
Staged = tuple[Buffer, BatchHeader, Callable[[AppendOutcome], object]]


class OutcomeUnknown(KafkaError):
    """A bug, which was logged, has broken off an append: the batch may be in the log or not."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR)


NOBODYS_WAKER = Waker(lambda call: call(), NOBODYS_BUGS)


class HostedPartition:
    """One replica on this broker: its log, its place in the cluster, and who waits for it."""

    __slots__ = (
        "adding",
        "appends",
        "broker_epoch",
        "bugs",
        "deletions",
        "fetches",
        "follower_sessions",
        "has_settled",
        "in_sync_replicas",
        "index",
        "is_being_added",
        "is_throttled_as_follower",
        "is_throttled_as_leader",
        "leader_epoch",
        "leader_high_watermark",
        "leader_id",
        "leadership",
        "log",
        "min_in_sync_replicas",
        "partition_epoch",
        "replicas",
        "rules",
        "staged",
        "told_log_start_offset",
        "topic",
        "topic_id",
        "traffic",
        "waiting_for_replicas",
        "waker",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: UnifiedLog) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.rules = ProduceRules()
        self.traffic = Traffic()
        """Its topic's, once it is hosted."""
        self.bugs, self.waker = NOBODYS_BUGS, NOBODYS_WAKER
        """The broker's, once it is hosted."""
        self.min_in_sync_replicas = 1
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.broker_epoch = -1
        """The registration of this broker that was told last to lead or follow."""
        self.leadership: Leadership | None = None
        """Where this broker leads and others follow."""
        self.leader_high_watermark = -1
        """What the leader said last, where this broker follows."""
        self.is_being_added = self.is_throttled_as_leader = self.is_throttled_as_follower = False
        """Where the first is true, a reassignment has not come to its end."""
        self.adding = 0
        """How many of `replicas` a reassignment is adding."""
        self.replicas: list[int] = []
        self.in_sync_replicas: list[int] = []
        self.staged: list[Staged] = []
        self.has_settled = False
        """While outcomes of appending are told: whether acknowledgements need not wait, whatever the acks."""
        self.fetches: dict[Callable[[int], object], None] = {}
        """Called with the number of bytes that have become visible, or 0 for any other change."""
        self.appends: dict[Callable[[int], object], None] = {}
        """The same for followers outside of a session, who see what has been appended."""
        self.told_log_start_offset = -1
        self.follower_sessions: dict[FollowerSession, PartitionKey] = {}
        """Those for which it is settled or was, with what they call it."""
        self.deletions: dict[Callable[[], object], None] = {}
        """Called when a follower may have raised its log start offset, and when this broker leads no more."""
        self.waiting_for_replicas: deque[tuple[int, Callable[[KafkaError | None], object]]] = deque()

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index}, leader {self.leader_id} in epoch {self.leader_epoch}>"

    @property
    def effective_min_in_sync_replicas(self) -> int:
        """Never more than there are replicas: one replica can always be written to (conformance 33)."""
        return min(self.min_in_sync_replicas, max(len(self.replicas), 1))

    @property
    def low_watermark(self) -> int:
        """Below it no replica that lives has anything."""
        start = self.log.log_start_offset
        return start if self.leadership is None else self.leadership.low_watermark(start)

    def wake(self, visible_bytes: int) -> None:
        """Have every fetch told that waits here, soon."""
        if self.fetches:
            self.waker.wake(self, visible_bytes)

    def look_at_deletions(self) -> None:
        for told in list(self.deletions):
            self.bugs.tell(told)

    def wake_followers(self, appended_bytes: int) -> None:
        """Tell every follower that waits here."""
        for told in list(self.appends):
            self.bugs.tell(told, appended_bytes)
        for session, key in list(self.follower_sessions.items()):
            session.due[key] = None
            if session.wake is not None:
                self.bugs.tell(session.wake, appended_bytes)

    def is_news(self) -> None:
        """Followers are to be told something when they ask next."""
        for session, key in self.follower_sessions.items():
            session.due[key] = None
