"""The pipeline as a user runs it, `kbroker spark submit pipeline.py`, and what it says of its progress."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kbroker.testing import Broker

EXAMPLES = Path(__file__).parents[2] / "spark_examples"
PATIENCE_S = 240
COUNTED = ("read", "refused", "stored", "late", "doubles", "dropped")
FAST_DRIVER = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Driver:
    """With the pipeline's defaults, but for the trigger, so that there are more micro-batches."""

    def __init__(self, broker: Broker, lake: Path, log: Path) -> None:
        submit = ("-P", "-m", "kbroker", "spark", "submit", "--master", "local[2]")
        settings = ("spark.ui.enabled=false", FAST_DRIVER, "spark.sql.shuffle.partitions=2")
        self._command = [sys.executable, *submit, *(part for one in settings for part in ("--conf", one))]
        self._command += [str(EXAMPLES / "pipeline.py"), "--bootstrap", broker.bootstrap, "--into", str(lake)]
        self._command += ["--trigger", "100 milliseconds", "--progress"]
        self._log = log
        self.batches = 0
        """Since it started: those with rows."""
        self.counts: Counter[str] = Counter()
        """What all micro-batches together said of their readings."""
        self._done: dict[str, int] = {}
        self.start()

    def start(self) -> None:
        self.batches = 0
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if process is self._process and line.startswith("{"):
                    self._take(json.loads(line))

    def _take(self, progress: dict[str, Any]) -> None:
        self.batches += progress["rows"] > 0
        self.counts.update({name: progress.get(name, 0) for name in COUNTED})
        self._done[progress["query"]] = sum((progress["end"] or {}).get("readings", {}).values())

    def has_done(self, records: int) -> bool:
        """Whether all queries have taken so many records of the topic."""
        return len(self._done) == 4 and min(self._done.values()) >= records

    def check(self) -> None:
        if self._process.poll() is not None:
            raise AssertionError(f"the driver has ended:\n{self.log_end()}")

    def log_end(self) -> str:
        return self._log.read_text()[-3000:]

    def wait_until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.check()
            assert time.monotonic() < deadline, self.log_end()
            time.sleep(0.3)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
