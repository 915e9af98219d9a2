"""How a stopping broker lets go of its clients: what they have asked gets an answer, not a reset.

1. Where leadership has moved to other brokers, clients are served for `LINGER_S` more: they are told who
   leads now, by the broker that they know. A client that is cut off may wait for seconds before it asks.
2. Nobody new is let in. What clients had sent before is read, until nothing comes for `QUIET_S`.
3. Requests that wait for something (records, replicas, members of a group) are answered as they are when
   leadership moves away: with what there is, or with an error that clients retry.
4. Nothing more is read. Each connection is closed once all its replies have left; those that do not read
   theirs for `DRAIN_S` are aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker
    from kbroker.connection import Connection
    from kbroker.machine import Server

LINGER_S = 0.5
QUIET_S = 0.005
LONGEST_NOISE_S = 0.25
DRAIN_S = 1.0


async def let_go(broker: Broker, servers: Sequence[Server], *, has_moved: bool) -> None:
    """Answer and close every connection. `has_moved`: other brokers lead now what this one led."""
    if has_moved and broker.connections:
        await asyncio.sleep(LINGER_S)
    for server in servers:
        server.close()
    closing = list(broker.connections)
    if not closing:
        return
    await until_quiet(closing)
    answer_who_waits(broker)
    for connection in closing:
        connection.drain()
    await asyncio.wait([connection.closed for connection in closing], timeout=DRAIN_S)
    for connection in closing:
        connection.abort()


async def until_quiet(connections: Sequence[Connection]) -> None:
    """Returns when nothing is read any more, or soon."""
    for _ in range(int(LONGEST_NOISE_S / QUIET_S)):
        for connection in connections:
            connection.has_moved = False
        await asyncio.sleep(QUIET_S)
        if not any(connection.has_moved for connection in connections):
            return


def answer_who_waits(broker: Broker) -> None:
    broker.groups.stop()
    broker.transactions.stop()
    for partition in broker.replicas:
        broker.replicas.fail_waiting(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
