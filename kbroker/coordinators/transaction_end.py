"""How a transaction ends: what EndTxn is answered in each state, and what is decided.

Until transaction version 1 a producer keeps its epoch, so a repeated EndTxn looks like the first, and one
that comes late, when the next transaction has begun, ends that. From version 2 on every end raises the epoch:
a repetition is known by the epoch before, and one that comes late is fenced off (KIP-890, conformance 46).

What version 2 answers when nothing is open (while markers are being written: 51, or 48 to the other outcome):

                      Abort                   Commit
                      epoch before   epoch    epoch before   epoch
    Empty             90             raised   90             48
    CompleteAbort     done           raised   48             48
    CompleteCommit    48             raised   done           48
"""

from __future__ import annotations

from kbroker.coordinators.transaction import (
    EPOCH_BUMP_VERSION,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Identity,
    State,
    Transaction,
)
from wire.api.end_txn import EndTxnRequest
from wire.errors import ErrorCode, KafkaError


def is_to_be_decided(transaction: Transaction, request: EndTxnRequest, client_version: int) -> bool:
    """False where it is done already. KafkaError 48, 49, 51 or 90 where it cannot be."""
    raises_epoch = client_version >= EPOCH_BUMP_VERSION
    is_repetition = raises_epoch and _is_repetition(transaction, request)
    claimed = Identity(request.producer_id, request.producer_epoch)
    if raises_epoch and transaction.state.is_decided and claimed == transaction.next_identity:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if request.producer_id != transaction.producer_id and not is_repetition:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    has_epoch = request.producer_epoch == transaction.producer_epoch
    if transaction.state is State.ONGOING:
        if not has_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return True
    may_repeat = is_repetition and transaction.state is not State.EMPTY
    is_known = has_epoch and not (raises_epoch and transaction.state.is_decided)
    if not may_repeat and not is_known:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if raises_epoch and not is_repetition:
        if request.committed:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return True
    if transaction.state is State.EMPTY or request.committed != transaction.state.is_commit:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    if transaction.state.is_decided:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return False


def _is_repetition(transaction: Transaction, request: EndTxnRequest) -> bool:
    """Whether this EndTxn is the one that raised the epoch to what it is, or to 0 of a new producer id."""
    if request.producer_id == transaction.producer_id:
        return request.producer_epoch + 1 == transaction.producer_epoch
    return (
        request.producer_id == transaction.previous_producer_id
        and request.producer_epoch == MAX_PRODUCER_EPOCH - 1
        and transaction.producer_epoch == 0
        and not transaction.state.is_decided
    )


def decide(
    transaction: Transaction, is_commit: bool, client_version: int, new_producer_id: int, now_ms: int
) -> Transaction:
    """As the producer wants it."""
    if client_version < EPOCH_BUMP_VERSION:
        return transaction.decided(
            is_commit=is_commit,
            epoch=transaction.producer_epoch,
            client_version=0,
            next_producer_id=NO_PRODUCER_ID,
            now_ms=now_ms,
        )
    if transaction.is_exhausted and new_producer_id == NO_PRODUCER_ID:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction.decided(
        is_commit=is_commit,
        epoch=min(transaction.producer_epoch + 1, MAX_PRODUCER_EPOCH),
        client_version=client_version,
        next_producer_id=new_producer_id if transaction.is_exhausted else NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def fence(transaction: Transaction, transaction_version: int, now_ms: int) -> Transaction:
    """An abort that its producer did not ask for: it has no epoch from here on."""
    return transaction.decided(
        is_commit=False,
        epoch=min(transaction.producer_epoch + 1, MAX_PRODUCER_EPOCH),
        client_version=transaction_version if transaction_version >= EPOCH_BUMP_VERSION else 0,
        next_producer_id=NO_PRODUCER_ID,
        now_ms=now_ms,
    )
