"""Crash states: a broker that works is cut at its system calls; what is left is checked, started and judged.

What must hold in each state, after `kill -9` and after a power cut (kbroker.flush=auto, one replica):

- `kbroker check` finds no error in what the crash has left, and none after the next clean stop;
- a broker starts on it, its coordinators load, and it takes records;
- everything that was acknowledged is there, in order, with its transaction's outcome; nothing is invented;
- what was deleted stays deleted.

KBROKER_CRASH_STATES says how many states are looked at; `make compat` looks at more than `make test`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from compat_tests.storage.crash_states import KILLED, Replay, can_trace, under_strace, written_out
from storage.check import check_directory
from storage.files import Disk
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.transacting import GROUP, Transacting, committed_offset, read_committed, settled
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_trace(), reason="no strace here that may trace"),
]
STATES = int(os.environ.get("KBROKER_CRASH_STATES", "40"))
SEED = int(os.environ.get("KBROKER_CRASH_SEED", "1"))
OPTIONS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.segment.bytes": "2000",
    "transaction.state.log.segment.bytes": "2000",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "200",
}
TOPICS = ("plain", "exact", "compact")
SMALL = {"segment_bytes": 2000, "index_interval_bytes": 200, "file_delete_delay_ms": 200}


@dataclass
class Promises:
    """What clients were told, and when: what was told before a crash has to hold after it."""

    acknowledged: list[tuple[float, int, bytes]] = field(default_factory=list)
    """Time, offset and value of records in `plain`."""
    sent: set[bytes] = field(default_factory=set)
    deleted: list[tuple[float, float, int]] = field(default_factory=list)
    """When deletion up to an offset was asked for, and when it was acknowledged."""
    latest: list[tuple[float, int]] = field(default_factory=list)
    """Time and number of the value of the one key in `compact`."""
    committed: list[tuple[float, bytes]] = field(default_factory=list)
    aborted: set[bytes] = field(default_factory=set)
    offsets: list[tuple[float, int]] = field(default_factory=list)
    """Time, and the offset of the group that was committed with a transaction."""
    late: list[tuple[float, bytes]] = field(default_factory=list)
    """Values in a topic whose maker was killed before it had flushed anything of it."""
    gone: list[tuple[float, float]] = field(default_factory=list)
    """When deletion of a topic was asked for, and when it was acknowledged."""


class Client:
    """One life of the broker, as a client sees it."""

    def __init__(self, speaker: Speaker, promises: Promises) -> None:
        self.speaker = speaker
        self.promises = promises

    def produce(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(self.promises.sent) + b"." * 200
            self.promises.sent.add(value)
            answer = self.speaker.produce("plain", batch(value))
            assert answer.error_code == 0
            self.promises.acknowledged.append((time.time(), answer.base_offset, value))

    def update(self, count: int) -> None:
        for _ in range(count):
            number = len(self.promises.latest)
            answer = self.speaker.produce("compact", batch(b"%d" % number + b"." * 200))
            assert answer.error_code == 0
            self.promises.latest.append((time.time(), number))

    def delete_before(self, offset: int) -> None:
        asked = time.time()
        assert self.speaker.delete_records("plain", offset).error_code == 0
        self.promises.deleted.append((asked, time.time(), offset))

    def transactions(self, producer: Transacting, count: int) -> None:
        for number in range(count):
            is_commit = number % 2 == 0
            made = len(self.promises.committed) + len(self.promises.aborted)
            values = [b"%d" % (made + index) + b"-" * 200 for index in range(3)]
            if not is_commit:
                self.promises.aborted.update(values)
            producer.begun("exact", *values)
            offset = len(self.promises.offsets) + 1
            assert settled(lambda: producer.add_offsets("group")) == 0
            assert settled(partial(producer.commit_offset, "group", "plain", offset)) == 0
            producer.settled_end(is_commit=is_commit)
            if is_commit:
                self.promises.committed += [(time.time(), value) for value in values]
                self.promises.offsets.append((time.time(), offset))


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path], Promises]:
    """A broker that was killed after a while, and one on the same directory that was stopped: their calls."""
    directory = tmp_path_factory.mktemp("lives")
    promises = Promises()
    traces = [directory / "first.trace", directory / "second.trace"]
    for trace in traces:
        broker = started(directory / "broker.log", under_strace(trace))
        speaker = Speaker(broker.host, broker.port)
        client = Client(speaker, promises)
        producer = Transacting(speaker, "producer")
        if trace is traces[0]:
            speaker.create("plain", retention_ms=-1, **SMALL)
            speaker.create("exact", retention_ms=-1, **SMALL)
            speaker.create("compact", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, **SMALL)
        producer.find()
        producer.find("group", GROUP)
        producer.initialized()
        if trace is traces[1]:
            assert speaker.produce("late", batch(b"late")).error_code == 0
            promises.late.append((time.time(), b"late"))
        client.produce(30)
        client.update(30)
        client.transactions(producer, 6)
        client.delete_before(12 if trace is traces[0] else 40)
        client.produce(15)
        time.sleep(1.5)  # for the cleaner, retention and checkpoints to come
        client.update(15)
        client.produce(3)
        if trace is traces[0]:
            speaker.create("gone", **SMALL)
            assert speaker.produce("gone").error_code == 0
            speaker.create("late", **SMALL)
        else:
            asked = time.time()
            assert speaker.delete_topic("gone") == 0
            promises.gone.append((asked, time.time()))
            time.sleep(0.5)  # until its files go
        speaker.socket.close()
        broker.stop(signal.SIGKILL if trace is traces[0] else signal.SIGTERM)
    return directory, traces, promises


def started(log: Path, under: Sequence[str] = (), flush: str = "auto") -> BrokerProcess:
    options = {**OPTIONS, "kbroker.flush": flush}
    settings = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    return BrokerProcess(log, *settings, under=under)


@dataclass
class State:
    """What one crash has left, and when it came."""

    name: str
    time_s: float
    disk: SimulatedDisk


def states(directory: Path, traces: list[Path]) -> Iterator[State]:
    """STATES of them, by a seed: half of `kill -9`, half of power cuts, all over both lives."""
    total = sum(1 for _ in replayed(directory, traces))
    chance = random.Random(SEED)
    chosen: dict[int, list[tuple[Outcome, int]]] = {}
    outcomes = [KILLED, Outcome.RANDOM, KILLED, Outcome.LOST, KILLED, Outcome.TORN, KILLED, Outcome.RANDOM]
    for number in range(STATES):
        cut = chance.randrange(total)
        chosen.setdefault(cut, []).append((outcomes[number % len(outcomes)], chance.randrange(1 << 30)))
    for number, (name, time_s, disk) in enumerate(replayed(directory, traces)):
        for outcome, seed in chosen.get(number, ()):
            label = "killed" if outcome is KILLED else outcome.name.lower()
            yield State(f"{label}-{number}-{name}-{seed}", time_s, disk.after_crash(outcome, seed))


def replayed(directory: Path, traces: list[Path]) -> Iterator[tuple[str, float, SimulatedDisk]]:
    replay = Replay(directory)
    for trace in traces:
        for call in replay.run(trace):
            yield call.name, call.begun, replay.disk


def test_the_calls_tell_everything(lives: tuple[Path, list[Path], Promises]) -> None:
    """Replayed to their end, they give the files that are there: or else the states would be nobody's."""
    directory, traces, _ = lives
    *_, (_, _, disk) = replayed(directory, traces)
    data = directory / "broker.data"
    there = {str(path): path.read_bytes() for path in data.rglob("*") if path.is_file()}
    told = disk.files(str(data))
    memory = {path for path in [*there, *told] if path.endswith("-shm")}  # SQLite maps it
    assert {path for path in there if told.get(path) != there[path]} <= memory
    assert set(told) - set(there) <= memory
    assert len(there) > 50


