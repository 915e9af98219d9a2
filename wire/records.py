"""The records inside a batch: read one by one, or built into a new batch.

This is also the door to `wire.record_batch`, whose names may be imported from here. A record is, in zigzag
varints and bytes:

    length | attributes int8 | timestamp delta | offset delta | key | value | header count | (key, value) ...

Rules:
- Stored records are read as leniently as Kafka does: any offset delta, any negative length for null. What a
  producer may send is narrower, and is the business of `wire.record_validation`.
- Reading is bounded: by the batch, by the declared count, by `limit` for what decompression may produce.
  Bytes that do not add up are a WireError that names the record and the byte.
- Keys, values and header values are copies, safe to keep when their buffer is reused. Header keys are text;
  bytes that are not UTF-8 survive the way through `records` and back as surrogate escapes.
- Timestamps wrap at 64 bits as Java's do: a forged delta cannot yield a number that no field can hold.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from wire.compression import Buffer, Codec, TooLarge, compress, compressor, decompress, decompressed
from wire.errors import WireError
from wire.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    assembled,
    assign,
    assigned_prefix,
    batch_headers,
    crc_is_valid,
    crc_of,
    empty_batch,
    with_log_append_time,
    with_max_timestamp,
)
from wire.record_walk import MOST_HEADERS
from wire.steps import Steps

__all__ = [
    "DEFAULT_LIMIT",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchBuilder",
    "BatchHeader",
    "Buffer",
    "ControlType",
    "Record",
    "TimestampType",
    "assign",
    "assigned_prefix",
    "batch_headers",
    "build_batch",
    "control_batch",
    "control_type",
    "coordinator_epoch",
    "crc_is_valid",
    "crc_of",
    "empty_batch",
    "recompressed",
    "records",
    "with_log_append_time",
    "with_max_timestamp",
    "wrapped",
]

# What a batch may hold once decompressed, unless the caller says otherwise: no more than Kafka's default
# `socket.request.max.bytes` would let the same records take uncompressed.
DEFAULT_LIMIT = 100 * 1024 * 1024

_MAX_INT32 = 2**31 - 1
_MIN_INT64 = -(2**63)
_MAX_INT64 = 2**63 - 1
_UINT32 = 2**32 - 1
_UINT64 = 2**64 - 1


Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record; `timestamp` is the broker's for a batch under LogAppendTime."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def records(
    batch: Buffer, position: int = 0, header: BatchHeader | None = None, limit: int = DEFAULT_LIMIT
) -> Iterator[Record]:
    """The records of the batch at `position`, decoded as they are asked for; so errors come late, too.

    WireError where the bytes do not add up to the declared records; CompressionError, a WireError, where they
    cannot be decompressed within `limit`. The CRC is not checked.
    """
    header = header or BatchHeader.parse(batch, position)
    if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LOG_OVERHEAD or header.count < 0:
        raise WireError(f"no batch at byte {position}: {header}")
    end = position + header.size
    if end > len(batch):
        raise WireError(
            f"batch at byte {position} ends at {end}, after the {len(batch)} bytes that are there"
        )
    section = memoryview(batch)[position + HEADER_SIZE : end]
    if not section and not header.count:
        return iter(())
    codec = header.codec
    data = decompress(codec, section, limit) if codec else bytes(section)
    append_time = header.max_timestamp if header.is_log_append_time else None
    return _decoded(data, header.count, header.base_offset, header.base_timestamp, append_time)


def _decoded(  # noqa: C901 -- every record passes here, and calls would cost more than all the rest
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Iterator[Record]:
    """A varint of one byte is looked up, a longer one read by `_varint`; one comparison bounds the lengths.

    A length that leads out of the record makes the record's end come out wrong: slices are cut short where
    the data ends, and negative lengths are null, so `position` can only run too far.
    """
    zigzag, new, lowest, highest = _ZIGZAG, tuple.__new__, _MIN_INT64, _MAX_INT64
    end = len(data)
    position = start = index = 0
    try:
        for index in range(count):  # noqa: B007 -- the error message needs it
            start = position
            length = zigzag[data[position]]
            position += 1
            if length is None:
                length, position = _varint(data, start, 5)
            record_end = position + length
            if not position < record_end <= end:
                raise ValueError(f"its length is {length}, with {end - position} bytes left")
            position += 2  # one byte of attributes, none of which mean anything, and the one looked at next
            delta = zigzag[data[position - 1]]
            if delta is None:
                delta, position = _varint(data, position - 1, 10)
            timestamp = base_timestamp + delta if append_time is None else append_time
            if not lowest <= timestamp <= highest:
                timestamp = (timestamp - lowest & _UINT64) + lowest
            offset_delta = zigzag[data[position]]
            position += 1
            if offset_delta is None:
                offset_delta, position = _varint(data, position - 1, 5)
            size = zigzag[data[position]]
            position += 1
            if size is None:
                size, position = _varint(data, position - 1, 5)
            key = value = None
            if size >= 0:
                key = data[position : position + size]
                position += size
            size = zigzag[data[position]]
            position += 1
            if size is None:
                size, position = _varint(data, position - 1, 5)
            if size >= 0:
                value = data[position : position + size]
                position += size
            headers: Headers = ()
            if data[position]:
                headers, position = _decoded_headers(data, position, record_end)
            else:
                position += 1
            if position != record_end:
                raise ValueError(f"its fields end at byte {position} instead of {record_end}")
            yield new(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    except (IndexError, ValueError) as error:
        reason = "the data ends within it" if isinstance(error, IndexError) else error
        raise WireError(f"record {index} of {count}, at byte {start} of the record data: {reason}") from None
    if position != end:
        raise WireError(f"{end - position} bytes follow record {count - 1}, the last one, at byte {position}")


def _decoded_headers(data: bytes, position: int, record_end: int) -> tuple[Headers, int]:
    zigzag, headers = _ZIGZAG, []
    count = zigzag[data[position]]
    position += 1
    if count is None:
        count, position = _varint(data, position - 1, 5)
    if not 0 <= 2 * count <= record_end - position:  # a header takes two bytes at least
        raise ValueError(f"it declares {count} headers with {record_end - position} bytes left")
    if count > MOST_HEADERS:
        raise ValueError(f"it has {count} headers; {MOST_HEADERS} can be read")
    for _ in range(count):
        size = zigzag[data[position]]
        position += 1
        if size is None:
            size, position = _varint(data, position - 1, 5)
        if size < 0:
            raise ValueError("the key of a header is null")
        key = data[position : position + size].decode("utf-8", "surrogateescape")
        position += size
        size = zigzag[data[position]]
        position += 1
        if size is None:
            size, position = _varint(data, position - 1, 5)
        value = None
        if size >= 0:
            value = data[position : position + size]
            position += size
        headers.append((key, value))
    return tuple(headers), position


# What a varint of one byte means; None for the first byte of a longer one.
_ZIGZAG = tuple(byte >> 1 ^ -(byte & 1) if byte < 0x80 else None for byte in range(256))


def _varint(data: bytes, position: int, max_size: int) -> tuple[int, int]:
    """A zigzag varint that is longer than one byte, and where it ends: 32 bits in up to 5 bytes, 64 in 10."""
    byte = data[position + 1]
    raw = data[position] & 0x7F | (byte & 0x7F) << 7
    position += 2
    if byte >= 0x80:
        shift = 14
        while byte >= 0x80:
            if shift == 7 * max_size:
                raise ValueError(f"a varint has more than {max_size} bytes")
            byte = data[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
        raw &= _UINT32 if max_size == 5 else _UINT64  # Java, too, drops the bits that do not fit
    return raw >> 1 ^ -(raw & 1), position


def wrapped(timestamp: int) -> int:
    """As Java's 64 bits have it."""
    return (timestamp - _MIN_INT64 & _UINT64) + _MIN_INT64


