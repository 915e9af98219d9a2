"""Producers of both protocol versions transact while brokers die: what readers of committed data may say.

Every transaction writes one value, its own, to several partitions, and commits its number as the offset of
its producer's group. At the end, in every partition:
- what was told to be committed is there, once, in each partition of its transaction: none is lost or torn;
- what was told to be aborted is in none, and what nobody knows of is in all of its partitions or in none;
- each producer's values are in the order in which it wrote them;
- each group is where the last transaction of its producer that was committed has put it;
- nothing is left open.
All the while a reader looked on: the last stable offset never went back, and nothing it saw is missing.
"""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from tests.kbroker.cluster.in_process import Cluster, run, until
from tests.kbroker.cluster.routed import PARTITIONS, Routed
from tests.kbroker.transacting import (
    GROUP,
    READ_COMMITTED,
    Transacting,
    committed_in,
    committed_offset,
    read_committed,
    settled,
)
from wire.errors import ErrorCode

pytestmark = pytest.mark.slow

LATEST = -1
TRANSACTIONS = 15
DEATHS = 4
AGAIN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)
OVER = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


class Worker:
    """One producer, and what it was told of each of its transactions."""

    def __init__(self, speaker: Routed, name: str, version: int, chance: random.Random) -> None:
        self.speaker, self.name, self.version, self.chance = speaker, name, version, chance
        self.told: dict[bytes, tuple[str, list[int]]] = {}

    def work(self) -> None:
        one = self.reborn()
        for number in range(TRANSACTIONS):
            value = b"%s-%03d" % (self.name.encode(), number)
            partitions = self.chance.sample(range(PARTITIONS), self.chance.randint(1, PARTITIONS))
            outcome = self.transact(one, value, partitions)
            self.told[value] = outcome, partitions
            if outcome == UNKNOWN:
                one = self.reborn()

    def reborn(self) -> Transacting:
        """As after a restart of the program: what was open is aborted."""
        one = Transacting(self.speaker, self.name, self.version)
        one.find()
        one.find(self.name, GROUP)
        assert settled(one.init, *AGAIN) == 0
        return one

    def transact(self, one: Transacting, value: bytes, partitions: list[int]) -> str:
        for index in partitions:
            if self.version < 2 and (error := settled(lambda index=index: one.add("t", index)[0], *AGAIN)):  # type: ignore[misc]
                return self.over(error)
            data = one.data("t", value, partition=index)
            error = settled(lambda data=data, index=index: one.send_data("t", data, index)[0], *AGAIN)  # type: ignore[misc]
            if error:
                return self.over(error)
            one.sequences["t", index] = one.sequences.get(("t", index), 0) + 1
        if error := self.commit_offset(one, int(value[-3:])):
            return self.over(error)
        if self.chance.random() < 0.1:
            return UNKNOWN  # it dies with the transaction open
        is_commit = self.chance.random() < 0.7
        if error := settled(lambda: one.end(is_commit=is_commit), *AGAIN):
            return self.over(error)
        return COMMITTED if is_commit else ABORTED

    def commit_offset(self, one: Transacting, offset: int) -> int:
        if self.version < 2 and (error := settled(lambda: one.add_offsets(self.name), *AGAIN)):
            return error
        return settled(lambda: one.commit_offset(self.name, "t", offset), *AGAIN)

    def over(self, error: int) -> str:
        assert error in OVER, ErrorCode.__members__
        return UNKNOWN


class Reader:
    """Looks at every partition, again and again, until it is told to stop."""

    def __init__(self, speaker: Routed) -> None:
        self.speaker = speaker
        self.stopping = threading.Event()
        self.seen: dict[int, set[bytes | None]] = {index: set() for index in range(PARTITIONS)}
        self.stable = dict.fromkeys(range(PARTITIONS), 0)

    def look(self) -> None:
        while not self.stopping.is_set():
            for index in range(PARTITIONS):
                answer = self.speaker.offset("t", LATEST, index, isolation_level=READ_COMMITTED)
                if answer.error_code == 0:
                    assert answer.offset >= self.stable[index], (
                        f"the last stable offset of t-{index} went back"
                    )
                    self.stable[index] = answer.offset
                answer = self.speaker.fetch("t", 0, partition=index, isolation_level=READ_COMMITTED)
                aborted = sorted(
                    (one.first_offset, one.producer_id) for one in answer.aborted_transactions or ()
                )
                found, _ = committed_in(bytes(answer.records or b""), aborted)
                self.seen[index].update(record.value for record in found)


async def kill(cluster: Cluster, chance: random.Random) -> None:
    """One broker after the other dies and comes back."""
    for _ in range(DEATHS):
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        dying = chance.choice(sorted(cluster.brokers))
        await cluster.crash(dying)
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        await cluster.start(dying)
        for index in range(PARTITIONS):
            await until(lambda index=index: len(cluster.isr("t", index)) == 3)  # type: ignore[misc]


def check(workers: list[Worker], reader: Reader) -> None:
    found = {index: read_committed(reader.speaker, "t", index) for index in range(PARTITIONS)}
    for index, values in found.items():
        assert reader.seen[index] <= set(values), "seen before it was committed, or though it was aborted"
    for worker in workers:
        for value, (outcome, partitions) in worker.told.items():
            seen = {index for index in range(PARTITIONS) if value in found[index]}
            allowed: dict[object, list[set[int]]] = {
                COMMITTED: [set(partitions)],
                ABORTED: [set()],
                UNKNOWN: [set(), set(partitions)],
            }
            assert seen in allowed[outcome], (value, outcome, partitions)
        for values in found.values():
            mine = [value for value in values if value and value.startswith(worker.name.encode())]
            assert mine == sorted(set(mine)), "in order, and once"
        committed = [
            int(value[-3:]) for value in worker.told if any(value in seen for seen in found.values())
        ]
        expected_offset = max(committed, default=-1)
        assert committed_offset(reader.speaker, worker.name, "t", require_stable=True) == (0, expected_offset)


@pytest.mark.parametrize("seed", range(4))
def test_no_transaction_is_torn_lost_or_repeated(tmp_path: Path, seed: int) -> None:
    """conformance 43, 44, 50"""

    async def body(cluster: Cluster) -> None:
        chance = random.Random(seed)
        await cluster.create("t", partitions=PARTITIONS)
        speaker = Routed(cluster)
        workers = [
            Worker(speaker, f"w{number}", 1 + number % 2, random.Random(f"{seed}-{number}"))
            for number in range(4)
        ]
        reader = Reader(speaker)
        looking = asyncio.create_task(asyncio.to_thread(reader.look))
        working = [asyncio.create_task(asyncio.to_thread(worker.work)) for worker in workers]
        killing = asyncio.create_task(kill(cluster, chance))
        try:
            await asyncio.gather(*working, killing)
        finally:
            reader.stopping.set()
            await looking
        for worker in workers:  # what is still open is aborted
            await asyncio.to_thread(worker.reborn)
        await asyncio.to_thread(check, workers, reader)
        for index in range(PARTITIONS):
            log = cluster.hosted(cluster.leader("t", index), "t", index).log
            assert log.last_stable_offset == log.log_end_offset
            await cluster.agreed("t", index)

    run(body, tmp_path, transaction_state_log_num_partitions=PARTITIONS)
