"""The key map of compaction: right about every key, and no larger than it may be."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.offset_map import BYTES_PER_KEY, LONGEST_KEY, NOT_FOUND, OffsetMap
from wire.record_spans import Span

KEYS = st.binary(max_size=LONGEST_KEY + 3) | st.sampled_from([b"", b"k", b"k" * 31, b"k" * 32, b"k" * 5000])


def span(offset: int, key: bytes | None) -> Span:
    return offset, key, False, 0, 0, 0


@given(st.lists(st.none() | KEYS))
def test_last_offset_of_every_key_and_of_no_other(keys: list[bytes | None]) -> None:
    """Conformance 68."""
    offsets = OffsetMap(1 << 20)
    assert offsets.put_all((span(offset, key) for offset, key in enumerate(keys)), 0) is None
    expected = {key: offset for offset, key in enumerate(keys) if key is not None}
    assert {key: offsets.get(key) for key in expected} == expected
    assert len(offsets) == len(expected)
    for other in (
        b"another",
        b"another" * 100,
        *(key + b"\0" for key in expected if key + b"\0" not in expected),
    ):
        assert offsets.get(other) == NOT_FOUND


@given(st.lists(KEYS, min_size=1), st.integers(1, 10))
def test_full_map_names_the_first_record_it_has_no_room_for(keys: list[bytes], capacity: int) -> None:
    offsets = OffsetMap(capacity * BYTES_PER_KEY)
    seen: set[bytes] = set()
    stopped = None
    for offset, key in enumerate(keys):
        if len(seen | {key}) > capacity:
            stopped = offset
            break
        seen.add(key)
    assert offsets.put_all((span(offset, key) for offset, key in enumerate(keys)), 0) == stopped
    assert len(offsets) == len(seen) <= offsets.capacity == capacity
    for key in seen:
        assert offsets.get(key) == max(at for at in range(stopped or len(keys)) if keys[at] == key)


def test_full_map_still_moves_the_keys_it_has() -> None:
    offsets = OffsetMap(2 * BYTES_PER_KEY)
    keys = [b"a", b"b", b"a", b"b", b"c", b"a"]
    assert offsets.put_all((span(offset, key) for offset, key in enumerate(keys)), 0) == 4
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.get(b"c")) == (2, 3, NOT_FOUND)


def test_smallest_map_makes_progress() -> None:
    offsets = OffsetMap(0)
    assert offsets.put_all([span(7, b"a"), span(8, b"b")], 0) == 8
    assert offsets.get(b"a") == 7


def test_records_below_the_first_offset_are_not_noted() -> None:
    offsets = OffsetMap(1 << 20)
    offsets.put_all([span(4, b"a"), span(5, b"b")], 5)
    assert (offsets.get(b"a"), offsets.get(b"b")) == (NOT_FOUND, 5)


@pytest.mark.slow
@pytest.mark.parametrize("key_size", [8, LONGEST_KEY, LONGEST_KEY + 1, 200])
@pytest.mark.parametrize("capacity", [1_000, 5_461, 5_462, 5_463, 20_000, 43_000])
def test_memory_stays_within_the_bound_also_while_it_grows(key_size: int, capacity: int) -> None:
    """5,461 keys fill a dict of 8,192 slots: one more makes it grow."""
    tracemalloc.start()
    try:
        offsets = OffsetMap(capacity * BYTES_PER_KEY)
        keyed = (span(1 << 40 | i, b"%0*d" % (key_size, i)) for i in range(capacity + 1))
        assert offsets.put_all(keyed, 0) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(offsets) == capacity
    assert peak <= capacity * BYTES_PER_KEY + 4096
