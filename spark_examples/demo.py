"""`make demo`: a broker, sensors, the Spark pipeline and controllers, in one terminal, for a minute.

Everything runs as a user would run it, each in a process of its own, and ends with the demo. The view
shows what flows: readings a second, how far Spark is behind, the latest windows, the alerts and who acted
on them. At the end temperature and anomalies are plotted. What was written stays in `demo-output`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from topics import AGGREGATES, DEAD, READINGS, TOPICS, make_topics

SENSORS = (("temp", "1", "8"), ("temp", "3", "8"), ("hum", "6", "4"))
"""Their names are such that each has a partition of its own."""
CONTROLLED = ("temp_1", "temp_1", "temp_3")
"""Two controllers share the alerts of temp_1."""
HERE = Path(__file__).parent
OUTPUT = Path("demo-output")
READY = "kbroker ready on "
SHOWN = 6


class Processes:
    """What the demo has started. Everything ends with it, whatever happens."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *command: str) -> subprocess.Popen[str]:
        log = (self._logs / f"{name}.log").open("w")
        process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is ours: what stops first is decided here
        )
        log.close()
        self._running[name] = process
        return process

    def check(self) -> None:
        """SystemExit where one has ended before its time."""
        for name, process in self._running.items():
            if process.poll() is not None:
                last = (self._logs / f"{name}.log").read_text().splitlines()[-5:]
                raise SystemExit(f"{name} has ended, its log says:\n" + "\n".join(last))

    def stop(self) -> None:
        """The last one first: Spark and the clients before the broker that they talk to."""
        for process in reversed(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class State:
    """What the view shows; threads add to it."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.is_running = False
        """Whether Spark is up."""
        self.end_at = 0.0
        self.readings: list[tuple[float, str, float]] = []
        self.arrivals: deque[float] = deque(maxlen=1000)
        self.stored = self.refused = self.doubles = self.late = 0
        self.windows: dict[tuple[str, str], dict[str, Any]] = {}
        self.alerts: dict[str, dict[str, Any]] = {}
        self.acts: deque[str] = deque(maxlen=SHOWN)
        self.end = 0
        """The end of the topic of readings, all partitions together."""
        self.done: dict[str, int] = defaultdict(int)
        """By query: the end of its last micro-batch."""
        self.rows: dict[str, int] = defaultdict(int)

    def take(self, topic: str, value: bytes) -> None:
        if topic == DEAD:
            self.refused += 1
            return
        if topic == READINGS:
            self.end += 1
            self.arrivals.append(time.monotonic())
        with contextlib.suppress(ValueError, TypeError, KeyError):  # what Spark refuses, we pass over
            event = json.loads(value)
            if topic == AGGREGATES:
                self.windows[event["device"], event["start"]] = event
            elif topic == READINGS:
                at = datetime.fromisoformat(event["event_time"]).timestamp()
                self.readings.append((at, str(event["device"]), float(event["value"])))
            else:
                self.alerts[event["event_id"]] = event

    def rate(self) -> float:
        recent = [at for at in self.arrivals if at > time.monotonic() - 5]
        return len(recent) / 5


# -- what runs


def start_broker(processes: Processes, data: Path) -> str:
    broker = processes.start(
        "broker", "-P", "-m", "kbroker", "start", "--listener", "PLAINTEXT://127.0.0.1:0", "--data", str(data)
    )
    assert broker.stdout is not None
    for line in broker.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    raise SystemExit("the broker did not start; its log is in demo-output/logs")


def follow_topics(bootstrap: str, state: State, stopping: threading.Event) -> None:
    names = [topic.name for topic in TOPICS]
    consumer = KafkaConsumer(*names, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    while not stopping.is_set():
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                state.take(record.topic, record.value)
    consumer.close()


def follow_spark(pipeline: subprocess.Popen[str], state: State) -> None:
    for line in _lines(pipeline):
        with contextlib.suppress(ValueError, KeyError):
            progress = json.loads(line)
            query = progress["query"]
            state.done[query] = sum((progress["end"] or {}).get(READINGS, {}).values())
            state.rows[query] += progress["rows"]
            state.stored += progress.get("stored", 0)
            state.late += progress.get("late", 0)
            state.doubles += progress.get("doubles", 0)
            state.is_running = True


def follow_controller(controller: subprocess.Popen[str], state: State) -> None:
    for line in _lines(controller):
        state.acts.append(line.strip())


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    if process.stdout is not None:
        yield from process.stdout


# -- what is shown


def view(state: State, bootstrap: str) -> Group:
    return Group(headline(state, bootstrap), rates(state), windows(state), alerts(state))


def headline(state: State, bootstrap: str) -> Text:
    now = time.monotonic()
    if state.end_at:
        what = f"{max(0.0, state.end_at - now):.0f} s left, Ctrl-C ends it"
    else:
        dots = "." * (1 + int(now * 2) % 3)
        what = (
            f"Spark is starting{dots:4} {now - state.started:.0f} s; the broker keeps the readings meanwhile"
        )
    return Text.assemble(("kbroker ", "bold"), f"at {bootstrap}   ", (what, "cyan"))


def rates(state: State) -> Panel:
    table = Table.grid(padding=(0, 3))
    behind = state.end - min(state.done.values(), default=0)
    table.add_row("readings", f"{state.end}", f"{state.rate():.0f}/s in", f"Spark is {behind} behind")
    table.add_row("stored", f"{state.stored}", f"{state.late} late", f"{state.doubles} sent twice")
    table.add_row("refused", f"{state.refused}")
    queries = "  ".join(f"{name}: {rows}" for name, rows in sorted(state.rows.items()))
    behind_it = Text(f"rows by query   {queries or 'none yet'}", style="dim")
    return Panel(Group(table, behind_it), title="flow", title_align="left")


def windows(state: State) -> Panel:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("window", "device", "readings", "low", "average", "high"):
        table.add_column(name, justify="left" if name in ("window", "device") else "right")
    latest = sorted(state.windows.values(), key=lambda row: (row["start"], row["device"]))[-SHOWN:]
    for row in latest:
        numbers = [f"{row[name]:.1f}" for name in ("low", "average", "high")]
        table.add_row(row["start"][11:19], row["device"], str(row["readings"]), *numbers)
    if not latest:
        table.add_row("a window is", "shown when", "its time", "is over", "", "")
    return Panel(table, title="latest windows", title_align="left")


def alerts(state: State) -> Panel:
    lines = [Text(line, style="yellow") for line in list(state.acts)] or [Text("no alert yet", style="dim")]
    title = f"controllers have acted; {len(state.alerts)} alerts"
    return Panel(Group(*lines), title=title, title_align="left")


def plot(state: State, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    start = min((at for at, _, _ in state.readings), default=0.0)
    strange = [alert for alert in state.alerts.values() if alert["kind"] == "temp"]
    for device in sorted({device for _, device, _ in state.readings if device.startswith("temp")}):
        points = sorted((at - start, value) for at, name, value in state.readings if name == device)
        axes.plot(*zip(*points, strict=True), linewidth=1, label=device, zorder=1)
    times = [datetime.fromisoformat(alert["event_time"]).timestamp() - start for alert in strange]
    axes.scatter(times, [alert["value"] for alert in strange], color="crimson", s=28, label="alert", zorder=2)
    axes.set(xlabel="seconds", ylabel="°C", title="Temperature, and what the pipeline found strange in it")
    axes.grid(alpha=0.3)
    if state.readings:
        axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


# -- the demo


def run(seconds: float, console: Console) -> None:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    logs = OUTPUT / "logs"
    logs.mkdir(parents=True)
    processes, state, stopping = Processes(logs), State(), threading.Event()
    try:
        bootstrap = start_broker(processes, OUTPUT / "broker")
        make_topics(bootstrap)
        start_all(processes, state, bootstrap)
        follower = threading.Thread(target=follow_topics, args=(bootstrap, state, stopping))
        follower.start()
        try:
            watch(state, bootstrap, seconds, console, processes)
        finally:
            stopping.set()
            follower.join()
    except KeyboardInterrupt:
        console.print("stopping")
    finally:
        processes.stop()
    picture = OUTPUT / "temperature.png"
    plot(state, picture)
    console.print(
        f"{state.end} records in; {state.stored} readings stored, {state.refused} refused, "
        f"{state.late} late, {state.doubles} sent twice; {len(state.alerts)} alerts. "
        f"Plot: [link=file://{picture.resolve()}]{picture}[/link]; Parquet: {OUTPUT / 'lake'}"
    )


def start_all(processes: Processes, state: State, bootstrap: str) -> None:
    for device in SENSORS:
        name = "-".join(device[:2])
        processes.start(f"sensor-{name}", str(HERE / "sensor.py"), *device, "--bootstrap", bootstrap)
    for number, controlled in enumerate(CONTROLLED):
        command = (str(HERE / "controller.py"), controlled, "--bootstrap", bootstrap)
        controller = processes.start(f"controller-{number}", *command)
        threading.Thread(target=follow_controller, args=(controller, state), daemon=True).start()
    options = (
        "--bootstrap",
        bootstrap,
        "--into",
        str(OUTPUT / "lake"),
        "--lateness",
        "5 seconds",
        "--progress",
    )
    submit = ("-P", "-m", "kbroker", "spark", "submit", str(HERE / "pipeline.py"))
    pipeline = processes.start("spark", *submit, *options)
    threading.Thread(target=follow_spark, args=(pipeline, state), daemon=True).start()


def watch(state: State, bootstrap: str, seconds: float, console: Console, processes: Processes) -> None:
    """Show what happens, for so long after Spark has come up."""
    with Live(console=console, refresh_per_second=4, get_renderable=lambda: view(state, bootstrap)):
        while not state.end_at or time.monotonic() < state.end_at:
            if state.is_running and not state.end_at:
                state.end_at = time.monotonic() + seconds
            processes.check()
            time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    run(parser.parse_args().seconds, Console())


if __name__ == "__main__":
    main()
