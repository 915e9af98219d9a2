"""A client under test is a program of its own: requests go in as lines of JSON, answers come out as lines.

    program = Program(python_program("aiokafka"), broker.address, log)
    program.ask("produce", topic="t", records=[Record(b"hello").to_json()])

Rules:
- The program's only argument is the broker's address. A request is `{"do": VERB, ...}`; its answer, one line,
  is what the verb promises below or `{"error": CODE, "text": ...}` with Kafka's number of the error, or any
  other where the client itself refuses. The program serves until its input ends.
- Bytes are base64, null stays null, a partition that is a key of an object is a string.
- `member` alone does not answer once: it reports until another line or the end of the input has it leave.

The verbs, their arguments with the defaults, and the answers:

produce(topic, records=[{key, value, headers: [[name, value]], partition, timestamp}], codec="none",
        acks="all", idempotent=false) -> {"offsets": [[partition, offset], ...]}
    In the order of the records; offsets may be -1 with acks=0. The producer lives on for later requests.
consume(topic, starts={"0": 17}, count, reset="none", timeout_ms=30000)
        -> {"records": [{partition, offset, key, value, headers, timestamp}]}
    At most `count`, without a group.
member(group, topics=["t"] or pattern="^t", assignor="range" or "cooperative", instance_id=null, count=null,
        session_ms=10000)
        -> {"assigned": [[topic, partition]]}, at each change, all that it has now
        -> {"records": [[topic, partition, offset, value]]}
        -> {"left": true}, as the last line
    Starts at the earliest record, commits what it has reported; leaves by itself after `count` records.
    Heartbeats every 200 ms; metadata at most 500 ms old.
copy(topics=[source, target], group, count, timeout_ms=30000, session_ms=10000) -> {"copied": 400}
    Partition 0, exactly once, with the group's name as the transactional id. Ten records are a transaction;
    every third one is aborted, and its records are read again. Done when the group's offset is `count`.
    Of franz-go, kafkajs and sarama alone: compat_tests/transactions/ has programs for Java and Python.
offsets(topic, at="earliest" or "latest" or milliseconds) -> {"offsets": {"0": 17}}
create_topic(topic, partitions, configs={}) -> {}
delete_topic(topic) -> {}
topics() -> {"topics": ["t"]}
describe_topic(topic) -> {"leaders": {"0": 1}}
grow_topic(topic, partitions) -> {}, when it has so many
topic_configs(topic) -> {"configs": {"retention.ms": "604800000"}}
alter_topic_configs(topic, configs) -> {}
delete_records(topic, before={"0": 17}) -> {}
groups() -> {"groups": ["g"]}
describe_group(group) -> {"state": "Stable", "members": 2}
delete_group(group) -> {}
group_offsets(group, topic, partitions=[0]) -> {"offsets": {"0": 17}}
alter_group_offsets(group, topic, offsets={"0": 17}) -> {}
cluster() -> {"brokers": [[id, host, port]], "controller": id}
"""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from compat_tests.features import client_lacks

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / ".cache" / "clients"
PROGRAMS = Path(__file__).with_name("programs")
WAIT_S = 30

Headers = tuple[tuple[str, bytes | None], ...]
Partition = tuple[str, int]


class ClientError(Exception):
    """What the client reported: Kafka's error code, or a number of its own."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Record(NamedTuple):
    """As sent or as received."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    offset: int | None = None

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        """What no broker may change."""
        return self.key, self.value, self.headers

    def to_json(self) -> dict[str, Any]:
        return {
            "key": encoded(self.key),
            "value": encoded(self.value),
            "headers": [[name, encoded(value)] for name, value in self.headers],
            "partition": self.partition,
            "timestamp": self.timestamp,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        headers = tuple((name, decoded(value)) for name, value in found["headers"] or ())
        place = found["partition"], found["timestamp"], found["offset"]
        return cls(decoded(found["value"]), decoded(found["key"]), headers, *place)


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def python_program(name: str) -> list[str]:
    return [sys.executable, "-m", f"compat_tests.clients.programs.{name}"]


class Program:
    """A running client. What it complains about is in `log`."""

    def __init__(
        self, command: list[str], address: str, log: Path, lacks: Mapping[str, str] | None = None
    ) -> None:
        """`lacks` says of verbs, and of words that scenarios ask for, why this client has no such thing."""
        self._lacks = lacks or {}
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, address],
                cwd=ROOT,
                env={**os.environ, "NODE_PATH": str(BUILT / "node_modules")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # so that what it starts dies with it
            )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def needs(self, *words: str) -> None:
        """End the test here if the client has not what it is about."""
        for word in words:
            if word in self._lacks:
                client_lacks(self._lacks[word])

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        self.needs(verb)
        self.tell(verb, **arguments)
        answer = self.answer(WAIT_S)
        if answer is None:
            self.kill()  # or later answers would be taken for those to other questions
            raise AssertionError(f"no answer to {verb}")
        return answer

    def tell(self, verb: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # whoever waits for the answer is told of the end
            self._process.stdin.write(json.dumps({"do": verb, **arguments}) + "\n")
            self._process.stdin.flush()

    def answer(self, timeout_s: float) -> dict[str, Any] | None:
        """The next line, or None when there is none in time."""
        try:
            answer = self._answers.get(timeout=timeout_s) if timeout_s else self._answers.get_nowait()
        except queue.Empty:
            return None
        if answer is None:
            self._answers.put(None)
            raise AssertionError(f"the program has ended:\n{self._log.read_text()[-4000:]}")
        if "error" in answer:
            raise ClientError(answer["error"], answer["text"])
        return answer

    def end_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """It ends by itself, since its input does."""
        self.end_input()
        try:
            self._process.wait(WAIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """The death of a process: kill -9, with all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        self.end_input()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Member(Program):
    """A consumer in a group: what it has been assigned, and what it has read so far."""

    def __init__(self, command: list[str], address: str, log: Path, **options: Any) -> None:
        super().__init__(command, address, log)
        self.assignments: list[frozenset[Partition]] = []
        self.read: list[tuple[Partition, int, bytes | None]] = []
        self.has_left = False
        self.tell("member", **options)

    @property
    def share(self) -> frozenset[Partition]:
        """The partitions that it has now."""
        return self.assignments[-1] if self.assignments else frozenset()

    @property
    def values(self) -> list[int]:
        """What it has read: the values of records are numbers in these tests."""
        return [int(value or b"-1") for _, _, value in self.read]

    def listen(self, timeout_s: float) -> None:
        """Take in what it has reported."""
        while report := self.answer(timeout_s):
            timeout_s = 0.0
            self.has_left = self.has_left or report.get("left", False)
            if "assigned" in report:
                self.assignments.append(frozenset((topic, number) for topic, number in report["assigned"]))
            self.read += [
                ((topic, partition), offset, decoded(value))
                for topic, partition, offset, value in report.get("records", ())
            ]
            if self.has_left:
                break

    def leave(self) -> None:
        """In good order: it commits, leaves the group and ends."""
        self.end_input()
        self.finish()

    def finish(self) -> None:
        """Wait until it has left, and end it."""
        until([self], lambda: self.has_left)
        self.close()


def until(members: Iterable[Member], condition: Callable[[], bool]) -> None:
    """Listen to these until the condition holds."""
    members = list(members)
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, [(sorted(one.share), len(one.read)) for one in members]
        for member in members:
            if not member.has_left:
                member.listen(0.02)
