"""Framing: any split of a stream gives the same frames, a bad size is an error, memory follows bytes."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import frames as module
from wire.errors import WireError
from wire.frames import FrameReader, SpareBuffers, frame
from wire.primitives import Buffer

LIMIT = 1000


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


bodies = st.lists(st.binary(min_size=1, max_size=300), max_size=8)
places = st.lists(st.integers(min_value=0, max_value=5000), max_size=20)


@given(bodies, places, st.binary(max_size=3))
def test_any_split_of_a_stream_gives_the_same_frames(
    bodies: list[bytes], places: list[int], tail: bytes
) -> None:
    reader = FrameReader(LIMIT)
    frames: list[bytes] = []
    for piece in cut(b"".join(map(framed, bodies)) + tail, places):
        frames += [bytes(view) for view in reader.feed(piece)]
    assert frames == bodies
    assert reader.buffered_bytes == len(tail)


@given(bodies, places, st.sampled_from([0, -1, -(2**31), LIMIT + 1, 2**31 - 1]))
def test_a_bad_size_is_an_error_as_soon_as_its_four_bytes_are_there(
    bodies: list[bytes], places: list[int], size: int
) -> None:
    """conformance 4: an error and not a wait; what was complete before it is not lost."""
    reader = FrameReader(LIMIT)
    frames: list[bytes] = []
    *pieces, last = cut(b"".join(map(framed, bodies)) + struct.pack(">i", size), places)
    # The last piece that is not empty completes the size field: nothing before it may complain.
    while not last:
        last = pieces.pop()
    for piece in pieces:
        frames += [bytes(view) for view in reader.feed(piece)]
    completed = reader.feed(last)
    with pytest.raises(WireError, match=f"frame size {size} is not between 1 and 1000"):  # noqa: PT012
        while True:
            frames.append(bytes(next(completed)))
    assert frames == bodies


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    body = b"x" * LIMIT
    assert [bytes(view) for view in FrameReader(LIMIT).feed(framed(body))] == [body]


def test_whole_frames_are_views_of_the_bytes_fed() -> None:
    buffer = bytearray(framed(b"first") + framed(b"second"))
    first, second = FrameReader(LIMIT).feed(memoryview(buffer))
    assert first.obj is buffer
    assert second.obj is buffer


def test_a_frame_that_came_in_pieces_survives_reuse_of_the_buffer() -> None:
    reader = FrameReader(LIMIT)
    buffer = bytearray(framed(b"abcdef"))
    assert not list(reader.feed(memoryview(buffer)[:7]))
    buffer[:3] = b"def"
    (whole,) = reader.feed(memoryview(buffer)[:3])
    buffer[:] = bytes(len(buffer))
    assert not list(reader.feed(framed(b"another")[:8]))
    assert bytes(whole) == b"abcdef"


@given(bodies, places, st.integers(0, 2), st.integers(0, 400), st.booleans())
def test_the_rest_of_a_large_frame_is_received_where_it_belongs(
    bodies: list[bytes], places: list[int], most: int, size: int, in_room: bool
) -> None:
    """With or without a spare buffer, and whether the reader of the connection asks for `room` or not."""
    spares = SpareBuffers(most, size)
    reader = FrameReader(LIMIT, spares)
    frames: list[bytes] = []
    with patch.object(module, "LEAST_MISSING_BYTES", 20):
        for piece in cut(b"".join(map(framed, bodies)), places):
            if in_room and reader.room is not None:
                count = min(len(reader.room), len(piece))
                reader.room[:count] = piece[:count]
                if (whole := reader.received(count)) is not None:
                    frames.append(bytes(whole))
                reader.give_back()
                piece = piece[count:]
            frames += [bytes(view) for view in reader.feed(piece)]
            reader.give_back()
    assert frames == bodies
    assert reader.buffered_bytes == 0
    taken = [spares.take() for _ in range(most)]
    assert None not in taken, "all were given back"


def test_spare_buffers_are_shared_and_few() -> None:
    spares = SpareBuffers(1, 1 << 20)
    first, second = FrameReader(1 << 20, spares), FrameReader(1 << 20, spares)
    data = framed(bytes(range(256)) * 1000)
    for reader in (first, second):
        assert not list(reader.feed(data[:1000]))
        assert reader.buffered_bytes == 1000
    assert first.room is not None
    assert len(first.room) == len(data) - 1000
    assert second.room is None
    assert [bytes(view) for view in second.feed(data[1000:])] == [data[4:]]
    second.give_back()
    assert spares.take() is None, "a frame that is not complete keeps its buffer"
    first.drop()
    assert spares.take() is not None


def test_a_claimed_size_allocates_nothing() -> None:
    """conformance 4: a hundred megabytes claimed, ten bytes sent."""
    reader = FrameReader(100 << 20)
    tracemalloc.start()
    try:
        assert not list(reader.feed(struct.pack(">i", 100 << 20) + b"0123456789"))
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert reader.buffered_bytes == 14


def test_a_frame_in_many_pieces_does_not_move_for_each_of_them() -> None:
    """One byte at a time: the storage is enlarged by a share of its size, so copying stays linear."""
    reader = FrameReader(1 << 20)
    body = bytes(200_000)
    data = framed(body)
    allocations = set()
    for position in range(len(data) - 1):
        assert not list(reader.feed(data[position : position + 1]))
        allocations.add(reader._partial.__alloc__())
    (whole,) = reader.feed(data[-1:])
    assert whole == body
    assert len(allocations) < 200


@pytest.mark.parametrize(
    ("opening", "named"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"POST /topics HTTP/1.1\r\n", "an HTTP request"),
        (b"PRI * HTTP/2.0\r\n", "an HTTP/2 request"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "a TLS hello"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "an SSH client"),
    ],
)
def test_another_protocol_is_called_by_its_name(opening: bytes, named: str) -> None:
    """conformance 4: HTTP text at the port; the operator reads what it was."""
    with pytest.raises(WireError, match=f"the bytes look like {named}$"):
        list(FrameReader(104857600).feed(opening))


def test_a_frame_to_send_is_its_size_and_its_parts_uncopied() -> None:
    parts: list[Buffer] = [b"head", bytearray(b"middle"), memoryview(b"tail")]
    size, *rest = frame(parts)
    assert bytes(size) == struct.pack(">i", 14)
    assert all(sent is part for sent, part in zip(rest, parts, strict=True))
    assert [bytes(view) for view in FrameReader(LIMIT).feed(b"".join(frame(parts)))] == [b"headmiddletail"]
