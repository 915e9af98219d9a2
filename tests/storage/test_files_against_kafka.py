"""Kafka's own classes write and read indexes, checkpoints and leader epochs; ours must agree, byte for byte.

The same random script goes to our classes on a real disk and to a small Java program in a directory beside
it. Then each opens what the other has left.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.checkpoints import (
    MetaProperties,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
    write_partition_metadata,
)
from storage.files import Disk
from storage.indexes import AbortedTransaction, OffsetIndex, TimeIndex
from storage.leader_epochs import LeaderEpochs
from storage.transaction_index import TransactionIndex
from tests.wire.kafka_jars import run_java, server_class_path

PROGRAM = Path(__file__).parent / "java" / "FilesCheck.java"
TOPIC_ID = bytes(range(0x6A, 0x7A))
BASE = 7_000_000_000
START_MS = 1_700_000_000_000

Indexes = tuple[OffsetIndex, TimeIndex, TransactionIndex]


def ask_kafka(lines: list[str]) -> list[str]:
    return run_java(server_class_path(), str(PROGRAM), input="\n".join(lines))


def words(*values: object) -> str:
    return " ".join(map(str, values))


class Conversation:
    """What we ask Kafka, and what we say ourselves."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.answers: list[str] = []

    def say(self, line: str, answer: str) -> None:
        self.lines.append(line)
        self.answers.append(answer)

    def compare(self) -> None:
        answers = ask_kafka(self.lines)
        both = zip(self.lines, self.answers, answers, strict=True)
        assert [(line, ours, theirs) for line, ours, theirs in both if ours != theirs] == []


def indexes(directory: Path, name: str, max_bytes: int) -> Indexes:
    path = str(directory / name)
    return (
        OffsetIndex(Disk(), path + ".index", BASE, max_bytes),
        TimeIndex(Disk(), path + ".timeindex", BASE, max_bytes),
        TransactionIndex(Disk(), path + ".txnindex", BASE),
    )


def counts(ours: Indexes) -> str:
    return words(*(index.entries for index in ours))


def grow(talk: Conversation, ours: Indexes, chance: random.Random) -> None:
    """Append to all three until the offset index is full, or so."""
    offsets, times, transactions = ours
    offset, position = offsets.last_entry
    timestamp = max(times.last_entry.timestamp, START_MS)
    for _ in range(chance.randint(0, 1500)):
        offset += chance.choice((1, 10, 1000))
        position += chance.randint(1, 20_000)
        timestamp += chance.choice((0, 1, 50))
        if offsets.is_full or times.is_full:
            break
        offsets.append(offset, position)
        talk.say(words("index offset", offset, position), str(offsets.is_full).lower())
        times.maybe_append(timestamp, offset)
        talk.say(words("index time", timestamp, offset, False), str(times.is_full).lower())
        if chance.random() < 0.2:
            first, stable = offset - chance.randint(1, 50), offset + 1 - chance.choice((0, 0, 70))
            aborted = AbortedTransaction(chance.randint(1, 9), first, offset, stable)
            transactions.append(aborted)
            talk.say(words("index aborted", *aborted), "")


def search(talk: Conversation, ours: Indexes, chance: random.Random) -> None:
    offsets, times, transactions = ours
    for _ in range(30):
        target = chance.randint(BASE - 5, offsets.last_entry.offset + 5)
        talk.say(words("index find", target), words(*offsets.lookup(target)))
        timestamp = START_MS + chance.randint(-5, max(0, times.last_entry.timestamp - START_MS) + 5)
        talk.say(words("index when", timestamp), words(*times.lookup(timestamp)))
        upper_bound = target + chance.randint(1, 2000)
        found, complete = transactions.collect(target, upper_bound)
        text = "".join(words(*transaction) + "; " for transaction in found)
        talk.say(words("index collect", target, upper_bound), text + str(complete).lower())


def truncate(talk: Conversation, ours: Indexes, chance: random.Random) -> None:
    offset = chance.randint(BASE, ours[0].last_entry.offset + 10)
    for index in ours:
        index.truncate_to(offset)
    talk.say(words("index truncate", offset), counts(ours))


@pytest.mark.slow
def test_kafka_and_we_keep_the_same_indexes(tmp_path: Path) -> None:
    talk = Conversation()
    for side in ("ours", "theirs"):
        (tmp_path / side).mkdir()
    names = [f"{number}" for number in range(12)]
    for seed, name in enumerate(names):
        chance = random.Random(seed)
        max_bytes = chance.choice((4096, 8190, 10 << 20))
        ours = indexes(tmp_path / "ours", name, max_bytes)
        talk.say(words("index open", tmp_path / "theirs" / name, BASE, max_bytes), "0 0 0")
        for _ in range(4):
            chance.choice((grow, grow, truncate))(talk, ours, chance)
            search(talk, ours, chance)
        for index in ours:
            index.flush()
            index.close()
        talk.say("index close", "")
    talk.compare()
    for file in (tmp_path / "theirs").iterdir():
        beside = tmp_path / "ours" / file.name
        assert beside.exists() or not file.stat().st_size
        assert not beside.exists() or beside.read_bytes() == file.read_bytes(), file.name


