"""One client connection: bytes to requests, replies to bytes, in the order of the requests.

Rules:
- The requests that arrived in one read are handled at once, or the first `MAX_IN_A_TURN` of them, or as many
  as begin within `TURN_S`, so that others get their turn; at the end of the turn all replies leave in one
  write, or before, when they come to `LARGE_REPLIES_BYTES`. Several connections may end
  theirs together (`kbroker.turns`, which owns what reads go into). What was read is overwritten after that:
  nothing keeps a view of a request beyond its turn, and what has to wait is copied.
- Each request that waits for its reply has a `Slot` in a queue; replies leave from the front of it. While
  the queue holds a parked request, the requests behind it wait unread in the `backlog`, except that a
  Produce does not wait for a Produce: it is appended at once, and acknowledged in its turn (conformance 1).
- A large request keeps its place while it is decoded, handled and answered in slices (`kbroker.reply_slots`).
  It does wait for one that is not appended yet, since its records are still looked at or its transaction is.
- Bounds: while anything waits in the backlog, or the client does not read its replies, nothing more is read.
  So a connection holds at most one receive buffer of requests, `MAX_SLOTS` parked ones, and what
  `kbroker.outlet` holds. What all connections may hold together is up to `kbroker.connection_limits`,
  which also lets them in, and closes them when they are idle.
- A client that shuts down its side has sent all that it wanted to: that is answered, then the connection is
  closed.
- A connection is closed for what cannot be answered: bytes that are not the request they claim to be, an API
  or version that is not served. Requests before it are answered, none after it, and the log says why, without
  a byte of the request.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from kbroker.context import HangUp, Parked, Postponed
from kbroker.dispatch import Asker, Route, Unanswerable, correlation_id_of
from kbroker.fetch_stream import FetchStream
from kbroker.handlers.fetch import replica_of
from kbroker.large_messages import LARGE_REQUEST_BYTES
from kbroker.listeners import PLAINTEXT
from kbroker.outlet import Outlet
from kbroker.paused_sockets import unread_bytes
from kbroker.produce_stream import ProduceStream, StreamedProduce
from kbroker.reply_slots import Slot
from kbroker.slices import Told, Work
from kbroker.turns import RECEIVE_BUFFER_BYTES
from wire.api import ApiKey
from wire.errors import WireError
from wire.frames import FrameReader
from wire.primitives import Buffer

if TYPE_CHECKING:
    from kbroker.broker import Broker

logger = logging.getLogger(__name__)

IPV4_IN_IPV6 = "::ffff:"
"""Before the address of a client that came to a listener on every address."""
PRODUCE = b"\0\0"
FETCH = b"\0\1"
"""How such requests begin: with their API key."""

MAX_SLOTS = 1000
MAX_IN_A_TURN = 500
TURN_S = 0.01
LARGE_REPLIES_BYTES = 256 * 1024
USUAL_REQUEST_BYTES = 64 * 1024
SIZE_BYTES = 4
"""In front of each request."""
KEY_AND_VERSION_BYTES = 4
"""At the beginning of each request."""


class Connection(asyncio.BufferedProtocol):
    """What the event loop drives. `closed` is done when the socket is."""

    _transport: asyncio.Transport

    def __init__(self, broker: Broker, listener: str = PLAINTEXT) -> None:
        self._broker = broker
        self._turns = broker.turns
        self.bugs = broker.bugs
        self._log_limits = broker.log_limits
        self.listener = listener
        self._reader = FrameReader(broker.max_request_bytes, broker.turns.spares)
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._produces = ProduceStream(broker, self.slot_filled)
        self._fetches = FetchStream(broker)
        self._usual_bytes = RECEIVE_BUFFER_BYTES
        """Of a large request, so that the next one, if it is like the last, is all that is read."""
        self._slots: deque[Slot | StreamedProduce] = deque()
        self._backlog: deque[bytes] = deque()
        self._large_bytes = 0
        """Of a large request in the first slot."""
        self._in_turn = False
        self._send_is_scheduled = False
        self.client_is_slow = False
        self._is_reading = True
        self._ending: str | None = None
        self._resting = self._draining = False
        self.descriptor = -1
        self.client_address = "?"
        self.client_host = "/?"
        self.number = 0
        self.held_bytes = self.owed_bytes = 0
        self.has_moved = True
        self.moved_ms = 0
        self.turn_began_s = 0.0
        self.consumes = False
        self.closed = asyncio.get_running_loop().create_future()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outlet = Outlet(self._transport, self)
        connected = self._transport.get_extra_info("socket")
        self.descriptor = -1 if connected is None else connected.fileno()
        peer = self._transport.get_extra_info("peername") or ("?", 0)
        self.client_address = peer[0].removeprefix(IPV4_IN_IPV6)
        self.client_host = f"/{self.client_address}"
        is_admitted = self._broker.connections.admit(self)
        self._asker = Asker(self.client_host, self.listener, self.number, self.is_there)
        if not is_admitted:
            self._ending = "there are too many"
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.connections.left(self)
        self._ending = self._ending or "the client has gone"
        self._outlet.drop()
        self._reader.drop()
        self._backlog.clear()
        self._large_bytes = 0
        self._in_turn = False  # memory may have run out in the middle of one
        self.closed.set_result(None)
        self._count_held()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room or self._turns.room[: self._usual_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._take(nbytes)
        except Exception as error:
            self.failed(error)

    def _take(self, nbytes: int) -> None:
        turns, reader = self._turns, self._reader
        self.has_moved = True
        frames: Iterable[memoryview]
        if reader.room is None:
            frames = reader.feed(turns.room[:nbytes])
        elif (frame := reader.received(nbytes)) is not None:
            frames, nbytes = (frame,), len(frame)
        else:
            self._broker.connections.holds(self, reader.buffered_bytes)
            return
        self._in_turn = True
        self.turn_began_s = self._broker.steady_s()
        number, room = 0, MAX_IN_A_TURN
        try:
            for number, request in enumerate(frames):
                if self._backlog or number == room:
                    self._backlog.append(bytes(request))
                elif self._streams(request):
                    pass
                elif self._must_wait(request) and self._must_wait_even_now(request):
                    self._backlog.append(bytes(request))
                else:
                    self._handle(request)
                    if self._broker.steady_s() > self.turn_began_s + TURN_S:
                        room = number + 1
                if len(request) > USUAL_REQUEST_BYTES:
                    self._usual_bytes = SIZE_BYTES + len(request)
        except WireError as error:
            self._end(str(error), str(error).partition(": ")[2])  # what the bytes look like, if that is known
        has_staged = bool(self._slots) and isinstance(self._slots[-1], StreamedProduce) and not self._backlog
        if not turns.shares(self, nbytes, has_staged=has_staged):
            self._end_turn(room - number)

    def end_turn(self) -> None:
        """What several connections staged together has been carried out."""
        if not self.closed.done():
            self._carefully_end_turn()

    def failed(self, error: Exception) -> None:
        """A bug: what was staged is carried out, and others are served."""
        self.bugs.met("a connection", error)
        self._ending = self._ending or "a bug"
        self._backlog.clear()
        self._broker.end_turn()
        self._in_turn = False
        self._transport.abort()

    def eof_received(self) -> bool:
        """What it has sent is answered; the rest of a request never comes."""
        self._reader.drop()
        self.drain()
        return True

    def pause_writing(self) -> None:
        self.client_is_slow = True
        self._read(False)
        self.replies_wait(self._outlet.held_bytes)

    def resume_writing(self) -> None:
        self.client_is_slow = False
        self.replies_wait(self._outlet.held_bytes)
        self.has_moved = True
        self._resume()

    def replies_wait(self, held_bytes: int) -> bool:
        connections = self._broker.connections
        connections.owes(self, held_bytes)
        return connections.replies_must_be_small

    # -- requests

    def _streams(self, request: memoryview) -> bool:
        """Whether it was a usual Produce, which is staged now."""
        slots = self._slots
        if not self._produces.is_used or self.client_is_slow or self._ending is not None:
            return False
        if slots and not (slots[-1].pipelined and len(slots) < MAX_SLOTS):
            return False
        streamed = self._produces.stage(request, self.turn_began_s)
        if streamed is None:
            return False
        slots.append(streamed)
        return True

    def _must_wait(self, request: Buffer) -> bool:
        slots = self._slots
        if not slots:
            return self.client_is_slow
        may_join = slots[-1].pipelined and request[:2] == PRODUCE and len(slots) < MAX_SLOTS
        return self.client_is_slow or not may_join

    def _must_wait_even_now(self, request: Buffer) -> bool:
        """Whether it must wait although what was staged is carried out first."""
        self._broker.end_turn()
        self._collect()
        return self._must_wait(request)

    def _handle(self, request: memoryview) -> None:
        if self._ending is not None:
            return
        broker = self._broker
        if request[:2] != PRODUCE:
            broker.end_turn()  # what was produced before this request must be visible to it
            if request[:2] == FETCH and (reply := self._fetches.answer(request, self.turn_began_s)):
                self._send(reply)
                return
        try:
            if len(request) > LARGE_REQUEST_BYTES and request[:2] != PRODUCE:
                self._take_large(request)
                return
            route, correlation_id, decoded, outcome = broker.dispatcher.dispatch(request, self._asker)
            if route.key == ApiKey.PRODUCE:
                self._produces.learn(request, decoded, route)
            elif route.key == ApiKey.FETCH:
                route = self._fetches_now(route, decoded)
                self._fetches.learn(request, decoded, route)
            if isinstance(outcome, Parked):
                self._park(route, correlation_id, decoded, outcome, len(request))
            elif self._slots or route.is_large(outcome, decoded):
                slot = Slot(self, route, correlation_id, decoded, pipelined=True)
                self._slots.append(slot)
                slot.deliver(outcome)
            else:
                self._send(route.outcome(correlation_id, outcome, decoded))
                route.measures.durations.add(broker.steady_s() - self.turn_began_s)
        except Unanswerable as error:
            unsupported = broker.dispatcher.reply_to_unsupported(request)
            if unsupported is None:
                self._end(str(error), bytes(request[:KEY_AND_VERSION_BYTES]))
            else:
                self._send(unsupported)
        except (WireError, HangUp) as error:
            level = logging.INFO if isinstance(error, Postponed) else logging.WARNING
            self._end(str(error), bytes(request[:KEY_AND_VERSION_BYTES]), level)

    def _park(self, route: Route, correlation_id: int, decoded: Any, outcome: Parked, size: int) -> None:
        is_produce = route.key == ApiKey.PRODUCE
        kept = None if is_produce else decoded  # a Produce has views of what it arrived in
        slot = Slot(self, route, correlation_id, kept, outcome.pipelined)
        if is_produce and not outcome.pipelined:
            slot.held_bytes, slot.is_worked_on = size, True
        outcome.let_next = slot.let_next
        self._slots.append(slot)
        outcome.when_done(slot.deliver)

    def _fetches_now(self, route: Route, request: Any) -> Route:
        """The route that counts it: followers, who wait most of the time, have one of their own."""
        if replica_of(route.version, request)[0] >= 0:
            return self._broker.dispatcher.followers_route(route)
        self.consumes = True
        return route

    # -- large requests and replies

    def _take_large(self, request: memoryview) -> None:
        """Only its place is taken now."""
        dispatcher = self._broker.dispatcher
        route, owned = dispatcher.route(request), bytes(request)
        slot = Slot(self, route, correlation_id_of(request), None, pipelined=False)
        slot.is_worked_on = True
        self._slots.append(slot)
        self._large_bytes = len(owned)
        decoded = dispatcher.decoded(route, owned)
        self._broker.slices.take(decoded, slot.begin, self.is_there, whose=self.client_host)

    def handle_large(self, route: Route, client_id: str | None, request: Any) -> tuple[Route, object]:
        if route.key == ApiKey.FETCH:
            route = self._fetches_now(route, request)
        self._broker.end_turn()  # what was produced before must be visible to it
        return route, self._broker.dispatcher.handle(route, client_id, request, self._asker)

    def make_reply(self, work: Work, told: Told) -> None:
        self._broker.slices.take(work, told, self.is_there, is_end=True)

    def is_there(self) -> bool:
        return not self.closed.done()

    def most_reply_bytes(self, api: int) -> int:
        """A Fetch has its own bound."""
        if api == ApiKey.FETCH:
            return sys.maxsize
        return self._broker.settings.configuration.broker.kbroker_reply_max_bytes

    # -- the end of a turn

    def _end_turn(self, room: int) -> None:
        """Carry out what was staged, go on with `room` requests that had to wait, send what is ready."""
        self._broker.end_turn()
        self._collect()
        if self._backlog:
            self._go_on(room)
        self._reader.give_back()
        self._in_turn = False
        self._write()
        if not self._slots and (self._ending is not None or (self._draining and not self._backlog)):
            self._outlet.close()
        self._count_held()
        must_not_read = bool(self._backlog or self.client_is_slow or self._resting or self._draining)
        if self._is_reading == must_not_read:
            self._read(not self._is_reading)

    def _count_held(self) -> None:
        """What requests hold that cannot be answered yet; of a client that has gone, what is worked on."""
        parked_bytes = self._large_bytes + (self._slots[-1].held_bytes if self._slots else 0)
        if self._backlog or self.held_bytes or self._reader.buffered_bytes or parked_bytes:
            held_bytes = self._reader.buffered_bytes + sum(map(len, self._backlog)) + parked_bytes
            self._broker.connections.holds(self, held_bytes)

    def _go_on(self, room: int) -> None:
        """Handle what had to wait. What one turn has no room for is left to the next one."""
        backlog, end_s = self._backlog, self.turn_began_s + TURN_S
        while backlog:
            if self._must_wait(backlog[0]) and self._must_wait_even_now(backlog[0]):
                break
            if not backlog:
                break  # the connection ends with what was carried out
            if room <= 0 or self._broker.steady_s() > end_s:
                self._schedule_resuming()
                break
            room -= 1
            view = memoryview(backlog.popleft())
            if not self._streams(view):
                self._handle(view)
        self._broker.end_turn()
        self._collect()

    @property
    def awaits_reply(self) -> bool:
        return bool(self._slots) and not self._draining

    @property
    def is_worked_on(self) -> bool:
        return bool(self._slots) and self._slots[-1].is_worked_on

    @property
    def produces(self) -> bool:
        return self._produces.is_used

    def awaited(self) -> Iterator[int]:
        """The APIs of the requests that wait for their replies."""
        return (slot.route.key for slot in self._slots)

    @property
    def unread_bytes(self) -> int:
        return unread_bytes(self.descriptor) if self.descriptor >= 0 else 0

    @property
    def missing_bytes(self) -> int:
        return self._reader.missing_bytes

    def sends_no_more(self) -> None:
        """A request that is not complete, in the middle of which reading has paused, may never be."""
        if self.unread_bytes < self.missing_bytes:
            self._end("its client has gone in the middle of a request", "gone")
            self._outlet.close()

    def rest(self, resting: bool) -> None:
        self._resting = resting
        self._read(not (self._backlog or self.client_is_slow or resting or self._draining))

    def _read(self, wanted: bool) -> None:
        if wanted == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = wanted
        self._broker.connections.pauses(self, not wanted)
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # -- replies

    def slot_filled(self) -> None:
        """The reply of a slot is known. What is ready is sent once per turn of the loop."""
        if not self._in_turn:
            self._schedule_resuming()

    def _schedule_resuming(self) -> None:
        if not self._send_is_scheduled:
            self._send_is_scheduled = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self._send_is_scheduled = False
        self._in_turn = True
        self.turn_began_s = self._broker.steady_s()
        self._carefully_end_turn()

    def _carefully_end_turn(self) -> None:
        try:
            self._end_turn(MAX_IN_A_TURN)
        except Exception as error:
            self.failed(error)

    def _send(self, buffers: list[Buffer]) -> None:
        """Queue a reply for the end of the turn; many bytes leave at once, so that they do not pile up."""
        if not buffers:
            return
        self._out += buffers
        self._out_bytes += int.from_bytes(buffers[0][:4])
        if self._out_bytes > LARGE_REPLIES_BYTES:
            self._write()

    def _collect(self) -> None:
        """Queue the replies that are known, up to the first that is not."""
        slots = self._slots
        if not slots:
            return
        now_s, out = self._broker.steady_s(), self._out
        while slots and (buffers := slots[0].buffers) is not None:
            slot = slots.popleft()
            if buffers and isinstance(slot, StreamedProduce):
                slot.head.durations.add(now_s - slot.arrived_s)
                out += buffers
                continue
            slot.route.measures.durations.add(now_s - slot.arrived_s)
            self._large_bytes = 0
            hang_up = slot.hang_up
            self._send(buffers)
            out = self._out
            if hang_up is not None:
                self._end(hang_up, slot.route.response.__name__)
                slots.clear()

    def _write(self) -> None:
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            self._outlet.send(out)

    def _end(self, reason: str, about: object, level: int = logging.WARNING) -> None:
        """Answer what came before, then close. Reasons about the same thing are one kind of log line."""
        if self._ending is None:
            self._ending = reason
            self._backlog.clear()
            text = "closing the connection from %s: %s"
            self._log_limits.log(logger, level, ("closing", about), text, self._peer(), reason)

    def _peer(self) -> str:
        host, port, *_ = self._transport.get_extra_info("peername") or ("?", 0)
        return f"{host}:{port}"

    def drain(self) -> None:
        """Read nothing more, and close when all that was read has been answered."""
        self._draining = True
        self._read(False)
        self._schedule_resuming()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()
