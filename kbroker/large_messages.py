"""Requests and replies that are too large to be decoded or encoded while everything else waits.

Both are done in slices (`kbroker.slices`), as generators. What bounds their memory:

- A large request has at most `kbroker.request.max.elements` elements in all its arrays, fewer where one
  costs more. An element takes many times the bytes that it takes on the wire.
- A reply has at most `kbroker.reply.max.bytes`. Some requests name the same large thing again and again.
- Encoded pieces are joined as they come: a thousand small ones cost far more than their bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cache
from typing import Any

from kbroker.context import HangUp
from wire.api import ApiKey
from wire.codec import SlicingDecoder, SlicingEncoder
from wire.errors import TooManyElements, WireError
from wire.primitives import Buffer
from wire.schema import Primitive, fields_of

LARGE_REQUEST_BYTES = 32 * 1024
MOST_JOINED_BYTES = 256 * 1024
LARGE_REPLY_ELEMENTS = 1000
"""A millisecond or two, either of them."""


COSTS: Mapping[int, int] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 4,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.FETCH: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.OFFSET_DELETE: 20,
    ApiKey.PRODUCE: 5,
}
"""What an element costs where some of its work is not done in slices; 1 elsewhere."""


def most_elements(api: int, most: int) -> int:
    """Of a request of this API, where `most` of the cheapest are allowed."""
    return most // COSTS.get(api, 1)


def decoded(
    decode: SlicingDecoder[Any], request: Buffer, position: int, most_elements: int
) -> Generator[None, None, Any]:
    try:
        message, _ = yield from decode(request, position, most_elements)
    except TooManyElements as error:
        raise WireError(f"{error} (kbroker.request.max.elements)") from None
    return message


def encoded(
    encode: SlicingEncoder[Any], response: Any, most_bytes: int
) -> Generator[None, None, list[Buffer]]:
    parts: list[Buffer] = []
    joined = size = 0
    for _ in encode(response, parts):
        size += join_from(parts, joined)
        joined = len(parts)
        if size > most_bytes:
            raise HangUp(f"its reply has more than {most_bytes} bytes (kbroker.reply.max.bytes)")
        yield
    return parts


def join_from(parts: list[Buffer], begin: int) -> int:
    """Make one of the parts from `begin` on; their size. What is large, and records, stay where they are."""
    new = parts[begin:]
    size = sum(map(len, new))
    if size <= MOST_JOINED_BYTES and all(type(part) is bytes for part in new):
        parts[begin:] = [b"".join(new)]
    return size


def is_large(response: Any) -> bool:
    """By its structs: their arrays of numbers cost little."""
    return _left(response, LARGE_REPLY_ELEMENTS, all_arrays=False) < 0


def names_many(request: Any) -> bool:
    """Whether a reply with an error for everything that is named would be large."""
    return _left(request, LARGE_REPLY_ELEMENTS, all_arrays=True) < 0


def _left(message: Any, room: int, *, all_arrays: bool) -> int:
    """What is left of room for so many elements of arrays; negative if there is none."""
    table: type = type(message)
    for name, has_arrays in _arrays_of(table, all_arrays):
        array = getattr(message, name)
        if not array:
            continue
        room -= len(array)
        if has_arrays:
            for element in array:
                if room < 0:
                    break
                room = _left(element, room, all_arrays=all_arrays)
    return room


@cache
def _arrays_of(cls: type, all_arrays: bool) -> tuple[tuple[str, bool], ...]:
    """The arrays in a table, or only those of structs, and whether their elements have such arrays."""
    return tuple(
        (field.name, not isinstance(field.type, Primitive) and bool(_arrays_of(field.type, all_arrays)))
        for field in fields_of(cls)
        if field.is_array and (all_arrays or not isinstance(field.type, Primitive))
    )
