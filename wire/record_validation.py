"""What a producer may send: the judgement on a batch before it is appended, in two strengths.

`validate_produced` looks at the header and the checksum, for every batch. `validate_records` decompresses the
batch and looks at every record; that is for compacted topics, for batches that get recompressed anyway, for
batches whose timestamps may offend, and for `validate.records=full`. A batch that only the first has seen may
still turn out to be malformed when it is read.

Rules:
- Every objection is an `InvalidBatch` with the code that Kafka answers; a client's bytes raise nothing else.
- Objections come in Kafka's order: the shape of the request, the checksum, the header, the records.
- Stricter than Kafka where it costs no client anything: bytes after the batch (Kafka cuts off an incomplete
  second batch), an append time claimed by a producer (Kafka lets it pass under CreateTime), offset deltas
  that do not count up from 0 (Kafka renumbers them in compressed batches).
- Different where Kafka answers UNKNOWN_SERVER_ERROR, which has made clients write duplicates: unknown codecs
  and undecodable data are INVALID_RECORD. Sending the same bytes again would not help, so no retriable code.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from wire.compression import Buffer, Codec
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
from wire.records import DEFAULT_LIMIT, records

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
        raise _invalid(f"a batch of {header.size} bytes in {size} bytes; there must be exactly one")
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


def _no_batch(data: Buffer) -> InvalidBatch:
    # Older formats have the magic at the same place, and can be shorter than our header.
    if len(data) > _MAGIC_POSITION and data[_MAGIC_POSITION] != MAGIC:
        return _invalid(f"magic {data[_MAGIC_POSITION]}; only record batches of magic {MAGIC} are stored")
    return _invalid(f"{len(data)} bytes are no whole record batch")


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
    record_errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    max_timestamp = NO_TIMESTAMP
    try:
        for index, record in enumerate(records(batch, 0, header, limit)):
            objection = None
            if record.timestamp > max_timestamp:
                max_timestamp = record.timestamp
            if require_keys and record.key is None:
                objection = "a compacted topic takes no record without a key"
            elif record.offset - header.base_offset != index:
                objection = f"offset delta {record.offset - header.base_offset} instead of {index}"
            elif timestamps is not None and (objection := timestamps.objection(record.timestamp)):
                code = ErrorCode.INVALID_TIMESTAMP
            if objection:
                record_errors.append((index, objection))
                if len(record_errors) == MAX_RECORD_ERRORS:
                    break
    except WireError as error:
        raise _invalid(str(error)) from error
    if record_errors:
        raise InvalidBatch(
            code, f"{len(record_errors)} records are refused: {record_errors[0]}", record_errors
        )
    return max_timestamp


def _invalid(message: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, message)
