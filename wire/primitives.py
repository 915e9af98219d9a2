"""The only hand-written bytes of the protocol: variable-length integers, and the text form of a uuid.

Unsigned varints (flexible messages): seven bits a byte, low bits first, at most five bytes and 32 bits.
`wire.codec` reads the first byte inline and calls `longer_uvarint` for the rest, since nearly every length in
a Kafka message is below 127. The zigzag varints of records live in `wire.records`, their only user.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

Buffer = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)

ONE_BYTE_UVARINTS = tuple(bytes((value,)) for value in range(128))


class MalformedValue(ValueError):
    """A value that breaks the format; the codec adds where it stood and raises WireError."""


def longer_uvarint(first: int, data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Finish an unsigned varint whose `first` byte has its continuation bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedValue("the varint does not fit 32 bits")


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    first = data[position]
    if first < 128:
        return first, position + 1
    return longer_uvarint(first, data, position + 1)


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if 0 <= value < 128:
        return ONE_BYTE_UVARINTS[value]
    if not 0 <= value <= 0xFFFFFFFF:
        raise MalformedValue(f"{value} does not fit an unsigned 32-bit varint")
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uuid_to_text(value: bytes) -> str:
    """Kafka's text form of a uuid: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    value = urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise MalformedValue(f"{text!r} is not a uuid")
    return value
