"""Kafka's own log and our producer state get the same random batches, and have to give the same answers.

The script goes to a small Java program around Kafka's `UnifiedLog`, one command a line: `data ORIGIN
PRODUCER BATCH` and `marker VERSION BATCH` append bytes that we built, `verify` starts to look up a
transaction, `watermark` moves the high watermark, `restart` closes and opens the log or opens it as after a
kill, `state`, `aborted` and `snapshot` show what is remembered, in memory and in files.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from storage.indexes import AbortedTransaction
from storage.producer_state import EndMarker, Origin, ProducerState, VerificationGuard
from tests.storage.partitions import new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from tests.wire.kafka_jars import run_java, server_class_path
from wire.errors import KafkaError
from wire.record_batch import BatchHeader, assign
from wire.records import BatchBuilder, ControlType, control_batch

PROGRAM = Path(__file__).parent / "java" / "ProducersCheck.java"
MAX_SEQUENCE = 2**31 - 1
START_MS = 1_700_000_000_000


class Replica:
    """Our side of the conversation."""

    def __init__(self, *, verify: bool) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_dir("/log")
        self.verify = verify
        self.state = self.new_state()
        self.log: list[bytes] = []
        self.end = 0
        self.high_watermark = 0
        self.aborted: list[AbortedTransaction] = []
        self.guards: dict[int, VerificationGuard | None] = {}
        self.now_ms = START_MS

    def new_state(self) -> ProducerState:
        return ProducerState(self.disk, "/log", verify_transactions=self.verify)

    def data(self, batch: bytes, origin: Origin) -> str:
        header = BatchHeader.parse(batch)
        duplicate = self.state.check_append(header, origin, self.guards.get(header.producer_id))
        if duplicate is not None:
            return "{} {} {}".format(*duplicate)
        self.state.update(header, self.end)
        return self.store(batch, header)

    def marker(self, batch: bytes, marker: EndMarker, version: int) -> str:
        header = BatchHeader.parse(batch)
        self.state.check_marker(header, marker, Origin.COORDINATOR, version)
        completed = self.state.update_marker(header, marker, self.end, header.max_timestamp)
        if completed is not None:
            last_stable_offset = self.state.last_stable_offset(completed)
            if completed.is_aborted:
                self.aborted.append(AbortedTransaction(*completed[:3], last_stable_offset))
            self.state.complete(completed)
        return self.store(batch, header)

    def store(self, batch: bytes, header: BatchHeader) -> str:
        assigned = bytearray(batch)
        assign(assigned, 0, self.end, 0)
        self.log.append(bytes(assigned))
        first, self.end = self.end, self.end + header.last_offset_delta + 1
        self.state.map_end_offset = self.end
        return f"{first} {self.end - 1} -1"

    def start_verification(self, header: BatchHeader, bump: bool) -> str:
        guard = self.state.start_verification(header, self.now_ms, supports_epoch_bump=bump)
        self.guards[header.producer_id] = guard
        return "open" if guard is None else "guard"

    def last_stable_offset(self) -> str:
        unstable = self.state.first_unstable_offset
        return str(self.high_watermark if unstable is None else min(unstable, self.high_watermark))

    def restart(self, *, clean: bool) -> str:
        if not clean:
            # Kafka replays each segment it recovers, takes a snapshot, and loads that: it knows one batch of
            # each producer afterwards. Our recovery need not do so: five are better.
            self.state.truncate_fully_and_start_at(0)
            for batch in self.log:
                self.state.replay(BatchHeader.parse(batch), batch)
            self.state.map_end_offset = self.end
        self.state.take_snapshot()
        self.load()
        self.state.high_watermark_updated(self.high_watermark)
        return self.last_stable_offset()

    def load(self) -> None:
        self.state = self.new_state()
        self.state.truncate_and_reload(0, self.end, self.now_ms)

    def describe(self) -> str:
        text = ""
        for producer_id, entry in sorted(self.state.producers.items()):
            text += f"{producer_id} {entry.producer_epoch} {entry.coordinator_epoch} {entry.last_timestamp} "
            text += str(entry.transaction_first_offset)
            text += "".join(" ({} {} {} {})".format(*batch) for batch in entry.batches) + "; "
        late = self.state.has_late_transaction(self.now_ms, 900_000)
        return f"{text}late {str(late).lower()}"

    def describe_aborted(self) -> str:
        return "".join("{} {} {} {}; ".format(*transaction) for transaction in self.aborted)


class Script:
    """Random commands, each with our answer."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lines: list[str] = []
        self.answers: list[str] = []
        self.replica = Replica(verify=False)

    def say(self, line: str, answer: str = "") -> None:
        self.lines.append(line)
        self.answers.append(answer)

    def begin_log(self, name: str) -> None:
        verify = self.chance.random() < 0.5
        self.replica = Replica(verify=verify)
        self.say(f"new {name} {int(verify)}")
        self.say(f"now {self.replica.now_ms}")

    def batch(self) -> bytes:
        """Most often what its producer should send next, or nearly."""
        chance = self.chance
        producer_id = chance.randint(1, 4)
        entry = self.replica.state.producers.get(producer_id)
        epoch, sequence, transactional = chance.randint(0, 2), 0, chance.random() < 0.5
        if entry is not None:
            epoch = max(0, entry.producer_epoch + chance.choice((0,) * 12 + (1, -1)))
            sequence = entry.next_sequence if epoch == entry.producer_epoch else 0
            transactional = (entry.transaction_first_offset >= 0) ^ (chance.random() < 0.2)
            if chance.random() < 0.25 and entry.batches:
                remembered = chance.choice(entry.batches)
                sequence, count = remembered.first_sequence, remembered.offset_delta + 1
                return self.build(producer_id, epoch, sequence, count, transactional)
        elif chance.random() < 0.3:
            sequence = chance.choice((5, MAX_SEQUENCE, MAX_SEQUENCE - 3))
        if chance.random() < 0.1:
            sequence = max(0, sequence + chance.choice((-3, -1, 1, 2))) & MAX_SEQUENCE
        return self.build(producer_id, epoch, sequence, chance.randint(1, 5), transactional)

    def build(self, producer_id: int, epoch: int, sequence: int, count: int, transactional: bool) -> bytes:
        builder = BatchBuilder(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        for _ in range(count):
            timestamp_ms = self.replica.now_ms - self.chance.randint(0, 1000)
            builder.append(b"key", b"value", timestamp_ms=timestamp_ms)
        return builder.build()

    def attempt(self, line: str, answer: str | KafkaError) -> None:
        self.say(line, f"error {int(answer.code)}" if isinstance(answer, KafkaError) else answer)

    def data(self) -> None:
        batch = self.batch()
        origin = self.chance.choice((Origin.CLIENT,) * 9 + (Origin.COORDINATOR,))
        if origin is Origin.COORDINATOR:
            # Coordinators write for producers of their own: no client may write to their topics.
            header = BatchHeader.parse(batch)
            producer_id = header.producer_id + 10
            batch = self.build(producer_id, header.producer_epoch, -1, 1, header.is_transactional)
        try:
            answer: str | KafkaError = self.replica.data(batch, origin)
        except KafkaError as error:
            answer = error
        self.attempt(f"data {origin.name} {BatchHeader.parse(batch).producer_id} {batch.hex()}", answer)

    def marker(self) -> None:
        chance = self.chance
        producer_id = chance.choice((1, 2, 3, 4, 11, 12, 13, 14))
        entry = self.replica.state.producers.get(producer_id)
        epoch = 0 if entry is None else max(0, entry.producer_epoch + chance.choice((0, 0, 0, 1, 1, -1)))
        marker = EndMarker(chance.random() < 0.5, chance.choice((3, 3, 3, 3, 2, 4)))
        version = chance.choice((0, 1, 2))
        kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        batch = control_batch(kind, producer_id, epoch, marker.coordinator_epoch, self.replica.now_ms)
        try:
            answer: str | KafkaError = self.replica.marker(batch, marker, version)
        except KafkaError as error:
            answer = error
        self.attempt(f"marker {version} {batch.hex()}", answer)

    def verify(self) -> None:
        batch = self.batch()
        header, bump = BatchHeader.parse(batch), self.chance.random() < 0.5
        numbers = f"{header.producer_id} {header.base_sequence} {header.producer_epoch} {int(bump)}"
        try:
            answer: str | KafkaError = self.replica.start_verification(header, bump)
        except KafkaError as error:
            answer = error
        self.attempt(f"verify {numbers}", answer)

    def watermark(self) -> None:
        replica = self.replica
        replica.high_watermark = self.chance.randint(replica.high_watermark, replica.end)
        replica.state.high_watermark_updated(replica.high_watermark)
        self.say(f"watermark {replica.high_watermark}", replica.last_stable_offset())

    def pass_time(self) -> None:
        self.replica.now_ms += self.chance.choice((1, 1000, 600_000, 1_300_000, 30_000_000, 90_000_000))
        self.say(f"now {self.replica.now_ms}")
        if self.chance.random() < 0.5:
            self.replica.state.expire(self.replica.now_ms)
            self.say("expire")

    def restart(self) -> None:
        clean = self.chance.random() < 0.5
        self.say(f"restart {'clean' if clean else 'killed'}", self.replica.restart(clean=clean))

    def look(self) -> None:
        self.say("state", self.replica.describe())
        self.say("aborted", self.replica.describe_aborted())

    def step(self) -> None:
        steps = (self.data, self.marker, self.verify, self.watermark, self.pass_time, self.restart)
        self.chance.choices(steps, (60, 12, 12, 10, 3, 2))[0]()
        self.look()


@pytest.mark.slow
def test_kafkas_log_gives_the_same_answers_to_producers(tmp_path: Path) -> None:
    """Conformance 34 to 39, 42 to 47, as Kafka 4.3.1 decides them."""
    script = Script(seed=20)
    for number in range(60):
        script.begin_log(f"log-{number}")
        for _ in range(60):
            script.step()
    answers = run_java(server_class_path(), str(PROGRAM), str(tmp_path), input="\n".join(script.lines))
    for number, (line, ours, theirs) in enumerate(zip(script.lines, script.answers, answers, strict=True)):
        before = "\n".join(script.lines[max(0, number - 20) : number])
        assert ours == theirs, f"{before}\n{line}"
    errors = {answer for answer in answers if answer.startswith("error")}
    assert errors == {"error 45", "error 47", "error 48", "error 52"}


@pytest.mark.slow
def test_kafka_writes_the_same_snapshot(tmp_path: Path) -> None:
    """Byte for byte: its hash map has small producer ids in ascending order, as we write all."""
    script = Script(seed=21)
    for number in range(20):
        script.begin_log(f"log-{number}")
        while not script.replica.end:
            script.data()
        for _ in range(20):
            script.chance.choice((script.data, script.marker))()
        path = script.replica.state.take_snapshot()
        script.say("snapshot", script.replica.disk.read(path or "").hex())
    answers = run_java(server_class_path(), str(PROGRAM), str(tmp_path), input="\n".join(script.lines))
    differing = [
        (line, ours, theirs)
        for line, ours, theirs in zip(script.lines, script.answers, answers, strict=True)
        if ours != theirs
    ]
    assert differing == []


@pytest.mark.slow
def test_after_a_restart_a_marker_counts_before_it_is_replicated_as_in_kafka(tmp_path: Path) -> None:
    """A snapshot has the transactions that are open, and nothing of those whose marker it has seen."""
    builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(b"key", b"value", timestamp_ms=START_MS)
    data, end = builder.build(), control_batch(ControlType.ABORT, 1, 0, 3, START_MS)
    lines = ["new log-0 0", f"now {START_MS}", f"data CLIENT 1 {data.hex()}", f"marker 0 {end.hex()}"]
    asked = ["watermark 1", "restart clean", "restart killed", "watermark 2"]
    answers = run_java(server_class_path(), str(PROGRAM), str(tmp_path), input="\n".join(lines + asked))
    log = new_log(SimulatedDisk())
    for one, origin in ((data, Origin.CLIENT), (end, Origin.COORDINATOR)):
        log.append_as_leader([(one, BatchHeader.parse(one))], 0, START_MS, origin=origin)
    ours = []
    for begin, high_watermark in ((None, 1), (True, 1), (False, 1), (None, 2)):
        if begin:
            log.close()
        if begin is not None:
            log = reopened(log, clean=begin, now_ms=START_MS)
        log.high_watermark = high_watermark
        ours.append(str(log.last_stable_offset))
    assert answers[4:] == ["0", "1", "1", "2"]
    assert ours == answers[4:]
