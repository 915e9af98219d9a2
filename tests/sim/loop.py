"""Processes on one virtual-time event loop.

Whatever a process schedules (tasks, timers, callbacks) carries the process in its context. When the process
is killed, none of it runs any more; while it is stopped, it waits. So a broker dies between two callbacks as
it would by `kill -9`, and its code knows nothing of it.

The order of everything is that of virtual time, and of scheduling within one moment. Nothing here is random.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVarTuple

from tests.controller.virtual_time import VirtualLoop

Ts = TypeVarTuple("Ts")

_process: ContextVar[Process | None] = ContextVar("process", default=None)

NOBODY = Context()
"""What the world itself does: networks, disks, faults."""


class Process:
    """One life of a program."""

    def __init__(self, loop: SimulatedLoop, host: str) -> None:
        self.loop = loop
        self.host = host
        self.is_alive = True
        self.is_stopped = False
        self._held: list[events.Handle] = []
        self._remains: list[_Task] = []
        self._context = Context()
        self._context.run(_process.set, self)

    def __repr__(self) -> str:
        return f"<a process on {self.host}>"

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_soon(call, *arguments, context=self._context)

    def run(self, call: Callable[[], object]) -> None:
        """Now, if it runs at all; from outside of it."""
        if self.is_alive and not self.is_stopped:
            self._context.run(call)
        else:
            self.call_soon(call)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.loop.create_task(work, context=self._context)

    def stop(self) -> None:
        """As SIGSTOP does."""
        self.is_stopped = True

    def go_on(self) -> None:
        """As SIGCONT does."""
        self.is_stopped = False
        held, self._held = self._held, []
        for handle in held:
            self.loop.run_soon(handle)

    def kill(self) -> None:
        """As SIGKILL does. What is left of it is kept, or its `finally` would run at some time."""
        self.is_alive = False
        self._held.clear()
        self._remains = [one for one in self.loop.tasks() if one.process is self and not one.done()]
        for task in self._remains:
            work: Any = task.get_coro()
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # or Python would warn that nobody has waited for it

    def may_run(self, handle: events.Handle) -> bool:
        if self.is_alive and self.is_stopped:
            self._held.append(handle)
        return self.is_alive and not self.is_stopped


class _Handle(events.TimerHandle):
    """What runs soon, or at its time; as asyncio's, with less to it."""

    __slots__ = ("process",)

    def __init__(self, callback: Any, arguments: Any, loop: SimulatedLoop, context: Any) -> None:
        if context is None:
            context = copy_context()
        self._callback, self._args, self._loop, self._context = callback, arguments, loop, context
        self._cancelled = False
        self.process: Process | None = context.get(_process)

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()

    def when(self) -> float:
        raise NotImplementedError("the loop knows")

    def __repr__(self) -> str:
        return f"<{self._callback} of {self.process}>"


class _Task(asyncio.Task[Any]):
    """A task that knows whose it is."""

    process: Process | None


class SimulatedLoop(VirtualLoop):
    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[_Task, None] = {}
        self._agenda: list[tuple[float, int, _Handle]] = []
        """By time, and then in the order in which it was asked for."""
        self._timers = 0
        self.failures: list[str] = []
        """Of the code under test: what reached the loop's exception handler."""
        self.set_task_factory(self._new_task)
        self.set_exception_handler(self._failed)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> events.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> events.Handle:
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> events.TimerHandle:
        handle = _Handle(callback, args, self, context)
        self._timers += 1
        heapq.heappush(self._agenda, (when, self._timers, handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self._clock.time + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """What is ready; where nothing is, go to the time of what comes next."""
        ready, agenda = self._ready, self._agenda  # type: ignore[attr-defined]
        if not ready:
            if not agenda:
                raise RuntimeError("everything waits, and nothing is going to happen")
            self._clock.time = max(self._clock.time, agenda[0][0])
        while agenda and agenda[0][0] <= self._clock.time:
            ready.append(heapq.heappop(agenda)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            process = handle.process
            if not handle._cancelled and (process is None or process.may_run(handle)):
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._failed(self, {"message": f"in {handle}", "exception": error})

    def run_soon(self, handle: events.Handle) -> None:
        self._ready.append(handle)  # type: ignore[attr-defined]

    def in_world(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> events.TimerHandle:
        """Let something happen that no process does."""
        return self.call_at(self.time() + delay_s, call, *arguments, context=NOBODY)

    def tasks(self) -> list[_Task]:
        return list(self._tasks)

    def _new_task(self, loop: Any, coroutine: Any, *, context: Any = None) -> _Task:
        task = _Task(coroutine, loop=loop, context=context)
        task.process = _process.get() if context is None else context.get(_process)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # the dead leave theirs pending
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop, context=NOBODY)
        return task

    def heard(self, error: Exception) -> None:
        """The code under test has caught it, and goes on."""
        self.failures.append(f"a bug in the broker: {error!r}")

    def _failed(self, loop: object, context: dict[str, Any]) -> None:
        where = context.get("future") or context.get("task") or ""
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r} {where}")
