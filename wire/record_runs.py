"""Records of equal layout, checked many at a time.

Many producers write records of one size: the same fields in the same places, but for the contents of keys
and values, timestamps, and offset deltas that count up. In the data of such a run, the bytes at one place in
all records are a slice with a stride, and comparing it with what it must be takes 0.5 ns a record, where
reading one varint takes 30.

Where only the lengths of values differ, the records' ends are found one by one, their beginnings put side by
side, and checked in the same way; that takes 150 ns a record, where reading all of it takes 400.

A run ends where any other length or a count differs from that of the first record, where the varint of a
timestamp or an offset becomes longer, and where an offset delta is not what follows. Whether the next record
is right is then for `wire.record_walk` to find out, and so is what is wrong with the first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import suppress
from sys import byteorder
from typing import NamedTuple

from wire.zigzag import INT_SIZE, longer

_MOST_KEPT_BYTES = 32 * 1024
"""Of one layout; larger batches have time to make them anew."""
LEAST_RECORDS = 4
LEAST_UNEVEN_RECORDS = 32
"""Fewer are faster one by one."""

_ASCII = bytes(range(0x80))
_HIGH = bytes(range(0x80, 0x100))
_ODD = bytes(range(1, 0x100, 2))
_LONGER_FROM = (0, 64, 8192, 131_072)
"""From which index on an offset delta has more than so many bytes; the last is as far as runs go."""
_LOW = bytes(range(0x80, 0x100, 2)) * (_LONGER_FROM[-1] // 64)
_EACH_64 = [bytes((byte,)) * 64 for byte in range(0x100)]
_OFFSET_DELTAS = (
    (bytes(range(0, 0x80, 2)),),
    (_LOW, b"".join(_EACH_64[:0x80])),
    (_LOW, b"".join(_EACH_64[0x80:]) * 16, b"".join(each * 128 for each in _EACH_64[:16])),
)
"""For offset deltas of one, two and three bytes: what each of these bytes is, by index."""


class Run(NamedTuple):
    """So many records are right."""

    length: int
    end: int
    """Where the next record begins."""
    largest: int
    """Of their timestamp deltas, as zigzag."""
    has_null_key: bool
    headers: int


class _Layout:
    """Where a record has what, from its beginning on."""

    __slots__ = ("_columns", "constant", "headers", "key", "key_is_null", "offset", "time", "value")

    def __init__(
        self, time: int, offset: int, key: int, value: int, headers: int, constant: list[tuple[int, int]]
    ) -> None:
        """Where the deltas of timestamp and offset, key and value are; how many headers; what is constant."""
        self.time, self.offset, self.key, self.value, self.headers = time, offset, key, value, headers
        self.constant = constant
        """And the bytes that are there."""
        self.key_is_null = dict(constant)[key] & 1 == 1
        self._columns: tuple[int, list[tuple[int, bytes]]] = 0, []

    def columns(self, length: int) -> list[tuple[int, bytes]]:
        """What so many records have at the constant places."""
        for_length, columns = self._columns
        if for_length != length:
            columns = [(place, bytes((byte,)) * length) for place, byte in self.constant]
            if length * len(columns) <= _MOST_KEPT_BYTES:
                self._columns = length, columns
        return columns

    def middle(self) -> _Layout:
        """Of what is between the length of a record and that of its value, where both lengths differ."""
        body = self.time - 1
        constant = [(place - body, byte) for place, byte in self.constant if self.key <= place < self.value]
        return _Layout(1, self.offset - body, self.key - body, self.value - body, 0, constant)


_layouts: dict[tuple[int, int], _Layout] = {}
"""Those seen last, by the sizes of a record and of its offset delta: batches are like those before them."""
_MOST_LAYOUTS = 64


def run_from(data: bytes, start: int, stop: int, index: int, most: int) -> Run | None:
    """The records, at most so many, that are like the one at `start` and have `index` and what follows it.

    The next record is at `stop`. None where they are few.
    """
    width = bisect_right(_LONGER_FROM, index)
    size, most = stop - start, min(most, _LONGER_FROM[width] - index) if width < len(_LONGER_FROM) else 0
    if most < LEAST_RECORDS:
        return None
    layout = _layouts.get((size, width))
    run = None if layout is None else _checked(layout, data, start, size, index, most)
    if run is None:
        layout = _layout(data, start, stop)
        if layout is None or layout.key - layout.offset != width:
            return None
        run = _checked(layout, data, start, size, index, most)
        if run is not None:
            if len(_layouts) >= _MOST_LAYOUTS:
                _layouts.clear()
            _layouts[size, width] = layout
    return run


def uneven_run_from(data: bytes, start: int, stop: int, index: int, most: int) -> Run | None:
    """The same for records that differ in the lengths of their values, and have no headers."""
    width = bisect_right(_LONGER_FROM, index)
    if most < LEAST_UNEVEN_RECORDS or width == len(_LONGER_FROM):
        return None
    layout = _layout(data, start, stop)
    if layout is None or layout.headers or layout.key - layout.offset != width:
        return None
    middle = layout.middle()
    size = middle.value + 2
    most = min(most, _LONGER_FROM[width] - index)
    middles, sizes, end = _middles(data, start, most, size)
    if len(sizes) < LEAST_UNEVEN_RECORDS:
        return None
    together = b"".join(middles)
    run = _checked(middle, together, 0, size, index, len(sizes))
    if run is None:
        return None
    if run.length < len(sizes):
        _, sizes, end = _middles(data, start, run.length, size)
    first, second = (together[middle.value + n : run.length * size : size] for n in (0, 1))
    return run._replace(end=end) if _sizes_are_right(sizes, first, second, size) else None


def _middles(data: bytes, start: int, most: int, size: int) -> tuple[list[bytes], list[int], int]:
    """So many bytes after the length of each record; the lengths, as zigzag; and where the next record is."""
    found: list[bytes] = []
    sizes: list[int] = []
    position, end = start, len(data)
    with suppress(IndexError):
        for _ in range(most):
            length = data[position]
            body = position + 1
            if length >= 0x80:
                high = data[body]
                if high >= 0x80:
                    break
                length += high - 1 << 7
                body += 1
            stop = body + (length >> 1)
            if data[stop - 1] or stop > end:  # headers, or the end of the data
                break
            found.append(data[body : body + size])
            sizes.append(length)
            position = stop
    return found, sizes, position


def _sizes_are_right(sizes: list[int], first: bytes, second: bytes, size: int) -> bool:
    """Whether the lengths of records fit the lengths of their values, which begin with these two bytes.

    The middle of each, these bytes included, has this `size`. All are computed at once, side by side in one
    number, with 16 bits for each.
    """
    lengths = array("H", sizes)
    if byteorder == "big":
        lengths.byteswap()
    one = _side_by_side(b"\1" * len(sizes))
    low, high = _side_by_side(first), _side_by_side(second)
    is_longer = low >> 7 & one
    high &= (is_longer << 8) - is_longer
    values = low - (is_longer << 7) + (high << 7)
    found = int.from_bytes(lengths.tobytes(), "little")
    return found == values + 2 * (size * one + is_longer) and not (found | high >> 7) & one


def _side_by_side(numbers: bytes) -> int:
    spread = bytearray(2 * len(numbers))
    spread[::2] = numbers
    return int.from_bytes(spread, "little")


def _checked(layout: _Layout, data: bytes, start: int, size: int, index: int, length: int) -> Run | None:
    end = start + length * size
    for place, expected in layout.columns(length):
        column = data[start + place : end : size]
        if column != expected[:length]:
            length -= len(column.lstrip(expected[:1]))
            end = start + length * size
            if length < LEAST_RECORDS:
                return None
    offset = layout.offset
    for number, deltas in enumerate(_OFFSET_DELTAS[layout.key - offset - 1]):
        column = data[start + offset + number : end : size]
        while column != deltas[index : index + length]:
            length //= 2
            column = column[:length]
        end = start + length * size
    places = range(start + layout.time, start + offset)
    largest, length = _largest([data[place:end:size] for place in places], length)
    if length < LEAST_RECORDS or largest < 0:
        return None
    return Run(length, start + length * size, largest, layout.key_is_null, length * layout.headers)


def _largest(columns: list[bytes], length: int) -> tuple[int, int]:
    """Of the timestamp deltas whose bytes these are, and of how many; -1 where that is not easy to say."""
    last = columns[-1]
    while not last.isascii():
        length //= 2
        last = last[:length]
    if len(columns) == 1:
        even = last.translate(None, _ODD)
        if not even:
            return -1, 0
        largest = max(even[0], even[-1])  # time goes on, mostly
        above = even.translate(None, _ASCII[: largest + 1])
        return max(above) if above else largest, length
    first = columns[0][:length]
    if len(columns) > 2 or not length or first.translate(None, _HIGH):
        return -1, 0
    latest = max(last)
    lowest = [low for low, high in zip(first, last, strict=True) if high == latest and not low & 1]
    return (max(lowest) + (latest - 1 << 7) if lowest else -1), length


def _layout(data: bytes, start: int, stop: int) -> _Layout | None:
    """None for a record that is wrong."""
    places: list[int] = []
    time = _after(data, start, places, passing=False) + 1
    offset = time + 1
    while data[offset - 1] >= 0x80:
        offset += 1
    key = offset + 1
    while data[key - 1] >= 0x80:
        key += 1
    value = _after(data, key, places)
    position = _after(data, value, places)
    headers = data[position]
    places.append(position)
    position += 1
    if headers & 1 or headers >= 0x80:
        return None
    for _ in range(headers >> 1):
        if data[position] & 1:  # a key that is null
            return None
        position = _after(data, _after(data, position, places), places)
    if position != stop:
        return None
    constant = [(place - start, data[place]) for place in places]
    return _Layout(time - start, offset - start, key - start, value - start, headers >> 1, constant)


def _after(data: bytes, position: int, places: list[int], *, passing: bool = True) -> int:
    """Where the key or value ends whose length is at `position`; the places of its length are noted.

    Without `passing`, where its length ends.
    """
    begin = position
    size, position = data[position], position + 1
    if size >= 0x80:
        size, position = longer(size, data, position, INT_SIZE)
    places.extend(range(begin, position))
    return position if size & 1 or not passing else position + (size >> 1)
