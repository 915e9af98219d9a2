"""What a broker has of the machine that it runs on: clocks, chance, threads, a disk and a network.

Whoever needs one of these is given it, so a simulated machine makes a simulated broker, and its code is the
same. Nothing else in a broker reads a clock, draws a random number, or starts a thread.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from kbroker.listeners import Listeners, bind_all
from kbroker.open_files import most_log_files
from kbroker.threads import Threads
from storage.descriptors import Descriptors
from storage.files import Disk, Files, Sync, sync_data

T = TypeVar("T")

THREADS = 4


class Bound(Protocol):
    """An address that was taken, where nobody is let in yet."""

    def getsockname(self) -> Any: ...

    def close(self) -> object: ...


class Server(Protocol):
    def close(self) -> object: ...


class Machine:
    """This one."""

    def __init__(self) -> None:
        self.random = random.Random()
        self._threads = Threads(THREADS, "kbroker")

    # -- time and chance

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    steady_s = staticmethod(time.monotonic)
    """A clock that nobody sets."""

    @staticmethod
    def sleep(seconds: float) -> None:
        """In a thread."""
        time.sleep(seconds)

    @staticmethod
    def uuid() -> uuid.UUID:
        return uuid.uuid4()

    # -- threads and disk

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run it in a thread."""
        return self._threads.submit(function)

    def stop(self, timeout_s: float) -> bool:
        """Nothing more is submitted; whether what was has come to its end within the time."""
        return self._threads.stop(timeout_s)

    def files(self, *, durable: bool, sync: Sync = sync_data) -> Files:
        return Disk(durable=durable, sync=sync, descriptors=Descriptors(most_log_files()))

    # -- network

    def bind(self, listeners: Listeners, options: Sequence[tuple[int, int]]) -> Sequence[Bound]:
        """An address for each listener, or CannotListen and none."""
        return bind_all(listeners, options)

    async def accept(self, bound: Any, made: Callable[[], asyncio.BaseProtocol], backlog: int) -> Server:
        """Let clients in."""
        return await asyncio.get_running_loop().create_server(made, sock=bound, backlog=backlog)

    async def open_connection(
        self, made: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[Any, asyncio.Protocol]:
        return await asyncio.get_running_loop().create_connection(made, host, port)
