"""Zigzag varints as a walk over records meets them: read, and not undone unless somebody wants the number.

As zigzag, a number is even if it is 0 or more, and odd if it is negative; half of it is then the number.
"""

from __future__ import annotations

from wire.errors import WireError

_UINT32 = 2**32 - 1
_UINT64 = 2**64 - 1
INT_SIZE, LONG_SIZE = 5, 10
"""The most bytes that a varint of 32 or 64 bits may have."""


def longer(first: int, data: bytes, position: int, most: int) -> tuple[int, int]:
    """A varint of more than one byte, the `first` of which was read, as zigzag; and where it ends.

    WireError if it has more than `most` bytes, IndexError where the data ends within it.
    """
    byte = data[position]
    position += 1
    raw = first + (byte - 1 << 7)
    if byte < 0x80:
        return raw, position
    raw, shift = first & 0x7F | (byte & 0x7F) << 7, 14
    while byte >= 0x80:
        if shift == 7 * most:
            raise WireError(f"a varint has more than {most} bytes")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    return raw & (
        _UINT32 if most == INT_SIZE else _UINT64
    ), position  # Java, too, drops the bits that do not fit


def undone(zigzag: int) -> int:
    """The number itself."""
    return zigzag >> 1 ^ -(zigzag & 1)
