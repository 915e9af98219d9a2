"""A broker in a thread of the tests' process, with an event loop of its own.

It starts faster than one in a process, and a debugger sees into it. It cannot be killed, shares the
interpreter's lock with the tests, and needs kbroker's packages to be what their names mean in this process.
What kbroker's loggers say goes to the log file as well as wherever the tests send it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kbroker import namesakes
from kbroker.testing.process import BrokerFailed

LOGGERS = ("kbroker", *namesakes.OURS)
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
STOP_TIMEOUT_S = 15.0


class BrokerThread:
    """One life of a broker."""

    def __init__(
        self, settings: Mapping[str, str], *, port: int, data: Path, log: Path, timeout_s: float
    ) -> None:
        namesakes.check()
        from kbroker.serving import loop_factory
        from kbroker.testing.inspection import Inspector

        self._settings = {
            **settings,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data),
        }
        self._lock = threading.Lock()
        self._handler = logging.FileHandler(log)
        self._handler.setFormatter(logging.Formatter(LOG_FORMAT))
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self._handler)
        started: Future[tuple[str, int]] = Future()

        def run() -> None:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve(started))

        self._thread = threading.Thread(target=run, name="kbroker", daemon=True)
        self._thread.start()
        try:
            self.host, self.port = started.result(timeout_s)
        except BaseException as error:
            self._forget_log()
            raise BrokerFailed(f"the broker did not start: {error}") from error
        self._inspector = Inspector(f"{self.host}:{self.port}")

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def ask(self, method: str, *arguments: object) -> Any:
        if not self.is_running:
            raise BrokerFailed("the broker does not run")
        with self._lock:
            return getattr(self._inspector, method)(*arguments)

    def stop(self) -> None:
        self._inspector.close()
        if self.is_running:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_TIMEOUT_S)
        self._forget_log()

    def _forget_log(self) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self._handler)
        self._handler.close()

    async def _serve(self, started: Future[tuple[str, int]]) -> None:
        from kbroker.commands.start import join, make_broker
        from kbroker.configuration.layers import Configuration
        from kbroker.listeners import Listeners

        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            configuration = Configuration(self._settings)
            broker = make_broker(configuration, Listeners.configured(configuration.broker))
            await broker.start(lambda broker: join(broker, configuration))
        except BaseException as error:
            started.set_exception(error)
            return
        try:
            started.set_result(broker.listeners.first)
            await self._stopping.wait()
        finally:
            await broker.stop()
