"""WriteTxnMarkers: a coordinator of transactions has an outcome written into partitions that are led here.

- Each marker is answered when it is as safe as acks=all promises. v2+ tells the transaction version, by which
  a marker's epoch is judged.
- A producer whose transaction here is over at this very epoch has its marker already, and gets no other.
  (Kafka writes it again. It would mean nothing.) From a newer coordinator it is written all the same where
  epochs live longer than transactions: it keeps the older coordinator from ending the next one. So is one
  that makes a verification void, whose batch would come too late.
- In `__consumer_offsets` a marker makes the offsets of the transaction visible, or drops them.
- Tools use it to abort a hanging transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices, Parked
from kbroker.coordinators.transaction import EPOCH_BUMP_VERSION
from kbroker.replica_manager import HostedPartition
from storage.producer_state import Origin
from wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from wire.errors import ErrorCode, KafkaError
from wire.internal import CONSUMER_OFFSETS
from wire.records import ControlType, control_batch

if TYPE_CHECKING:
    from kbroker.broker import Broker

Told = Callable[[KafkaError | None], object]


def write_txn_markers(broker: Broker, context: Context, request: WriteTxnMarkersRequest) -> InSlices[Parked]:
    writing = _Writing(broker)
    yield from writing.begin(request)
    return writing.parked


class _Writing:
    """One request until all its partitions have an outcome."""

    def __init__(self, broker: Broker) -> None:
        self.parked = Parked()
        self._broker = broker
        self._pending = 1
        self._response = WriteTxnMarkersResponse(markers=[])

    def begin(self, request: WriteTxnMarkersRequest) -> InSlices[None]:
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                results = []
                for index in topic.partition_indexes:
                    results.append(self._write(self._broker, marker, topic.name, index))
                    yield
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            self._response.markers.append(
                WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
            )
        self._one_done()

    def _write(
        self, broker: Broker, marker: WritableTxnMarker, topic: str, index: int
    ) -> WritableTxnMarkerPartitionResult:
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
        self._pending += 1

        def told(error: KafkaError | None) -> None:
            result.error_code = ErrorCode.NONE if error is None else error.code
            self._one_done()

        try:
            write(broker, marker, broker.replicas.leader_of(topic, index), told)
        except KafkaError as error:
            told(error)
        return result

    def _one_done(self) -> None:
        self._pending -= 1
        if not self._pending:
            self.parked.complete(self._response)


def write(broker: Broker, marker: WritableTxnMarker, partition: HostedPartition, told: Told) -> None:
    """KafkaError where it is refused."""
    if not has_marker(partition, marker):
        batch = control_batch(
            ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            broker.now_ms(),
        )
        outcome = broker.replicas.append(
            partition, batch, origin=Origin.COORDINATOR, transaction_version=marker.transaction_version
        )
        if isinstance(outcome, KafkaError):
            raise outcome
        if partition.topic == CONSUMER_OFFSETS:
            broker.groups.transaction_ended(
                partition.index, marker.producer_id, is_commit=marker.transaction_result
            )
    broker.replicas.when_promised(partition, -1, told)


def has_marker(partition: HostedPartition, marker: WritableTxnMarker) -> bool:
    producers = partition.log.producers
    entry = producers.producers.get(marker.producer_id)
    if entry is None or entry.producer_epoch != marker.producer_epoch or entry.coordinator_epoch < 0:
        return False
    is_newer = marker.coordinator_epoch > entry.coordinator_epoch
    return (
        entry.transaction_first_offset < 0
        and not (is_newer and marker.transaction_version < EPOCH_BUMP_VERSION)
        and not producers.ends_verification(marker.producer_id, marker.producer_epoch)
    )
