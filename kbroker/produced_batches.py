"""From the bytes a producer sent to the batch that is appended: what a topic's configuration makes of it.

The header and the CRC of every batch are checked. Its records are looked at only where the topic asks for it:
compacted topics want keys, timestamps may have bounds, a codec of the topic's own means recompression anyway,
and `kbroker.validate.records=full` asks for it outright. LogAppendTime is set by the log, which knows when.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from wire.compression import Codec
from wire.errors import ErrorCode, KafkaError
from wire.primitives import Buffer
from wire.record_validation import TimestampBounds, validate_produced, validate_records
from wire.records import BatchHeader, recompressed, with_max_timestamp

FIRST_VERSION_WITH_ZSTD = 7

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
    validate_records: bool = False
    max_message_bytes: int = 1_048_588
    max_batch_bytes: int = 100 << 20
    """What the records of a batch may take once decompressed."""


def accept(batch: Buffer, rules: ProduceRules, api_version: int, now_ms: int) -> tuple[Buffer, BatchHeader]:
    """The batch to append, and its header; KafkaError where it is refused (conformance 21-32)."""
    header = validate_produced(batch)
    codec = header.attributes & 7
    if codec == Codec.ZSTD and api_version < FIRST_VERSION_WITH_ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    own_codec, _, log_append_time, before_max_ms, after_max_ms, require_keys, validate, _, _ = rules
    bounds = None if log_append_time else bounds_around(now_ms, before_max_ms, after_max_ms)
    recode = own_codec is not None and codec != own_codec
    if recode and len(batch) > rules.max_message_bytes:  # the log judges only what becomes of it
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes exceed {rules.max_message_bytes}")
    if require_keys or validate or recode or (bounds and bounds.may_refuse(header)):
        largest = validate_records(
            batch, header, require_keys=require_keys, timestamps=bounds, limit=rules.max_batch_bytes
        )
        if not log_append_time and header.max_timestamp != largest:
            batch = with_max_timestamp(batch, largest)
            header = BatchHeader.parse(batch)
        if recode and own_codec is not None:
            batch = recompressed(batch, own_codec, rules.compression_level, rules.max_batch_bytes)
            header = BatchHeader.parse(batch)
    return batch, header
