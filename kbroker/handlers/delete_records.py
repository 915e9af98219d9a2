"""DeleteRecords: raise the log start offset of partitions.

-1 means the high watermark, above it is OFFSET_OUT_OF_RANGE, below the log start nothing happens (conformance
66). Internal topics are not for clients to cut, and topics that only compact are not cut at all
(POLICY_VIOLATION).

The leader cuts at once and has its followers told. The answer is the low watermark: where the log of every
replica begins whose broker lives. It is waited for, for as long as the request allows; then the partitions
that are not there yet get REQUEST_TIMED_OUT, and are cut all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.bugs import answering
from kbroker.context import Context, InSlices, Parked
from kbroker.replica_manager import LOOK_AGAIN, HostedPartition
from wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from wire.errors import ErrorCode, KafkaError
from wire.internal import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kbroker.broker import Broker

NO_LOW_WATERMARK = -1


class Awaited(NamedTuple):
    """A partition whose followers have not cut yet."""

    partition: HostedPartition
    begins: int
    result: DeleteRecordsPartitionResult


def delete_records(
    broker: Broker, context: Context, request: DeleteRecordsRequest
) -> InSlices[DeleteRecordsResponse | Parked]:
    awaited: list[Awaited] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            partitions.append(cut(broker, topic.name, one, awaited))
            yield
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    broker.logs.checkpoint_log_start_offsets()
    response = DeleteRecordsResponse(throttle_time_ms=0, topics=topics)
    return _Waiting(broker, awaited, response, request.timeout_ms).parked if awaited else response


def cut(
    broker: Broker, topic: str, wanted: DeleteRecordsPartition, awaited: list[Awaited]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=ErrorCode.NONE
    )
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = broker.replicas.leader_of(topic, wanted.partition_index)
        config = partition.log.config
        if config.compacts and not config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        begins = partition.log.delete_records_before(wanted.offset)
        partition.wake(LOOK_AGAIN)
        partition.wake_followers(0)
        result.low_watermark = partition.low_watermark
        if result.low_watermark < begins:
            awaited.append(Awaited(partition, begins, result))
    except KafkaError as error:
        result.error_code = error.code
    return result


class _Waiting:
    """A request that waits for followers."""

    def __init__(
        self, broker: Broker, awaited: list[Awaited], response: DeleteRecordsResponse, timeout_ms: int
    ) -> None:
        self.parked = Parked()
        self._broker = broker
        self._asked = self._awaited = awaited
        self._response = response
        for one in awaited:
            one.partition.deletions[self._look] = None
        self._timer = broker.call_later_ms(max(timeout_ms, 0), self._time_is_over)

    @answering
    def _look(self) -> None:
        self._awaited = [one for one in self._awaited if not self._is_over(one)]
        if not self._awaited:
            self._end()

    def _end(self) -> None:
        self._look_away()
        self.parked.complete(self._response)

    def _look_away(self) -> None:
        self._timer.cancel()
        for one in self._asked:
            one.partition.deletions.pop(self._look, None)

    def failed(self, error: Exception) -> None:
        self._look_away()
        self.parked.fail(error)

    def _is_over(self, one: Awaited) -> bool:
        partition, result = one.partition, one.result
        is_here = self._broker.replicas.find(partition.topic, partition.index) is partition
        if not is_here or partition.leader_id != self._broker.node_id:
            result.error_code, result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_LOW_WATERMARK
            return True
        result.low_watermark = partition.low_watermark
        return result.low_watermark >= one.begins

    @answering
    def _time_is_over(self) -> None:
        for one in self._awaited:
            one.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._end()
