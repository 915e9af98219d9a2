"""Walking over the batches of a segment file, in order, in chunks.

The one place that turns positions into batches, and it trusts nothing but the file's length. Whatever
cannot be the next whole batch is a `CorruptBatch` that names file and position: bytes that are no header,
an offset that does not grow, a batch that is cut off by the end of the file. (The checksum does not cover
a batch's offset: one that was changed shows only beside its neighbours.)

A walk over headers skips the bodies of large batches without reading them. A walk over `checked_batches`
has verified every checksum.
"""

from __future__ import annotations

from collections.abc import Iterator

from storage.errors import CorruptFile
from storage.files import File
from wire.errors import ErrorCode
from wire.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, crc_is_valid

LARGEST_OFFSET = (1 << 63) - 1
CHUNK_BYTES = 1 << 18
"""Large enough to cost few system calls, small enough for a second-level cache."""


class CorruptBatch(CorruptFile):
    """Bytes of a segment that are not the batch that was written there.

    To clients this is CORRUPT_MESSAGE (2), not a storage error: the rest of the log is still served.
    """

    def __init__(self, path: str, why: str, *, position: int) -> None:
        super().__init__(path, why, position=position)
        self.code = ErrorCode.CORRUPT_MESSAGE


def batches(
    file: File, position: int, end: int, *, bodies: bool = True, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of every batch in [position, end); without `bodies`, only what was read."""
    chunk, start = memoryview(b""), position
    least_offset = 0
    while position < end:
        if position + HEADER_SIZE > start + len(chunk):
            chunk, start = _read(file, position, min(chunk_bytes, end - position)), position
        header = header_at(file.path, chunk, position - start, position, least_offset)
        least_offset = header.next_offset
        following = position + header.size
        if following > end:
            why = f"the file ends within the batch at offset {header.base_offset}"
            raise CorruptBatch(file.path, why, position=position)
        if bodies and following > start + len(chunk):
            wanted = max(header.size, min(chunk_bytes, end - position))
            chunk, start = _read(file, position, wanted), position
        yield position, header, chunk[position - start : following - start]
        position = following


def headers(
    file: File, position: int, end: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch in [position, end)."""
    walk = batches(file, position, end, bodies=False, chunk_bytes=chunk_bytes)
    return ((position, header) for position, header, _ in walk)


def checked_batches(
    file: File, position: int, end: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """As `batches`, with every checksum verified."""
    for found, header, batch in batches(file, position, end, chunk_bytes=chunk_bytes):
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


def check_crc(path: str, data: bytes | memoryview, index: int, header: BatchHeader, position: int) -> None:
    """The batch at `index` of what was read, which is at `position` of the file."""
    if not crc_is_valid(data, index, header):
        why = f"the checksum of the batch at offset {header.base_offset} does not match"
        raise CorruptBatch(path, why, position=position)


def check_batches(
    path: str, data: memoryview, offset: int, begin: int, end_offset: int
) -> tuple[int, int, CorruptBatch | None]:
    """Verify whole batches that were read at `begin`, from the one that reaches `offset` to `end_offset`.

    How many bytes are good, the offset after them, and what is wrong with the rest.
    """
    size, next_offset = 0, offset
    try:
        while size < len(data):
            header = header_at(path, data, size, begin + size)
            check_crc(path, data, size, header, begin + size)
            following = size + header.size
            limit = base_offset_at(data, following) if following < len(data) else end_offset
            if header.last_offset < next_offset or header.next_offset > limit:
                why = (
                    f"a batch from {header.base_offset} to {header.last_offset}, not {next_offset} to {limit}"
                )
                raise CorruptBatch(path, why, position=begin + size)
            size, next_offset = following, header.next_offset
    except CorruptBatch as error:
        return size, next_offset, error
    return size, next_offset, None


def base_offset_at(data: bytes | memoryview, index: int) -> int:
    """The offset of the batch at `index`; the largest there is, where none begins there."""
    if len(data) - index >= HEADER_SIZE:
        header = BatchHeader.parse(data, index)
        if header.magic == MAGIC and header.base_offset >= 0:
            return header.base_offset
    return LARGEST_OFFSET


def _read(file: File, position: int, length: int) -> memoryview:
    data = file.read(position, length)
    if len(data) < length:
        raise CorruptBatch(file.path, f"the file ends at byte {position + len(data)}", position=position)
    return memoryview(data)
