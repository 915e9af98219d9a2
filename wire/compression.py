"""The five compression codecs of record batches, each with a bound on what it may produce.

Rules:
- `decompress` refuses as soon as it holds more than its limit plus one step of output (256 KiB; one block for
  snappy), whatever the input claims about itself: 6 KiB of zstd can stand for 200 MiB. Nothing is allocated
  from a claimed size before that was held against the limit and against what the input can possibly hold.
- Whatever cannot be decoded, decoded to its end, or decoded within the limit is a `CompressionError`; so is a
  codec id that Kafka does not have. Bytes left over after the last frame count as undecodable.
- The libraries are imported on first use: a broker that never looks inside a batch never loads them.
- Nothing here keeps state between calls, so that two threads may compress and decompress at once.

Formats, as Kafka's clients write them:
- gzip: one or more members.
- snappy: Java and most others write xerial's framing (8 bytes of magic, two int32 versions, then int32-length
  blocks of raw snappy); librdkafka writes one raw block. Both are read; the framing is written, since old
  Java readers know nothing else. The two versions are ignored: some writers have them in little endian.
- lz4: frames with independent blocks, the only kind Java reads; a content size need not be there.
- zstd: one or more frames, mostly without a content size, as streaming producers write them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Protocol

from wire.errors import WireError

Buffer = bytes | bytearray | memoryview

_STEP = 256 * 1024
_PIECE = 64 * 1024

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_XERIAL_BLOCK_SIZE = 32 * 1024  # what snappy-java writes
# The densest element of raw snappy is a copy: three bytes that stand for 64.
_SNAPPY_MAX_RATIO = 64 / 3

_LZ4_DEFAULT_LEVEL = 9  # Kafka's number for the fast compressor; any other level means the slow one
_LZ4_LEAST_SLOW_LEVEL = 3

_ZSTD_DEFAULT_LEVEL = 3
# The largest window that a zstd level (22) asks for by itself; Java's reader has the same bound.
_ZSTD_MAX_WINDOW_SIZE = 128 * 1024 * 1024
_ZSTD_LONGEST_FRAME_HEADER = 18
_ZSTD_RLE_BLOCK = 1
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A5


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(WireError):
    """Compressed data of an unknown codec, that cannot be decoded, or that is larger than allowed."""


class TooLarge(CompressionError):
    """Decompressed, it is larger than allowed; it may be good otherwise."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` in `codec`, at Kafka's level numbers; None is Kafka's default level, and snappy has none."""
    return _COMPRESSORS[codec](data, level)


