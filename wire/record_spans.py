"""The records of a batch as stretches of bytes: all that compaction needs to know of them.

Looking for keys costs less than half of decoding, and records that stay are put into a new batch as they
are: their offsets and timestamps are relative to those of the batch, which stay as well. But where the first
record goes, the base timestamp becomes that of the first one that stays, as in Kafka.

Rules:
- Lengths, offsets and keys are read within the limits of `wire.records`, with the same errors. Of the value
  it is read whether there is one; what follows is passed over. It is the checksum's to tell that it is as
  it was.
- Offsets have to rise, and to lie within the batch: records are told apart by them.
"""

from __future__ import annotations

from collections.abc import Sequence

from wire.compression import Buffer, compress, decompress
from wire.errors import WireError
from wire.record_batch import HEADER_SIZE, BatchHeader, assembled
from wire.records import DEFAULT_LIMIT, VARINTS, _varint, wrapped

Span = tuple[int, bytes | None, bool, int, int, int]
"""Offset; key; whether it is a tombstone; where in the data its timestamp is; where it begins, and ends."""


def record_data(header: BatchHeader, batch: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """The records of a batch, uncompressed; WireError where they cannot be, or not within `limit`."""
    section = memoryview(batch)[HEADER_SIZE : header.size]
    codec = header.codec
    return decompress(codec, section, limit) if codec and section else bytes(section)


def record_spans(header: BatchHeader, data: bytes) -> list[Span]:  # noqa: C901 -- every record passes here
    """All records of a batch; WireError where the bytes do not add up to them."""
    longer, base, end, last_delta = _longer, header.base_offset, len(data), -1
    found: list[Span] = []
    position = start = 0
    try:
        for _ in range(header.count):
            start = position
            size = data[position]
            position += 1
            if size >= 0x80:
                if data[position] < 0x80:
                    size += data[position] - 1 << 7
                    position += 1
                else:
                    size, position = longer(data, position)
            record_end = position + (size >> 1)
            if size & 1 or record_end > end:
                raise ValueError(f"it does not end within the {end} bytes there are")
            timestamp = position = position + 1
            while data[position] >= 0x80:
                position += 1
            delta = data[position + 1]
            position += 2
            if delta >= 0x80:
                if data[position] < 0x80:
                    delta += data[position] - 1 << 7
                    position += 1
                else:
                    delta, position = longer(data, position)
            if delta & 1 or delta >> 1 <= last_delta:
                raise ValueError(f"its offset does not follow {base + last_delta}")
            last_delta = delta >> 1
            size = data[position]
            position += 1
            if size >= 0x80:
                if data[position] < 0x80:
                    size += data[position] - 1 << 7
                    position += 1
                else:
                    size, position = longer(data, position)
            key = None
            if not size & 1:
                key = data[position : position + (size >> 1)]
                position += size >> 1
            if position >= record_end:
                raise ValueError(f"its key does not end before byte {record_end}")
            is_null = data[position] & 1 == 1
            found.append((base + last_delta, key, is_null, timestamp, start, record_end))
            position = record_end
    except (IndexError, ValueError) as error:
        reason = "the data ends within it" if isinstance(error, IndexError) else error
        raise WireError(f"record {len(found)} of {header.count}, at byte {start}: {reason}") from None
    if position != end or last_delta > header.last_offset_delta:
        what = f"to byte {position} of {end}, to offset {base + last_delta} of {header.last_offset}"
        raise WireError(f"the {header.count} records go {what}")
    return found


def _longer(data: bytes, position: int) -> tuple[int, int]:
    """A varint of more than two bytes, before its zigzag is undone, so that odd is negative; and its end.

    The shorter ones are read in place: nearly all are, and a call costs as much as half a record.
    """
    number, position = _varint(data, position - 1, 5)
    return number << 1 if number >= 0 else -2 * number - 1, position


def batch_of_spans(header: BatchHeader, data: bytes, spans: Sequence[Span]) -> bytes:
    """The batch with only these of its records, one at least."""
    base, max_timestamp, shift = header.base_timestamp, header.max_timestamp, 0
    if not header.is_log_append_time:
        deltas = [_timestamp_delta(data, span[3])[0] for span in spans]
        max_timestamp = wrapped(base + max(deltas))
        shift = 0 if header.has_delete_horizon else deltas[0]
    if shift:
        section = b"".join([_shifted(data, span, shift) for span in spans])
    else:
        section = b"".join([data[start:end] for _, _, _, _, start, end in spans])
    covered = header._replace(
        base_timestamp=wrapped(base + shift), max_timestamp=max_timestamp, count=len(spans)
    )[5:]
    codec = header.codec
    section = compress(codec, section) if codec else section
    return assembled(header.base_offset, header.leader_epoch, covered, section)


def _timestamp_delta(data: bytes, position: int) -> tuple[int, int]:
    """And where it ends."""
    byte = data[position]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), position + 1
    return _varint(data, position, 10)


def _shifted(data: bytes, span: Span, shift: int) -> bytes:
    """A record in a batch whose base timestamp is later by so much."""
    _, _, _, position, _, end = span
    delta, after = _timestamp_delta(data, position)
    moved = VARINTS[delta - shift]
    return b"".join((VARINTS[1 + len(moved) + end - after], b"\x00", moved, data[after:end]))
