"""What controllers order this broker to do: for each topic one order after the other, as they came.

An order is a generator. It yields where the event loop may do something else first: the logs that a thread
is to make before it goes on, or none for a mere pause. What it returns is the response, what it raises is the
outcome. Meanwhile nothing else is ordered about the topics that it names, not even by another controller.
Orders about other topics do not wait for it: making the logs of one topic must not delay the news of another.

An order that never yields is carried out at once, unless others about its topics are not done.

A controller uses one connection at a time. What still comes on an earlier one was sent before all that came
on a later one, and it has sent it again if it counts: such an order is not taken any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping
from functools import partial
from typing import Any, TypeVar

from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.context import HangUp, Parked, Postponed
from wire.errors import ErrorCode, KafkaError

NewLogs = Mapping[tuple[str, int], bytes]
"""By topic and partition: the topic's id."""

Order = Generator[NewLogs, None, object]

T = TypeVar("T")


def at_once(act: Callable[[], T]) -> Generator[NewLogs, None, T]:
    """An order that takes no time."""
    yield from ()
    return act()


class _Order:
    """One that was taken, until it is done."""

    __slots__ = ("ahead", "parked", "steps", "topics")

    def __init__(self, steps: Order, topics: Collection[str]) -> None:
        self.steps = steps
        self.topics = tuple(dict.fromkeys(topics))
        self.parked = Parked()
        self.ahead = 0
        """In how many topics' lines there are others before it."""


class Orders:
    """Those that are not done."""

    def __init__(
        self,
        make_logs: Callable[[NewLogs, Callable[[], object]], object],
        call_soon: Callable[[Callable[[], object]], object],
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        self._bugs = bugs
        self._make_logs = make_logs
        self._call_soon = call_soon
        self._lines: dict[str, deque[_Order]] = {}
        """By topic, those that concern it, as they came. Only the first may have begun."""
        self._ready: deque[_Order] = deque()
        self._is_going_on = False
        self._latest = -1, 0
        """The epoch of the controller whose order came last, and the connection."""

    @property
    def is_busy(self) -> bool:
        """Whether any is being carried out."""
        return bool(self._lines)

    def check_connection(self, controller_epoch: int, connection: int) -> None:
        """HangUp for an order that comes late, on a connection that its controller has given up."""
        if (controller_epoch, connection) < self._latest:
            raise Postponed("the controller has given orders on a later connection")
        self._latest = controller_epoch, connection

    def take(self, steps: Order, topics: Collection[str]) -> Any:
        """The response, or Parked until the order is done; KafkaError or HangUp if it is refused at once."""
        order = _Order(steps, topics)
        outcomes: list[object] = []
        order.parked.when_done(outcomes.append)
        for topic in order.topics:
            line = self._lines.setdefault(topic, deque())
            order.ahead += bool(line)
            line.append(order)
        if not order.ahead:
            self._go_on(order)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        return order.parked

    def stop(self) -> None:
        """Carry out no more of them."""
        self._lines.clear()
        self._is_going_on = True

    def _go_on(self, order: _Order) -> None:
        """With an order, and with those that have waited for it."""
        self._ready.append(order)
        if self._is_going_on:
            return
        self._is_going_on = True
        while self._ready:
            self._take_step(self._ready.popleft())
        self._is_going_on = False

    def _take_step(self, order: _Order) -> None:
        outcome: object
        try:
            wanted = next(order.steps)
            if wanted:
                self._make_logs(wanted, partial(self._go_on, order))
            else:
                self._call_soon(partial(self._go_on, order))
            return
        except StopIteration as done:
            outcome = done.value
        except (KafkaError, HangUp) as error:
            outcome = error
        except Exception as error:
            self._bugs.met("an order of the controller", error)
            outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._leave(order)
        self._bugs.tell(order.parked.complete, outcome)

    def _leave(self, order: _Order) -> None:
        for topic in order.topics:
            line = self._lines[topic]
            line.popleft()
            if not line:
                del self._lines[topic]
                continue
            line[0].ahead -= 1
            if not line[0].ahead:
                self._ready.append(line[0])
