"""The leader's side of a follower's fetch session: what it asks for, and which of it has nothing new.

A follower of a thousand partitions asks for all of them twice a second, and most have nothing to tell. So
partitions are *due* or *settled*. What is due is read whenever the follower asks. What is settled is neither
read nor waited at: the partition says when something happens to it (`HostedPartition.tell_followers`), and
with that it is due again.

Rules:
- Settled is only where the follower has everything, knows that everything is committed, and is in sync.
- A follower that asks still has everything that is settled. That is noted once for all of it (`heard`).
  What it forgets, or leaves behind when the session is closed, it is no longer heard of: it has the time that
  it was last heard at, and falls out of sync when it does not ask again.
- Its broker's next life is another one: everything is due again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from kbroker.fetch_sessions import PartitionKey, Session, Wanted
from kbroker.partition import Follower, Heard
from wire.api.fetch import PartitionData


class Watched(Protocol):
    """A partition that tells what happens to it."""

    follower_sessions: dict[Any, PartitionKey]


class FollowerSession(Session):
    """Of one follower."""

    __slots__ = ("_settled", "broker_epoch", "due", "heard", "is_closed", "wake", "watched")

    def __init__(self, session_id: int, now_ms: int, wanted: Iterable[Wanted], uses_topic_ids: bool) -> None:
        super().__init__(session_id, now_ms, wanted, uses_topic_ids)
        self.due: dict[PartitionKey, None] = dict.fromkeys(self.wanted)
        """In the order in which they are served."""
        self.watched: dict[PartitionKey, Watched] = {}
        self._settled: dict[PartitionKey, Follower] = {}
        self.heard = Heard()
        self.is_closed = False
        self.broker_epoch = -1
        self.wake: Callable[[int], object] | None = None
        """What waits for news, with the number of bytes that were appended; 0 for any other change."""

    def update(self, wanted: Sequence[Wanted], forgotten: Sequence[PartitionKey]) -> None:
        super().update(wanted, forgotten)
        self.due.update(dict.fromkeys([one.key for one in wanted]))
        for key in forgotten:
            self.due.pop(key, None)
            self._unwatch(key)

    def asks(self) -> list[Wanted]:
        return [self.wanted[key] for key in self.due]

    def asked_in(self, broker_epoch: int) -> list[Wanted]:
        """What is to be read, for a follower in this life of its broker."""
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.due.update(dict.fromkeys(self.wanted))
        return self.asks()

    def changed(self, key: PartitionKey, data: PartitionData) -> bool:
        if data.records and key in self.due:
            self.due[key] = self.due.pop(key)
        return super().changed(key, data)

    def watch(self, key: PartitionKey, partition: Watched) -> None:
        """Have it say when something happens."""
        if not self.is_closed and self.watched.get(key) is not partition:
            self._unwatch(key)
            self.watched[key] = partition
            partition.follower_sessions[self] = key

    def settle(self, key: PartitionKey, partition: Watched, follower: Follower) -> None:
        """Do not read it again before something has happened; until then `follower` has everything."""
        if self.is_closed:
            return
        self.watch(key, partition)
        self.due.pop(key, None)
        follower.heard = self.heard
        self._settled[key] = follower

    def close(self) -> None:
        self.is_closed = True
        for key in list(self.watched):
            self._unwatch(key)

    def _unwatch(self, key: PartitionKey) -> None:
        partition = self.watched.pop(key, None)
        if partition is not None:
            partition.follower_sessions.pop(self, None)
        follower = self._settled.pop(key, None)
        if follower is not None and follower.heard is self.heard:
            follower.not_heard_any_more()
