"""What controllers order this broker to do: one order after the other, as they came, each carried out once.

An order is a generator. It yields where the event loop may do something else first: the logs that a thread
is to make before it goes on, or none for a mere pause. What it returns is the response, what it raises is the
outcome. Nothing else is ordered meanwhile, not even by another controller (Kafka has a lock for that).

An order that never yields is carried out at once, unless others wait.

A controller uses one connection at a time. What still comes on an earlier one was sent before all that came
on a later one, and it has sent it again if it counts: such an order is not taken any more.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from kbroker.context import HangUp, Parked
from wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

NewLogs = Mapping[tuple[str, int], bytes]
"""By topic and partition: the topic's id."""

Order = Generator[NewLogs, None, object]

T = TypeVar("T")


def at_once(act: Callable[[], T]) -> Generator[NewLogs, None, T]:
    """An order that takes no time."""
    yield from ()
    return act()


class Orders:
    """Those that are not done."""

    def __init__(
        self,
        make_logs: Callable[[NewLogs, Callable[[], object]], object],
        call_soon: Callable[[Callable[[], object]], object],
    ) -> None:
        self._make_logs = make_logs
        self._call_soon = call_soon
        self._waiting: deque[tuple[Order, Parked]] = deque()
        self._latest = -1, 0
        """The epoch of the controller whose order came last, and the connection."""
        self.is_busy = False
        """Whether one is being carried out."""

    def check_connection(self, controller_epoch: int, connection: int) -> None:
        """HangUp for an order that comes late, on a connection that its controller has given up."""
        if (controller_epoch, connection) < self._latest:
            raise HangUp("the controller has given orders on a later connection")
        self._latest = controller_epoch, connection

    def take(self, order: Order) -> Any:
        """The response, or Parked until the order is done; KafkaError or HangUp if it is refused at once."""
        parked = Parked()
        outcomes: list[object] = []
        parked.when_done(outcomes.append)
        self._waiting.append((order, parked))
        if not self.is_busy:
            self._go_on()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        return parked

    def stop(self) -> None:
        """Carry out no more of them."""
        self._waiting.clear()

    def _go_on(self) -> None:
        self.is_busy = True
        while self._waiting:
            order, parked = self._waiting[0]
            outcome: object
            try:
                wanted = next(order)
            except StopIteration as done:
                outcome = done.value
            except (KafkaError, HangUp) as error:
                outcome = error
            except Exception:
                logger.exception("a bug in the broker, met by an order of the controller")
                outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                if wanted:
                    self._make_logs(wanted, self._go_on)
                else:
                    self._call_soon(self._go_on)
                return
            self._waiting.popleft()
            parked.complete(outcome)
        self.is_busy = False
