"""Walking over the batches of a segment file, in order, in chunks.

The one place that turns positions into batches, and it trusts nothing but the file's length. Whatever
cannot be the next whole batch is a `CorruptBatch` that names file and position: bytes that are no header,
an offset that does not grow, a batch that is cut off by the end of the file. (The checksum does not cover
a batch's offset: one that was changed shows only beside its neighbours.)

A walk over headers skips the bodies of large batches without reading them. A walk over `checked_batches`
has verified every checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from storage.errors import CorruptFile
from storage.files import File
from wire.errors import ErrorCode
from wire.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    crc_of,
)

LARGEST_OFFSET = (1 << 63) - 1
_CHECKED = struct.Struct(">qi4xbI2xi")  # base offset, length, magic, crc, last offset delta
_OTHER = struct.Struct(">8xiIb")  # of formats 0 and 1: length, checksum of all that follows it, magic
_OTHER_SIZE = _OTHER.size
_MAGIC_AT = 16
_OFFSET_AND_MAGIC = struct.Struct(">q8xb")
CHUNK_BYTES = 1 << 18
"""Large enough to cost few system calls, small enough for a second-level cache."""


class CorruptBatch(CorruptFile):
    """Bytes of a segment that are not the batch that was written there.

    To clients this is CORRUPT_MESSAGE (2), not a storage error: the rest of the log is still served.
    """

    def __init__(self, path: str, why: str, *, position: int) -> None:
        super().__init__(path, why, position=position)
        self.code = ErrorCode.CORRUPT_MESSAGE


class OtherFormat(CorruptBatch):
    """A whole batch, with a checksum that is right, of message format 0 or 1, which are not read here.

    Nothing is damaged, so nothing may be cut off: whoever wrote it can read it.
    """


def batches(
    file: File,
    position: int,
    end: int,
    *,
    least_offset: int = 0,
    bodies: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of every batch in [position, end); without `bodies`, only what was read."""
    chunk, start = memoryview(b""), position
    size = 0
    while position < end:
        if position + HEADER_SIZE > start + len(chunk):
            wanted = chunk_bytes if bodies or size < chunk_bytes else HEADER_SIZE
            chunk, start = _read(file, position, min(wanted, end - position)), position
        try:
            header = header_at(file.path, chunk, position - start, position, least_offset)
        except CorruptBatch:
            _refuse_other_format(file, position, end)
            raise
        least_offset = header.next_offset
        size = header.size
        following = position + size
        if following > end:
            why = f"the file ends within the batch at offset {header.base_offset}"
            raise CorruptBatch(file.path, why, position=position)
        if bodies and following > start + len(chunk):
            wanted = max(size, min(chunk_bytes, end - position))
            chunk, start = _read(file, position, wanted), position
        yield position, header, chunk[position - start : following - start]
        position = following


def headers(
    file: File, position: int, end: int, chunk_bytes: int = CHUNK_BYTES, *, least_offset: int = 0
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch in [position, end)."""
    walk = batches(file, position, end, bodies=False, chunk_bytes=chunk_bytes, least_offset=least_offset)
    return ((position, header) for position, header, _ in walk)


def checked_batches(
    file: File, position: int, end: int, *, least_offset: int = 0
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """As `batches`, with every checksum verified."""
    for found, header, batch in batches(file, position, end, least_offset=least_offset):
        check_crc(file.path, batch, 0, header, found)
        yield found, header, batch


def header_at(
    path: str, data: bytes | memoryview, index: int, position: int, least_offset: int = 0
) -> BatchHeader:
    """The header at `index` of what was read, which is at `position` of the file."""
    if len(data) - index < HEADER_SIZE:
        raise CorruptBatch(path, "the file ends within the header of a batch", position=position)
    header = BatchHeader.parse(data, index)
    if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(path, "no batch begins here", position=position)
    if header.base_offset < least_offset or header.last_offset_delta < 0:
        why = f"a batch from offset {header.base_offset} to {header.last_offset}, expected {least_offset}"
        raise CorruptBatch(path, why, position=position)
    return header


def _refuse_other_format(file: File, position: int, end: int) -> None:
    """OtherFormat if that is what begins at `position`."""
    prefix = file.read(position, min(_OTHER_SIZE, end - position))
    if len(prefix) < _OTHER_SIZE:
        return
    length, expected, magic = _OTHER.unpack(prefix)
    following = position + LOG_OVERHEAD + length
    if magic not in (0, 1) or not position + _OTHER_SIZE <= following <= end:
        return
    found = 0
    for at in range(position + _MAGIC_AT, following, CHUNK_BYTES):
        found = zlib.crc32(file.read(at, min(CHUNK_BYTES, following - at)), found)
    if found == expected:
        why = f"a batch of message format {magic} begins here, which kbroker does not read"
        raise OtherFormat(file.path, why, position=position)


def check_crc(path: str, data: bytes | memoryview, index: int, header: BatchHeader, position: int) -> None:
    """The batch at `index` of what was read, which is at `position` of the file."""
    if not crc_is_valid(data, index, header):
        why = f"the checksum of the batch at offset {header.base_offset} does not match"
        raise CorruptBatch(path, why, position=position)


def check_batches(
    path: str, data: memoryview, offset: int, begin: int, end_offset: int
) -> tuple[int, int, CorruptBatch | None]:
    """Verify whole batches that were read at `begin`, from the one that reaches `offset` to `end_offset`.

    How many bytes are good, the offset after them, and what is wrong with the rest. The checksum does not
    cover the offsets: they are compared with the batches around. Nor does it cover the leader epoch, which
    may be any: what is known of epochs is not all there ever was (`UnifiedLog.assign_leader_epoch`).
    """
    size, next_offset = 0, offset
    why = None
    while size < len(data) and why is None:
        if len(data) - size < HEADER_SIZE:
            why = "no batch begins here"
            break
        base_offset, length, magic, crc, delta = _CHECKED.unpack_from(data, size)
        following = size + length + LOG_OVERHEAD
        end = base_offset + delta + 1
        limit = end_offset if following >= len(data) else base_offset_at(data, max(following, size))
        if magic != MAGIC or not size + HEADER_SIZE <= following <= len(data):
            why = "no batch begins here"
        elif crc_of(data, size, following - size) != crc:
            why = f"the checksum of the batch at offset {base_offset} does not match"
        elif not next_offset < end <= limit:
            why = f"a batch from offset {base_offset} to {end - 1}, not {next_offset} to {limit}"
        else:
            size, next_offset = following, end
    return size, next_offset, None if why is None else CorruptBatch(path, why, position=begin + size)


def base_offset_at(data: bytes | memoryview, index: int) -> int:
    """The offset of the batch at `index`; the largest there is, where none begins there."""
    if len(data) - index >= HEADER_SIZE:
        base_offset, magic = _OFFSET_AND_MAGIC.unpack_from(data, index)
        if magic == MAGIC and base_offset >= 0:
            return int(base_offset)
    return LARGEST_OFFSET


def _read(file: File, position: int, length: int) -> memoryview:
    data = file.read(position, length)
    if len(data) < length:
        raise CorruptBatch(file.path, f"the file ends at byte {position + len(data)}", position=position)
    return memoryview(data)
