"""`Broker`: a Kafka broker for as long as a test needs it.

A broker listens on a free port of 127.0.0.1, keeps its data in a temporary directory, and leaves nothing
behind: neither a process nor a file, also if the tests' process is killed (with a broker in a thread, its
directory stays then). Questions about it are answered over the wire; each is asked anew.

Methods may be called from several threads; questions wait for one another. asyncio is loaded where it is
used: the pytest plugin is loaded in test runs that need no broker, too.
"""

from __future__ import annotations

import inspect
import json
import re
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from kbroker.client.errors import ClientError
from kbroker.client.record import Record
from kbroker.testing.process import BrokerFailed, BrokerProcess
from kbroker.testing.profile import settings, text_of
from kbroker.testing.views import Group, GroupState
from kbroker.testing.waiting import NOT_YET, Attempts

if TYPE_CHECKING:
    from kbroker.testing.thread import BrokerThread

T = TypeVar("T")

START_TIMEOUT_S = 60.0
WAIT_TIMEOUT_S = 10.0
PAUSE_S = 0.02
USE_DEFAULT = -1
LOG_LINES = 10
UNREMARKABLE = re.compile(r" (INFO|DEBUG) |^kbroker [\d.]+: ")
NO_PLACE = -1


class Broker:
    """`with Broker() as broker:`, `async with`, or `start` and `stop`."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        in_thread: bool = False,
        data: Path | str | None = None,
        port: int = 0,
        start_timeout: float = START_TIMEOUT_S,
    ) -> None:
        """`config` are Kafka's keys, over the test profile. `data` is a directory that shall stay."""
        self._settings = settings(config or {})
        self._in_thread = in_thread
        self._given_data = Path(data) if data is not None else None
        self._port = port
        self._start_timeout = start_timeout
        self._lock = threading.RLock()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._held: socket.socket | None = None
        self._runner: BrokerProcess | BrokerThread | None = None
        self._last_log = ""
        self._attempts: Attempts | None = None

    # -- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        import asyncio

        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.stop)

    def start(self) -> None:
        """Returns when the broker answers. BrokerFailed, with its log, if it does not come to that."""
        with self._lock:
            if self.is_running:
                return
            if self._directory is None:
                self._directory = tempfile.TemporaryDirectory(prefix="kbroker-", ignore_cleanup_errors=True)
            try:
                self._runner = self._run(Path(self._directory.name))
                self._port = self._runner.port
                self._release_port()
                self._runner.ask("prepare", self._start_timeout)
            except ClientError as error:
                self.stop()
                raise BrokerFailed(
                    f"the broker does not answer: {error}; its log ends with\n{self.log}"
                ) from error
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """A clean stop; what was temporary is removed. Nothing if the broker has stopped before."""
        with self._lock:
            if self._runner is not None:
                self._runner.stop()
            self._clean_up()

    def kill(self) -> None:
        """kill -9. The port and the data wait for `restart`."""
        with self._lock:
            runner = self._running()
            if not isinstance(runner, BrokerProcess):
                raise RuntimeError("a broker in a thread cannot be killed: only one in a process can")
            runner.kill()
            self._hold_port()

    def restart(self) -> None:
        """The same broker again, with its port and its data: after `kill`, or with a clean stop before."""
        with self._lock:
            if self._directory is None:
                raise BrokerFailed("there is nothing to restart: the broker was not started")
            if self._runner is not None and self._runner.is_running:
                self._runner.stop()
                self._hold_port()
            self.start()

    @property
    def is_running(self) -> bool:
        return self._runner is not None and self._runner.is_running

    # -- where it is

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """Stays the same over `kill` and `restart`."""
        if self._directory is None:
            raise BrokerFailed("the broker does not run")
        return self._port

    @property
    def pid(self) -> int:
        """Of the process that the broker is in."""
        return self._running().pid

    @property
    def data(self) -> Path:
        """The broker's data directory, in Kafka's format."""
        if self._given_data is not None:
            return self._given_data
        if self._directory is None:
            raise BrokerFailed("the broker does not run")
        return Path(self._directory.name) / "data"

    @property
    def log(self) -> str:
        """What the broker has logged in all its lives; after `stop`, what it had logged by then."""
        if self._directory is None:
            return self._last_log
        path = self._log_path(Path(self._directory.name))
        return path.read_text(errors="replace") if path.exists() else ""

    # -- what is in it

    def create_topic(
        self, name: str, *, partitions: int = USE_DEFAULT, configs: Mapping[str, object] | None = None
    ) -> None:
        """Returns when clients can use it."""
        texts = {key: text_of(value) for key, value in (configs or {}).items()}
        self._ask(f"create_topic({name!r})", "create_topic", name, partitions, texts)

    def delete_topic(self, name: str) -> None:
        self._ask(f"delete_topic({name!r})", "delete_topic", name)

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's own."""
        found: list[str] = self._ask("topics()", "topics")
        return found

    def clear(self) -> None:
        """Delete all topics and groups; members of groups that still run are sent away first."""
        self._ask("clear()", "clear")

    def produce(
        self,
        topic: str,
        *values: object,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
        as_json: bool = False,
    ) -> list[Record]:
        """Write a record for each value, with acks=all; where they lie, by partition and offset.

        Values are bytes, text, or None for a tombstone; with `as_json`, all but None become JSON.
        The partition is chosen by the key as Kafka's clients do; without one, values go to one partition
        after the other, from 0. A topic that is not there is made.
        """
        now = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        encode_value = as_json_bytes if as_json else as_bytes
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        named = tuple((name, as_bytes(value, "a header")) for name, value in pairs)
        records = [
            Record(topic, NO_PLACE, NO_PLACE, now, as_bytes(key, "a key"), encode_value(value), named)
            for value in values
        ]
        written: list[Record] = self._ask(f"produce({topic!r}, ...)", "produce", topic, partition, records)
        return written

    def records(
        self, topic: str, *, partition: int | None = None, read_committed: bool = False
    ) -> list[Record]:
        """All records that are there now, by partition and offset."""
        found: list[Record] = self._ask(f"records({topic!r})", "records", topic, partition, read_committed)
        return found

    def group(self, name: str) -> Group:
        """A consumer group; its `lag`, `offsets`, `members` and `state` are asked for when they are read."""

        def ask(what: str) -> GroupState:
            label = f"group({name!r}).{what}"
            state: GroupState = self._ask(label, "group", name, show=lambda state: getattr(state, what))
            return state

        return Group(name, ask)

    # -- waiting

    def wait_until(self, predicate: Callable[[], T], timeout: float = WAIT_TIMEOUT_S) -> T:
        """What the predicate returns once that is true; WaitFailed tells what it saw instead."""
        attempts = Attempts(predicate)
        deadline = time.monotonic() + timeout
        while True:
            value = self._attempt(predicate, attempts)
            if value:
                return value
            if time.monotonic() >= deadline:
                raise attempts.failure(timeout, self._end_of_log())
            time.sleep(PAUSE_S)

    @overload
    async def wait_until_async(
        self,
        predicate: Callable[[], Awaitable[T]],
        timeout: float = ...,  # noqa: ASYNC109
    ) -> T: ...

    @overload
    async def wait_until_async(
        self,
        predicate: Callable[[], T],
        timeout: float = ...,  # noqa: ASYNC109
    ) -> T: ...

    async def wait_until_async(
        self,
        predicate: Callable[[], T | Awaitable[T]],
        timeout: float = WAIT_TIMEOUT_S,  # noqa: ASYNC109 -- as in `wait_until`
    ) -> T:
        """The same for coroutines, which go on in the meantime; the predicate may be one, too."""
        import asyncio

        attempts = Attempts(predicate)
        deadline = time.monotonic() + timeout
        while True:
            value = await self._attempt_async(predicate, attempts)
            if value:
                return value
            if time.monotonic() >= deadline:
                raise attempts.failure(timeout, self._end_of_log())
            await asyncio.sleep(PAUSE_S)

    def _attempt(self, predicate: Callable[[], T], attempts: Attempts) -> T | None:
        attempts.begin()
        self._attempts = attempts
        try:
            value = predicate()
        except NOT_YET as error:
            attempts.raised(error)
            return None
        finally:
            self._attempts = None
        attempts.returned(value)
        return value

    async def _attempt_async(self, predicate: Callable[[], T | Awaitable[T]], attempts: Attempts) -> T | None:
        outcome = self._attempt(predicate, attempts)
        if not inspect.isawaitable(outcome):
            return outcome
        try:
            value: T = await outcome
        except NOT_YET as error:
            attempts.raised(error)
            return None
        attempts.returned(value)
        return value

    # -- inside

    def _run(self, directory: Path) -> BrokerProcess | BrokerThread:
        log = self._log_path(directory)
        if self._in_thread:
            from kbroker.testing.thread import BrokerThread

            return BrokerThread(
                self._settings, port=self._port, data=self.data, log=log, timeout_s=self._start_timeout
            )
        return BrokerProcess(
            self._settings,
            port=self._port,
            data=self.data,
            log=log,
            orphans=directory,
            timeout_s=self._start_timeout,
        )

    def _running(self) -> BrokerProcess | BrokerThread:
        if self._runner is None:
            raise BrokerFailed("the broker does not run")
        return self._runner

    def _ask(
        self,
        label: str,
        method: str,
        *arguments: object,
        show: Callable[[Any], object] = lambda answer: answer,
    ) -> Any:
        answer = self._running().ask(method, *arguments)
        if self._attempts is not None:
            self._attempts.seen.append((f"broker.{label}", show(answer)))
        return answer

    def _clean_up(self) -> None:
        self._last_log = self.log
        self._runner = None
        self._release_port()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _hold_port(self) -> None:
        """Keep the port from others, clients' own ends among them, while nobody listens there.

        On Linux the broker can take it all the same; elsewhere it is let go a moment before.
        """
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind((self.host, self._port))
        if sys.platform != "linux":
            self._release_port()

    def _release_port(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _end_of_log(self) -> str:
        """What it complained of last."""
        lines = (line for line in self.log.splitlines() if not UNREMARKABLE.search(line))
        return "\n".join(deque(lines, LOG_LINES))

    @staticmethod
    def _log_path(directory: Path) -> Path:
        return directory / "broker.log"


def as_bytes(given: object, what: str = "a value") -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    hint = "; as_json=True encodes it" if what == "a value" else ""
    raise TypeError(f"{what} is bytes, str or None, not {type(given).__name__}{hint}")


def as_json_bytes(given: object) -> bytes | None:
    return None if given is None else json.dumps(given).encode()
