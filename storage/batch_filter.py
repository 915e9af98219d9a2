"""What compaction leaves of a batch.

Pure: bytes in, bytes out; told the time, the last offset of every key, and which transactions count. The
rules are Kafka's (conformance 68-70):

- A record stays if no later one has its key, and it has a value. A record without key goes.
- A tombstone, which is a record without value, stays until the delete horizon of its batch. The batch gets
  one when compaction first passes it, delete.retention.ms ahead: whoever read an older value has that long
  to see that it is gone. Older values go in the same cleaning, and before it, so nothing comes back when
  the tombstone goes.
- Aborted data goes. A marker stays while a batch of its transaction does; then it is treated as a
  tombstone. Other control records stay. None is ever compared by key: they all have the same.
- The last batch of every producer that is remembered stays, without records if need be, so that after a
  restart its next one is accepted and a resend recognised. So does the last batch of what is cleaned. If
  that is a marker, it stays as it is: an empty one, as Kafka leaves it, tells nobody the producer's epoch.
- From `end_offset` on nothing was seen when the map of keys was made. Nothing there goes because of its
  key, and no tombstone there counts: what it deletes may not have gone yet.

What stays keeps offset and timestamp, and all of its bytes unless its batch gets a horizon. A batch of
which all stays is handed back as it came. One that lost records keeps base offset, last offset, epochs,
sequence, codec and the type of its timestamps; the largest timestamp is that of the records that are left.
A delete horizon takes the place of the base timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from storage.cleaned_transactions import CleanedTransactions
from storage.offset_map import OffsetMap
from wire.record_batch import BatchHeader
from wire.record_spans import SPANS_AT_ONCE, Span, batch_of_spans, record_data, record_spans
from wire.records import BatchBuilder, Buffer, Record, empty_batch, records

NO_OFFSET = -1


class LastBatch(NamedTuple):
    """Where a producer is remembered by: the last offset of its last batch, -1 if only its epoch is known."""

    last_offset: int
    producer_epoch: int


class BatchFilter:
    """The decisions of one cleaning, to be shown its batches in order."""

    __slots__ = (
        "_delete_horizon_ms",
        "_end_offset",
        "_last_batches",
        "_now_ms",
        "_offsets",
        "_round_end",
        "_transactions",
        "markers_dropped",
        "records_kept",
        "records_seen",
    )

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        last_batches: Mapping[int, LastBatch],
        *,
        end_offset: int,
        round_end: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """`offsets` knows the keys up to `end_offset`; `round_end` is where it ought to have got to."""
        self._offsets = offsets
        self._transactions = transactions
        self._last_batches = last_batches
        self._end_offset = end_offset
        self._round_end = round_end
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms
        self.records_seen = 0
        self.records_kept = 0
        self.markers_dropped = 0

    def filtered(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """What stays of a batch: itself, another, or nothing. WireError where it is damaged."""
        self.records_seen += header.count
        rest = self._control(header, batch) if header.is_control else self._data(header, batch)
        if rest is not None:
            return rest
        if not self._must_stay(header):
            return None
        return empty_batch(header) if header.count else batch

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._round_end:
            return True
        last = self._last_batches.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset != NO_OFFSET:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _control(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        spent = self._transactions.is_spent(header, batch)
        if not header.count:
            return None
        if spent and self._horizon_has_passed(header) and not self._must_stay(header):
            self.markers_dropped += 1
            return None
        self.records_kept += header.count
        if not spent or header.has_delete_horizon:
            return batch
        return rebuilt(header, records(batch, 0, header), self._delete_horizon_ms)

    def _data(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        if self._transactions.is_aborted(header):
            return None
        data = record_data(header, batch)
        kept, has_tombstone = 0, False
        pieces, is_small = self._kept(header, data), header.count <= SPANS_AT_ONCE
        if is_small:
            pieces = list(pieces)  # or else they are found again where they are needed
        for spans in pieces:
            kept += len(spans)
            has_tombstone |= any(span[2] for span in spans if span[0] < self._end_offset)
        if not kept:
            return None
        self.records_kept += kept
        if has_tombstone and not header.has_delete_horizon:
            return rebuilt(header, self._left(header, batch, data), self._delete_horizon_ms)
        if kept == header.count:
            return batch
        return batch_of_spans(header, data, pieces if is_small else self._kept(header, data))

    def _kept(self, header: BatchHeader, data: bytes) -> Iterable[list[Span]]:
        """The records that stay, in pieces."""
        tombstones = not self._horizon_has_passed(header)
        for spans in record_spans(header, data):
            yield self._offsets.last_of(spans, self._end_offset, tombstones=tombstones)

    def _left(self, header: BatchHeader, batch: Buffer, data: bytes) -> Iterator[Record]:
        """The same, decoded."""
        left = records(batch, 0, header)
        for spans in self._kept(header, data):
            for offset, *_ in spans:
                yield next(record for record in left if record.offset == offset)

    def _horizon_has_passed(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._now_ms


def rebuilt(header: BatchHeader, left: Iterable[Record], delete_horizon_ms: int) -> bytes:
    """The batch with only these of its records, and a delete horizon."""
    builder = BatchBuilder(
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        delete_horizon_ms=delete_horizon_ms,
    )
    for offset, timestamp, key, value, headers in left:
        builder.append(key, value, headers, timestamp_ms=timestamp, offset=offset)
    return builder.build(header.last_offset)
