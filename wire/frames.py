"""Framing: a Kafka connection is a sequence of frames, each an int32 size and then that many bytes.

`FrameReader` cuts a stream of bytes, in whatever pieces it arrives, into frames. What it hands out:

- A frame that lies whole inside the bytes fed is a memoryview of those bytes: no copy, and valid only until
  the caller reuses them.
- A frame that arrived in pieces is a memoryview of private storage that is handed over with it. That storage
  grows with the bytes that really came; the size a peer claims allocates nothing.
- A large frame of which the beginning has arrived gets one of a few `SpareBuffers`, if one is free. Whoever
  reads the connection then receives the rest into `room`, where it belongs, and no byte of it is copied. The
  frame is valid until `give_back`.

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


LEAST_MISSING_BYTES = 64 * 1024
"""Less is copied faster than it is received by itself."""


class SpareBuffers:
    """At most `most` buffers of `size` bytes that many readers share, each made when it is first needed."""

    __slots__ = ("_free", "_most", "size")

    def __init__(self, most: int, size: int) -> None:
        self._most = most
        self._free: list[memoryview] = []
        self.size = size

    def take(self) -> memoryview | None:
        if self._free:
            return self._free.pop()
        if not self._most:
            return None
        self._most -= 1
        return memoryview(bytearray(self.size))

    def give(self, buffer: memoryview) -> None:
        self._free.append(buffer)


NO_SPARES = SpareBuffers(0, 0)


class FrameReader:
    """Cuts the bytes of one connection into frames of at most `max_frame_bytes` (the size apart)."""

    __slots__ = ("_filled", "_partial", "_spare", "_spares", "_wanted", "max_frame_bytes", "room")

    def __init__(self, max_frame_bytes: int, spares: SpareBuffers = NO_SPARES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._spares = spares
        self._spare: memoryview | None = None
        self._filled = 0
        self.room: memoryview | None = None
        """Where the next bytes are to be received; None where the reader does not mind."""
        # The beginning of the frame in progress, size field included, and how long it must become.
        # While the size field itself is incomplete, that is its own length.
        self._partial = bytearray()
        self._wanted = _SIZE.size

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of an incomplete frame are kept."""
        return len(self._partial) if self.room is None else self._filled

    @property
    def missing_bytes(self) -> int:
        """How many bytes an incomplete frame lacks, as far as that is known; at least one."""
        return self._wanted - len(self._partial) if self.room is None else len(self.room)

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """The frames that `data` completes, in order; then WireError if a size follows that cannot be."""
        view = memoryview(data)
        available = len(view)
        position = 0
        if self.room is not None:
            position = min(len(self.room), available)
            self.room[:position] = view[:position]
            frame = self.received(position)
            if frame is not None:
                yield frame
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
                if end - available >= LEAST_MISSING_BYTES and self._begin_in_spare(view[position:], 4 + size):
                    return
                self._wanted = end - position
                break
            yield view[start:end]
            position = end
        self._partial += view[position:]

    def _begin_in_spare(self, begun: memoryview, wanted: int) -> bool:
        """Whether there is one for the frame that was begun, which is `wanted` bytes long."""
        if wanted > self._spares.size or self._spare is not None:
            return False
        spare = self._spare = self._spares.take()
        if spare is None:
            return False
        self._filled = len(begun)
        spare[: self._filled] = begun
        self.room = spare[self._filled : wanted]
        return True

    def received(self, size: int) -> memoryview | None:
        """So many bytes are in `room` now; the frame, if it is complete."""
        if self._spare is None or self.room is None:
            raise ValueError("nothing was to be received here")
        self._filled += size
        self.room = self.room[size:]
        if self.room:
            return None
        self.room = None
        return self._spare[_SIZE.size : self._filled]

    def give_back(self) -> None:
        """The frames that were handed out are not looked at any more."""
        if self._spare is not None and self.room is None:
            self._spares.give(self._spare)
            self._spare = None

    def drop(self) -> None:
        """No more bytes will come: what there is of a frame is given up."""
        self.room = None
        self.give_back()
        self._partial = bytearray()
        self._wanted = _SIZE.size

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
