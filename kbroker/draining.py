"""How a stopping broker lets go of its clients: what they have asked gets an answer, not a reset.

1. Where leadership has moved to other brokers, clients are served for `LINGER_S` more: they are told who
   leads now, by the broker that they know. A client that is cut off may wait for seconds before it asks.
2. Nobody new is let in. What clients had sent before is read, until nothing comes for `QUIET_S`. Then nothing
   more is read. Each connection is closed once all its replies have left.
3. What only waits for this broker itself is waited for: records that are looked at, requests that are worked
   on, and the disk. That takes `WORK_S` at most: records that the disk has been given count in vain where
   their producer is told that it failed.
4. Requests that wait for something else (records, replicas, members of a group) are answered as they are when
   leadership moves away: with what there is, or with an error that clients retry. So are those that were
   behind them.
5. Connections that are open `DRAIN_S` later are aborted: of clients that do not read their replies, or whose
   request took longer than all this.
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
WORK_S = 5.0
DRAIN_S = 1.0
ANSWER_AGAIN_S = 0.05


async def let_go(broker: Broker, servers: Sequence[Server], *, has_moved: bool) -> None:
    """Answer and close every connection. `has_moved`: other brokers lead now what this one led."""
    if has_moved and broker.connections:
        await asyncio.sleep(LINGER_S)
    for server in servers:
        server.close()
    await until_quiet(broker)
    closing = list(broker.connections)  # some may have been let in at the last moment
    for connection in closing:
        connection.drain()
    await until_idle(broker)
    await answer_all(broker, closing)
    for connection in closing:
        connection.abort()


async def until_quiet(broker: Broker) -> None:
    """Returns when nothing is read any more, or soon."""
    for _ in range(int(LONGEST_NOISE_S / QUIET_S)):
        for connection in broker.connections:
            connection.has_moved = False
        await asyncio.sleep(QUIET_S)
        if not any(connection.has_moved for connection in broker.connections):
            return


async def until_idle(broker: Broker) -> None:
    """Returns when the broker has done what it could do for its clients by itself, or soon."""
    for _ in range(int(WORK_S / QUIET_S)):
        if not broker.works_for_clients:
            return
        await asyncio.sleep(QUIET_S)


async def answer_all(broker: Broker, connections: Sequence[Connection]) -> None:
    """Answer everyone who waits, until all have what they asked for, or soon."""
    end_s = broker.steady_s() + DRAIN_S
    closed = [connection.closed for connection in connections]
    while closed and broker.steady_s() < end_s:
        answer_who_waits(broker)
        _, pending = await asyncio.wait(closed, timeout=ANSWER_AGAIN_S)
        closed = list(pending)


def answer_who_waits(broker: Broker) -> None:
    broker.groups.stop()
    broker.transactions.stop()
    for partition in broker.replicas:
        broker.replicas.fail_waiting(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