@pytest.mark.slow
def test_kafka_opens_our_indexes_and_we_open_those_it_left_when_killed(tmp_path: Path) -> None:
    talk, chance = Conversation(), random.Random(5)
    ours = indexes(tmp_path, "ours", 10 << 20)
    grow(Conversation(), ours, chance)
    for index in ours:
        index.flush()
        index.close()
    talk.say(words("index open", tmp_path / "ours", BASE, 10 << 20), counts(ours))
    search(talk, ours, chance)
    talk.say("index close", "")
    talk.say(words("index open", tmp_path / "theirs", BASE, 10 << 20), "0 0 0")
    model = indexes(tmp_path, "model", 10 << 20)
    grow(talk, model, chance)
    talk.say("index leave", "")
    talk.compare()
    assert (tmp_path / "theirs.index").stat().st_size == 10 << 20
    theirs = indexes(tmp_path, "theirs", 10 << 20)
    for found in theirs:
        found.sanity_check()
    assert [list(found) for found in theirs] == [list(expected) for expected in model]


@pytest.mark.slow
def test_kafka_and_we_agree_about_leader_epochs(tmp_path: Path) -> None:
    """Conformance 60, 65, 90."""
    talk = Conversation()
    for seed in range(40):
        chance = random.Random(seed)
        epochs = LeaderEpochs(Disk(durable=False), str(tmp_path / f"ours-{seed}"))
        talk.say(words("epoch open", tmp_path / f"theirs-{seed}"), "")

        def agree(
            line: str, change: Callable[..., None], *values: Any, epochs: LeaderEpochs = epochs
        ) -> None:
            change(*values)
            talk.say(words(line, *values), "".join(words(*entry) + "; " for entry in epochs.entries))

        for _ in range(25):
            kind = chance.random()
            offset = chance.randint(0, 100)
            if kind < 0.6:
                epoch = max(0, epochs.latest + chance.choice((0, 1, 1, 2, -1)))
                agree("epoch assign", epochs.assign, epoch, offset)
            elif kind < 0.8:
                agree("epoch end", epochs.truncate_from_end, offset)
            else:
                agree("epoch start", epochs.truncate_from_start, offset)
            epoch = chance.randint(-1, epochs.latest + 2)
            answer = (*epochs.end_offset_for(epoch, offset), epochs.epoch_for(offset))
            talk.say(words("epoch ask", epoch, offset), words(*answer))
        agree("epoch assign", epochs.assign, epochs.latest + 1, 1000)
        epochs.flush()
    talk.compare()
    for seed in range(40):
        assert (tmp_path / f"ours-{seed}").read_bytes() == (tmp_path / f"theirs-{seed}").read_bytes()


@pytest.mark.slow
def test_kafka_respects_our_lock_of_a_data_directory(tmp_path: Path) -> None:
    """It takes its own with FileChannel.tryLock."""
    lock = Disk().lock(str(tmp_path / ".lock"))
    asked = [f"lock {tmp_path}/.lock", f"lock {tmp_path}/other"]
    assert ask_kafka(asked) == ["held", "free"]
    lock.release()
    assert ask_kafka(asked) == ["free", "free"]


@pytest.mark.slow
def test_kafka_and_we_read_each_others_small_files(tmp_path: Path) -> None:
    ours, theirs, disk = tmp_path / "ours", tmp_path / "theirs", Disk()
    for directory in (ours, theirs):
        directory.mkdir()
    offsets = {("__consumer_offsets", 49): 2**60, ("orders", 0): 15}
    properties = MetaProperties(1, "a: b=c#d!", 7, TOPIC_ID)
    write_offsets(disk, f"{ours}/recovery-point-offset-checkpoint", offsets)
    write_partition_metadata(disk, str(ours), TOPIC_ID)
    write_meta_properties(disk, str(ours), replace(properties, metadata_file="metadata.db"))
    write_clean_shutdown(disk, str(ours), 42)
    _, read = ask_kafka([f"write {theirs}", f"read {ours}"])
    text = "amtsbW5vcHFyc3R1dnd4eQ"
    assert read == (
        f"{{__consumer_offsets-49={2**60}, orders-0=15}} {text} "
        f"MetaProperties(version=1, clusterId=a: b=c#d!, nodeId=7, directoryId={text}) 42"
    )
    assert read_offsets(disk, f"{theirs}/recovery-point-offset-checkpoint") == offsets
    assert read_offsets(disk, f"{theirs}/log-start-offset-checkpoint") == {}
    assert read_partition_metadata(disk, str(theirs)) == TOPIC_ID
    assert read_meta_properties(disk, str(theirs)) == properties
    for name in ("recovery-point-offset-checkpoint", "partition.metadata", ".kafka_cleanshutdown"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    own, *lines = [sorted((side / "meta.properties").read_text().splitlines()) for side in (ours, theirs)]
    own.remove("kbroker.metadata.file=metadata.db")
    assert [[line for line in one if line[0] != "#"] for one in lines] == [[x for x in own if x[0] != "#"]]
