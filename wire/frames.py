"""Framing: a Kafka connection is a sequence of frames, each an int32 size and then that many bytes.

`FrameReader` cuts a stream of bytes, in whatever pieces it arrives, into frames. What it hands out:

- A frame that lies whole inside the bytes fed is a memoryview of those bytes: no copy, and valid only until
  the caller reuses them.
- A frame that arrived in pieces is a memoryview of private storage that is handed over with it. That storage
  grows with the bytes that really came; the size a peer claims allocates nothing.

A size below 1 or above the limit is a WireError at once, never a wait for more bytes; the frames before it
come out first, so that they can still be answered. After it the stream is beyond repair, and so is a reader
whose frames were not taken to the end.

Sending is `frame(parts)`: the size in front, and no byte of the parts copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from wire.errors import WireError
from wire.primitives import Buffer

_SIZE = struct.Struct(">i")

_FOREIGN_OPENINGS = {
    b"GET ": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"POST": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"DELE": "an HTTP request",
    b"OPTI": "an HTTP request",
    b"CONN": "an HTTP request",
    b"PATC": "an HTTP request",
    b"TRAC": "an HTTP request",
    b"PRI ": "an HTTP/2 request",
    b"HTTP": "an HTTP response",
    b"SSH-": "an SSH client",
}


class FrameReader:
    """Cuts the bytes of one connection into frames of at most `max_frame_bytes` (the size apart)."""

    __slots__ = ("_partial", "_wanted", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        # The beginning of the frame in progress, size field included, and how long it must become.
        # While the size field itself is incomplete, that is its own length.
        self._partial = bytearray()
        self._wanted = _SIZE.size

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of an incomplete frame are kept."""
        return len(self._partial)

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """The frames that `data` completes, in order; then WireError if a size follows that cannot be."""
        view = memoryview(data)
        available = len(view)
        position = 0
        if self._partial:
            position = self._take(view, position)
            if len(self._partial) == self._wanted:
                yield self._completed()
        unpack_size, most = _SIZE.unpack_from, self.max_frame_bytes
        while available - position >= 4:
            start = position + 4
            size = unpack_size(view, position)[0]
            if not 0 < size <= most:
                raise self._refusal(size, view, position)
            end = start + size
            if end > available:
                self._wanted = end - position
                break
            yield view[start:end]
            position = end
        self._partial += view[position:]

    def _take(self, view: memoryview, position: int) -> int:
        """Continue the frame in progress; return where in `view` what it did not need begins."""
        position = self._extend(view, position)
        if len(self._partial) == self._wanted == _SIZE.size:
            self._wanted += self._checked_size(self._partial, 0)
            position = self._extend(view, position)
        return position

    def _extend(self, view: memoryview, position: int) -> int:
        """Move what the frame in progress still lacks, as far as `view` has it, into private storage."""
        taken = view[position : position + self._wanted - len(self._partial)]
        self._partial += taken
        return position + len(taken)

    def _completed(self) -> memoryview:
        """Give the private storage away with the frame, and begin anew."""
        whole = memoryview(self._partial)[_SIZE.size :]
        self._partial = bytearray()
        self._wanted = _SIZE.size
        return whole

    def _checked_size(self, data: Buffer, position: int) -> int:
        size: int = _SIZE.unpack_from(data, position)[0]
        if not 0 < size <= self.max_frame_bytes:
            raise self._refusal(size, data, position)
        return size

    def _refusal(self, size: int, data: Buffer, position: int) -> WireError:
        return WireError(_explain(size, bytes(data[position : position + _SIZE.size]), self.max_frame_bytes))


def _explain(size: int, opening: bytes, max_frame_bytes: int) -> str:
    text = f"frame size {size} is not between 1 and {max_frame_bytes}"
    if opening[:2] == b"\x16\x03":
        return f"{text}: the bytes look like a TLS hello"
    foreign = _FOREIGN_OPENINGS.get(opening)
    return f"{text}: the bytes look like {foreign}" if foreign else text


def frame(parts: Sequence[Buffer]) -> list[Buffer]:
    """One frame as buffers to be written in order: the size, then `parts` as they are."""
    return [_SIZE.pack(sum(map(len, parts))), *parts]
