"""Random and mutated bytes against every decoder, in a fixed budget: only WireError may come out.

Memory is bounded too: whatever a frame claims, decoding it may cost a small multiple of its own size. The
long run, guided by coverage, is `make fuzz` (`tests/fuzz.py`).
"""

from __future__ import annotations

import random
import tracemalloc

import pytest

from tests.wire.random_messages import ALL_MESSAGES, random_message, versions_of
from wire.codec import decode, encode
from wire.errors import WireError
from wire.headers import decode_request_header

ROUNDS = 40
# A decoded object of no fields takes some 50 bytes and one list slot where the frame had a byte or two.
BYTES_PER_BYTE = 150
OVERHEAD = 200_000


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One to four changes: a flipped byte, an absurd length, a cut, a repeat."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        position = rng.randrange(len(out) + 1)
        kind = rng.randrange(5)
        if kind == 0 and position < len(out):
            out[position] = rng.randrange(256)
        elif kind == 1:
            out[position : position + 4] = rng.choice(
                (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0")
            )
        elif kind == 2:
            out[position : position + 1] = b"\xff\xff\xff\xff\x0f"
        elif kind == 3:
            del out[position:]
        else:
            out[position:position] = out[: rng.randrange(1, 40)]
    return bytes(out)


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_mutated_frames_decode_or_are_wire_errors(cls: type) -> None:
    """Conformance 4."""
    rng = random.Random(cls.__name__)
    refused = 0
    for version in versions_of(cls):
        for _ in range(ROUNDS // 4):
            valid = encode(random_message(rng, cls, version), version)
            for data in (mutate(rng, valid), rng.randbytes(rng.randrange(64))):
                refused += is_refused(cls, data, version)
    assert refused > 0 or all(not encode(random_message(rng, cls, v), v) for v in versions_of(cls))


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_a_frame_costs_no_more_than_a_small_multiple_of_its_bytes(cls: type) -> None:
    """Conformance 4: nothing is allocated from a claimed size."""
    rng = random.Random(cls.__name__)
    version = versions_of(cls)[-1]
    is_refused(cls, b"", version)
    frames = [fill * 20_000 for fill in (b"\0", b"\x01", b"\x02", b"\x7f", b"\xff", b"\0\0\0\x7f")]
    frames += [
        mutate(rng, encode(random_message(rng, cls, version), version)) + bytes(20_000) for _ in range(4)
    ]
    for frame in frames:
        tracemalloc.start()
        try:
            is_refused(cls, frame, version)
            assert tracemalloc.get_traced_memory()[1] < BYTES_PER_BYTE * len(frame) + OVERHEAD
        finally:
            tracemalloc.stop()


def is_refused(cls: type, data: bytes, version: int) -> bool:
    try:
        decode(cls, data, version)
    except WireError as error:
        return cls.__name__ in str(error)
    return False


def test_random_request_headers_decode_or_are_wire_errors() -> None:
    """Conformance 4."""
    rng = random.Random(4)
    for _ in range(5_000):
        try:
            decode_request_header(
                bytes((0, rng.randrange(95), 0, rng.randrange(14))) + rng.randbytes(rng.randrange(30))
            )
        except WireError:
            continue
