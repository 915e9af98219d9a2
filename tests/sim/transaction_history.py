"""What became of transactions, as their producers saw it, and what readers and logs may show of them.

    pre-committed read    a reader of committed data was given a value whose commit nobody had asked for
    aborted read          the same, in the end, or after the commit was refused
    torn transaction      some of its values are visible in the end, and some are not
    lost commit           a commit was acknowledged, and a value is not visible
    duplicate             a value is visible twice
    lost committed read   visible by the log's markers, and not given to a reader who came to the end; or the
                          other way round: wrong committed read
    late end              an EndTxn of the transaction before was taken, for the next one
    leaked offset         a group was told an offset of a transaction whose commit nobody had asked for
    lost, double copy     of what a group of copiers read, something was not written, or was written twice
    open transaction      nobody has ended it
    wrong marker          nobody has decided that, or it is there already

A transaction whose commit was asked for, and whose producer heard nothing, may have either outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kbroker.coordinators.transaction import Transaction as Stored
from storage.log import UnifiedLog
from storage.reading import Isolation
from tests.sim.history import History, Place
from wire.internal import TRANSACTION_STATE, decode_record
from wire.internal.transaction_state import TransactionLogValue
from wire.records import (
    BatchHeader,
    ControlType,
    Record,
    batch_headers,
    control_type,
    coordinator_epoch,
    records,
)

Committed = Mapping[int, bytes]
"""Values by offset."""


@dataclass(eq=False)
class Transaction:
    """Of one producer; `number` rises."""

    producer: str
    number: int
    values: dict[bytes, Place] = field(default_factory=dict)
    copied: dict[bytes, tuple[Place, int]] = field(default_factory=dict)
    """Values that are copies, and of what."""
    is_asked_to_commit: bool = False
    is_committed: bool = False
    is_refused: bool = False
    """Its only request to commit was."""

    def __repr__(self) -> str:
        return f"{self.producer}#{self.number}"

    @property
    def may_be_visible(self) -> bool:
        return self.is_asked_to_commit and not self.is_refused


class TransactionHistory:
    def __init__(self, history: History) -> None:
        self.all: list[Transaction] = []
        self.is_asked_for: Callable[[], object] = lambda: None
        """Called with every request to end a transaction."""
        self._history = history
        self._of: dict[bytes, Transaction] = {}
        self._offsets: dict[tuple[str, Place, int], list[Transaction]] = {}

    # -- producers

    def begins(self, producer: str) -> Transaction:
        transaction = Transaction(producer, len(self.all))
        self.all.append(transaction)
        return transaction

    def writes(self, transaction: Transaction, place: Place, value: bytes) -> None:
        transaction.values[value] = place
        self._of[value] = transaction

    def writes_offset(self, transaction: Transaction, group: str, place: Place, offset: int) -> None:
        self._offsets.setdefault((group, place, offset), []).append(transaction)

    def asks(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.is_asked_to_commit = commit
        self._history.note("asks to commit" if commit else "asks to abort", transaction)
        self.is_asked_for()

    def ended(self, transaction: Transaction) -> None:
        transaction.is_committed = transaction.is_asked_to_commit
        self._history.note("committed" if transaction.is_committed else "aborted", transaction)

    def refused(self, transaction: Transaction, *, is_certain: bool) -> None:
        transaction.is_refused = is_certain
        self._history.note("not committed", transaction, is_certain)

    def late_end_answered(self, who: str, first: EndAnswer, again: EndAnswer) -> None:
        """The EndTxn of the transaction before was sent again within the next one, and not refused.

        A coordinator that has been replaced and was not told yet knows nothing of the next transaction. It
        may say again what the first EndTxn was told: that is true, and changes nothing. If it is said by one
        that should know of the next transaction, that one stays open for good, which shows in the end.
        """
        if again != first:
            self._history.broken("late end", f"{who}: {again}, where {first} was told before")

    # -- readers

    def read(self, who: str, place: Place, offset: int, value: bytes) -> None:
        """By a reader of committed data."""
        transaction = self._of.get(value)
        if transaction is not None and not transaction.may_be_visible:
            anomaly = "aborted read" if transaction.is_refused else "pre-committed read"
            self._history.broken(anomaly, f"{who} {place} {offset}: {value!r} of {transaction}")

    def beyond(self, who: str, place: Place, offset: int, last_stable_offset: int) -> None:
        detail = f"{who} {place}: {offset}, where {last_stable_offset} is stable"
        self._history.broken("pre-committed read", detail)

    def told_offset(self, group: str, place: Place, offset: int) -> None:
        """Of all who have had that offset in a transaction, one may have committed it."""
        wrote = self._offsets.get((group, place, offset), [])
        if offset >= 0 and not any(one.may_be_visible for one in wrote):
            self._history.broken("leaked offset", f"{group} {place}: {offset} of {wrote}")

    # -- the end

    def compare_reader(self, who: str, place: Place, seen: Committed, visible: Committed) -> None:
        for offset in sorted({*seen, *visible}):
            if seen.get(offset) != visible.get(offset):
                anomaly = "wrong committed read" if offset in seen else "lost committed read"
                self._history.broken(anomaly, f"{who} {place} {offset}: {seen.get(offset)!r}")

    def compare(self, visible: Mapping[Place, Committed]) -> None:
        """With all that is visible in the end."""
        counts: dict[bytes, int] = {}
        for committed in visible.values():
            for value in committed.values():
                counts[value] = counts.get(value, 0) + 1
        for transaction in self.all:
            self._compare(transaction, counts)

    def _compare(self, transaction: Transaction, counts: Mapping[bytes, int]) -> None:
        there = [counts.get(value, 0) for value in transaction.values]
        broken = self._history.broken
        if any(count > 1 for count in there):
            broken("duplicate", f"values of {transaction} are visible {there} times")
        if any(there) and not transaction.may_be_visible:
            broken("aborted read", f"{transaction} is visible")
        elif any(there) and not all(there):
            broken("torn transaction", f"{transaction}: {there} of {list(transaction.values.values())}")
        elif transaction.is_committed and not all(there):
            broken("lost commit", f"{transaction} was committed and is not visible")

    def compare_copies(self, source: Mapping[Place, Committed], visible: Mapping[Place, Committed]) -> None:
        copies: dict[tuple[Place, int], list[bytes]] = {}
        for committed in visible.values():
            for value in committed.values():
                transaction = self._of.get(value)
                if transaction is not None and value in transaction.copied:
                    copies.setdefault(transaction.copied[value], []).append(value)
        for place, stored in source.items():
            for offset in stored:
                found = copies.get((place, offset), [])
                if len(found) != 1:
                    self._history.broken(
                        "double copy" if found else "lost copy", f"{place} {offset}: {found}"
                    )

    def scan(self, place: Place, log: UnifiedLog, decisions: Decisions) -> Committed:
        """What is visible by the markers in a log; they must be those that coordinators have decided."""
        visible: dict[int, bytes] = {}
        open_values: dict[int, dict[int, bytes]] = {}
        markers: dict[int, list[Marker]] = {}
        for header, found in batches(log):
            values = {one.offset: bytes(one.value or b"") for one in found}
            if header.is_control:
                is_commit = control_type(found[0]) is ControlType.COMMIT
                marker = Marker(Outcome(header.producer_epoch, is_commit), coordinator_epoch(found[0]))
                markers.setdefault(header.producer_id, []).append(marker)
                ended = open_values.pop(header.producer_id, {})
                visible |= ended if is_commit else {}
            elif header.is_transactional:
                open_values.setdefault(header.producer_id, {}).update(values)
            else:
                visible |= values
        if open_values:
            self._history.broken("open transaction", f"{place}: {open_values}")
        for producer_id, written in markers.items():
            wrong = superfluous(written, decisions.get((place, producer_id), []))
            if wrong is not None:
                self._history.broken("wrong marker", f"{place}, producer {producer_id}: {wrong}")
        return visible


class EndAnswer(NamedTuple):
    """What an EndTxn that succeeded was about, and what it gave the producer to go on with."""

    is_commit: bool
    producer_id: int
    producer_epoch: int


class Outcome(NamedTuple):
    """Of a transaction of some producer."""

    producer_epoch: int
    is_commit: bool


class Marker(NamedTuple):
    outcome: Outcome
    coordinator_epoch: int


Decisions = Mapping[tuple[Place, int], list[Outcome]]
"""By partition and producer id, in order."""


def decided(logs: Iterable[UnifiedLog]) -> Decisions:
    """By the partitions of `__transaction_state`. A producer has its transactions in one of them."""
    found: dict[tuple[Place, int], list[Outcome]] = {}
    for record in (record for log in logs for _, stored in batches(log) for record in stored):
        decoded = decode_record(TRANSACTION_STATE, record.key or b"", record.value)
        if decoded is None or not isinstance(decoded[1], TransactionLogValue):
            continue
        transaction = Stored.from_record("", decoded[1])
        if transaction.state.is_decided:
            outcome = Outcome(transaction.producer_epoch, transaction.state.is_commit)
            for place in transaction.partitions:
                found.setdefault(((place.topic, place.partition), transaction.producer_id), []).append(
                    outcome
                )
    return found


def superfluous(markers: list[Marker], decisions: list[Outcome]) -> Marker | None:
    """The first marker that no decision stands behind, or only one that has a marker already.

    A coordinator that takes over repeats what it finds decided. A decision needs no marker where nothing was
    written.
    """
    following = iter(decisions)
    before: Marker | None = None
    for marker in markers:
        is_repeated = (
            before is not None
            and marker.outcome == before.outcome
            and marker.coordinator_epoch > before.coordinator_epoch
        )
        if not is_repeated and marker.outcome not in following:
            return marker
        before = marker
    return None


def batches(log: UnifiedLog) -> Iterator[tuple[BatchHeader, list[Record]]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 24, Isolation.LOG_END)
        for position, header in batch_headers(read.records):
            yield header, list(records(read.records, position, header))
        offset = read.next_offset
