"""A broker in a process of its own, seen from the tests' process.

The process runs `kbroker start` in isolated mode, with kbroker's own packages found where this one lies: what
the project under test has in its directory, or on PYTHONPATH, is not in its way. A pipe to it carries
questions, another the answers (`kbroker.testing.child` is the other end). When the first pipe closes, the
broker stops: on purpose in `stop`, or because the tests' process is gone, however it ended.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from kbroker.namesakes import ROOT

READY = re.compile(rb"kbroker ready on (.+):(\d+)\n")
SIZE = struct.Struct(">I")
STOP_TIMEOUT_S = 15.0
LAST_LINES = 30

# Isolated mode knows neither PYTHONPATH nor this directory; what else this process can import comes last.
BOOTSTRAP = """\
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
spec = PathFinder.find_spec("kbroker", [sys.argv.pop(1)])
sys.modules["kbroker"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["kbroker"])
from kbroker.testing.child import main
main()
"""


class BrokerFailed(Exception):
    """The broker did not start, or it has gone; with the end of its log."""


class BrokerProcess:
    """One life of a broker, from its ready line to its end."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        port: int,
        data: Path,
        log: Path,
        orphans: Path | None,
        timeout_s: float,
    ) -> None:
        """`orphans` is what the broker removes when the tests' process is gone and cannot do it itself."""
        self._log = log
        self._lock = threading.Lock()
        path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
        command = [sys.executable, "-I", "-c", BOOTSTRAP, ROOT, path, str(orphans or "")]
        command += ["start", "--listener", f"PLAINTEXT://127.0.0.1:{port}", "--data", str(data)]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                process_group=0,  # Ctrl-C is for the tests, which then stop us
            )
        self._questions, self._answers = _pipes(self._process)
        self.host, self.port = self._wait_until_ready(timeout_s)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, method: str, *arguments: object) -> Any:
        """What the broker's side says to this question; what it raises is raised here."""
        with self._lock:
            try:
                send(self._questions, (method, arguments))
                raised, outcome = receive(self._answers)
            except (OSError, EOFError, ValueError):
                raise BrokerFailed(f"the broker does not run{self._explanation()}") from None
        if raised:
            raise outcome
        return outcome

    def stop(self) -> None:
        """A clean stop; nothing if it has ended already."""
        self._close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        if self.is_running:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._questions, self._answers):
            with suppress(BrokenPipeError):
                pipe.close()

    def _wait_until_ready(self, timeout_s: float) -> tuple[str, int]:
        """The address; BrokerFailed if the process ends or the time does."""
        timer = threading.Timer(timeout_s, self._process.kill)
        timer.start()
        try:
            line = self._answers.readline()
        finally:
            timer.cancel()
        ready = READY.fullmatch(line)
        if ready is None:
            self.kill()
            raise BrokerFailed(f"the broker did not start{self._explanation()}")
        return ready[1].decode(), int(ready[2])

    def _explanation(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "; its log ends with\n" + "\n".join(lines) if lines else ""


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("both were asked for")
    return process.stdin, process.stdout


def send(pipe: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    pipe.write(SIZE.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next message; EOFError when there are no more."""
    size = pipe.read(SIZE.size)
    if len(size) < SIZE.size:
        raise EOFError
    return pickle.loads(pipe.read(SIZE.unpack(size)[0]))
