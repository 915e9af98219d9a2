"""A walk over records finds out what decoding them would, without making any."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wire.record_walk
from wire.compression import Codec, compress, decompressed
from wire.errors import WireError
from wire.record_batch import assembled
from wire.record_walk import LARGE_BYTES, RecordWalk, TooManyHeaders, walked
from wire.records import HEADER_SIZE, BatchBuilder, BatchHeader, Record, build_batch, records
from wire.steps import outcome_of

NOW = 1_700_000_000_000
Found = tuple[int, bool] | None


def data_of(many: Iterable[Record]) -> tuple[bytes, int]:
    """Their record data, and how many they are."""
    batch = build_batch(many)
    return batch[HEADER_SIZE:], BatchHeader.parse(batch).count


def decoded(data: bytes, count: int) -> Found:
    """Largest timestamp delta, and whether there are null keys, by decoding all; None if they are bad."""
    batch = assembled(0, -1, (0, count - 1, 0, 0, -1, -1, -1, count), data)
    try:
        found = list(records(batch))
    except WireError:
        return None
    if [record.offset for record in found] != list(range(count)):
        return None
    return max(record.timestamp for record in found), any(record.key is None for record in found)


def walked_over(data: bytes, count: int, pieces: Iterable[bytes] | None = None) -> Found:
    walk = RecordWalk(count)
    try:
        outcome_of(walked(walk, iter(pieces if pieces is not None else [data])))
    except WireError:
        return None
    return walk.largest_timestamp_delta, walk.has_null_key


def cut(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    position = 0
    for size in sizes:
        yield data[position : position + size]
        position += size
    yield data[position:]


contents = st.none() | st.binary(max_size=5) | st.integers(0, 200).map(bytes)
fields = st.tuples(
    st.sampled_from((0, 1, 2, 63, 64, 8191, 8192, 1 << 20, 1 << 40, -1, -64, -65, -(1 << 40))),
    contents,
    contents,
    st.lists(st.tuples(st.text(max_size=3), contents), max_size=2),
)


@pytest.mark.slow
@given(
    many=st.lists(fields, min_size=1, max_size=20),
    repeated=st.integers(1, 80),
    sizes=st.lists(st.integers(0, 300), max_size=20),
)
@settings(deadline=None)
def test_what_a_walk_finds_is_what_decoding_finds(
    many: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    repeated: int,
    sizes: list[int],
) -> None:
    """Whatever the records, however many of a kind follow one another, in whichever pieces they come."""
    rows = [row for row in many for _ in range(repeated)]
    data, count = data_of(
        Record(offset, NOW + time - many[0][0], key, value, tuple(headers))
        for offset, (time, key, value, headers) in enumerate(rows)
    )
    expected = decoded(data, count)
    assert expected is not None
    assert walked_over(data, count) == expected
    assert walked_over(data, count, cut(data, sizes)) == expected
    for lie in (count - 1, count + 1):
        if lie:
            assert walked_over(data, lie) is None
    assert walked_over(data[:-1], count) is None
    assert walked_over(data + b"\0", count) is None


KINDS: dict[str, Callable[[int], Record]] = {
    "equal": lambda n: Record(n, NOW, b"key", b"value"),
    "without keys": lambda n: Record(n, NOW, None, bytes(100)),
    "with headers": lambda n: Record(n, NOW + n // 3, b"k", b"v", (("trace", b"%03d" % n), ("none", None))),
    "later and later": lambda n: Record(n, NOW + 5 * n, b"k", b"v" * 70),
    "of two sizes": lambda n: Record(n, NOW, b"k", b"v" * (70 + 10 * (n % 2))),
    "with values that vary": lambda n: Record(n, NOW + n // 9, b"key", b"v" * (70 + n * 7 % 50)),
    "with short values": lambda n: Record(n, NOW + n, None, b"v" * (n * 7 % 31)),
    "with nulls among them": lambda n: Record(n, NOW, b"k", None if n == 99 else b"v" * (n % 9)),
    "with headers among them": lambda n: Record(
        n, NOW, b"k", b"v" * (70 + n % 9), (("h", b"v"),) * (n == 99)
    ),
    "of all sizes": lambda n: Record(n, NOW - n, b"k" * (n % 7), b"v" * (n % 90)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found_wherever_decoding_finds_it(kind: str) -> None:
    """Every byte of lengths, counts and deltas changed, at the ends of runs and in their middle."""
    middle = range(
        len(data_of(map(KINDS[kind], range(100)))[0]), len(data_of(map(KINDS[kind], range(103)))[0])
    )
    data, count = data_of(map(KINDS[kind], range(150)))
    chance = random.Random(kind)
    ends = {*range(60), *range(len(data) - 40, len(data))}
    places = {*ends, *middle, *(chance.randrange(len(data)) for _ in range(200))}
    found = 0
    for place in sorted(places):
        for byte in {data[place] ^ 1, data[place] ^ 2, data[place] ^ 0x80, 0, 0xFF}:
            damaged = data[:place] + bytes((byte,)) + data[place + 1 :]
            expected = decoded(damaged, count)
            found += expected is None
            assert walked_over(damaged, count) == expected, (place, byte)
            assert walked_over(damaged, count, cut(damaged, (place, 1, 100))) == expected, (place, byte)
    assert found > 100


def test_records_larger_than_what_is_held_are_passed_over() -> None:
    large = [
        Record(0, NOW, b"k", b"small"),
        Record(
            1, NOW + 7, bytes(LARGE_BYTES), bytes(3 * LARGE_BYTES), (("h", bytes(LARGE_BYTES)), ("n", None))
        ),
        Record(2, NOW + 3, None, b"small"),
        Record(3, NOW, b"k", bytes(2 * LARGE_BYTES)),
    ]
    data, count = data_of(large)
    pieces = [piece for piece in cut(data, [65536] * 30) if piece]
    assert walked_over(data, count, pieces) == (7, True)
    for size in (100_000, 300_000, 1_000_000):
        assert walked_over(data, count, filter(None, cut(data, [size] * 30))) == (7, True)
    assert walked_over(data, count, pieces[:-1]) is None
    for place in range(100):
        damaged = data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]
        expected = decoded(damaged, count)
        assert walked_over(damaged, count, cut(damaged, [65536] * 30)) == expected, place


BOMB_BYTES = 100 << 20


def one_value(size: int) -> bytes:
    builder = BatchBuilder()
    builder.append(None, bytes(size), timestamp_ms=NOW)
    return builder.build()[HEADER_SIZE:]


@pytest.mark.slow
@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_bomb_is_never_held(codec: Codec) -> None:
    """conformance 97: 100 MiB of one value are looked at in less than 2 MiB."""
    section = compress(codec, one_value(BOMB_BYTES - 100))
    tracemalloc.start()
    walk = RecordWalk(1)
    looked_at = sum(walked(walk, decompressed(codec, section, BOMB_BYTES)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert walk.index == 1
    assert looked_at > BOMB_BYTES - 200
    assert peak < 2 << 20


@pytest.mark.parametrize("kind", ["pairs", "fours", "wrong after forty"])
def test_work_done_in_vain_stays_in_proportion(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that look like runs, and are not for long: counted are those that were put side by side."""
    looked_at = 0

    def counting(data: bytes, start: int, stop: int, index: int, most: int, of: Callable[..., Any]) -> Any:
        nonlocal looked_at
        looked_at += most
        return of(data, start, stop, index, most)

    for name in ("run_from", "uneven_run_from"):
        of = getattr(wire.record_walk, name)
        monkeypatch.setattr(wire.record_walk, name, partial(counting, of=of))
    sizes = {
        "pairs": lambda n: n // 2 % 3,
        "fours": lambda n: n // 4 % 3,
        "wrong after forty": lambda n: n % 7,
    }
    keys = {"pairs": b"", "fours": b"", "wrong after forty": b"k"}
    rows = (Record(n, NOW, keys[kind] * (n // 40 % 2), bytes(sizes[kind](n))) for n in range(8000))
    data, count = data_of(rows)
    assert walked_over(data, count) is not None
    assert looked_at < 40 * count


@pytest.mark.slow
def test_little_is_remembered_of_what_records_look_like() -> None:
    """Batches of forty sizes, of many records that are nothing but lengths."""
    headers = tuple(("", None) for _ in range(20))
    tracemalloc.start()
    for size in range(40):
        data, count = data_of(Record(n, NOW, bytes(size), None, headers) for n in range(1000))
        assert walked_over(data, count) == (0, False)
        if size == 0:
            before = tracemalloc.get_traced_memory()[0]
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 1 << 20


def test_headers_are_bounded_in_number() -> None:
    """31 million of them fit into 6 KB of zstd."""
    headers = tuple(("", None) for _ in range(1000))
    data, count = data_of(Record(n, NOW, b"k", b"v", headers) for n in range(10))
    assert outcome_of(walked(RecordWalk(count, 10_000), iter([data]))) is None
    for pieces in ([data], cut(data, [100] * 200)):
        with pytest.raises(TooManyHeaders):
            outcome_of(walked(RecordWalk(count, 9_999), iter(pieces)))
