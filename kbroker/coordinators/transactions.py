"""The transactions of one partition of `__transaction_state`: requests about them, loading, giving them up.

What is durable, and who writes it: a record for each transactional id, which `replay` alone takes over, in a
running broker as in one that loads. So there is nothing to undo when an append is refused.

How a transaction ends, and why in this order: the decision (Prepare) is appended and must be safe before the
first marker is written (`Step.markers`), since whoever takes over must come to the same outcome. The client
is told as soon as the decision is safe. When every partition has its marker, Complete is appended. Whoever
loads a decision writes all its markers again; a partition that has its marker already does not mind.

What is kept in memory only, and can be lost:
- which partitions of a decided transaction still lack their marker;
- the epoch that a producer had before its last InitProducerId, or before the end of its transaction raised it
  (version 2), by which a producer that still has that one is recognised. Without it the producer is fenced
  off, as in Kafka after a change of coordinators.

Answers follow Kafka's: 49 for an unknown id or another's producer id, 90 for another epoch, 51 while
something is being completed, 48 for what the state does not allow (conformance 46-49). Older versions of the
requests are told 47 in place of 90, by the handlers. New producer ids are passed in (`needs_producer_id`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, Self

from kbroker.coordinators import transaction_end as ending
from kbroker.coordinators.offsets import Place
from kbroker.coordinators.refusals import APPEND_ERRORS, refused
from kbroker.coordinators.step import Markers, Step, TimerKey, Token
from kbroker.coordinators.transaction import (
    EPOCH_BUMP_VERSION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Identity,
    State,
    Transaction,
    is_exhausted,
)
from wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from wire.api.describe_transactions import TopicData, TransactionState
from wire.api.end_txn import EndTxnRequest, EndTxnResponse
from wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from wire.api.list_transactions import TransactionState as ListedTransaction
from wire.errors import ErrorCode, KafkaError
from wire.internal.transaction_state import TransactionLogKey, TransactionLogValue

TIMEOUTS = TimerKey("timeouts")
EXPIRATION = TimerKey("expiration")
COMPLETION = "completion"
COMPLETE_AGAIN_MS = 500
EXPIRE_AT_ONCE = 500
ABORT_AT_ONCE = 100
"""A decision with many partitions takes longer than a tombstone."""
FIRST_VERSION_WITH_TAGS = 1
"""The transaction version from which on records are written in version 1."""


class TransactionConfig(NamedTuple):
    """What transactions take from the broker's configuration, under Kafka's names and with its defaults."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 60 * 60 * 1000
    transaction_version: int = 2
    """The level of the cluster's feature `transaction.version`."""


