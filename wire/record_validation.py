"""What a producer may send: the judgement on a batch before it is appended.

`validate_produced` looks at the header and the checksum, `validate_records` decompresses the batch and looks
at every record. The same in steps is `looked_at`; `glanced_at` is faster, where all is in memory and nothing
wrong. A batch that only the first has seen may still turn out to be malformed when it is read.

Rules:
- Every objection is an `InvalidBatch` with the code that Kafka answers; a client's bytes raise nothing else.
- Objections come in Kafka's order: the shape of the request, the checksum, the header, the records.
- Stricter than Kafka where it costs no client anything: bytes after the batch (Kafka cuts off an incomplete
  second batch), an append time claimed by a producer (Kafka lets it pass under CreateTime), offset deltas
  that do not count up from 0 (Kafka stores them in uncompressed batches), lengths of records in compressed
  batches (Kafka passes over them, and cannot read such records afterwards).
- Different where Kafka answers UNKNOWN_SERVER_ERROR, which has made clients write duplicates: unknown codecs
  and undecodable data are INVALID_RECORD. Sending the same bytes again would not help, so no retriable code.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple, Self

from wire.compression import Buffer, Codec, TooLarge
from wire.errors import ErrorCode, KafkaError, WireError
from wire.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
)
from wire.record_walk import (
    MOST_HEADERS,
    OutOfOrder,
    RecordWalk,
    TooManyHeaders,
    lone_record_lacks_key,
    record_pieces,
    walked,
)
from wire.records import DEFAULT_LIMIT, wrapped
from wire.steps import Steps, outcome_of

LATEST = 2**63 - 1

# A batch may hold millions of bad records; the client learns about the first ones.
MAX_RECORD_ERRORS = 100

_MAX_CODEC = max(Codec)
_MAGIC_POSITION = 16


class InvalidBatch(KafkaError):
    """The batch is refused with `code`; `record_errors` are indexes of offending records, with reasons."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors or []


