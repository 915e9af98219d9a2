"""All connections of a broker, and the limits on what they may have together.

- `max.connections` in all (and, as `listener.name.NAME.max.connections`, of one listener),
  `max.connections.per.ip` from one address, with overrides; never more than half of the files that may be
  open, or logs would have none. A connection too many is closed at once; Kafka leaves it waiting where the
  limit is on all of them. Where there are several listeners, other brokers are let in in any case, and the
  connection of a client that was silent for longest goes.
- `connections.max.idle.ms`: a connection on which nothing moved for so long is closed, unless a request of
  it is still to be answered.
- Requests that have not arrived whole have limits of their own (`kbroker.incomplete_requests`).
- A connection that is not read from does not notice by itself that its client has gone. So that is looked for
  every second. One whose client is gone is closed, and so is one that waits for the rest of a request from a
  client that sends no more.
- Replies that clients do not read wait in memory, where a client is not read from until it has most of them.
  When all these together exceed `kbroker.unread.replies.max.bytes`, replies are to be small.

Limits may change at any time; what is open stays open. Nothing here reads from sockets, or knows the time.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from kbroker.configuration.layers import Configuration
from kbroker.configuration.pairs import connections_per_host
from kbroker.incomplete_requests import IncompleteRequests, Sender
from kbroker.log_limits import LogLimits
from kbroker.paused_sockets import Client, clients_of
from wire.words import count

logger = logging.getLogger(__name__)

LOOKS_PER_IDLE_TIME = 20
"""How often idle connections are looked for while one becomes idle."""


class Limited(Sender, Protocol):
    """A connection, as far as it is limited."""

    listener: str
    number: int
    """Later ones have higher numbers; given here when the connection is let in."""
    descriptor: int
    """Of its socket; negative if there is none."""
    owed_bytes: int
    """Of replies that it does not read."""
    has_moved: bool
    """Whether anything was read since somebody looked; set by the connection, cleared here."""
    moved_ms: int

    def sends_no_more(self) -> None:
        """Its client has said all it wanted to."""


C = TypeVar("C", bound=Limited)


class Connections(Generic[C]):
    """Who is connected, by the broker's configuration. Iterates over the connections."""

    def __init__(
        self,
        configuration: Callable[[], Configuration],
        resolve: Callable[[str], Iterable[str]],
        log_limits: LogLimits,
        *,
        protected: str | None = None,
        at_most: int = sys.maxsize,
    ) -> None:
        """`resolve` finds a host's addresses; `protected` is the brokers' listener, if there are others.

        Beyond `at_most` there would be no files left for the logs.
        """
        self._configuration = configuration
        self._protected = protected
        self._at_most = at_most
        self._resolve = resolve
        self._log_limits = log_limits
        self._all: dict[C, None] = {}
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._admitted = 0
        self._overrides: tuple[str, dict[str, int]] = ("", {})
        self._owed_bytes = 0
        self._incomplete: IncompleteRequests[C] = IncompleteRequests(configuration, log_limits)
        self._paused: dict[C, None] = {}
        self.now_ms = self._looked_ms = 0

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    @property
    def owed_bytes(self) -> int:
        return self._owed_bytes

    # -- coming and going

    def admit(self, connection: C) -> bool:
        """Take a new connection in, if the limits allow it."""
        refusal = self._refusal(connection)
        if refusal is not None:
            self._log_limits.warning(logger, refusal, "a new connection was closed: %s", refusal)
            return False
        self._admitted += 1
        connection.number, connection.moved_ms = self._admitted, self.now_ms
        self._all[connection] = None
        self._by_address[connection.client_address] += 1
        self._by_listener[connection.listener] += 1
        return True

    def left(self, connection: C) -> None:
        """A connection is closed, whether it was admitted or not."""
        if connection not in self._all:
            return
        self._paused.pop(connection, None)
        self._incomplete.left(connection)
        self.owes(connection, 0)
        del self._all[connection]
        for counter, name in (
            (self._by_address, connection.client_address),
            (self._by_listener, connection.listener),
        ):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

    def _refusal(self, connection: C) -> str | None:
        configuration = self._configuration()
        values = configuration.broker
        listener, address = connection.listener, connection.client_address
        most = self._most_of(address, values.max_connections_per_ip, values.max_connections_per_ip_overrides)
        if self._by_address[address] >= most:
            return f"{address} has {count(most, 'connection')} already (max.connections.per.ip)"
        name = f"listener.name.{listener.lower()}.max.connections"
        if configuration.text(name) is not None:
            most = configuration.value(name)
            if self._by_listener[listener] >= most:
                return f"{count(most, 'connection')} on {listener} already (max.connections)"
        if len(self._all) >= self._at_most:
            return f"{count(self._at_most, 'connection')} already (half of what ulimit -n allows)"
        if len(self._all) < values.max_connections:
            return None
        if listener == self._protected and self._evict():
            return None
        return f"{count(values.max_connections, 'connection')} already (max.connections)"

    def _evict(self) -> bool:
        """Close the client that was silent for longest, for a broker's sake."""
        clients = [one for one in self._all if one.listener != self._protected]
        if clients:
            min(clients, key=lambda one: (one.has_moved, one.moved_ms)).abort()
        return bool(clients)

    def _most_of(self, address: str, per_address: int, overrides: str) -> int:
        if overrides != self._overrides[0]:
            self._overrides = overrides, self._resolved(overrides)
        return self._overrides[1].get(address, per_address)

    def _resolved(self, overrides: str) -> dict[str, int]:
        limits: dict[str, int] = {}
        for host, number in connections_per_host(overrides).items():
            try:
                limits.update(dict.fromkeys(self._resolve(host), number))
            except OSError as error:
                logger.warning("max.connections.per.ip.overrides: %s is passed over: %s", host, error)
        return limits

    # -- idleness

    def tick(self, now_ms: int) -> None:
        """Close idle connections, slow ones, and those whose client has gone."""
        self.now_ms = now_ms
        if self._paused:
            self._look_for_clients()
        self._incomplete.tick(now_ms)
        idle_ms = self._configuration().broker.connections_max_idle_ms
        if idle_ms < 0 or now_ms - self._looked_ms < idle_ms // LOOKS_PER_IDLE_TIME:
            return
        self._looked_ms = now_ms
        for connection in self:
            if connection.has_moved or connection.awaits_reply or self._waits_for_us(connection):
                connection.has_moved, connection.moved_ms = False, now_ms
            elif now_ms - connection.moved_ms >= idle_ms:
                self._log_limits.log(
                    logger,
                    logging.INFO,
                    "idle",
                    "closing the connection from %s: idle",
                    connection.client_address,
                )
                connection.abort()

    def _waits_for_us(self, connection: C) -> bool:
        return self._incomplete.is_resting(connection) and connection.unread_bytes > 0

    # -- replies that are not read

    def owes(self, connection: C, owed_bytes: int) -> None:
        """What a connection's client has not read, of more than it may, has changed."""
        self._owed_bytes += owed_bytes - connection.owed_bytes
        connection.owed_bytes = owed_bytes

    @property
    def replies_must_be_small(self) -> bool:
        owed_bytes = self._owed_bytes  # mostly nothing, and then there is nothing to compare with
        return owed_bytes > 0 and owed_bytes > self._configuration().broker.kbroker_unread_replies_max_bytes

    # -- requests that are not complete

    @property
    def held_bytes(self) -> int:
        return self._incomplete.held_bytes

    def holds(self, connection: C, held_bytes: int) -> None:
        """What a connection's requests hold has changed."""
        self._incomplete.holds(connection, held_bytes)

    # -- connections that are not read from

    def pauses(self, connection: C, is_paused: bool) -> None:
        """It is not read from, or again."""
        if is_paused:
            self._paused[connection] = None
        else:
            self._paused.pop(connection, None)

    def _look_for_clients(self) -> None:
        descriptors = {one.descriptor: one for one in self._paused if one.descriptor >= 0}
        for descriptor, client in clients_of(descriptors).items():
            connection = descriptors[descriptor]
            if client is Client.GONE:
                connection.abort()
            elif client is Client.SENDS_NO_MORE and self._incomplete.is_resting(connection):
                connection.sends_no_more()
