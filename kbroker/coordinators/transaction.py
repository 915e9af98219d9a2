"""One transactional id: who may write under it, and how far its present transaction has come.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
             Ongoing -> PrepareAbort  -> CompleteAbort  -> Ongoing ...

Rules:
- A `Transaction` is a value: it never changes, and says all that its record in `__transaction_state` says.
- Prepare means decided: the outcome is durable and nothing can change it, only markers are missing. Until
  they are in every partition the id can do nothing else.
- An epoch belongs to one producer. 32767 is kept for fencing: whoever could get it gets epoch 0 of a new
  producer id instead, which waits in `next_producer_id` while markers of the old one are being written.
- `client_version` is the transaction version of the client that moved it last: from 2 on (KIP-890) each end
  of a transaction raises the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Any, NamedTuple, Self

from kbroker.coordinators.offsets import Place
from wire.internal.transaction_state import PartitionsSchema, TransactionLogValue

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NOT_STARTED = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
EPOCH_BUMP_VERSION = 2
"""The transaction version from which on every end of a transaction raises the producer's epoch."""


class State(Enum):
    """With Kafka's number, which is stored, and Kafka's name, which is shown."""

    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def shown(self) -> str:
        return self.value[1]

    @property
    def is_decided(self) -> bool:
        """Markers are being written."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


BY_NUMBER: Mapping[int, State] = {state.number: state for state in State}

TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
}
"""An abort of nothing leads from Empty and Complete to PrepareAbort: it raises the epoch (version 2)."""


class Identity(NamedTuple):
    """What a producer calls itself."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_ms: int
    state: State = State.EMPTY
    partitions: frozenset[Place] = frozenset()
    start_ms: int = NOT_STARTED
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def identity(self) -> Identity:
        """What the markers of the present transaction carry."""
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def next_identity(self) -> Identity:
        """What the producer goes on with."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Identity(self.next_producer_id, 0)
        return self.identity

    @property
    def producer_ids(self) -> frozenset[int]:
        """Those that the transactional id has, or had before the epochs of the last one were used up."""
        return frozenset((self.producer_id, self.previous_producer_id, self.next_producer_id))

    @property
    def is_exhausted(self) -> bool:
        """No epoch is left that could be given out."""
        return is_exhausted(self.producer_epoch)

    # What may follow

    def _moved(self, state: State, now_ms: int, **changes: Any) -> Transaction:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"{self.transactional_id!r} cannot go from {self.state} to {state}")
        return replace(self, state=state, last_update_ms=now_ms, **changes)

    def is_late(self, now_ms: int) -> bool:
        """Whether it is open for longer than it may be."""
        return self.state is State.ONGOING and self.start_ms + self.timeout_ms < now_ms

    def renewed(self, identity: Identity, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer begins, with no transaction yet."""
        keeps_id = identity.producer_id == self.producer_id
        return self._moved(
            State.EMPTY,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            previous_producer_id=self.previous_producer_id if keeps_id else self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NOT_STARTED,
            client_version=0,
        )

    def joined_by(self, partitions: frozenset[Place], client_version: int, now_ms: int) -> Transaction:
        goes_on = self.state is State.ONGOING
        return self._moved(
            State.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            start_ms=self.start_ms if goes_on else now_ms,
            client_version=client_version,
        )

    def decided(
        self, *, is_commit: bool, epoch: int, client_version: int, next_producer_id: int, now_ms: int
    ) -> Transaction:
        """The outcome is fixed; `epoch` is what the markers carry."""
        state = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
        return self._moved(
            state,
            now_ms,
            producer_epoch=epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        state = State.COMPLETE_COMMIT if self.state.is_commit else State.COMPLETE_ABORT
        return self._moved(
            state,
            now_ms,
            producer_id=self.next_identity.producer_id,
            producer_epoch=self.next_identity.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    # As it is stored

    def to_record(self, version: int) -> TransactionLogValue:
        """Version 0 knows nothing of rotations and of clients of transaction version 2."""
        is_full = version >= 1
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=[place.partition for place in same])
            for topic, same in groupby(sorted(self.partitions), key=lambda place: place.topic)
        ]
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id if is_full else NO_PRODUCER_ID,
            next_producer_id=self.next_producer_id if is_full else NO_PRODUCER_ID,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state.number,
            transaction_partitions=None if self.state is State.EMPTY else partitions,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version if is_full else 0,
        )

    @classmethod
    def from_record(cls, transactional_id: str, value: TransactionLogValue) -> Self:
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            last_update_ms=value.transaction_last_update_timestamp_ms,
            state=BY_NUMBER[value.transaction_status],
            partitions=frozenset(
                Place(topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            client_version=value.client_transaction_version,
        )


def is_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1
