"""A transactional producer in raw frames, of either version of the protocol, that does exactly as it is told.

Methods give error codes (and what else matters); only `begun`, `settled_end` and `initialized` insist on
success, and wait while the coordinator says that it is still completing something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.kbroker.speaker import DEADLINE_S, Speaker, batch
from wire.api import ApiKey
from wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from wire.api.describe_transactions import DescribeTransactionsRequest
from wire.api.end_txn import EndTxnRequest
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.init_producer_id import InitProducerIdRequest
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from wire.errors import ErrorCode
from wire.records import Record, batch_headers, control_type, records

WAIT = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
GROUP, TRANSACTION = 0, 1
READ_COMMITTED = 1


def settled(ask: Callable[[], int], *pending: int) -> int:
    """Ask until the answer is another one."""
    deadline = time.monotonic() + DEADLINE_S
    while (code := ask()) in (pending or WAIT):
        assert time.monotonic() < deadline, code
    return code


class Transacting:
    """One producer with a transactional id, on a connection that it may share."""

    def __init__(self, speaker: Speaker, transactional_id: str, version: int = 1) -> None:
        """Version 2 is that of KIP-890."""
        self.speaker = speaker
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    # -- the coordinator

    def find(self, key: str | None = None, kind: int = TRANSACTION) -> int:
        """Until there is one; its node id."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key or self.transactional_id])

        def ask() -> int:
            self._found = self.speaker.ask(request, ApiKey.FIND_COORDINATOR, 6).coordinators[0]
            return int(self._found.error_code)

        assert settled(ask) == 0
        return int(self._found.node_id)

    def init(self, *, claims: bool = False, timeout_ms: int = 60_000, version: int = 5) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if claims else -1,
            producer_epoch=self.epoch if claims else -1,
        )
        reply = self.speaker.ask(request, ApiKey.INIT_PRODUCER_ID, version)
        if reply.error_code == 0:
            self._be(reply.producer_id, reply.producer_epoch)
        return int(reply.error_code)

    def _be(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def initialized(self, **of: Any) -> Transacting:
        self.find()
        assert settled(lambda: self.init(**of)) == 0
        return self

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        """An error for each partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))],
        )
        reply = self.speaker.ask(request, ApiKey.ADD_PARTITIONS_TO_TXN, version)
        [result] = reply.results_by_topic_v3_and_below
        return [partition.partition_error_code for partition in result.results_by_partition]

    def add_offsets(self, group_id: str, version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return int(self.speaker.ask(request, ApiKey.ADD_OFFSETS_TO_TXN, version).error_code)

    def end(self, *, is_commit: bool, epoch: int | None = None, version: int | None = None) -> int:
        if version is None:
            version = 5 if self.version >= 2 else 3
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=is_commit,
        )
        reply = self.speaker.ask(request, ApiKey.END_TXN, version)
        if reply.error_code == 0 and version >= 5 and epoch is None:
            self._be(reply.producer_id, reply.producer_epoch)
        return int(reply.error_code)

    def state(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        [state] = self.speaker.ask(request, ApiKey.DESCRIBE_TRANSACTIONS, 0).transaction_states
        return str(state.transaction_state)

    def settled_end(self, *, is_commit: bool) -> None:
        """The transaction is over, and every partition has its marker."""
        assert self.end(is_commit=is_commit) == 0
        self.completed()

    def completed(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self.state().startswith("Complete"):
            assert time.monotonic() < deadline, self.state()

    # -- records

    def data(self, topic: str, *values: bytes, partition: int = 0, transactional: bool = True) -> bytes:
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get((topic, partition), 0),
            transactional=transactional,
        )

    def send(
        self, topic: str, *values: bytes, partition: int = 0, transactional: bool = True, version: int = 0
    ) -> tuple[int, int]:
        """Error and offset."""
        data = self.data(topic, *values, partition=partition, transactional=transactional)
        outcome = self.send_data(topic, data, partition, version)
        if outcome[0] == 0:
            self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + len(values)
        return outcome

    def send_data(self, topic: str, data: bytes, partition: int = 0, version: int = 0) -> tuple[int, int]:
        piece = PartitionProduceData(index=partition, records=data)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=[piece])],
        )
        version = version or (12 if self.version >= 2 else 11)
        reply = self.speaker.ask(request, ApiKey.PRODUCE, version)
        answer = reply.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def begun(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """A transaction with these records in it; their first offset."""
        if self.version < 2:
            assert settled(lambda: self.add(topic, partition)[0]) == 0
        error, offset = self.send(topic, *values, partition=partition)
        assert error == 0, error
        return offset

    # -- offsets

    def commit_offset(
        self, group_id: str, topic: str, offset: int, *, version: int | None = None, **member: Any
    ) -> int:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=None
                        )
                    ],
                )
            ],
            **member,
        )
        version = version or (5 if self.version >= 2 else 3)
        reply = self.speaker.ask(request, ApiKey.TXN_OFFSET_COMMIT, version)
        return int(reply.topics[0].partitions[0].error_code)


def committed_offset(
    speaker: Speaker, group_id: str, topic: str, *, require_stable: bool = False, partition: int = 0
) -> tuple[int, int]:
    """Error and offset."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])], require_stable=require_stable
    )
    [group] = speaker.ask(request, ApiKey.OFFSET_FETCH, 8).groups
    if group.error_code:
        return group.error_code, -1
    found = group.topics[0].partitions[0]
    return found.error_code, found.committed_offset


# What a consumer makes of a fetch.


def read_committed(speaker: Speaker, topic: str, partition: int = 0) -> list[bytes | None]:
    """All values that a consumer of committed data gets."""
    return [record.value for record in committed_records(speaker, topic, partition)]


def committed_records(speaker: Speaker, topic: str, partition: int = 0) -> list[Record]:
    """As a consumer of committed data works them out by the list of aborted transactions."""
    found: list[Record] = []
    offset = 0
    while True:
        answer = speaker.fetch(topic, offset, partition=partition, isolation_level=READ_COMMITTED)
        assert answer.error_code == 0
        data = bytes(answer.records or b"")
        if not data:
            return found
        aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
        kept, offset = committed_in(data, aborted)
        found += kept


def committed_in(data: bytes, aborted: Iterable[tuple[int, int]]) -> tuple[list[Record], int]:
    """The records outside of aborted transactions, and where the data end."""
    begins = list(aborted)
    inside: set[int] = set()
    kept: list[Record] = []
    end = 0
    for position, header in batch_headers(data):
        end = header.next_offset
        while begins and begins[0][0] <= header.last_offset:
            inside.add(begins.pop(0)[1])
        if header.is_control:
            inside.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in inside):
            kept += records(data, position, header)
    return kept, end


def markers(speaker: Speaker, topic: str, partition: int = 0) -> list[tuple[int, int, str]]:
    """Producer id, epoch and outcome of every marker of a partition."""
    found = []
    data = bytes(speaker.fetch(topic, 0, partition=partition).records or b"")
    for position, header in batch_headers(data):
        if header.is_control:
            [record] = records(data, position, header)
            found.append((header.producer_id, header.producer_epoch, control_type(record).name))
    return found
