"""What is particular to the metadata store on a real ZooKeeper: servers that are silent, dead, or back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.metadata_store import SessionState, StoreError
from controller.zookeeper import CannotConnect, ZooKeeperStore
from tests import zookeeper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(zookeeper.reason_to_skip()), reason=zookeeper.reason_to_skip()),
]


@asynccontextmanager
async def connected(address: str, session_timeout_ms: int) -> AsyncIterator[ZooKeeperStore]:
    """However it ends: what is left open would try to connect for ever, in a thread."""
    store = await ZooKeeperStore.connect(address, session_timeout_ms=session_timeout_ms)
    try:
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):  # a server that says nothing is given up after two thirds of a session
        while not condition():  # noqa: ASYNC110 -- what it waits for has no event
            await asyncio.sleep(0.005)


def test_the_path_behind_the_servers_is_made_and_is_the_root(zookeeper_server: zookeeper.ZooKeeper) -> None:
    async def test() -> None:
        outside = await ZooKeeperStore.connect(zookeeper_server.address, session_timeout_ms=5000)
        inside = await ZooKeeperStore.connect(
            f"{zookeeper_server.address}/some/where", session_timeout_ms=5000
        )
        assert await inside.children("/") == []
        assert await inside.create("/a", b"x", sequential=True) == "/a0000000000"
        assert (await outside.get("/some/where/a0000000000")).data == b"x"
        await inside.close()
        await outside.close()

    asyncio.run(test())


def test_no_server_in_time_is_an_error() -> None:
    async def test() -> None:
        with pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1"):
            await ZooKeeperStore.connect("127.0.0.1:1", session_timeout_ms=5000, connection_timeout_ms=300)
        with pytest.raises(ValueError, match="names no server"):
            await ZooKeeperStore.connect("/chroot", session_timeout_ms=5000)

    asyncio.run(test())


def test_a_session_survives_the_restart_of_its_server(tmp_path: Path) -> None:
    async def test(server: zookeeper.ZooKeeper) -> None:
        async with connected(server.address, session_timeout_ms=40_000) as store:
            states: list[SessionState] = []
            events: list[object] = []
            store.listen(states.append)
            await store.create("/mine", ephemeral=True)
            await store.exists("/mine", events.append)
            session_id = store.session_id
            server.kill()
            await until(lambda: states == [SessionState.SUSPENDED])
            server.start()
            await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
            assert store.session_id == session_id
            stat = await store.exists("/mine")
            assert stat is not None
            assert stat.ephemeral_owner == session_id
            await store.delete("/mine")
            await store.exists("/mine")
            assert events == [], "a watch outlived its connection"

    # Long ticks, so that the session is longer than the start of a server on a busy machine.
    with zookeeper.ZooKeeper(tmp_path, tick_ms=2000) as server:
        asyncio.run(test(server))


def test_a_server_that_is_silent_suspends_the_store_before_the_session_can_end(tmp_path: Path) -> None:
    """kazoo takes every request for a sign of life, so a busy client would not notice."""

    async def test(server: zookeeper.ZooKeeper) -> None:
        async with connected(server.address, session_timeout_ms=1500) as store:
            assert server.process_id is not None
            loop = asyncio.get_running_loop()
            suspended_at: list[float] = []
            store.listen(lambda state: suspended_at.append(loop.time()))
            await store.exists("/")
            stopped_at = loop.time()
            os.kill(server.process_id, signal.SIGSTOP)
            answers = []
            try:
                while not suspended_at:
                    answers.append(store.exists("/"))
                    await asyncio.sleep(0.05)
            finally:
                os.kill(server.process_id, signal.SIGCONT)
            assert suspended_at[0] - stopped_at < 1.5
            await until(lambda: store.state is SessionState.CONNECTED)
            for answer in answers:
                try:
                    await answer
                except StoreError:
                    continue
            assert await store.exists("/") is not None

    with zookeeper.ZooKeeper(tmp_path) as server:
        asyncio.run(test(server))
