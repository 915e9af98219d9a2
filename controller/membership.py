"""How a broker becomes part of a cluster: the nodes it makes sure of, the cluster's id, its own registration.

- A registration is ephemeral: it says that the broker is alive, and goes with the session. The id of the
  transaction that made it is the broker epoch.
- A registration of the same id by another session is either this broker's own, from before it was killed,
  and goes when that session times out; or there are two brokers of this id. So we wait longer than a session
  usually may last, and then refuse (DuplicateBrokerId). We look now and then, since a connection that is
  lost takes the watch with it.
- Broker ids that are given out start above `reserved.broker.max.id`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from controller import znodes
from controller.metadata_store import MetadataStore, NodeExists, WatchEvent, ensure, parent_of

LONGEST_SESSION_MS = 60_000
"""The session of an earlier life may be longer than the one we have now."""
LOOK_AGAIN_S = 1.0


class DuplicateBrokerId(Exception):
    """Another broker that is alive has this id."""


async def prepare(store: MetadataStore, new_cluster_id: str) -> str:
    """Make sure of the nodes that Kafka expects. The cluster's id: the new one, if it had none."""
    await ensure(store, znodes.PERSISTENT_PATHS)
    path = znodes.ClusterId.path()
    await ensure(store, [parent_of(path)])
    try:
        await store.create(path, znodes.ClusterId(new_cluster_id).encode())
    except NodeExists:
        return znodes.ClusterId.decode((await store.get(path)).data).cluster_id
    return new_cluster_id


async def next_broker_id(store: MetadataStore, reserved_broker_max_id: int = 1000) -> int:
    """An id that nobody else has been given."""
    return reserved_broker_max_id + await store.set(znodes.BROKER_SEQUENCE_ID, b"")


async def register(store: MetadataStore, broker_id: int, registration: znodes.BrokerRegistration) -> int:
    """Register the broker in this session. Its epoch."""
    path = znodes.BrokerRegistration.path(broker_id)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(LONGEST_SESSION_MS, store.session_timeout_ms) / 1000
    while True:
        gone = asyncio.Event()

        def changed(event: WatchEvent, gone: asyncio.Event = gone) -> None:
            gone.set()

        with suppress(NodeExists):
            await store.create(path, registration.encode(), ephemeral=True)
        stat = await store.exists(path, changed)
        if stat is None:
            continue
        if stat.ephemeral_owner == store.session_id:
            return stat.czxid
        if loop.time() >= deadline:
            raise DuplicateBrokerId(f"broker {broker_id} is registered by somebody else")
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S):
                await gone.wait()
