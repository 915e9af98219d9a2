"""An event loop whose time is virtual: it jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")


class _NothingHappens(selectors.BaseSelector):
    """No file is ever ready; waiting for one moves the clock."""

    def __init__(self) -> None:
        self.time = 0.0
        self._keys: dict[object, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fileobj] = key = selectors.SelectorKey(fileobj, number, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing is going to happen")
        self.time += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _NothingHappens()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.time

    def now_ms(self) -> int:
        return round(self._clock.time * 1000)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs there."""

    @wraps(test)
    def in_no_time(*arguments: Any, **named: Any) -> None:
        run(test(*arguments, **named))

    return in_no_time


def now_ms() -> int:
    """The time of the running loop."""
    return round(asyncio.get_running_loop().time() * 1000)