class Compressor(Protocol):
    """Takes data piece by piece; what it gives back, put together, is compressed."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes:
        """The end of it."""


def compressor(codec: Codec, level: int | None = None) -> Compressor:
    """What `compress` does, for data that comes in pieces."""
    return _IN_PIECES[codec](level)


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """The original of `data`; CompressionError if it cannot be decoded or is larger than `limit` bytes."""
    return b"".join(decompressed(codec, data, limit))


def decompressed(codec: int, data: Buffer, limit: int) -> Iterator[bytes]:
    """The same in pieces, none of which is decompressed before it is asked for."""
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CompressionError(f"unknown compression codec {codec}")
    room = limit
    for piece in decompressor(memoryview(data), limit):
        room -= len(piece)
        if room < 0:
            raise TooLarge(f"{Codec(codec).name.lower()} data holds more than the {limit} bytes allowed")
        if piece:
            yield piece


# One step of a decoder: a piece of input -> (output, bytes read of the piece, whether the frame is over).
_Step = Callable[[memoryview], tuple[bytes, int, bool]]


def _frame_after_frame(data: memoryview, new_frame: Callable[[], _Step]) -> Iterator[bytes]:
    """The output of the frames that follow one another in `data`, in steps of bounded input and output."""
    position = 0
    while True:
        step, over = new_frame(), False
        while not over:
            # Bounded pieces: zlib copies what it did not read, and must not copy megabytes at every step.
            chunk, consumed, over = step(data[position : position + _PIECE])
            if not (chunk or consumed or over):
                raise CompressionError(f"compressed data ends early, after {position} bytes")
            position += consumed
            yield chunk
        if position == len(data):
            return


# -- none and gzip


def _copy(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _copied(data: memoryview, limit: int) -> Iterator[bytes]:
    if len(data) > limit:
        raise TooLarge(f"the data holds more than the {limit} bytes allowed")
    for start in range(0, len(data), _STEP):
        yield bytes(data[start : start + _STEP])


class _Copier:
    @staticmethod
    def compress(data: bytes) -> bytes:
        return data

    @staticmethod
    def flush() -> bytes:
        return b""


def _gzipper(level: int | None) -> Compressor:
    return zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)


def _gzip(data: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
    return stream.compress(data) + stream.flush()


def _gunzipped(data: memoryview, limit: int) -> Iterator[bytes]:
    def member() -> _Step:
        stream = zlib.decompressobj(wbits=31)

        def step(piece: memoryview) -> tuple[bytes, int, bool]:
            chunk = stream.decompress(piece, _STEP)
            unread = stream.unused_data if stream.eof else stream.unconsumed_tail
            return chunk, len(piece) - len(unread), stream.eof

        return step

    try:
        yield from _frame_after_frame(data, member)
    except zlib.error as error:
        raise CompressionError(f"gzip data cannot be decoded: {error}") from error


# -- snappy


class _Snapper:
    """Blocks in xerial's framing."""

    def __init__(self) -> None:
        self._begun = False
        self._kept = b""

    def compress(self, data: Buffer) -> bytes:
        whole = self._kept + data
        end = len(whole) - len(whole) % _XERIAL_BLOCK_SIZE
        self._kept = whole[end:]
        return self._blocks(memoryview(whole)[:end])

    def flush(self) -> bytes:
        return self._blocks(memoryview(self._kept))

    def _blocks(self, view: memoryview) -> bytes:
        from cramjam import snappy

        parts = [] if self._begun else [XERIAL_MAGIC, struct.pack(">ii", 1, 1)]
        self._begun = True
        for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
            block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
            parts += (len(block).to_bytes(4, "big"), block)
        return b"".join(parts)


def _snappy(data: Buffer, level: int | None) -> bytes:
    stream = _Snapper()
    return stream.compress(data) + stream.flush()


def _unsnapped(data: memoryview, limit: int) -> Iterator[bytes]:
    if data[:8] != XERIAL_MAGIC:
        yield _unsnapped_block(data, limit)
        return
    position = held_bytes = 0
    held: list[bytes] = []
    room = limit
    while position < len(data):
        if data[position : position + 8] == XERIAL_MAGIC:  # streams may have been concatenated
            position += _XERIAL_HEADER_SIZE
            continue
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        end = position + 4 + size
        if size < 0 or end > len(data):
            raise CompressionError(f"snappy block of {size} bytes at byte {position} of {len(data)}")
        block = _unsnapped_block(data[position + 4 : end], room)
        position = end
        room -= len(block)
        held.append(block)
        held_bytes += len(block)
        if held_bytes >= _STEP:
            yield b"".join(held)
            held, held_bytes = [], 0
    yield b"".join(held)
    if position > len(data):
        raise CompressionError(f"snappy data ends within its header, after {len(data)} bytes")


