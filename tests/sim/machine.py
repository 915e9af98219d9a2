"""What a simulated broker has of its simulated machine; see `kbroker.machine`.

Clocks are virtual; the one that tells the time of day is off by the host's skew. Threads are none: what is
submitted runs a little later, in one piece, or at once for whoever waits for its outcome.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any
from uuid import UUID

from kbroker.listeners import Listeners
from kbroker.machine import Bound, Machine, Server
from storage.files import Files, Sync, sync_data
from tests.sim.loop import Process
from tests.sim.network import Network
from tests.storage.simulated_disk import SimulatedDisk

EPOCH_MS = 1_700_000_000_000
SLOWEST_THREAD_S = 0.01


class SimulatedMachine(Machine):
    """For one life of a broker."""

    def __init__(
        self,
        process: Process,
        network: Network,
        disk: SimulatedDisk,
        chance: random.Random,
        skew_ms: Callable[[], int],
    ) -> None:
        self.random = chance
        self._process = process
        self._network = network
        self._disk = disk
        self._skew_ms = skew_ms

    def now_ms(self) -> int:  # type: ignore[override]
        self._disk.now_ms = now_ms = EPOCH_MS + self._skew_ms() + int(self._process.loop.time() * 1000)
        return now_ms

    def steady_s(self) -> float:
        return self._process.loop.time()

    @staticmethod
    def sleep(seconds: float) -> None:
        """Threads take no time."""

    def uuid(self) -> UUID:  # type: ignore[override]
        return UUID(bytes=self.random.randbytes(16), version=4)

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        work = _Work(function)
        self._process.loop.call_later(self.random.random() * SLOWEST_THREAD_S, work.run)
        return work

    def stop(self, timeout_s: float) -> bool:
        """There is nothing to end."""
        return True

    def files(self, *, durable: bool, sync: Sync = sync_data) -> Files:
        return self._disk

    def bind(self, listeners: Listeners, options: Sequence[tuple[int, int]]) -> Sequence[Bound]:
        return [_Bound(endpoint.host, endpoint.port) for endpoint in listeners.bound]

    async def accept(self, bound: Any, made: Callable[[], Any], backlog: int) -> Server:
        self._network.listen(self._process, bound.host, bound.port, made)
        return _Listening(self._network, self._process)

    async def open_connection(self, made: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        return await self._network.connect(self._process, made, host, port)


class _Bound:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def close(self) -> None:
        """Nobody was let in."""


class _Listening:
    def __init__(self, network: Network, process: Process) -> None:
        self._network, self._process = network, process

    def close(self) -> None:
        self._network.stop_listening(self._process)


class _Work(Future[Any]):
    """What a thread would do."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._function = function

    def run(self) -> None:
        if self.done():
            return
        try:
            self.set_result(self._function())
        except Exception as error:
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        self.run()
        return super().result(timeout)