class Transactions:
    """All transactional ids of one partition."""

    def __init__(self, config: TransactionConfig) -> None:
        self._config = config
        self._transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, Transaction] = {}
        """Those that may time out."""
        self._unwritten: dict[str, set[Place]] = {}
        """Partitions of decided transactions without a marker."""
        self._last_epochs: dict[str, int] = {}
        self._to_expire: list[str] = []
        """Ids that the present round of expiration has not come to yet."""
        self._to_abort: list[str] = []
        """Those past their timeout that are still to be aborted."""

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._transactions.values())

    # Durable state

    def replay(
        self, key: object, value: object | None, record_offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """One record. There are no transactions within this topic. Other types are passed over."""
        if not isinstance(key, TransactionLogKey):
            return
        transactional_id = key.transactional_id
        self._ongoing.pop(transactional_id, None)
        self._unwritten.pop(transactional_id, None)
        if not isinstance(value, TransactionLogValue):
            self._transactions.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
            return
        transaction = Transaction.from_record(transactional_id, value)
        self._transactions[transactional_id] = transaction
        if transaction.state is State.ONGOING:
            self._ongoing[transactional_id] = transaction
        elif transaction.state.is_decided:
            self._unwritten[transactional_id] = set(transaction.partitions)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """There are none in this topic."""

    def loaded(self, now_ms: int) -> Step:
        """Everything there is has been replayed: what was decided is carried out."""
        step = Step(now_ms)
        for transactional_id in self._unwritten:
            self._carry_out(self._transactions[transactional_id], step)
        step.schedule(TIMEOUTS, self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
        step.schedule(EXPIRATION, self._config.transaction_remove_expired_transaction_cleanup_interval_ms)
        return step

    def unloaded(self, now_ms: int) -> Step:
        """The partition is somebody else's now. Nobody is parked here."""
        return Step(now_ms)

    def refused(self, step: Step, error: ErrorCode, now_ms: int) -> Step:
        """The records of `step` were not appended: what is to be done instead of it.

        Of the markers, those stay whose transaction was decided by a record that is in the log.
        """
        instead = Step(now_ms)
        instead.timers.extend(step.timers)
        undecided = {key.transactional_id for key, _, _ in step.records if isinstance(key, TransactionLogKey)}
        instead.markers.extend(one for one in step.markers if one.transactional_id not in undecided)
        for token, response in step.replies:
            instead.reply(token, refused(response, APPEND_ERRORS.get(error, error)))
        for key, _, _ in step.records:
            if isinstance(key, TransactionLogKey):
                self._last_epochs.pop(key.transactional_id, None)
                if self._unwritten.get(key.transactional_id) == set():
                    self._complete_later(key.transactional_id, instead)
        return instead

    def reconfigure(self, config: TransactionConfig) -> None:
        """For what is decided from now on."""
        self._config = config

    # What another partition has, see kbroker.takeover

    def ids(self) -> Iterable[str]:
        return self._transactions

    def knows(self, transactional_id: str) -> bool:
        return transactional_id in self._transactions

    def take_over(self, transactional_id: str, other: Self, now_ms: int) -> Step | None:
        """An open transaction goes on here, unless the id has begun anew: then it has to be aborted there.

        What is decided is carried out where it was.
        """
        step = Step(now_ms)
        mine, theirs = self._transactions.get(transactional_id), other._transactions.get(transactional_id)
        if theirs is None:
            return step
        if theirs.state.is_decided:
            return None
        if mine is None:
            self._put(theirs, step)
        elif theirs.state is State.ONGOING and theirs.producer_id not in mine.producer_ids:
            return None
        return step

    def give_up(self, transactional_id: str, now_ms: int) -> Step:
        step = Step(now_ms)
        step.append(TransactionLogKey(transactional_id=transactional_id), None)
        return step

    def _put(self, transaction: Transaction, step: Step) -> None:
        version = 1 if self._config.transaction_version >= FIRST_VERSION_WITH_TAGS else 0
        step.append(
            TransactionLogKey(transactional_id=transaction.transactional_id),
            transaction.to_record(version),
            version,
        )

    # InitProducerId

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether a request about this id may have to be given a new producer id."""
        transaction = self._transactions.get(transactional_id)
        return transaction is None or transaction.is_exhausted

    def init_producer_id(
        self, request: InitProducerIdRequest, new_producer_id: int, token: Token, now_ms: int
    ) -> Step:
        """`new_producer_id` is -1 where none was needed a moment ago."""
        step = Step(now_ms)
        try:
            identity = self._init(request, new_producer_id, step)
            step.reply(token, init_answer(ErrorCode.NONE, identity))
        except KafkaError as error:
            step.reply(token, init_answer(error.code))
        return step

    def _init(self, request: InitProducerIdRequest, new_producer_id: int, step: Step) -> Identity:
        transactional_id, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        expected = claimed_identity(request)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return self._begin(transactional_id, needed(new_producer_id), timeout_ms, step)
        self._check_claim(transaction, expected)
        if transaction.state.is_decided:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is State.ONGOING:
            self._fence(transaction, step)
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        identity = self._next_identity(transaction, expected, new_producer_id)
        self._put(transaction.renewed(identity, timeout_ms, step.now_ms), step)
        return identity

    def _begin(self, transactional_id: str, producer_id: int, timeout_ms: int, step: Step) -> Identity:
        unknown = Transaction(transactional_id, producer_id, NO_PRODUCER_EPOCH, timeout_ms, step.now_ms)
        identity = Identity(producer_id, 0)
        self._put(unknown.renewed(identity, timeout_ms, step.now_ms), step)
        return identity

    def _check_claim(self, transaction: Transaction, expected: Identity | None) -> None:
        """Whether this may be the producer it says it is; its epoch is looked at later."""
        if expected is None or expected.producer_id == transaction.producer_id:
            return
        follows_rotation = expected.producer_id == transaction.previous_producer_id
        is_announced = transaction.state.is_decided and expected == transaction.next_identity
        if not is_announced and not (follows_rotation and is_exhausted(expected.producer_epoch)):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def _next_identity(
        self, transaction: Transaction, expected: Identity | None, new_producer_id: int
    ) -> Identity:
        """A new epoch, fencing off everybody else; or the same, where a request is repeated."""
        transactional_id, epoch = transaction.transactional_id, transaction.producer_epoch
        if expected is not None and expected.producer_epoch != epoch:
            if expected.producer_epoch != self._last_epochs.get(transactional_id):
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            return transaction.identity
        if expected is None:
            self._last_epochs.pop(transactional_id, None)
        else:
            self._last_epochs[transactional_id] = epoch
        if transaction.is_exhausted:
            return Identity(needed(new_producer_id), 0)
        return Identity(transaction.producer_id, epoch + 1)

    # Joining

    def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: frozenset[Place],
        client_version: int,
        token: Token,
        now_ms: int,
    ) -> Step:
        """Replies with an AddPartitionsToTxnResult, and begins the transaction where there is none."""
        step = Step(now_ms)
        try:
            transaction = self._of_producer(transactional_id, identity)
            has_begun = transaction.state is State.ONGOING
            if not has_begun or not partitions <= transaction.partitions:
                self._put(transaction.joined_by(partitions, client_version, now_ms), step)
            error = ErrorCode.NONE
        except KafkaError as refusal:
            error = refusal.code
        step.reply(token, add_answer(transactional_id, partitions, lambda place: error))
        return step

    def verify_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: frozenset[Place],
        token: Token,
        now_ms: int,
    ) -> Step:
        """Whether these belong to the present transaction; changes nothing."""
        step = Step(now_ms)
        try:
            joined = self._of_producer(transactional_id, identity).partitions
            missing = ErrorCode.TRANSACTION_ABORTABLE
        except KafkaError as refusal:
            joined, missing = frozenset(), refusal.code
        answer = add_answer(
            transactional_id, partitions, lambda place: ErrorCode.NONE if place in joined else missing
        )
        step.reply(token, answer)
        return step

    def _of_producer(self, transactional_id: str, identity: Identity) -> Transaction:
        """The transaction, open to this producer; KafkaError 49, 51 or 90 otherwise."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if transaction.state.is_decided and identity == transaction.next_identity:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if identity.producer_id != transaction.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if identity.producer_epoch != transaction.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return transaction

    # Ending

    def end(
        self, request: EndTxnRequest, client_version: int, new_producer_id: int, token: Token, now_ms: int
    ) -> Step:
        """EndTxn. The reply leaves when the decision is safe; markers are written after that."""
        step = Step(now_ms)
        try:
            identity = self._end(request, client_version, new_producer_id, step)
            step.reply(token, end_answer(ErrorCode.NONE, identity))
        except KafkaError as error:
            step.reply(token, end_answer(error.code))
        return step

    def _end(self, request: EndTxnRequest, client_version: int, new_producer_id: int, step: Step) -> Identity:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not ending.is_to_be_decided(transaction, request, client_version):
            return transaction.identity
        decided = ending.decide(transaction, request.committed, client_version, new_producer_id, step.now_ms)
        if client_version >= EPOCH_BUMP_VERSION:
            self._last_epochs[request.transactional_id] = transaction.producer_epoch
        self._decide(decided, step)
        return decided.next_identity

    def _decide(self, decided: Transaction, step: Step) -> None:
        self._put(decided, step)
        self._carry_out(decided, step)

    def _carry_out(self, decided: Transaction, step: Step) -> None:
        if not decided.partitions:
            self._put(decided.completed(step.now_ms), step)
            return
        step.markers.append(
            Markers(
                decided.transactional_id,
                *decided.identity,
                is_commit=decided.state.is_commit,
                transaction_version=decided.client_version,
                partitions=decided.partitions,
            )
        )

    def _fence(self, transaction: Transaction, step: Step) -> None:
        """Abort on the broker's own account; the producer's epoch is over (conformance 47, 48)."""
        transactional_id = transaction.transactional_id
        self._last_epochs.pop(transactional_id, None)
        if self._config.transaction_version >= EPOCH_BUMP_VERSION:
            self._last_epochs[transactional_id] = transaction.producer_epoch
        self._decide(ending.fence(transaction, self._config.transaction_version, step.now_ms), step)
        step.note(
            f"aborting the transaction of {transactional_id!r}, epoch {transaction.producer_epoch} is over"
        )

    def markers_written(self, markers: Markers, partitions: Iterable[tuple[str, int]], now_ms: int) -> Step:
        """These partitions have their marker, or are gone."""
        step = Step(now_ms)
        transaction = self._transactions.get(markers.transactional_id)
        unwritten = self._unwritten.get(markers.transactional_id)
        if transaction is None or unwritten is None or transaction.identity != markers[1:3]:
            return step
        unwritten.difference_update(Place(*partition) for partition in partitions)
        if not unwritten:
            self._put(transaction.completed(now_ms), step)
        return step

    def _complete_later(self, transactional_id: str, step: Step) -> None:
        """All markers are written, and only the record of that could not be."""
        step.schedule(TimerKey(COMPLETION, transactional_id), COMPLETE_AGAIN_MS)

    # Time

    def on_timer(self, key: TimerKey, now_ms: int) -> Step:
        """A deadline that a Step set has passed."""
        step = Step(now_ms)
        if key == TIMEOUTS:
            self._abort_late_ones(step)
        elif key == EXPIRATION:
            self._expire(step)
        elif self._unwritten.get(key.group_id) == set():
            self._put(self._transactions[key.group_id].completed(now_ms), step)
        return step

    def _abort_late_ones(self, step: Step) -> None:
        """Some at a time."""
        if not self._to_abort:
            self._to_abort = [
                one.transactional_id for one in self._ongoing.values() if one.is_late(step.now_ms)
            ]
        now, self._to_abort = self._to_abort[:ABORT_AT_ONCE], self._to_abort[ABORT_AT_ONCE:]
        for transactional_id in now:
            transaction = self._ongoing.get(transactional_id)
            if transaction is not None and transaction.is_late(step.now_ms):
                self._fence(transaction, step)
        interval_ms = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        step.schedule(TIMEOUTS, 0 if self._to_abort else interval_ms)

    def _expire(self, step: Step) -> None:
        """Forget ids that were not used for long; some at a time."""
        if not self._to_expire:
            self._to_expire = list(self._transactions)
        now, self._to_expire = self._to_expire[:EXPIRE_AT_ONCE], self._to_expire[EXPIRE_AT_ONCE:]
        oldest_ms = step.now_ms - self._config.transactional_id_expiration_ms
        for transactional_id in now:
            transaction = self._transactions.get(transactional_id)
            if transaction is None or transaction.state is State.ONGOING or transaction.state.is_decided:
                continue
            if transaction.last_update_ms <= oldest_ms:
                step.append(TransactionLogKey(transactional_id=transactional_id), None)
        interval_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        step.schedule(EXPIRATION, 0 if self._to_expire else interval_ms)

    # Questions, to be held back like the reply of a Step

    def describe(self, transactional_id: str) -> TransactionState:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
            return describe_answer(transactional_id, error)
        topics: dict[str, list[int]] = {}
        for place in sorted(transaction.partitions):
            topics.setdefault(place.topic, []).append(place.partition)
        return TransactionState(
            error_code=ErrorCode.NONE,
            transactional_id=transactional_id,
            transaction_state=transaction.state.shown,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
        )

    def list_transactions(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        longer_than_ms: int,
        now_ms: int,
    ) -> list[ListedTransaction]:
        """No states and no producer ids are no restriction, nor is a negative duration."""
        return [
            ListedTransaction(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.shown,
            )
            for transactional_id, transaction in self._transactions.items()
            if (not states or transaction.state.shown in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - transaction.start_ms > longer_than_ms)
        ]


def claimed_identity(request: InitProducerIdRequest) -> Identity | None:
    """Who an InitProducerId says it was until now; INVALID_REQUEST for half an identity."""
    claimed = Identity(request.producer_id, request.producer_epoch)
    if claimed == (NO_PRODUCER_ID, NO_PRODUCER_EPOCH):
        return None
    if NO_PRODUCER_ID in claimed:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return claimed


def needed(new_producer_id: int) -> int:
    """Things have changed since the runtime asked `needs_producer_id`: the client tries again."""
    if new_producer_id == NO_PRODUCER_ID:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return new_producer_id


def init_answer(error: ErrorCode, identity: Identity | None = None) -> InitProducerIdResponse:
    producer_id, producer_epoch = identity or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=error, producer_id=producer_id, producer_epoch=producer_epoch
    )


def end_answer(error: ErrorCode, identity: Identity | None = None) -> EndTxnResponse:
    producer_id, producer_epoch = identity or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return EndTxnResponse(
        throttle_time_ms=0, error_code=error, producer_id=producer_id, producer_epoch=producer_epoch
    )


def add_answer(
    transactional_id: str, partitions: Iterable[Place], error_of: Callable[[Place], ErrorCode]
) -> AddPartitionsToTxnResult:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for place in sorted(partitions):
        topics.setdefault(place.topic, []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=place.partition, partition_error_code=error_of(place)
            )
        )
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results)
            for topic, results in topics.items()
        ],
    )


def describe_answer(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
