"""How long a leader may be sure that nobody has been elected in its place.

A controller elects others once a broker's session with ZooKeeper has ended. A broker that has lost its
connection cannot be told of that, so it counts itself: a session lives for its timeout after the ensemble has
last heard of it. Four times per timeout the broker asks for a transaction that checks its registration. The
lease ends one session timeout after the *sending* of the last such request but one that was answered, on a
clock that nobody sets. (The last but one, since a server that is not the ensemble's leader tells the leader
of its sessions twice per tick: that an answer came shows that it has told of the request before.)

While a leadership is certain it is exercised as in Kafka. While it is in doubt (the lease has ended, or the
leadership was given to an earlier registration of this broker):
- Whatever the acks, a record is acknowledged once every in-sync replica has it, as with acks=all: then a
  leader that was elected meanwhile has it as well.
- The partition is served as long as every other in-sync replica fetches from it. Whoever is elected is one of
  them, and ceases to fetch first. So when ZooKeeper alone is away, clients are served as before.
- When one of them has been silent for two of its longest fetches, clients are sent away with
  NOT_LEADER_OR_FOLLOWER (or NOT_COORDINATOR), those who wait as well.

A partition of which no other replica is in sync is always certain: nobody else can be elected (but for
unclean elections, which may lose anything). A broker alone is certain of everything.

Not covered: a machine whose clocks stand still with it, such as a virtual machine that is paused.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from controller.metadata_store import ANY_VERSION, Check, MetadataStore, SessionState, StoreError
from controller.znodes import BrokerRegistration
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.replica_manager import HostedPartition

logger = logging.getLogger(__name__)

RENEWALS = 4
"""Per session timeout."""
LEAST_SILENCE_MS = 1000


class Certainty:
    """Of a broker alone: nobody can be elected in its place."""

    def is_certain(self, partition: HostedPartition) -> bool:
        return True

    def serves(self, partition: HostedPartition) -> bool:
        return True

    def check(self, partition: HostedPartition) -> None:
        """KafkaError where clients are to look for the leader elsewhere."""
        if not self.serves(partition):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leader may have been elected")


class LeaderLease(Certainty):
    """Of one broker of several."""

    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        broker_epoch: Callable[[], int],
        steady_s: Callable[[], float],
        fetch_wait_max_ms: Callable[[], int],
    ) -> None:
        """`broker_epoch` is the registration's; followers' fetches wait for `fetch_wait_max_ms`."""
        self._broker_id = broker_id
        self._store = store
        self._broker_epoch = broker_epoch
        self._steady_s = steady_s
        self._fetch_wait_max_ms = fetch_wait_max_ms
        self._ends_s = -math.inf
        self._registration = Check(BrokerRegistration.path(broker_id), ANY_VERSION)
        self.session_id = 0
        """Of the session in which the broker has registered."""
        self._answered_s: float | None = None
        """When the last request that was answered in this session was sent."""
        self._is_due = asyncio.Event()
        self._was_current = False
        store.listen(self._session_changed)

    @property
    def is_current(self) -> bool:
        return self._steady_s() < self._ends_s

    def is_certain(self, partition: HostedPartition) -> bool:
        """Whether nobody else can have been elected to lead what this broker leads."""
        leadership = partition.leadership
        if leadership is None:
            return True
        if partition.broker_epoch == self._broker_epoch() and self._steady_s() < self._ends_s:
            return True
        return leadership.maximal_isr <= {self._broker_id}

    def serves(self, partition: HostedPartition) -> bool:
        """Whether clients are answered: certainly nobody else leads, or all who might still follow."""
        leadership = partition.leadership
        if leadership is None or self.is_certain(partition):
            return True
        silence_ms = max(2 * self._fetch_wait_max_ms(), LEAST_SILENCE_MS)
        return leadership.is_followed(int(self._steady_s() * 1000), silence_ms)

    # -- keeping it

    async def keep(self) -> None:
        """Renew it, until cancelled."""
        while True:
            self._is_due.clear()
            sent_s = self._steady_s()
            await self._renew(sent_s)
            self.look()
            rest_s = sent_s + self._store.session_timeout_ms / 1000 / RENEWALS - self._steady_s()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(rest_s, 0)):
                    await self._is_due.wait()

    async def _renew(self, sent_s: float) -> None:
        session_id = self.session_id
        if session_id != self._store.session_id:
            return  # `registered` is going to be called
        try:
            await self._store.multi([self._registration])
        except StoreError:
            return  # it is asked again when there is a connection
        if session_id != self.session_id or session_id != self._store.session_id:
            return
        if self._answered_s is None:
            self._is_due.set()
        else:
            self._ends_s = self._answered_s + self._store.session_timeout_ms / 1000
        self._answered_s = sent_s

    def registered(self) -> None:
        """The broker is, in the session that there is now."""
        self.session_id, self._answered_s = self._store.session_id, None
        self._is_due.set()

    def end(self) -> None:
        """The broker gives up its session."""
        self.session_id, self._ends_s = 0, -math.inf

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._ends_s = -math.inf
        elif state is SessionState.CONNECTED:
            self._is_due.set()

    def look(self) -> None:
        """Log the beginning and the end of doubt. To be called now and then."""
        if self.session_id and self.is_current != self._was_current:
            self._was_current = not self._was_current
            if self._was_current:
                logger.info("the session with ZooKeeper is alive")
            else:
                logger.warning("the session with ZooKeeper may have ended: other leaders may be elected")