def recompressed(
    batch: Buffer,
    codec: Codec,
    level: int | None = None,
    limit: int = DEFAULT_LIMIT,
    most_bytes: int = DEFAULT_LIMIT,
) -> Steps[bytes]:
    """The batch with the same header and the same records in another codec, in steps.

    The size of each piece is yielded before it is compressed. TooLarge as soon as that makes more than
    `most_bytes`.
    """
    header = BatchHeader.parse(batch)
    stream, parts, room = compressor(codec, level), list[bytes](), most_bytes
    for piece in decompressed(header.codec, memoryview(batch)[HEADER_SIZE : header.size], limit):
        yield len(piece)
        parts.append(stream.compress(piece))
        room -= len(parts[-1])
        if room < 0:
            raise TooLarge(f"the records take more than {most_bytes} bytes as {codec.name.lower()}")
    parts.append(stream.flush())
    header = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    return assembled(header.base_offset, header.leader_epoch, header[5:], b"".join(parts))


# -- control records


class ControlType(IntEnum):
    """The second int16 of a control record's key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_CONTROL_KEY = struct.Struct(">hh")  # version, type
_END_TRANSACTION_MARKER = struct.Struct(">hi")  # version, coordinator epoch
_CONTROL_TYPES = {int(kind): kind for kind in ControlType}


def control_type(record: Record) -> ControlType:
    """What a record of a control batch says; UNKNOWN for types of the future, which are to be skipped."""
    return _CONTROL_TYPES.get(_control_field(_CONTROL_KEY, record.key), ControlType.UNKNOWN)


def coordinator_epoch(record: Record) -> int:
    """The epoch of the transaction coordinator that wrote this ABORT or COMMIT marker."""
    return _control_field(_END_TRANSACTION_MARKER, record.value)


def _control_field(layout: struct.Struct, data: bytes | None) -> int:
    """The field after the version. A later version may add fields, so more bytes are no error."""
    if data is None or len(data) < layout.size:
        raise WireError(f"control record holds {data!r} instead of {layout.size} bytes")
    version, field = layout.unpack_from(data)
    if version < 0:
        raise WireError(f"control record has version {version}")
    return int(field)


def control_batch(
    control_type: ControlType,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The marker that ends a producer's transaction in one partition."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    key, value = _CONTROL_KEY.pack(0, control_type), _END_TRANSACTION_MARKER.pack(0, coordinator_epoch)
    builder.append(key, value, timestamp_ms=timestamp_ms)
    return builder.build()


# -- building


class _Varints(dict[int, bytes]):
    """Zigzag varints by the number they stand for; those of small numbers are remembered."""

    def __missing__(self, number: int) -> bytes:
        number = (number - _MIN_INT64 & _UINT64) + _MIN_INT64  # the difference of two times may wrap
        raw = (number << 1 ^ number >> 63) & _UINT64
        encoded = bytearray()
        while raw >= 0x80:
            encoded.append(raw & 0x7F | 0x80)
            raw >>= 7
        encoded.append(raw)
        if len(encoded) <= 2:
            self[number] = bytes(encoded)
        return bytes(encoded)


VARINTS = _Varints()


class BatchBuilder:
    """Collects records into one batch. Their offsets rise, and may leave gaps as compaction does."""

    def __init__(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self._codec = codec
        self._level = level
        has_horizon = delete_horizon_ms is not None
        self._attributes = codec | timestamp_type << 3 | transactional << 4 | control << 5 | has_horizon << 6
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = _MIN_INT64
        self._last_offset = base_offset - 1
        self._parts: list[bytes] = []
        self._estimated_size = HEADER_SIZE

    @property
    def count(self) -> int:
        return len(self._parts) // 2

    @property
    def estimated_size(self) -> int:
        """The size of the batch if it is not compressed."""
        return self._estimated_size

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
        *,
        timestamp_ms: int,
        offset: int | None = None,
    ) -> None:
        """Adds a record, at the next offset unless told another."""
        if offset is None:
            offset = self._last_offset + 1
        offset_delta = offset - self._base_offset
        if offset <= self._last_offset or offset_delta > _MAX_INT32:
            raise ValueError(f"offset {offset} after {self._last_offset} in a batch from {self._base_offset}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp_ms
        varint = VARINTS
        body = b"".join(
            (
                b"\x00",  # attributes
                varint[timestamp_ms - self._base_timestamp],
                varint[offset_delta],
                varint[-1 if key is None else len(key)],
                key or b"",
                varint[-1 if value is None else len(value)],
                value or b"",
                _encoded_headers(headers) if headers else b"\x00",
            )
        )
        length = varint[len(body)]
        self._parts += (length, body)
        self._estimated_size += len(length) + len(body)
        self._last_offset = offset
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms

    def build(self, last_offset: int | None = None) -> bytes:
        """The batch; `last_offset` where it reaches further than its last record, as after compaction."""
        if self._base_timestamp is None or not self._parts:
            raise ValueError(
                "a batch takes at least one record; compaction's empty ones come from empty_batch()"
            )
        if last_offset is None:
            last_offset = self._last_offset
        elif last_offset < self._last_offset:
            raise ValueError(f"a batch with a record at {self._last_offset} cannot end at {last_offset}")
        covered = (
            self._attributes,
            last_offset - self._base_offset,
            self._base_timestamp,
            self._max_timestamp,
            *self._producer,
            self.count,
        )
        section = b"".join(self._parts)
        if self._codec:
            section = compress(self._codec, section, self._level)
        return assembled(self._base_offset, self._leader_epoch, covered, section)


def _encoded_headers(headers: Iterable[tuple[str, Buffer | None]]) -> bytes:
    parts: list[Buffer] = []
    for name, value in headers:
        key = name.encode("utf-8", "surrogateescape")
        parts += (VARINTS[len(key)], key, VARINTS[-1 if value is None else len(value)], value or b"")
    return b"".join((VARINTS[len(parts) // 4], *parts))


def build_batch(records: Iterable[Record], **options: Any) -> bytes:
    """A batch of these records at their offsets, from the first one's on; options are BatchBuilder's."""
    builder: BatchBuilder | None = None
    for offset, timestamp, key, value, headers in records:
        builder = builder or BatchBuilder(**{"base_offset": offset, **options})
        builder.append(key, value, headers, timestamp_ms=timestamp, offset=offset)
    if builder is None:
        raise ValueError("a batch takes at least one record")
    return builder.build()
