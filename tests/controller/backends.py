"""The back ends of the metadata store, each with what the contract's tests need to know about it.

A further back end is one more class here and one more name in `BACKENDS`. ZooKeeper's is beside them, since
it needs a server.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from kazoo.client import KazooClient

from controller.embedded import EmbeddedStore, EmbeddedTree
from controller.metadata_store import MetadataStore, SessionState
from controller.zookeeper import ZooKeeperStore
from tests.controller import virtual_time
from tests.controller.simulated_store import SimulatedStore


class Backend(Protocol):
    """Somewhere to connect to."""

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test on an event loop that fits, and let go of everything."""

    async def connect(self) -> Any:
        """A new session, connected."""

    async def expire(self, store: Any) -> None:
        """End the session from outside; returns when the store is connected with a new one."""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait, for as long as is reasonable, until a condition holds."""


class Embedded:
    """A tree in this process, with or without a file."""

    def __init__(self, path: Path | None) -> None:
        self.tree = EmbeddedTree.open(path, now_ms=lambda: 1000)

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        try:
            virtual_time.run(test)
        finally:
            self.tree.close()

    async def connect(self) -> EmbeddedStore:
        return self.tree.connect(asyncio.get_running_loop().call_soon)

    async def expire(self, store: EmbeddedStore) -> None:
        self.tree.expire(store.session_id)
        await asyncio.sleep(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(10):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it did not come to pass")


class Simulated:
    """A tree that is some milliseconds away."""

    def __init__(self) -> None:
        self.tree = EmbeddedTree.open(None, now_ms=lambda: 1000)
        self.random = random.Random(1)

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        virtual_time.run(test)

    async def connect(self) -> SimulatedStore:
        return SimulatedStore(self.tree, lambda: self.random.uniform(0.001, 0.1))

    async def expire(self, store: SimulatedStore) -> None:
        store.cut()
        await asyncio.sleep(store.session_timeout_ms / 1000 + 1)
        store.restore()
        await asyncio.sleep(1)

    async def until(self, condition: Callable[[], bool]) -> None:
        await asyncio.sleep(1)
        assert condition()


class OnZooKeeper:
    """A tree of its own in a real server."""

    def __init__(self, address: str, chroot: str) -> None:
        self.address = address
        self.chroot = chroot
        self.stores: list[ZooKeeperStore] = []

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        asyncio.run(self._run(test))

    async def _run(self, test: Coroutine[Any, Any, None]) -> None:
        try:
            await test
        finally:
            for store in self.stores:
                await store.close()

    async def connect(self) -> ZooKeeperStore:
        store = await ZooKeeperStore.connect(f"{self.address}{self.chroot}", session_timeout_ms=5000)
        self.stores.append(store)
        return store

    async def expire(self, store: ZooKeeperStore) -> None:
        """A second client that takes over a session ends it for the first."""
        old = store.session_id

        def take_over() -> None:
            client = KazooClient(self.address, client_id=store._client.kazoo.client_id)
            client.start()
            client.stop()
            client.close()

        await asyncio.to_thread(take_over)
        await self.until(lambda: store.session_id != old and store.state is SessionState.CONNECTED)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 -- what it waits for has no event
                await asyncio.sleep(0.005)


BACKENDS: dict[str, Callable[[Path], Backend]] = {
    "memory": lambda directory: Embedded(None),
    "sqlite": lambda directory: Embedded(directory / "metadata.db"),
    "simulated": lambda directory: Simulated(),
}

__all__ = ["BACKENDS", "Backend", "MetadataStore"]
