"""Requests of this broker's controller to brokers, in order, and the answers back to it.

- A broker's own orders take a way without a socket: they are handled like any request that came in, in a
  later turn of the event loop, one after the other, and answered as they would be over one: a refusal, or a
  bug, is an answer with an error. A topic to be deleted would wait for ever otherwise.
- Each other broker has a line of requests and a connection. The next request is sent when the one before has
  been answered; one that nobody answered is sent again, since orders say what shall be and not what to do. A
  broker that comes back gets a new line, which waits for nothing.
- Where brokers are, the orders themselves say (UpdateMetadata). A broker that is not named any more is gone,
  and what was meant for it is dropped: it has to register again before it is told anything.
- `forget` drops everything: the controller has been replaced, or cannot know.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from controller.requests import ControlMessage, ControlRequest
from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.context import Context, HangUp, Parked, Postponed
from kbroker.error_replies import Refusal
from kbroker.peer import Address, Open, Peer, PeerLost, key_of
from wire.api import api
from wire.api.leader_and_isr import LeaderAndIsrRequest
from wire.api.stop_replica import StopReplicaRequest
from wire.api.update_metadata import UpdateMetadataRequest
from wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RETRY_S = 0.1
RETRY_MOST_S = 1.0

Handle = Callable[[Context, Any], object]
Spawn = Callable[[Coroutine[object, object, None]], object]


class Peers:
    """Where the controller's requests go."""

    def __init__(
        self,
        broker_id: int,
        call_soon: Callable[[Callable[[], None]], object],
        spawn: Spawn,
        open_connection: Open,
        *,
        listener: str,
        timeout_s: float,
        leader_and_isr: Handle,
        update_metadata: Handle,
        stop_replica: Handle,
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        """`listener` is the one that brokers use among each other."""
        self._broker_id = broker_id
        self._call_soon = call_soon
        self._bugs = bugs
        self._spawn = spawn
        self._open_connection = open_connection
        self._listener = listener
        self._timeout_s = timeout_s
        self._handlers: dict[type[ControlMessage], Handle] = {
            LeaderAndIsrRequest: leader_and_isr,
            UpdateMetadataRequest: update_metadata,
            StopReplicaRequest: stop_replica,
        }
        self._addresses: dict[int, Address] = {}
        self._lines: dict[int, _Line] = {}
        self.answered: Callable[[ControlRequest, object], None] = lambda request, response: None
        """The controller's."""

    def send(self, request: ControlRequest) -> None:
        if isinstance(request.message, UpdateMetadataRequest):
            self._learn(request.message)
        if request.broker_id == self._broker_id:
            self._call_soon(partial(self._bugs.tell, self._handle, request))
            return
        line = self._lines.get(request.broker_id)
        if line is None:
            line = self._lines[request.broker_id] = self._new_line(request.broker_id)
        line.requests.append(request)
        if not line.is_moving:
            line.is_moving = True
            self._spawn(self._move(line))

    @property
    def is_idle(self) -> bool:
        """Whether everybody has answered everything."""
        return not any(line.is_moving for line in self._lines.values())

    def forget(self) -> None:
        """Send nothing of what has not been sent."""
        for line in self._lines.values():
            line.end()
        self._lines.clear()
        self._addresses.clear()

    def _handle(self, request: ControlRequest) -> None:
        handle = self._handlers[type(request.message)]
        context = Context(request.version, f"controller-{self._broker_id}")
        try:
            outcome = handle(context, request.message)
        except (KafkaError, HangUp) as error:
            outcome = error
        except Exception:
            logger.exception("a bug in the broker, met by an order to itself")
            outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(outcome, Parked):
            outcome.when_done(lambda response: self._answered(request, response))
        else:
            self._answered(request, outcome)

    def _answered(self, request: ControlRequest, outcome: object) -> None:
        if isinstance(outcome, Postponed):
            logger.info("an order to this broker was not carried out: %s", outcome)
        elif isinstance(outcome, HangUp):
            logger.warning("an order to this broker was not carried out: %r", outcome)
        elif isinstance(outcome, KafkaError):
            logger.warning("an order to this broker was not carried out: %r", outcome)
            refusal = Refusal(request.version, outcome.code, str(outcome))
            response = api(key_of(request.message)).response
            self.answered(request, refusal.response(response, request.message))
        else:
            self.answered(request, outcome)

    def _learn(self, message: UpdateMetadataRequest) -> None:
        self._addresses = {
            broker.id: (endpoint.host, endpoint.port)
            for broker in message.live_brokers
            for endpoint in broker.endpoints
            if endpoint.listener == self._listener
        }
        for broker_id in [one for one in self._lines if one not in self._addresses]:
            self._lines.pop(broker_id).end()

    def _new_line(self, broker_id: int) -> _Line:
        purpose = f"orders to broker {broker_id}"
        client_id = f"controller-{self._broker_id}"
        return _Line(Peer(client_id, purpose, self._open_connection, lambda: self._addresses.get(broker_id)))

    async def _move(self, line: _Line) -> None:
        """Send what is in the line, until nothing is."""
        while line.requests:
            request = line.requests[0]
            try:
                response = await line.peer.ask(request.message, request.version, self._timeout_s)
            except PeerLost:
                if line.requests:
                    await asyncio.sleep(line.pause_s())
                continue
            except Exception as error:
                self._bugs.met("the sending of an order", error)
                line.peer.close()
                await asyncio.sleep(line.pause_s())
                continue
            line.failures = 0
            if line.requests and line.requests[0] is request:
                line.requests.popleft()
                self._bugs.tell(self.answered, request, response)
        line.is_moving = False
        if line.is_over:
            line.peer.close()


class _Line:
    """What is to be sent to one broker."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.requests: deque[ControlRequest] = deque()
        self.is_moving = False
        self.is_over = False
        self.failures = 0
        """In a row."""

    def pause_s(self) -> float:
        """Before the next attempt: twice as long each time, up to a second."""
        self.failures += 1
        return min(RETRY_S * (1 << min(self.failures - 1, 10)), RETRY_MOST_S)

    def end(self) -> None:
        self.is_over = True
        self.requests.clear()
        self.peer.close()