def _unsnapped_block(block: memoryview, room: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        size: int = snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_MAX_RATIO:
            raise CompressionError(
                f"snappy block of {len(block)} bytes cannot hold the {size} bytes it declares"
            )
        if size > room:
            raise TooLarge(f"snappy block declares {size} bytes where {room} more are allowed")
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CompressionError(f"snappy data cannot be decoded: {error}") from error


# -- lz4


def _lz4_level(level: int | None) -> int:
    """In the library's numbers, of which those below 3 mean the fast compressor."""
    return 0 if level is None or level == _LZ4_DEFAULT_LEVEL else max(level, _LZ4_LEAST_SLOW_LEVEL)


def _lz4(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame

    compressed: bytes = frame.compress(
        data,
        compression_level=_lz4_level(level),
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


class _Lz4er:
    def __init__(self, level: int | None) -> None:
        from lz4 import frame

        self._stream = frame.LZ4FrameCompressor(
            compression_level=_lz4_level(level),
            block_size=frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
        )
        self._head: bytes = self._stream.begin()

    def compress(self, data: bytes) -> bytes:
        head, self._head = self._head, b""
        return bytes(head + self._stream.compress(data))

    def flush(self) -> bytes:
        return bytes(self._head + self._stream.flush())


def _unlz4ed(data: memoryview, limit: int) -> Iterator[bytes]:
    from lz4 import frame

    def lz4_frame() -> _Step:
        context = frame.create_decompression_context()

        def step(piece: memoryview) -> tuple[bytes, int, bool]:
            chunk, consumed, over = frame.decompress_chunk(context, piece, max_length=_STEP)
            return chunk, consumed, over

        return step

    try:
        yield from _frame_after_frame(data, lz4_frame)
    except RuntimeError as error:
        raise CompressionError(f"lz4 data cannot be decoded: {error}") from error


# -- zstd


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL if level is None else level).compress(data)


def _zstder(level: int | None) -> Compressor:
    import zstandard

    stream: Compressor = zstandard.ZstdCompressor(
        level=_ZSTD_DEFAULT_LEVEL if level is None else level
    ).compressobj()
    return stream


def _unzstded(data: memoryview, limit: int) -> Iterator[bytes]:
    import zstandard

    try:
        _check_zstd_frames(data)
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        while chunk := reader.read(_STEP):
            yield chunk
    except zstandard.ZstdError as error:
        raise CompressionError(f"zstd data cannot be decoded: {error}") from error


def _check_zstd_frames(data: memoryview) -> None:
    """Refuses what the stream reader lets pass: input that ends within a frame, and boundless windows.

    The reader reports the end of its input as the end of the data. Only the sizes of frames and blocks are
    followed here; what is in them the reader checks.
    """
    if not data:
        raise CompressionError("zstd data is empty")
    position = 0
    while position < len(data):
        position = _end_of_zstd_frame(data, position)
    if position > len(data):
        raise CompressionError(f"zstd data ends early: {len(data)} bytes of {position}")


def _end_of_zstd_frame(data: memoryview, position: int) -> int:
    from zstandard import frame_header_size, get_frame_parameters

    if int.from_bytes(data[position : position + 4], "little") >> 4 == _ZSTD_SKIPPABLE_MAGIC:
        return position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    header = data[position : position + _ZSTD_LONGEST_FRAME_HEADER]
    frame = get_frame_parameters(header)
    if frame.window_size > _ZSTD_MAX_WINDOW_SIZE:
        raise CompressionError(f"zstd frame asks for a window of {frame.window_size} bytes")
    position += frame_header_size(header)
    last = False
    while not last and position < len(data):
        block = int.from_bytes(data[position : position + 3], "little")
        last = bool(block & 1)
        position += 3 + (1 if block >> 1 & 3 == _ZSTD_RLE_BLOCK else block >> 3)
    if not last:
        raise CompressionError(f"zstd data ends early, before the last block of the frame at byte {position}")
    return position + (4 if frame.has_checksum else 0)


_COMPRESSORS: dict[int, Callable[[Buffer, int | None], bytes]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_IN_PIECES: dict[int, Callable[[int | None], Compressor]] = {
    Codec.NONE: lambda level: _Copier(),
    Codec.GZIP: _gzipper,
    Codec.SNAPPY: lambda level: _Snapper(),
    Codec.LZ4: _Lz4er,
    Codec.ZSTD: _zstder,
}
_DECOMPRESSORS: dict[int, Callable[[memoryview, int], Iterator[bytes]]] = {
    Codec.NONE: _copied,
    Codec.GZIP: _gunzipped,
    Codec.SNAPPY: _unsnapped,
    Codec.LZ4: _unlz4ed,
    Codec.ZSTD: _unzstded,
}
