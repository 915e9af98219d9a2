"""The connection to ZooKeeper: a kazoo client, and another one when its thread ends.

- kazoo runs one thread that reads and writes the socket. An exception in it (a reply that it does not expect,
  no memory) ends the thread for good, and kazoo calls that CLOSED. Here a new client then takes the session
  over. So the end of the thread is a lost connection like any other: SUSPENDED, and what was asked for is not
  going to be answered. If the new thread ends soon as well, the next client begins another session, and the
  old one ends in its time: others can then be elected in place of a broker that cannot use its session.
- Whatever kazoo has to tell (answers, watches, changes of state) goes to the event loop at once and in the
  order in which it came; its own worker threads are not started.
- kazoo does not say which session timeout the server has granted: it is taken from where kazoo computes it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from controller.metadata_store import SessionState

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
LONGEST_RETRY_S = 1.0
LONG_LIFE_S = 10.0
"""A thread that has lived for so long has not ended by what ended the one before."""

STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
THREAD_ENDS = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
READ_TIMEOUT = 2 / 3
"""kazoo's read timeout, as a part of the session timeout that was granted."""


class _Loop:
    """Looks like a queue of work to kazoo; puts it on the event loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, work: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(work)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's view of threads: callbacks go to the event loop instead of to workers."""

    running = True

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_ended: Callable[[], object]) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = _Loop(loop)
        self._thread_ended = thread_ended

    def start(self) -> None:
        """There are no workers."""

    def stop(self) -> None:
        """There are no workers."""

    def spawn(self, work: Callable[..., object], *arguments: object, **named: object) -> threading.Thread:
        """kazoo's only thread."""

        def run() -> None:
            try:
                work(*arguments, **named)
            except BaseException as error:
                log.error("the thread that talks to ZooKeeper has ended: %r", error)
            finally:
                self.completion_queue.put(self._thread_ended)

        thread = threading.Thread(target=run, name="zookeeper", daemon=True)
        thread.start()
        return thread


class ZooKeeperClient:
    """One kazoo client after the other, with one session for as long as it lasts."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        heard: Callable[[SessionState], object],
        abandoned: Callable[[], object],
    ) -> None:
        """`heard` is told of every state; `abandoned` that no request made so far is going to be answered."""
        self.granted_timeout_ms = session_timeout_ms
        """The session timeout: what was asked for, until a server has said what it grants."""
        self._hosts = hosts
        self._asked_timeout_ms = session_timeout_ms
        self._heard = heard
        self._abandoned = abandoned
        self._loop = asyncio.get_running_loop()
        self._credentials: tuple[int, bytes] | None = None
        self._session_id = 0
        self._told = SessionState.LOST
        self._is_closing = False
        self._replacements = 0
        self._started_s = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self.kazoo = self._new_kazoo()

    @property
    def session_id(self) -> int:
        """Of the current session, or of the last one while there is none; what kazoo's thread knows last."""
        return self._session_id

    def _new_kazoo(self) -> Any:
        handler = _Handler(self._loop, lambda: self._thread_ended(kazoo))
        kazoo = KazooClient(
            self._hosts,
            timeout=self._asked_timeout_ms / 1000,
            client_id=self._credentials,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=FIRST_RETRY_S, max_delay=LONGEST_RETRY_S, sleep_func=handler.sleep_func
            ),
        )
        kazoo.add_listener(partial(self._state_changed, kazoo))
        connect = kazoo._connection._connect

        def connect_and_note(*address: object) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = connect(*address)
            self.granted_timeout_ms = round(read_timeout_ms / READ_TIMEOUT)
            return read_timeout_ms, connect_timeout_ms

        kazoo._connection._connect = connect_and_note
        return kazoo

    def start(self) -> None:
        """Begin to connect; `heard` is told when that is done."""
        self._started_s = self._loop.time()
        self.kazoo.start_async()

    def _state_changed(self, kazoo: Any, kazoo_state: KazooState) -> None:
        """In kazoo's thread."""
        state = STATES[kazoo_state]
        if state is SessionState.LOST and kazoo.client_state in THREAD_ENDS:
            state = SessionState.SUSPENDED
        elif state is SessionState.LOST:
            self._credentials = None
        elif state is SessionState.CONNECTED and kazoo.client_id is not None:
            self._credentials = kazoo.client_id
            former, self._session_id = self._session_id, kazoo.client_id[0]
            if former != self._session_id and self._told is SessionState.SUSPENDED:
                self._tell(kazoo, SessionState.LOST)  # a new kazoo has not had the session that it lost
        self._tell(kazoo, state)

    def _tell(self, kazoo: Any, state: SessionState) -> None:
        self._told = state
        kazoo.handler.completion_queue.put(partial(self._heard, state))

    def _thread_ended(self, kazoo: Any) -> None:
        """However it came to that: nobody talks to ZooKeeper any more."""
        if self._is_closing or kazoo is not self.kazoo:
            return
        self._told = SessionState.SUSPENDED
        self._heard(SessionState.SUSPENDED)
        self._abandoned()
        if self._loop.time() - self._started_s > LONG_LIFE_S:
            self._replacements = 0
        if self._replacements:
            self._credentials = None  # the session must not live on if nobody can use it
        delay_s = min(FIRST_RETRY_S * 2 ** min(self._replacements, 10), LONGEST_RETRY_S)
        self._retry = self._loop.call_later(delay_s, self._replace)

    def _replace(self) -> None:
        """Let another client take the session over."""
        with suppress(Exception):  # kazoo's state is anything now; all that matters is its sockets
            self.kazoo.close()
        log.warning("connecting to ZooKeeper again, with a new thread")
        self._replacements += 1
        self.kazoo = self._new_kazoo()
        try:
            self.start()
        except Exception as error:  # there may be no thread, no memory or no descriptor for it
            log.error("cannot connect to ZooKeeper: %r", error)
            self._thread_ended(self.kazoo)

    async def close(self) -> None:
        """End the session."""
        self._is_closing = True
        if self._retry is not None:
            self._retry.cancel()
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        with suppress(WriterNotClosedException, OSError, AttributeError):  # it may have no socket any more
            self.kazoo.stop()
            self.kazoo.close()