def test_every_crash_state_starts_with_what_was_acknowledged(
    lives: tuple[Path, list[Path], Promises], tmp_path: Path
) -> None:
    directory, traces, promises = lives
    wrong: list[str] = []
    for number, state in enumerate(states(directory, traces)):
        found = judged(state, f"{directory}/broker.data", tmp_path / f"{number}", promises)
        wrong += [f"{state.name}: {one}" for one in found]
    assert not wrong, "\n".join(wrong)


def judged(state: State, data: str, place: Path, promises: Promises) -> list[str]:
    """What does not hold."""
    if not state.disk.exists(data):
        return []
    wrong = [f"before the start: {line}" for line in errors_in(state.disk, data)]
    place.mkdir()
    log = place / "broker.log"
    written_out(state.disk, data, log.with_suffix(".data"))
    try:
        broker = started(log, flush="never")
    except AssertionError as error:
        return [*wrong, f"it does not start: {error}"]
    speaker = Speaker(broker.host, broker.port)
    try:
        wrong += [f"{one}" for one in broken(speaker, promises, state.time_s)]
    except Exception as error:  # whatever it is, the state is what matters
        wrong.append(f"{type(error).__name__}: {error}")
    finally:
        speaker.socket.close()
        broker.stop()
    wrong += [f"after the stop: {line}" for line in errors_in(Disk(), str(log.with_suffix(".data")))]
    if "Traceback" in log.read_text():
        wrong.append(f"a traceback: see {log}")
    return wrong


