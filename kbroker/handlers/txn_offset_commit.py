"""TxnOffsetCommit: store how far a group has read, as part of a transaction.

- Nobody sees these offsets before the transaction is committed (conformance 51). They are records of the
  group's partition, which must belong to the transaction: v0-4 by AddOffsetsToTxn, which is verified; v5 adds
  it here (KIP-890).
- v3+ names the member of the group, which must belong to its present generation.
- Topics and partitions that do not exist are answered here and kept from the group.
"""

from __future__ import annotations

from collections.abc import Container
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.bugs import answering
from kbroker.context import Context, InSlices, Parked
from kbroker.coordinator_runtime import GroupShard, InTransaction
from kbroker.coordinators.offsets import Place
from kbroker.offset_pieces import Gathered, in_pieces
from kbroker.transaction_verification import commit_error
from wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from wire.errors import ErrorCode, KafkaError
from wire.internal import CONSUMER_OFFSETS
from wire.records import BatchBuilder, BatchHeader

if TYPE_CHECKING:
    from kbroker.broker import Broker

FIRST_VERSION_WITH_TRANSACTION_ABORTABLE = 4
FIRST_VERSION_THAT_JOINS = 5


def txn_offset_commit(
    broker: Broker, context: Context, request: TxnOffsetCommitRequest
) -> InSlices[TxnOffsetCommitResponse | Parked]:
    refused = []
    for topic in request.topics:
        if (unknown := unknown_part(broker, topic)) is not None:
            refused.append(unknown)
        yield
    request.topics = [topic for topic in request.topics if topic.partitions]
    if not request.topics:
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=refused)
    committing = _Committing(broker, context.api_version, request)
    committing.begin()
    return committing.parked.then(lambda response: with_refused(response, refused))


class _Committing:
    """One request: verified, and then put to the group."""

    def __init__(self, broker: Broker, version: int, request: TxnOffsetCommitRequest) -> None:
        self.parked = Parked()
        self._broker = broker
        self._request = request
        self._joins = version >= FIRST_VERSION_THAT_JOINS
        self._knows_abortable = version >= FIRST_VERSION_WITH_TRANSACTION_ABORTABLE

    def begin(self) -> None:
        request = self._request
        try:
            shard = self._shard()
            header = transactional_header(request.producer_id, request.producer_epoch)
            guard = shard.partition.log.producers.start_verification(
                header, self._broker.now_ms(), supports_epoch_bump=self._joins
            )
        except KafkaError as error:
            self._fail(error.code)
            return
        producer = InTransaction(request.producer_id, request.producer_epoch, guard)
        if guard is None:
            self._commit(producer)
            return
        self._broker.transactions.verifier.verify(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            [Place(CONSUMER_OFFSETS, shard.partition.index)],
            joins=self._joins,
            told=lambda error: self._verified(shard, producer, error),
        )

    def _shard(self) -> GroupShard:
        if not self._request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._broker.groups.groups_of(self._request.group_id)

    def failed(self, error: Exception) -> None:
        self.parked.fail(error)

    @answering
    def _verified(self, shard: GroupShard, producer: InTransaction, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            self._commit(producer)
        else:
            if producer.guard is not None and not error.retriable:
                shard.partition.log.producers.give_up_verification(producer.producer_id, producer.guard)
            self._fail(commit_error(error, joins=self._joins, knows_abortable=self._knows_abortable))

    def _commit(self, producer: InTransaction) -> None:
        gathered = Gathered()
        gathered.parked.then(all_of).when_done(self.parked.complete)
        self._broker.slices.take(
            self._in_pieces(producer, gathered), partial(self._is_asked, gathered), is_end=True
        )

    @answering
    def _is_asked(self, gathered: Gathered, outcome: object) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        gathered.is_complete()

    def _in_pieces(self, producer: InTransaction, gathered: Gathered) -> InSlices[None]:
        for topics in in_pieces(self._request.topics, "partitions"):
            piece = copy(self._request)
            piece.topics = topics
            gathered.expect(self._commit_piece(piece, producer))
            yield

    def _commit_piece(self, request: TxnOffsetCommitRequest, producer: InTransaction) -> Parked:
        try:
            return self._broker.groups.ask(
                request.group_id,
                lambda groups, token, now_ms: groups.commit_offsets_in_transaction(request, token, now_ms),
                producer,
            )
        except KafkaError as error:
            refused = Parked()
            topics = [refusal(topic, error.code) for topic in request.topics]
            refused.complete(TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics))
            return refused

    def _fail(self, code: ErrorCode) -> None:
        topics = [refusal(topic, code) for topic in self._request.topics]
        self.parked.complete(TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics))


def transactional_header(producer_id: int, producer_epoch: int) -> BatchHeader:
    """Of a batch that a coordinator is going to write: without sequences."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True)
    builder.append(b"", None, timestamp_ms=0)
    return BatchHeader.parse(builder.build())


def unknown_part(broker: Broker, topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic | None:
    """Take what does not exist out of the request; the answer for it."""
    known = broker.metadata.topics.get(topic.name)
    exist: Container[int] = () if known is None else known.partitions
    missing = [p for p in topic.partitions if p.partition_index not in exist]
    if not missing:
        return None
    topic.partitions = [p for p in topic.partitions if p.partition_index in exist]
    answers = [
        TxnOffsetCommitResponsePartition(
            partition_index=p.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        for p in missing
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)


def refusal(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    answers = [
        TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
        for partition in topic.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)


def all_of(answers: Any) -> object:
    """One answer, with one entry for each topic."""
    whole, *others = answers
    for other in others:
        with_refused(whole, other.topics)
    return whole


def with_refused(response: object, refused: list[TxnOffsetCommitResponseTopic]) -> object:
    """One entry for each topic."""
    if isinstance(response, TxnOffsetCommitResponse):
        found = {topic.name: topic for topic in response.topics}
        for other in refused:
            topic = found.setdefault(other.name, other)
            if topic is not other:
                topic.partitions += other.partitions
        response.topics = list(found.values())
    return response
