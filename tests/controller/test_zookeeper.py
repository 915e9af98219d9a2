"""What is particular to the metadata store on a real ZooKeeper: servers that are silent, dead, or back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from controller.metadata_store import ConnectionLost, SessionState, StoreError
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


class LyingProxy:
    """Between a client and a server; while `lies` is set, replies bear a number that nobody has used."""

    def __init__(self, target_port: int) -> None:
        self.lies = False
        self._target_port = target_port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> LyingProxy:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, far_writer))
                both.create_task(self._lie(far_reader, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            far_writer.transport.abort()
            writer.transport.abort()

    @staticmethod
    async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        raise ConnectionResetError

    async def _lie(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_greeting = True
        while True:
            size = await reader.readexactly(4)
            reply = await reader.readexactly(int.from_bytes(size))
            xid = int.from_bytes(reply[:4], signed=True)
            if self.lies and not is_greeting and xid > 0:
                reply = (xid + 1000).to_bytes(4) + reply[4:]
            writer.write(size + reply)
            is_greeting = False


async def goes_on_after(store: ZooKeeperStore, accident: Callable[[], object]) -> list[SessionState]:
    """What became known of the session; it is the same one, and its node is there."""
    states: list[SessionState] = []
    await store.create("/mine", ephemeral=True)
    session_id = store.session_id
    store.listen(states.append)
    accident()
    with pytest.raises(ConnectionLost):
        await store.exists("/mine")
    await until(lambda: states[-1:] == [SessionState.CONNECTED])  # it hears of the break a moment later
    stat = await store.exists("/mine")
    assert stat is not None
    assert stat.ephemeral_owner == session_id == store.session_id
    return states


def test_a_reply_with_a_wrong_number_costs_the_connection_and_not_the_session(
    zookeeper_server: zookeeper.ZooKeeper,
) -> None:
    """It ends kazoo's thread, which kazoo calls closed; nothing came after that."""

    async def test() -> None:
        async with (
            LyingProxy(zookeeper_server.port) as proxy,
            connected(f"{proxy.address}/lied", session_timeout_ms=10_000) as store,
        ):

            def lie() -> None:
                proxy.lies = True
                store.listen(lambda state: setattr(proxy, "lies", False))

            states = await goes_on_after(store, lie)
            assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    asyncio.run(test())


@contextmanager
def planted(store: ZooKeeperStore, error: BaseException) -> Iterator[Callable[[], None]]:
    """An exception in kazoo's loop, at the next request."""
    connection = store._client.kazoo._connection

    def fail(*arguments: object) -> None:
        raise error

    yield lambda: setattr(connection, "_send_request", fail)


@pytest.mark.parametrize("error", [MemoryError("planted"), SystemExit("planted"), KeyError("planted")])
def test_an_exception_in_kazoos_loop_costs_the_connection_and_not_the_session(
    zookeeper_server: zookeeper.ZooKeeper, error: BaseException
) -> None:
    async def test() -> None:
        address = f"{zookeeper_server.address}/planted-{type(error).__name__}"
        async with connected(address, session_timeout_ms=10_000) as store:
            with planted(store, error) as plant:
                states = await goes_on_after(store, plant)
            assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    asyncio.run(test())


def test_a_session_that_nobody_can_use_is_left_to_end(zookeeper_server: zookeeper.ZooKeeper) -> None:
    """Its nodes would stay for ever, and with them what their owner is thought to do."""

    async def test() -> None:
        async with (
            LyingProxy(zookeeper_server.port) as proxy,
            connected(f"{proxy.address}/useless", session_timeout_ms=2000) as store,
            connected(f"{zookeeper_server.address}/useless", session_timeout_ms=2000) as other,
        ):
            states: list[SessionState] = []
            await store.create("/mine", ephemeral=True)
            store.listen(states.append)
            proxy.lies = True
            asked = 0
            while SessionState.LOST not in states:
                with suppress(StoreError):
                    asked += 1
                    await store.exists("/")
                await asyncio.sleep(0.01)
            proxy.lies = False
            await until(lambda: store.state is SessionState.CONNECTED)
            gone = asyncio.Event()
            if await other.exists("/mine", lambda event: gone.set()) is not None:
                async with asyncio.timeout(30):
                    await gone.wait()

    asyncio.run(test())


def test_a_session_that_ended_while_there_was_no_thread_is_lost(
    zookeeper_server: zookeeper.ZooKeeper,
) -> None:
    async def test() -> None:
        async with connected(f"{zookeeper_server.address}/ended", session_timeout_ms=10_000) as store:
            states: list[SessionState] = []
            first = store.session_id
            await store.create("/mine", ephemeral=True)
            store.listen(states.append)

            def end_the_session(state: SessionState) -> None:
                if state is not SessionState.SUSPENDED:
                    return
                client = KazooClient(zookeeper_server.address, client_id=credentials)
                client.start()
                client.stop()
                client.close()

            credentials = store._client.kazoo.client_id
            store.listen(end_the_session)
            with planted(store, MemoryError("planted")) as plant:
                plant()
                with pytest.raises(StoreError):
                    await store.exists("/mine")
            await until(lambda: store.state is SessionState.CONNECTED)
            assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
            assert store.session_id != first
            assert await store.exists("/mine") is None

    asyncio.run(test())


def test_the_session_timeout_is_what_the_server_grants(tmp_path: Path) -> None:
    async def test(server: zookeeper.ZooKeeper) -> None:
        async with connected(server.address, session_timeout_ms=3000) as store:
            await until(lambda: store.session_timeout_ms == 4000)  # two ticks at least; known after the state

    with zookeeper.ZooKeeper(tmp_path, tick_ms=2000) as server:
        asyncio.run(test(server))
