"""Kafka's record batch, format v2 ("magic 2"), as bytes: its header, its checksum, and what a broker edits.

A batch is 61 bytes of header and a section of records, which is compressed as one stream if at all:

    base_offset int64 | batch_length int32 | leader_epoch int32 | magic int8 | crc uint32 | attributes int16 |
    last_offset_delta int32 | base_timestamp int64 | max_timestamp int64 | producer_id int64 |
    producer_epoch int16 | base_sequence int32 | count int32 | records

`batch_length` counts what follows it. The CRC-32C covers everything from `attributes` on, so a broker sets
base offset and leader epoch without touching it.

Rules:
- Batches stay bytes. A header is parsed by one `unpack_from` without a copy; bytes are edited in place where
  the CRC does not cover them, and in a copy where it does. What is in the records is for `wire.records`.
- Headers are read, not judged: compaction leaves batches without records, brokers write control batches.
  What a producer may send is narrower, and is the business of `wire.record_validation`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Self

from wire.compression import Buffer, Codec, CompressionError
from wire.errors import WireError

HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base_offset and batch_length: what `batch_length` does not count
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_TIMESTAMP = -1
LATEST_TIMESTAMP = (1 << 63) - 1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC_POSITION = 17
_CRC_COVERS_FROM = 21
_UNCOVERED_HEADER = struct.Struct(">qiibI")  # base_offset to crc
_COVERED_HEADER = struct.Struct(">hiqqqhii")  # attributes to count
_CODECS = tuple(Codec)
_MAX_INT32 = 2**31 - 1


class TimestampType(IntEnum):
    """Bit 3 of a batch's attributes: whose clock its timestamps come from."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


# -- the header


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as they are."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's word; nobody counts items of a header

    @classmethod
    def parse(cls, buffer: Buffer, position: int = 0) -> Self:
        """The header at `position`; its values are not judged."""
        try:
            return tuple.__new__(cls, _HEADER.unpack_from(buffer, position))
        except struct.error:
            size = len(buffer) - position
            raise WireError(f"a batch header takes {HEADER_SIZE} bytes, at {position} are {size}") from None

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        codec_id = self.attributes & CODEC_MASK
        if codec_id >= len(_CODECS):
            raise CompressionError(f"unknown compression codec {codec_id}")
        return _CODECS[codec_id]

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(self.attributes & LOG_APPEND_TIME_FLAG != 0)

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_too_early(self) -> bool:
        """Whether the largest timestamp cannot be right, as the first record has the base timestamp.

        Some clients write -1 there (Sarama 1.43.2), and brokers have stored it.
        """
        if self.max_timestamp >= self.base_timestamp:
            return False
        return not self.attributes & (LOG_APPEND_TIME_FLAG | DELETE_HORIZON_FLAG)

    @property
    def latest_timestamp(self) -> int:
        """The largest timestamp, or that of the first record if it is larger."""
        return self.base_timestamp if self.is_too_early else self.max_timestamp

    @property
    def timestamp_limit(self) -> int:
        """No record is later, as far as the header can tell."""
        return LATEST_TIMESTAMP if self.is_too_early else self.max_timestamp

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop this batch's tombstones; it then takes the place of the base timestamp."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after 2147483647 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _MAX_INT32


def batch_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Every whole batch from `position` on, and where it starts; an incomplete one at the end is left out."""
    while (room := len(buffer) - position) >= HEADER_SIZE:
        header = BatchHeader.parse(buffer, position)
        if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
            raise WireError(f"batch at byte {position} has the impossible length {header.batch_length}")
        if header.magic != MAGIC:
            raise WireError(f"batch at byte {position} has magic {header.magic} instead of {MAGIC}")
        size = header.batch_length + LOG_OVERHEAD
        if size > room:
            return
        yield position, header
        position += size


# -- the checksum, and edits


def _load_crc32c(data: Buffer, value: int = 0) -> int:
    # On first use: the package looks up its own version, which takes longer than importing all of wire.
    global _crc32c
    from crc32c import crc32c

    _crc32c = crc32c
    return _crc32c(data, value)


_crc32c = _load_crc32c


def crc_of(buffer: Buffer, position: int, size: int) -> int:
    """The CRC-32C that the batch of `size` bytes at `position` ought to carry."""
    return _crc32c(memoryview(buffer)[position + _CRC_COVERS_FROM : position + size])


def crc_is_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    end = position + LOG_OVERHEAD + header.batch_length
    return _crc32c(memoryview(buffer)[position + _CRC_COVERS_FROM : end]) == header.crc


def assign(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Gives the batch at `position` its place in the log, in place; the CRC does not cover it."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LOG_OVERHEAD, leader_epoch)


def assigned_prefix(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of the assigned batch, to be written before `batch[16:]` where that is read-only."""
    return _PREFIX.pack(base_offset, header.batch_length, leader_epoch)


def with_log_append_time(batch: Buffer, timestamp_ms: int) -> bytearray:
    """A copy that says all its records were appended at `timestamp_ms`; the base timestamp stays."""
    header = BatchHeader.parse(batch)
    return _with_timestamp(batch, header.attributes | LOG_APPEND_TIME_FLAG, timestamp_ms)


def with_max_timestamp(batch: Buffer, timestamp_ms: int) -> bytearray:
    """A copy under CreateTime whose largest timestamp is `timestamp_ms`, for a header that says otherwise."""
    header = BatchHeader.parse(batch)
    return _with_timestamp(batch, header.attributes & ~LOG_APPEND_TIME_FLAG, timestamp_ms)


def _with_timestamp(batch: Buffer, attributes: int, max_timestamp: int) -> bytearray:
    copy = bytearray(batch)
    struct.pack_into(">h", copy, 21, attributes)
    struct.pack_into(">q", copy, 35, max_timestamp)
    struct.pack_into(">I", copy, _CRC_POSITION, crc_of(copy, 0, len(copy)))
    return copy


def empty_batch(header: BatchHeader) -> bytes:
    """What compaction leaves of a batch without its records: the offsets and sequences it covered."""
    flags = header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
    header = header._replace(attributes=flags, base_timestamp=NO_TIMESTAMP, count=0)
    return assembled(header.base_offset, header.leader_epoch, header[5:], b"")


def assembled(base_offset: int, leader_epoch: int, covered: tuple[int, ...], section: bytes) -> bytes:
    """A whole batch; `covered` are the fields from attributes to count."""
    tail = _COVERED_HEADER.pack(*covered)
    crc = _crc32c(section, _crc32c(tail))
    length = HEADER_SIZE - LOG_OVERHEAD + len(section)
    return _UNCOVERED_HEADER.pack(base_offset, length, leader_epoch, MAGIC, crc) + tail + section
