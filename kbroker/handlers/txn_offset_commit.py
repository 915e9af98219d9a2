"""TxnOffsetCommit: store how far a group has read, as part of a transaction.

- Nobody sees these offsets before the transaction is committed (conformance 51). They are records of the
  group's partition, which must belong to the transaction: v0-4 by AddOffsetsToTxn, which is verified; v5 adds
  it here (KIP-890).
- v3+ names the member of the group, which must belong to its present generation.
- Topics and partitions that do not exist are answered here and kept from the group.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from kbroker.coordinator_runtime import GroupShard, InTransaction
from kbroker.coordinators.offsets import Place
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
) -> TxnOffsetCommitResponse | Parked:
    refused = [one for topic in request.topics if (one := unknown_part(broker, topic)) is not None]
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

    def _verified(self, shard: GroupShard, producer: InTransaction, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            self._commit(producer)
        else:
            if producer.guard is not None and not error.retriable:
                shard.partition.log.producers.give_up_verification(producer.producer_id, producer.guard)
            self._fail(commit_error(error, joins=self._joins, knows_abortable=self._knows_abortable))

    def _commit(self, producer: InTransaction) -> None:
        try:
            asked = self._broker.groups.ask(
                self._request.group_id,
                lambda groups, token, now_ms: groups.commit_offsets_in_transaction(
                    self._request, token, now_ms
                ),
                producer,
            )
        except KafkaError as error:
            self._fail(error.code)
        else:
            asked.when_done(self.parked.complete)

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
