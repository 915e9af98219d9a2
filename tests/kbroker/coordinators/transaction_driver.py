"""The transaction coordinator's runtime in miniature: a log in memory, a clock, and partitions for markers.

Strict where `kbroker.coordinators.step` is: what is replayed was encoded and decoded, tokens are answered
once, and markers are written only on demand, as if every leader was far away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kbroker.coordinators.offsets import Place
from kbroker.coordinators.step import Markers, Step, TimerKey
from kbroker.coordinators.transaction import Identity, Transaction
from kbroker.coordinators.transactions import TransactionConfig, Transactions
from wire.api.end_txn import EndTxnRequest
from wire.api.init_producer_id import InitProducerIdRequest
from wire.errors import ErrorCode
from wire.internal import TRANSACTION_STATE, decode_record, encode_record_key, encode_record_value
from wire.internal.transaction_state import TransactionLogKey

START_MS = 1_700_000_000_000


@dataclass(eq=False)
class Token:
    reply: Any = None


@dataclass
class Driver:
    config: TransactionConfig = field(default_factory=TransactionConfig)
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    now_ms: int = START_MS
    refuse_with: ErrorCode | None = None

    def __post_init__(self) -> None:
        self.timers: dict[TimerKey, int] = {}
        self.notes: list[str] = []
        self.replied: Callable[[object], object] = lambda response: None
        self.unsent: list[Markers] = []
        self.markers: dict[Place, list[tuple[int, int, bool]]] = {}
        """What every partition got: producer id, epoch, whether to commit."""
        self._producer_ids = count(1000)
        self._load()

    def _load(self) -> None:
        self.transactions = Transactions(self.config)
        for offset, (key, value) in enumerate(self.log):
            self._replay(key, value, offset)
        self.timers.clear()
        self.unsent.clear()
        self.run(self.transactions.loaded(self.now_ms))

    def find(self, transaction: Transaction) -> None:
        """Its record, as somebody else may have written it, is in the log that is loaded."""
        key = encode_record_key(TransactionLogKey(transactional_id=transaction.transactional_id))
        self.log.append((key, encode_record_value(transaction.to_record(1), 1)))
        self._load()

    def restart(self) -> None:
        """The partition moves away, and comes back. Markers that were on their way are lost."""
        assert not self.transactions.unloaded(self.now_ms).replies
        self._load()

    def run(self, step: Step) -> None:
        if step.records and self.refuse_with is not None:
            step = self.transactions.refused(step, self.refuse_with, self.now_ms)
            assert not step.records
            assert not step.markers
        for key, value, version in step.records:
            entry = encode_record_key(key), None if value is None else encode_record_value(value, version)
            assert decode_record(TRANSACTION_STATE, *entry) == (key, value)
            self.log.append(entry)
            self._replay(*entry, len(self.log) - 1)
        for timer_key, deadline_ms in step.timers:
            self.timers.pop(timer_key, None)
            if deadline_ms is not None:
                self.timers[timer_key] = deadline_ms
        for token, response in step.replies:
            assert isinstance(token, Token)
            assert token.reply is None
            token.reply = response
            self.replied(response)
        self.notes.extend(step.notes)
        self.unsent.extend(step.markers)

    def _replay(self, key: bytes, value: bytes | None, offset: int) -> None:
        decoded = decode_record(TRANSACTION_STATE, key, value)
        assert decoded is not None
        self.transactions.replay(*decoded, offset)

    def advance(self, delay_ms: int) -> None:
        end_ms = self.now_ms + delay_ms
        while due := [
            (deadline_ms, key) for key, deadline_ms in self.timers.items() if deadline_ms <= end_ms
        ]:
            deadline_ms, key = min(due)
            del self.timers[key]
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run(self.transactions.on_timer(key, self.now_ms))
        self.now_ms = end_ms

    # Requests

    def new_producer_id(self, transactional_id: str) -> int:
        needs = self.transactions.needs_producer_id(transactional_id)
        return next(self._producer_ids) if needs else -1

    def init(
        self, transactional_id: str | None, claimed: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000
    ) -> tuple[ErrorCode, Identity]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=claimed[0],
            producer_epoch=claimed[1],
        )
        token = Token()
        producer_id = self.new_producer_id(transactional_id or "")
        self.run(self.transactions.init_producer_id(request, producer_id, token, self.now_ms))
        return told(token)

    def add(
        self, transactional_id: str, identity: tuple[int, int], *names: str, version: int = 0
    ) -> ErrorCode:
        """Partitions are named like t-0."""
        token = Token()
        partitions = places(*names)
        self.run(
            self.transactions.add_partitions(
                transactional_id, Identity(*identity), partitions, version, token, self.now_ms
            )
        )
        return one_error(token)

    def verify(self, transactional_id: str, identity: tuple[int, int], name: str) -> ErrorCode:
        token = Token()
        self.run(
            self.transactions.verify_partitions(
                transactional_id, Identity(*identity), places(name), token, self.now_ms
            )
        )
        return one_error(token)

    def end(
        self, transactional_id: str, identity: tuple[int, int], *, is_commit: bool, version: int = 0
    ) -> tuple[ErrorCode, Identity]:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=is_commit,
        )
        token = Token()
        producer_id = self.new_producer_id(transactional_id)
        self.run(self.transactions.end(request, version, producer_id, token, self.now_ms))
        return told(token)

    # Markers

    def write_markers(self, number: int = 0, most: int = 1_000) -> None:
        """Some partitions get the marker that was asked for first, or later; the others stay without."""
        if number < len(self.unsent):
            asked = self.unsent.pop(number)
            now = sorted(asked.partitions)[:most]
            for place in now:
                marker = (asked.producer_id, asked.producer_epoch, asked.is_commit)
                self.markers.setdefault(Place(*place), []).append(marker)
            if len(now) < len(asked.partitions):
                self.unsent.append(asked._replace(partitions=asked.partitions - set(now)))
            self.run(self.transactions.markers_written(asked, now, self.now_ms))

    def write_all_markers(self) -> None:
        while self.unsent:
            self.write_markers()

    def state(self, transactional_id: str) -> str:
        return self.transactions.describe(transactional_id).transaction_state


def places(*names: str) -> frozenset[Place]:
    split = [name.rsplit("-", 1) for name in names]
    return frozenset(Place(topic, int(index)) for topic, index in split)


def told(token: Token) -> tuple[ErrorCode, Identity]:
    reply = token.reply
    return ErrorCode(reply.error_code), Identity(reply.producer_id, reply.producer_epoch)


def one_error(token: Token) -> ErrorCode:
    """Of all partitions, the same."""
    errors = {
        partition.partition_error_code
        for topic in token.reply.topic_results
        for partition in topic.results_by_partition
    }
    assert len(errors) == 1
    return ErrorCode(errors.pop())
