"""ListOffsets: the ends of a partition, and offsets by timestamp.

- v0: a list of offsets; v1+: one offset with its timestamp; v2+: isolation level; v4+: leader epochs; v7, v8,
  v9 and v11 add the special timestamps -3, -4, -5 and -6; v10+: a timeout, which a local disk does not need.
- What is not there is offset -1, timestamp -1, epoch -1, and no error (conformance 63, 64).
- A special timestamp that is younger than the version of the request, or that means nothing at all, gets
  UNSUPPORTED_VERSION.
- A follower is told the end of the log, consumers the end of what is committed. A leader that does not know
  yet how far that was when it was elected says OFFSET_NOT_AVAILABLE (v5+): less would go back (91).
- Large batches, and those that were compressed well, are looked at in slices.
- Replica -2 debugs: any replica answers it, with the end of its own log.
- A partition that is named twice gets INVALID_REQUEST, once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices
from kbroker.replica_manager import HostedPartition
from storage.reading import Isolation
from storage.timestamps import NOTHING, FoundOffset, look_up_timestamp
from wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from wire.errors import ErrorCode, KafkaError
from wire.steps import Steps

if TYPE_CHECKING:
    from kbroker.broker import Broker

READ_COMMITTED = 1
LATEST = -1
CONSUMER, DEBUGGER = -1, -2
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
NEVER = 0x7FFF
FIRST_VERSION_OF_SPECIAL_TIMESTAMP = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9, -6: 11}


def list_offsets(
    broker: Broker, context: Context, request: ListOffsetsRequest
) -> InSlices[ListOffsetsResponse]:
    isolation = Isolation.COMMITTED if request.isolation_level == READ_COMMITTED else Isolation.HIGH_WATERMARK
    if request.replica_id != CONSUMER:
        isolation = Isolation.LOG_END
    holder = broker.replicas.replica_of if request.replica_id == DEBUGGER else broker.replicas.leader_of
    named = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in {one.partition_index: one for one in topic.partitions}.values():
            try:
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = holder(topic.name, wanted.partition_index, wanted.current_leader_epoch)
                if request.replica_id == CONSUMER:
                    broker.replicas.lease.check(partition)
                found = yield from find(partition, context.api_version, wanted, isolation)
                answers.append(answer(wanted, ErrorCode.NONE, found))
            except KafkaError as error:
                answers.append(answer(wanted, error.code, NOTHING))
            yield
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def find(
    partition: HostedPartition, version: int, wanted: ListOffsetsPartition, isolation: Isolation
) -> InSlices[FoundOffset]:
    if wanted.timestamp < 0 and version < FIRST_VERSION_OF_SPECIAL_TIMESTAMP.get(wanted.timestamp, NEVER):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    found = yield from sliced(look_up_timestamp(partition.log, wanted.timestamp, isolation))
    is_end = wanted.timestamp == LATEST or found.offset < 0
    if is_end and isolation is not Isolation.LOG_END and is_behind(partition):
        late = version >= FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if late else ErrorCode.LEADER_NOT_AVAILABLE)
    return found


def sliced(steps: Steps[FoundOffset]) -> InSlices[FoundOffset]:
    """A slice may end after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: FoundOffset = end.value
            return found
        yield


def is_behind(partition: HostedPartition) -> bool:
    """Whether the leader may not have heard of everything that the one before it has committed."""
    leadership = partition.leadership
    return leadership is not None and partition.log.high_watermark < leadership.epoch_start_offset


def answer(wanted: ListOffsetsPartition, code: ErrorCode, found: FoundOffset) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=code,
        old_style_offsets=[found.offset] if found.offset >= 0 else [],
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )
