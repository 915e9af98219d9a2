"""A partition as its producers see it: batches to send, and a log of nothing but offsets."""

from __future__ import annotations

import pytest

from storage.producer_state import CompletedTransaction, Duplicate, EndMarker, Origin, ProducerState
from wire.errors import ErrorCode, KafkaError
from wire.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader

MAX_SEQUENCE = 2**31 - 1
COMMIT, ABORT = (
    EndMarker(is_commit=True, coordinator_epoch=0),
    EndMarker(is_commit=False, coordinator_epoch=0),
)
DAY_MS = 24 * 60 * 60 * 1000
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
INVALID_TXN_STATE = ErrorCode.INVALID_TXN_STATE


def batch(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = 1000,
    base_offset: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL_FLAG if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count,
    )


def marker_header(producer_id: int = 1, epoch: int = 0) -> BatchHeader:
    attributes = TRANSACTIONAL_FLAG | CONTROL_FLAG
    return batch(-1, producer_id=producer_id, epoch=epoch)._replace(attributes=attributes)


class Log:
    """A partition as the producers see it: appends what the state accepts, at the next offset."""

    def __init__(self, state: ProducerState, end: int = 0) -> None:
        self.state = state
        self.end = end

    def append(
        self, header: BatchHeader, origin: Origin = Origin.CLIENT, guard: object = None
    ) -> int | Duplicate:
        """The base offset, or what a resend is answered with."""
        duplicate = self.state.check_append(header, origin, guard)  # type: ignore[arg-type]
        if duplicate is not None:
            return duplicate
        base_offset, self.end = self.end, self.end + header.last_offset_delta + 1
        self.state.update(header, base_offset)
        self.state.map_end_offset = self.end
        return base_offset

    def refused(self, header: BatchHeader, origin: Origin = Origin.CLIENT, guard: object = None) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.append(header, origin, guard)
        return caught.value.code

    def attempt(self, header: BatchHeader) -> int | Duplicate | ErrorCode:
        """As `append`, or the error it is refused with."""
        try:
            return self.append(header)
        except KafkaError as error:
            return error.code

    def end_transaction(
        self, marker: EndMarker, producer_id: int = 1, epoch: int = 0, version: int = 0
    ) -> tuple[CompletedTransaction, int] | None:
        header = marker_header(producer_id, epoch)
        self.state.check_marker(header, marker, Origin.COORDINATOR, version)
        completed = self.state.update_marker(header, marker, self.end, 1000)
        self.end += 1
        self.state.map_end_offset = self.end
        if completed is None:
            return None
        last_stable_offset = self.state.last_stable_offset(completed)
        self.state.complete(completed)
        return completed, last_stable_offset