def errors_in(files: Disk | SimulatedDisk, directory: str) -> list[str]:
    return [line for line in check_directory(files, directory).lines() if line.startswith("error")]


def broken(speaker: Speaker, promises: Promises, time_s: float) -> Iterator[str]:
    """Promises that were made before a moment and are not kept."""
    topics = {name for name in TOPICS if not speaker.metadata(name).error_code}
    acknowledged = {offset: value for at, offset, value in promises.acknowledged if at <= time_s}
    if acknowledged or "plain" in topics:
        yield from broken_log(speaker, promises, time_s, acknowledged)
    latest = max((number for at, number in promises.latest if at <= time_s), default=-1)
    if latest >= 0 or "compact" in topics:
        found = [number_of(record.value) for record in speaker.records("compact")]
        if max(found, default=-1) < latest:
            yield f"compact: the latest value is {max(found, default=-1)}, {latest} was acknowledged"
    late = [value for at, value in promises.late if at <= time_s]
    if late and [record.value for record in speaker.records("late")] != late:
        yield "late: what was acknowledged is not there"
    if any(at <= time_s for _, at in promises.gone) and not speaker.metadata("gone").error_code:
        yield "gone: a deleted topic is back"
    committed = [value for at, value in promises.committed if at <= time_s]
    if committed or "exact" in topics:
        seen = read_committed(speaker, "exact")
        if seen[: len(committed)] != committed:
            yield f"exact: {len(seen)} records of {len(committed)} that were committed, or others"
        if set(seen) & promises.aborted:
            yield "exact: records of an aborted transaction"
    offset = max((offset for at, offset in promises.offsets if at <= time_s), default=0)
    if offset:
        producer = Transacting(speaker, "producer")
        producer.find("group", GROUP)
        error = settled(lambda: committed_offset(speaker, "group", "plain")[0])
        found_offset = committed_offset(speaker, "group", "plain")[1]
        if error or found_offset < offset:
            yield f"group: error {error}, offset {found_offset}, {offset} was committed"
        producer.find()
        producer.initialized()
    if "plain" in topics and (code := speaker.produce("plain").error_code):
        yield f"plain takes no records: {code}"


def broken_log(
    speaker: Speaker, promises: Promises, time_s: float, acknowledged: dict[int, bytes]
) -> Iterator[str]:
    start = max((offset for _, at, offset in promises.deleted if at <= time_s), default=0)
    may_start = max((offset for at, _, offset in promises.deleted if at <= time_s), default=0)
    begin = speaker.offset("plain", -2).offset
    if not start <= begin <= may_start:
        yield f"plain begins at offset {begin}, not {start} to {may_start}"
    found = {record.offset: record.value for record in speaker.records("plain", begin)}
    lost = [offset for offset in acknowledged if offset >= may_start and offset not in found]
    if lost:
        yield f"plain: {len(lost)} acknowledged records are lost, from {min(lost)} to {max(lost)}"
    if any(found.get(offset, value) != value for offset, value in acknowledged.items()):
        yield "plain: an acknowledged record is another one"
    if not set(found.values()) <= promises.sent:
        yield "plain: records that nobody has sent"


def number_of(value: bytes | None) -> int:
    return int((value or b"-1").partition(b".")[0])
