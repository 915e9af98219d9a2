"""Networks that fail: every link of a cluster that a test may cut is a proxy.

    with CutCluster(directory) as cluster:
        with cluster.zookeeper_links[1].cut(): ...     # broker 1 and ZooKeeper do not hear each other
        with cluster.links[1].cut(): ...               # nobody reaches broker 1, which reaches everybody

A cut is what a lost network is to TCP: nothing arrives, nothing is refused, no connection ends; what was sent
meanwhile arrives when the link is whole again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compat_tests.cluster.processes import CHROOT, Cluster
from tests.zookeeper import ZooKeeper

READ_BYTES = 1 << 16


class Link:
    """A proxy in front of one port of loopback, in a thread of its own."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._tasks: set[asyncio.Task[None]] = set()
        self.lies = 0
        """How many replies of ZooKeeper's are going to bear the number of another request."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._whole = asyncio.Event()
        self._whole.set()
        self._server = self._run(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing gets through before the block ends."""
        self._loop.call_soon_threadsafe(self._whole.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._whole.set)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not in a task")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError):
            await self._whole.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._forward(reader, far_writer))
                    both.create_task(self._forward(far_reader, writer, changed=self._changed))
            except* OSError:
                pass
            finally:
                far_writer.transport.abort()
        writer.transport.abort()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        changed: Callable[[bytes], bytes] = bytes,
    ) -> None:
        while data := await reader.read(READ_BYTES):
            await self._whole.wait()
            writer.write(changed(data))
            await writer.drain()
        raise ConnectionResetError  # ends the other direction, too

    def _changed(self, data: bytes) -> bytes:
        """A reply begins with its size and the number of its request, positive for requests of clients."""
        number = int.from_bytes(data[4:8], signed=True)
        if not self.lies or number <= 0 or int.from_bytes(data[:4]) != len(data) - 4:
            return data
        self.lies -= 1
        return data[:4] + (number + 1000).to_bytes(4) + data[8:]


class CutCluster(Cluster):
    """Each broker is reached by a link, and reaches ZooKeeper by another one."""

    links: Mapping[int, Link]
    zookeeper_links: Mapping[int, Link]

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None) -> None:
        self._server = ZooKeeper(directory / "zookeeper")
        self._stack = ExitStack()
        super().__init__(directory, properties=properties, zookeeper=self._server)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.links = {one.broker_id: stack.enter_context(Link(one.port)) for one in self.members.values()}
            self.zookeeper_links = {
                broker_id: stack.enter_context(Link(self._server.port)) for broker_id in self.members
            }
            super().__enter__()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._stack.close()

    @property
    def bootstrap(self) -> list[str]:
        return [link.address for link in self.links.values()]

    def properties_of(self, broker_id: int) -> Mapping[str, object]:
        return {
            **super().properties_of(broker_id),
            "advertised.listeners": f"PLAINTEXT://{self.links[broker_id].address}",
            "zookeeper.connect": f"{self.zookeeper_links[broker_id].address}{CHROOT}",
        }
