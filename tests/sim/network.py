"""A network: asyncio's transports between processes of one loop.

- Bytes take a while, of one connection in order, of two connections in any order. Sometimes they arrive in
  pieces.
- `cut(a, b)` stops what goes from one host to another. As with TCP it is not lost but late: it arrives after
  `heal`, unless the connection is reset then. Who connects meanwhile gets no answer.
- A process that is killed has its connections reset. A host without power says nothing: the other side finds
  a half-open connection, and what it writes to it is gone; it is reset once the host is back and hears of it.
- A process that is stopped still has connections accepted, and bytes waiting, by its kernel.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.sim.loop import Process, SimulatedLoop

Made = Callable[[], Any]

SHORTEST_S, USUAL_S, LONG_S = 0.0001, 0.001, 0.03
SYN_RETRY_S = 0.7
END = b""
LOST = None


class Network:
    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.slowness = 1.0
        self._listening: dict[tuple[str, int], tuple[Process, Made]] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._dark: set[str] = set()
        self._ends: dict[End, None] = {}

    # -- what processes do

    def listen(self, process: Process, host: str, port: int, made: Made) -> None:
        self._listening[host, port] = process, made

    def stop_listening(self, process: Process) -> None:
        self._listening = {at: one for at, one in self._listening.items() if one[0] is not process}

    async def connect(self, process: Process, made: Made, host: str, port: int) -> tuple[End, Any]:
        while True:
            await asyncio.sleep(self.delay())
            if not self._reaches(process.host, host) or not self._reaches(host, process.host):
                await asyncio.sleep(SYN_RETRY_S)
                continue
            listening = self._listening.get((host, port))
            if listening is None:
                raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
            break
        there, accept = listening
        mine, theirs = End(self, process, host, port), End(self, there, process.host, 50_000)
        mine.other, theirs.other = theirs, mine
        there.call_soon(theirs.begin, accept)
        await asyncio.sleep(self.delay())
        if not mine.is_open:
            raise ConnectionResetError(104, "reset while it was made")
        mine.begin(made)
        return mine, mine.protocol

    # -- what happens to them

    def delay(self) -> float:
        fate = self.chance.random()
        most = USUAL_S if fate < 0.95 else LONG_S
        return (SHORTEST_S + most * self.chance.random()) * self.slowness

    def cut(self, source: str, target: str) -> None:
        self._cuts.add((source, target))

    @property
    def is_whole(self) -> bool:
        return not self._cuts

    def heal(self, reset: float = 0.5) -> None:
        """Every cut. Connections that it concerned are reset with some probability, or go on."""
        cuts, self._cuts = self._cuts, set()
        for end in list(self._ends):
            if end.is_open and (end.other.host, end.host) in cuts and self.chance.random() < reset:
                end.lose(ConnectionResetError(104, "reset"))
                end.other.lose(ConnectionResetError(104, "reset"))
        self.look_again()

    def reset(self, share: float) -> None:
        """Break some connections, with what is on its way."""
        for end in list(self._ends):
            if end.is_open and self.chance.random() < share:
                end.lose(ConnectionResetError(104, "reset"))
                end.other.lose(ConnectionResetError(104, "reset"))

    def killed(self, process: Process) -> None:
        """Its kernel resets what it had."""
        self.stop_listening(process)
        for end in list(self._ends):
            if end.process is process:
                end.vanish()
                end.other.arrive_later(LOST)

    def power_lost(self, process: Process) -> None:
        self.stop_listening(process)
        self._dark.add(process.host)
        for end in list(self._ends):
            if end.process is process:
                end.vanish()

    def power_back(self, host: str) -> None:
        self._dark.discard(host)
        self.look_again()

    def look_again(self) -> None:
        for end in list(self._ends):
            end.pump()

    def _reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self._cuts and target not in self._dark

    def delivers(self, source: str, target: str) -> bool:
        return (source, target) not in self._cuts

    def is_dark(self, host: str) -> bool:
        return host in self._dark

    def opened(self, end: End) -> None:
        self._ends[end] = None

    def closed(self, end: End) -> None:
        self._ends.pop(end, None)


class End(asyncio.Transport):
    """One side of a connection. `other` is the other one."""

    other: End

    def __init__(self, network: Network, process: Process, peer: str, port: int) -> None:
        super().__init__({"peername": (peer, port)})
        self.process = process
        self.host = process.host
        self.protocol: Any = None
        self.is_open = True
        self._network = network
        self._inbox: deque[bytes | None] = deque()
        self._is_paused = self._is_pumping = self._is_closing = False
        self._last_arrival = 0.0
        network.opened(self)

    def begin(self, made: Made) -> None:
        if self.is_open:
            self.protocol = made()
            self.protocol.connection_made(self)
            self.pump()

    # -- what protocols do

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        self.other.arrive_later(bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._end(END)

    def abort(self) -> None:
        self._end(LOST)

    def _end(self, how: bytes | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self.other.arrive_later(how)
        self.process.call_soon(self._lost, None)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self.pump()

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is always room."""

    # -- what the network does

    def arrive_later(self, item: bytes | None) -> None:
        loop, network = self._network.loop, self._network
        self._last_arrival = max(self._last_arrival + 1e-7, loop.time() + network.delay())
        loop.in_world(self._last_arrival - loop.time(), self._arrive, item)

    def _arrive(self, item: bytes | None) -> None:
        if not self.is_open:
            # Nobody is there: a kernel without the connection resets it, a host without power says nothing.
            if item is not LOST and self.other.is_open and not self._network.is_dark(self.host):
                self.other.arrive_later(LOST)
            return
        self._inbox.append(item)
        if self._may_deliver():
            self._is_pumping = True
            self.process.run(self._deliver)

    def pump(self) -> None:
        if self._may_deliver():
            self._is_pumping = True
            self.process.call_soon(self._deliver)

    def _may_deliver(self) -> bool:
        return (
            bool(self._inbox)
            and self.is_open
            and self.protocol is not None
            and not self._is_paused
            and not self._is_pumping
            and self._network.delivers(self.other.host, self.host)
        )

    def _deliver(self) -> None:
        self._is_pumping = False
        if not self.is_open or self._is_paused or not self._inbox:
            return
        if not self._network.delivers(self.other.host, self.host):
            return
        item = self._inbox.popleft()
        if not item:
            self._is_closing = True
            self._lost(None if item is END else ConnectionResetError(104, "reset"))
            return
        if len(item) > 1 and self._network.chance.random() < 0.02:
            at = self._network.chance.randrange(1, len(item))
            self._inbox.appendleft(item[at:])
            item = item[:at]
        self._receive(item)
        self.pump()

    def _receive(self, data: bytes) -> None:
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return
        while data:
            buffer = memoryview(self.protocol.get_buffer(len(data)))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.protocol.buffer_updated(size)

    def lose(self, error: Exception) -> None:
        """It is broken, and this side learns of it in a moment."""
        if self.protocol is None:
            self.vanish()
        elif not self._is_closing:
            self._is_closing = True
            self._inbox.clear()
            self.process.call_soon(self._lost, error)

    def vanish(self) -> None:
        """The process is gone, and hears nothing any more."""
        self.is_open = False
        self._is_closing = True
        self._network.closed(self)

    def _lost(self, error: Exception | None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._network.closed(self)
        if self.protocol is not None:
            self.protocol.connection_lost(error)
