"""The records of a batch as stretches of bytes: all that compaction needs to know of them.

Looking for keys costs less than half of decoding, and records that stay are put into a new batch as they
are: their offsets and timestamps are relative to those of the batch, which stay as well. But where the first
record goes, the base timestamp becomes that of the first one that stays, as in Kafka.

Rules:
- Lengths, offsets and keys are read within the limits of `wire.records`, with the same errors. Of the value
  it is read whether there is one; what follows is passed over. It is the checksum's to tell that it is as
  it was.
- Offsets have to rise, and to lie within the batch: records are told apart by them.
- What is known of a record takes some hundred bytes, where a record may have seven. So a batch is worked on
  in pieces of some thousand records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wire.compression import Buffer, compress, decompress
from wire.errors import WireError
from wire.record_batch import HEADER_SIZE, BatchHeader, assembled
from wire.records import DEFAULT_LIMIT, VARINTS, _varint, wrapped

SPANS_AT_ONCE = 10_000

Span = tuple[int, bytes | None, bool, int, int, int]
"""Offset; key; whether it is a tombstone; where in the data its timestamp is; where it begins, and ends."""


def record_data(header: BatchHeader, batch: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """The records of a batch, uncompressed; WireError where they cannot be, or not within `limit`."""
    section = memoryview(batch)[HEADER_SIZE : header.size]
    codec = header.codec
    return decompress(codec, section, limit) if codec and section else bytes(section)


def record_spans(header: BatchHeader, data: bytes) -> Iterator[list[Span]]:
    """All records of a batch, in pieces; then WireError where the bytes do not add up to them."""
    number = position = 0
    last_delta = -1
    while number < header.count:
        found, position, last_delta = _some_spans(header, data, number, position, last_delta)
        number += len(found)
        yield found
    if position != len(data) or last_delta > header.last_offset_delta:
        what = f"to byte {position} of {len(data)}, to offset {header.base_offset + last_delta}"
        raise WireError(f"the {header.count} records go {what} of {header.last_offset}")


def _some_spans(  # noqa: C901 -- every record passes here
    header: BatchHeader, data: bytes, number: int, position: int, last_delta: int
) -> tuple[list[Span], int, int]:
    """Those from a record on; where the next one begins, and the last offset in the batch."""
    longer, base, end = _longer, header.base_offset, len(data)
    found: list[Span] = []
    start = position
    try:
        for _ in range(min(header.count - number, SPANS_AT_ONCE)):
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
        where = f"record {number + len(found)} of {header.count}, at byte {start}"
        raise WireError(f"{where}: {reason}") from None
    return found, position, last_delta


def _longer(data: bytes, position: int) -> tuple[int, int]:
    """A varint of more than two bytes, before its zigzag is undone, so that odd is negative; and its end.

    The shorter ones are read in place: nearly all are, and a call costs as much as half a record.
    """
    number, position = _varint(data, position - 1, 5)
    return number << 1 if number >= 0 else -2 * number - 1, position


def batch_of_spans(header: BatchHeader, data: bytes, pieces: Iterable[Sequence[Span]]) -> bytes:
    """The batch with only these of its records, one at least."""
    base, max_timestamp, shift = header.base_timestamp, header.max_timestamp, 0
    sections: list[bytes] = []
    largest_deltas: list[int] = []
    count = 0
    for spans in filter(None, pieces):
        if not header.is_log_append_time:
            deltas = [_timestamp_delta(data, span[3])[0] for span in spans]
            largest_deltas.append(max(deltas))
            if not count and not header.has_delete_horizon:
                shift = deltas[0]
        if shift:
            sections.append(b"".join([_shifted(data, span, shift) for span in spans]))
        else:
            sections.append(b"".join([data[start:end] for _, _, _, _, start, end in spans]))
        count += len(spans)
    if largest_deltas:
        max_timestamp = wrapped(base + max(largest_deltas))
    base = wrapped(base + shift)
    covered = header._replace(base_timestamp=base, max_timestamp=max_timestamp, count=count)[5:]
    codec, section = header.codec, b"".join(sections)
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
