"""From the bytes a producer sent to the batch that is appended: what a topic's configuration makes of it.

Header and CRC of every batch are checked, and so is every record in it, unless `kbroker.validate.records` is
`header`: as Kafka does, and because nobody else looks before a consumer stumbles. The largest timestamp in
the header becomes that of the records. LogAppendTime is set by the log, which knows when.

Rules:
- What a request makes the event loop look at is bounded, by an `Allowance`. A batch that exceeds it is
  `TooMuch`, and is looked at in a thread, in steps (`examined`).
- Records are never held decompressed, but for the little that the allowance lets through: of what
  decompresses to 100 MiB there is one piece of 256 KiB at a time.
- Where a topic has only part of this to ask (keys, timestamps, a codec of its own), its records are looked at
  whatever the setting.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from wire.compression import Codec, CompressionError, TooLarge, decompress
from wire.errors import ErrorCode, KafkaError
from wire.primitives import Buffer
from wire.record_batch import CODEC_MASK, HEADER_SIZE
from wire.record_validation import (
    InvalidBatch,
    RecordTerms,
    TimestampBounds,
    glanced_at,
    looked_at,
    validate_produced,
)
from wire.record_walk import MOST_HEADERS, TooManyHeaders
from wire.records import BatchHeader, recompressed, with_max_timestamp
from wire.steps import Steps, outcome_of

FIRST_VERSION_WITH_ZSTD = 7

MOST_ON_LOOP = 1 << 20
"""What records of one request may cost on the event loop. That is their bytes once decompressed, and more for
what takes longer than bytes do."""
COST_OF_A_RECORD = 32
COST_OF_A_COMPRESSED_BYTE = 8
"""At first; it may be the end of a block or a frame, which there can be thousands of."""
MOST_HEADERS_ON_LOOP = 10_000
"""Of one batch."""
MOST_RECOMPRESSED_ON_LOOP = 16 << 10
"""The slowest levels take a millisecond for so many bytes."""

bounds_around = lru_cache(16)(TimestampBounds.around)
"""Many batches come in the same millisecond."""


class ProduceRules(NamedTuple):
    """What of a topic's configuration concerns a produced batch."""

    codec: Codec | None = None
    """The topic's own, or None for the producer's."""
    compression_level: int | None = None
    log_append_time: bool = False
    timestamp_before_max_ms: int = 0x7FFFFFFFFFFFFFFF
    timestamp_after_max_ms: int = 3_600_000
    require_keys: bool = False
    validate_records: bool = True
    max_message_bytes: int = 1_048_588
    max_batch_bytes: int = 100 << 20
    """What the records of a batch may take once decompressed."""


class Allowance:
    """What may yet be looked at on the event loop for one request."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_ON_LOOP


class TooMuch(Exception):
    """To look at these records would hold the event loop for too long."""


def takes_long(size: int, attributes: int) -> bool:
    """Whether that can be told without looking any further."""
    return size * (COST_OF_A_COMPRESSED_BYTE if attributes & CODEC_MASK else 1) > MOST_ON_LOOP


def accept(
    batch: Buffer, rules: ProduceRules, api_version: int, now_ms: int, allowance: Allowance
) -> tuple[Buffer, BatchHeader]:
    """The batch to append, and its header; KafkaError where it is refused (conformance 21-32).

    TooMuch where `examined` has to say so, elsewhere.
    """
    header = validate_produced(batch)
    codec = header.attributes & CODEC_MASK
    if codec == Codec.ZSTD and api_version < FIRST_VERSION_WITH_ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    size = len(batch)
    own_codec, _, log_append_time, before_max_ms, after_max_ms, require_keys, validate, most_bytes, _ = rules
    if size > most_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes exceed {most_bytes}")
    bounds = None if log_append_time else bounds_around(now_ms, before_max_ms, after_max_ms)
    must_recode = own_codec is not None and codec != own_codec
    must_look = validate or require_keys or must_recode or (bounds and bounds.may_refuse(header))
    if not must_look and (log_append_time or not header.is_too_early):
        return batch, header
    cost = size * COST_OF_A_COMPRESSED_BYTE if codec else size
    allowance.left = left = allowance.left - cost - header.count * COST_OF_A_RECORD
    if left < 0:
        raise TooMuch
    if not must_recode:
        try:
            data = decompress(codec, batch[HEADER_SIZE:], min(left, rules.max_batch_bytes)) if codec else None
        except TooLarge:
            raise TooMuch from None
        except CompressionError as error:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, str(error)) from error
        if data is None:
            data = bytes(batch[HEADER_SIZE:])
        else:
            allowance.left -= len(data)
        largest = glanced_at(data, header, bounds, require_keys, MOST_HEADERS_ON_LOOP)
        if largest is not None:
            if largest == header.max_timestamp or log_append_time:
                return batch, header
            return _with_max_timestamp(batch, largest)
    return _accept_slowly(batch, header, rules, bounds, left)


def _accept_slowly(
    batch: Buffer, header: BatchHeader, rules: ProduceRules, bounds: TimestampBounds | None, left: int
) -> tuple[Buffer, BatchHeader]:
    """A batch to which there is something to object, perhaps, or that has to be recompressed."""
    must_recode = rules.codec is not None and header.codec != rules.codec
    limit = min(MOST_RECOMPRESSED_ON_LOOP if must_recode else left, rules.max_batch_bytes)
    terms = RecordTerms(rules.require_keys, bounds, limit, MOST_HEADERS_ON_LOOP)
    try:
        return outcome_of(_examined(batch, header, rules, terms))
    except (TooLarge, TooManyHeaders):
        raise TooMuch from None


def examined(batch: Buffer, rules: ProduceRules, now_ms: int) -> Steps[tuple[Buffer, BatchHeader]]:
    """What `accept` says, for a batch that was TooMuch, in steps: each yields how many bytes come next."""
    terms = RecordTerms(rules.require_keys, bounds_of(rules, now_ms), rules.max_batch_bytes, MOST_HEADERS)
    try:
        return (yield from _examined(batch, BatchHeader.parse(batch), rules, terms))
    except (TooLarge, TooManyHeaders) as error:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, str(error)) from error


def bounds_of(rules: ProduceRules, now_ms: int) -> TimestampBounds | None:
    if rules.log_append_time:
        return None
    return bounds_around(now_ms, rules.timestamp_before_max_ms, rules.timestamp_after_max_ms)


def _examined(
    batch: Buffer, header: BatchHeader, rules: ProduceRules, terms: RecordTerms
) -> Steps[tuple[Buffer, BatchHeader]]:
    largest = yield from looked_at(batch, header, terms)
    if header.max_timestamp != largest and not rules.log_append_time:
        batch, header = _with_max_timestamp(batch, largest)
    if rules.codec is not None and header.codec != rules.codec:
        steps = recompressed(
            batch, rules.codec, rules.compression_level, terms.limit, rules.max_message_bytes
        )
        try:
            batch = yield from steps
        except TooLarge as error:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
        header = BatchHeader.parse(batch)
    return batch, header


def _with_max_timestamp(batch: Buffer, largest: int) -> tuple[Buffer, BatchHeader]:
    corrected = with_max_timestamp(batch, largest)
    return corrected, BatchHeader.parse(corrected)