class NotOneBatch(InvalidBatch):
    """It is not what Produce may have: exactly one batch of our format."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class TimestampBounds(NamedTuple):
    """What a topic under CreateTime accepts; a record without a timestamp (-1) is always accepted."""

    earliest_ms: int
    latest_ms: int

    @classmethod
    def around(cls, now_ms: int, before_max_ms: int, after_max_ms: int) -> Self:
        """From `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`."""
        return cls(now_ms - before_max_ms, now_ms + after_max_ms)

    def may_refuse(self, header: BatchHeader) -> bool:
        """Whether the records have to be looked at: the header tells the latest time, not the earliest."""
        return header.max_timestamp > self.latest_ms or self.earliest_ms > 0

    def objection(self, timestamp: int) -> str | None:
        if timestamp == NO_TIMESTAMP or self.earliest_ms <= timestamp <= self.latest_ms:
            return None
        return f"timestamp {timestamp} is outside of [{self.earliest_ms}, {self.latest_ms}]"


def validate_produced(batch: Buffer) -> BatchHeader:
    """The header of what must be exactly one batch a client may send; its records are not looked at."""
    size = len(batch)
    if size < HEADER_SIZE or batch[_MAGIC_POSITION] != MAGIC:
        raise _no_batch(batch)
    header = BatchHeader.parse(batch)
    base_offset, length, _, _, crc, attributes, last_offset_delta, _, _, producer_id, _, sequence, count = (
        header
    )
    if length + LOG_OVERHEAD != size:
        raise NotOneBatch(f"a batch of {header.size} bytes in {size} bytes; there must be exactly one")
    if base_offset != 0:
        raise _invalid(f"the base offset is {base_offset} instead of 0")
    if not crc_is_valid(batch, 0, header):
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"the CRC {crc:#010x} does not match the batch")
    if count < 1 or last_offset_delta != count - 1:
        raise _invalid(f"{count} records with a last offset delta of {last_offset_delta}")
    if attributes & CONTROL_FLAG:
        raise _invalid("clients may not write control records")
    if producer_id >= 0 and sequence < 0:
        raise _invalid(f"sequence {sequence} with producer id {producer_id}")
    if attributes & CODEC_MASK > _MAX_CODEC:
        raise _invalid(f"unknown compression codec {attributes & CODEC_MASK}")
    if attributes & LOG_APPEND_TIME_FLAG:
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime"
        )
    return header


def _no_batch(data: Buffer) -> NotOneBatch:
    # Older formats have the magic at the same place, and can be shorter than our header.
    if len(data) > _MAGIC_POSITION and data[_MAGIC_POSITION] != MAGIC:
        return NotOneBatch(f"magic {data[_MAGIC_POSITION]}; only record batches of magic {MAGIC} are stored")
    return NotOneBatch(f"{len(data)} bytes are no whole record batch")


def validate_records(
    batch: Buffer,
    header: BatchHeader,
    *,
    require_keys: bool = False,
    timestamps: TimestampBounds | None = None,
    limit: int = DEFAULT_LIMIT,
) -> int:
    """Looks at every record of a batch that `validate_produced` let pass; the largest timestamp there is.

    Pass `timestamps` under CreateTime only. Where the header's `max_timestamp` is not the result, Kafka
    corrects it; so does `with_max_timestamp`.
    """
    terms = RecordTerms(require_keys, timestamps, limit)
    try:
        return outcome_of(looked_at(batch, header, terms))
    except (TooLarge, TooManyHeaders) as error:
        raise _invalid(str(error)) from error


class RecordTerms(NamedTuple):
    """What records have to keep to, and how much of them may be looked at."""

    require_keys: bool = False
    timestamps: TimestampBounds | None = None
    limit: int = DEFAULT_LIMIT
    """Bytes, once decompressed."""
    most_headers: int = MOST_HEADERS


def looked_at(batch: Buffer, header: BatchHeader, terms: RecordTerms) -> Steps[int]:
    """The same in steps: the size of each piece of record data is yielded before it is looked at.

    TooLarge and TooManyHeaders say that the terms forbid to go on; any other objection is an InvalidBatch.
    """
    require_keys, timestamps, limit, most_headers = terms
    try:
        if header.base_timestamp >= 0 and not (timestamps and timestamps.earliest_ms > 0):
            walk = RecordWalk(header.count, most_headers)
            with suppress(OutOfOrder):
                yield from walked(walk, record_pieces(batch, header, limit))
                largest = max(header.base_timestamp + walk.largest_timestamp_delta, NO_TIMESTAMP)
                is_late = largest > (timestamps.latest_ms if timestamps else LATEST)
                if not is_late and not (require_keys and walk.has_null_key):
                    return largest
        # One of them, perhaps, will not do: find out which.
        judgement = _Judgement(header.base_timestamp, require_keys=require_keys, timestamps=timestamps)
        walk = RecordWalk(header.count, most_headers, judgement)
        yield from walked(walk, record_pieces(batch, header, limit))
    except (TooLarge, TooManyHeaders, InvalidBatch):
        raise
    except WireError as error:
        raise _invalid(str(error)) from error
    judgement.tell()
    return judgement.largest


def glanced_at(
    data: bytes,
    header: BatchHeader,
    timestamps: TimestampBounds | None,
    require_keys: bool,
    most_headers: int,
) -> int | None:
    """The same for decompressed records, if there is nothing to object to them, and faster.

    None where they have to be looked at closely.
    """
    latest_ms = LATEST
    if timestamps is not None:
        earliest_ms, latest_ms = timestamps
        if earliest_ms > 0:
            return None
    count, largest = header.count, header.base_timestamp
    if largest < 0:
        return None
    try:
        lacks_key = lone_record_lacks_key(data) if count == 1 else None
        if lacks_key is None:
            walk = RecordWalk(count, most_headers)
            if walk.take(data) != len(data) or walk.index != count:
                return None
            lacks_key = walk.has_null_key
            largest += walk.largest_timestamp_delta
    except (WireError, IndexError, ValueError):
        return None
    if largest > latest_ms or (require_keys and lacks_key):
        return None
    return largest if largest > NO_TIMESTAMP else NO_TIMESTAMP


class _Judgement:
    """What there is to object to the records of a batch, one by one."""

    def __init__(
        self, base_timestamp: int, *, require_keys: bool, timestamps: TimestampBounds | None
    ) -> None:
        self._base_timestamp = base_timestamp
        self._require_keys = require_keys
        self._timestamps = timestamps
        self._code = ErrorCode.INVALID_RECORD
        self._errors: list[tuple[int, str]] = []
        self.largest = NO_TIMESTAMP

    def __call__(self, index: int, timestamp_delta: int, offset_delta: int, key_is_null: bool) -> None:
        timestamp = wrapped(self._base_timestamp + timestamp_delta)
        self.largest = max(self.largest, timestamp)
        objection = None
        if self._require_keys and key_is_null:
            objection = "a compacted topic takes no record without a key"
        elif offset_delta != index:
            objection = f"offset delta {offset_delta} instead of {index}"
        elif self._timestamps is not None and (objection := self._timestamps.objection(timestamp)):
            self._code = ErrorCode.INVALID_TIMESTAMP
        if objection:
            self._errors.append((index, objection))
            if len(self._errors) == MAX_RECORD_ERRORS:
                self.tell()

    def tell(self) -> None:
        """InvalidBatch, if there is anything."""
        errors = self._errors
        if errors:
            raise InvalidBatch(self._code, f"{len(errors)} records are refused: {errors[0]}", errors)


def _invalid(message: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, message)
