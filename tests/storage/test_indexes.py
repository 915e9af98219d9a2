"""Offset, time and transaction index: the bytes are Kafka's, and a search is never wrong."""

from __future__ import annotations

import errno
import os
import random
import struct
from bisect import bisect_right
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptIndex
from storage.files import File, Files
from storage.indexes import (
    MAX_RELATIVE_OFFSET,
    PAGE,
    AbortedTransaction,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from storage.transaction_index import TransactionIndex
from tests.storage.crashes import each_crash
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome

BASE = 5_000_000_000
MAX_BYTES = 10 << 20


def offset_index(files: Files, path: str = "/log/0.index", max_bytes: int = MAX_BYTES) -> OffsetIndex:
    return OffsetIndex(files, path, BASE, max_bytes)


def time_index(files: Files, path: str = "/log/0.timeindex", max_bytes: int = MAX_BYTES) -> TimeIndex:
    return TimeIndex(files, path, BASE, max_bytes)


def transaction_index(files: Files, path: str = "/log/0.txnindex") -> TransactionIndex:
    return TransactionIndex(files, path, BASE)


class CountingDisk(SimulatedDisk):
    """Counts what is opened and read."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.bytes_read = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.opened += 1
        file = super().open(path, create=create, read_only=read_only)
        read = file.read

        def counted(position: int, length: int) -> bytes:
            data = read(position, length)
            self.bytes_read += len(data)
            return data

        file.read = counted  # type: ignore[method-assign]
        return file


# -- the formats


def test_the_bytes_of_an_offset_index(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    index.append(BASE + 3, 100)
    index.append(BASE + 70_000, 2_000_000_000)
    index.close()
    assert disk.read("/log/0.index") == struct.pack(">iiii", 3, 100, 70_000, 2_000_000_000)


def test_the_bytes_of_a_time_index(disk: SimulatedDisk) -> None:
    index = time_index(disk)
    index.maybe_append(1_700_000_000_000, BASE + 3)
    index.maybe_append(1_700_000_000_001, BASE + 3)
    index.close()
    expected = struct.pack(">qiqi", 1_700_000_000_000, 3, 1_700_000_000_001, 3)
    assert disk.read("/log/0.timeindex") == expected


def test_the_bytes_of_a_transaction_index(disk: SimulatedDisk) -> None:
    index = transaction_index(disk)
    index.append(AbortedTransaction(7, BASE - 10, BASE + 4, BASE + 5))
    expected = struct.pack(">hqqqq", 0, 7, BASE - 10, BASE + 4, BASE + 5)
    assert disk.read("/log/0.txnindex") == expected
    assert len(expected) == 34


# -- offset index


def test_an_empty_index_begins_at_the_base_offset(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    assert index.lookup(BASE + 99) == index.last_entry == OffsetPosition(BASE, 0)
    assert (index.entries, index.size, index.is_full, list(index)) == (0, 0, False, [])
    assert time_index(disk).lookup(10**15) == time_index(disk).last_entry == TimestampOffset(-1, BASE)
    assert transaction_index(disk).collect(0, 10**15) == ([], False)
    assert disk.list("/log") == []


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("entries", [1, 2, 511, 512, 513, 5000])
def test_a_lookup_finds_the_last_entry_at_or_below(disk: SimulatedDisk, entries: int, written: bool) -> None:
    index = offset_index(disk)
    expected = [OffsetPosition(BASE + 10 * number + 9, 4096 * number) for number in range(1, entries + 1)]
    for entry in expected:
        index.append(*entry)
    if written:
        index.close()
        index = offset_index(disk)
    assert index.lookup(BASE) == index.lookup(BASE + 18) == OffsetPosition(BASE, 0)
    for entry in random.Random(1).sample(expected, min(50, entries)):
        assert index.lookup(entry.offset) == index.lookup(entry.offset + 9) == entry
    assert index.lookup(BASE + 10**9) == index.last_entry == expected[-1]
    assert list(index) == expected


def test_offsets_only_grow(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    index.append(BASE, 1)
    index.append(BASE + 5, 2)
    for offset in (BASE + 5, BASE + 4, BASE - 1):
        with pytest.raises(ValueError, match="not above the last"):
            index.append(offset, 3)
    assert index.entries == 2


def test_an_offset_beyond_31_bits_does_not_fit(disk: SimulatedDisk) -> None:
    """The segment rolls before: relative offsets are signed 32 bits in Kafka."""
    index, times = offset_index(disk), time_index(disk)
    largest = BASE + MAX_RELATIVE_OFFSET
    with pytest.raises(ValueError, match="does not fit"):
        index.append(largest + 1, 5)
    with pytest.raises(ValueError, match="does not fit"):
        times.maybe_append(5, largest + 1)
    index.append(largest, 5)
    assert index.lookup(largest + 7) == (largest, 5)


def test_a_full_index_takes_no_more_and_time_keeps_a_slot_for_rolling(disk: SimulatedDisk) -> None:
    index, times = offset_index(disk, max_bytes=31), time_index(disk, max_bytes=38)
    for number in range(3):
        assert not index.is_full
        index.append(BASE + number, number)
    assert (index.is_full, index.max_entries) == (True, 3)
    with pytest.raises(ValueError, match="full"):
        index.append(BASE + 9, 9)
    for number in range(2):
        assert not times.is_full
        times.maybe_append(number, BASE + number)
    assert (times.is_full, times.max_entries) == (True, 3)
    with pytest.raises(ValueError, match="full"):
        times.maybe_append(9, BASE + 9)
    times.maybe_append(9, BASE + 9, at_roll=True)
    assert times.entries == 3
    with pytest.raises(ValueError, match="holds nothing"):
        offset_index(disk, max_bytes=7)


# -- time index


def test_the_time_index_ignores_what_is_no_news_and_refuses_to_go_back(disk: SimulatedDisk) -> None:
    index = time_index(disk)
    index.maybe_append(-1, BASE)
    assert index.entries == 0
    index.maybe_append(100, BASE + 5)
    index.maybe_append(100, BASE + 9)
    assert list(index) == [TimestampOffset(100, BASE + 5)]
    for timestamp, offset in ((99, BASE + 6), (101, BASE + 4)):
        with pytest.raises(ValueError, match="goes back"):
            index.maybe_append(timestamp, offset)


@pytest.mark.parametrize("written", [False, True])
def test_a_time_is_looked_up_like_an_offset(disk: SimulatedDisk, written: bool) -> None:
    index = time_index(disk)
    expected = [TimestampOffset(1000 + number * number, BASE + number) for number in range(1, 2000)]
    for timestamp, offset in expected:
        index.maybe_append(timestamp, offset)
    if written:
        index.close()
    assert index.lookup(1000) == (-1, BASE)
    for number in (1, 2, 340, 341, 342, 1000, 1999):
        entry = expected[number - 1]
        assert index.lookup(entry.timestamp) == index.lookup(entry.timestamp + 2) == entry
    assert list(index) == expected


# -- transaction index


def test_aborted_transactions_that_overlap_a_fetch_are_collected(disk: SimulatedDisk) -> None:
    """Conformance 44: all that overlap [fetch offset, upper bound), and no marker below the fetch offset."""
    index = transaction_index(disk)
    first = AbortedTransaction(1, BASE, BASE + 10, BASE + 11)
    second = AbortedTransaction(2, BASE + 5, BASE + 18, BASE + 19)
    third = AbortedTransaction(3, BASE + 24, BASE + 40, BASE + 30)
    for transaction in (first, second, third):
        index.append(transaction)
    assert index.collect(BASE, BASE + 100) == ([first, second, third], False)
    assert index.collect(BASE, BASE + 5) == ([first], True)
    assert index.collect(BASE, BASE + 6) == ([first], True)
    assert index.collect(BASE + 11, BASE + 20) == ([second], True)
    assert index.collect(BASE + 10, BASE + 19) == ([first, second], True)
    assert index.collect(BASE + 19, BASE + 24) == ([], True)
    assert index.collect(BASE + 19, BASE + 25) == ([third], True)
    assert index.collect(BASE + 41, BASE + 100) == ([], False)


def test_markers_only_come_in_order(disk: SimulatedDisk) -> None:
    index = transaction_index(disk)
    index.append(AbortedTransaction(1, BASE, BASE + 10, BASE + 11))
    for last_offset in (BASE + 10, BASE + 9):
        with pytest.raises(ValueError, match="does not come after"):
            index.append(AbortedTransaction(2, BASE + 1, last_offset, BASE + 12))
    assert index.entries == 1


def test_there_is_no_transaction_index_without_an_aborted_transaction(disk: SimulatedDisk) -> None:
    index = transaction_index(disk)
    index.reset()
    index.truncate_to(BASE)
    index.flush()
    index.sync()
    index.sanity_check()
    index.close()
    assert disk.list("/log") == []


# -- cutting


@pytest.mark.parametrize("written", [0, 3, 700, 1000])
@pytest.mark.parametrize("keep", [0, 1, 511, 512, 699, 700, 999, 1000])
def test_truncation_drops_entries_at_or_above(disk: SimulatedDisk, written: int, keep: int) -> None:
    index, times = offset_index(disk), time_index(disk)
    for number in range(1, 1001):
        index.append(BASE + 10 * number, number)
        times.maybe_append(number, BASE + 10 * number)
        if number == written:
            index.flush()
            times.flush()
    for cut in (index, times):
        cut.truncate_to(BASE + 10 * keep + 1)
        assert cut.entries == keep
    assert index.last_entry == (BASE + 10 * keep, keep)
    assert times.last_entry == (keep or -1, BASE + 10 * keep)
    index.append(BASE + 10 * keep + 1, 77)
    times.maybe_append(7777, BASE + 10 * keep + 1)
    for cut in (index, times):
        cut.close()
        assert disk.size(cut.path) == cut.size
    assert offset_index(disk).lookup(BASE + 10**6) == (BASE + 10 * keep + 1, 77)
    assert time_index(disk).last_entry == (7777, BASE + 10 * keep + 1)
    assert list(offset_index(disk))[:keep] == [(BASE + 10 * number, number) for number in range(1, keep + 1)]


def test_what_a_lookup_remembers_is_forgotten_when_it_is_cut_off(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    for number in range(1, 1501):
        index.append(BASE + 10 * number, number)
    index.flush()
    assert index.lookup(BASE + 7000) == (BASE + 7000, 700)  # reads the second page
    index.truncate_to(BASE + 6000)
    for number in range(600, 1501):
        index.append(BASE + 10 * number + 5, 7 * number)
    index.flush()
    assert index.lookup(BASE + 7000) == (BASE + 6995, 7 * 699)


def test_truncating_to_the_offset_of_an_entry_drops_it(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    for number in (1, 2, 3):
        index.append(BASE + number, number)
    index.truncate_to(BASE + 2)
    assert list(index) == [(BASE + 1, 1)]
    index.truncate_to(BASE + 50)
    assert index.entries == 1
    index.flush()
    index.reset()
    assert (index.entries, disk.read("/log/0.index")) == (0, b"")


def test_aborted_transactions_are_truncated_by_their_marker(disk: SimulatedDisk) -> None:
    index = transaction_index(disk)
    for number in range(500):
        index.append(AbortedTransaction(number, BASE + number, BASE + 1000 + number, BASE))
    index.truncate_to(BASE + 1200)
    assert index.entries == 200
    index.append(AbortedTransaction(9, BASE, BASE + 1200, BASE))
    assert [entry.last_offset for entry in transaction_index(disk)][-2:] == [BASE + 1199, BASE + 1200]


# -- files


def test_nothing_is_read_before_it_is_asked_for() -> None:
    """A clean directory of a thousand partitions is opened without reading its indexes."""
    disk = CountingDisk()
    disk.plant("/log/0.index", struct.pack(">ii", 1, 1) * 1000)
    indexes = offset_index(disk), time_index(disk), transaction_index(disk)
    for index in indexes:
        index.close()
    assert (disk.opened, disk.operations) == (0, 0)


def test_a_lookup_in_a_large_index_reads_a_few_pages_of_it() -> None:
    disk = CountingDisk()
    entries = b"".join(struct.pack(">ii", 10 * number, 4096 * number) for number in range(1, 200_001))
    disk.plant("/log/0.index", entries)
    index = offset_index(disk)
    assert index.lookup(BASE + 1_234_567) == (BASE + 1_234_560, 4096 * 123_456)
    assert disk.bytes_read <= 4 * PAGE
    before = disk.bytes_read
    for offset in range(1_234_560, 1_234_560 + 500):
        index.lookup(BASE + offset)
    assert disk.bytes_read - before <= PAGE


@given(st.lists(st.integers(1, 2**22), min_size=1, max_size=400), st.integers(0, 2**31))
def test_a_lookup_in_an_unevenly_grown_index_is_right_and_bounded(gaps: list[int], seed: int) -> None:
    """Gaps of all sizes: interpolation guesses badly, halving bounds the damage."""
    disk = CountingDisk()
    chance = random.Random(seed)
    relative, keys = 0, []
    for gap in gaps:
        for _ in range(10):
            relative += gap if chance.random() < 0.1 else 1
            if relative < 2**31:
                keys.append(relative)
    disk.plant("/log/0.index", b"".join(struct.pack(">ii", key, at + 1) for at, key in enumerate(keys)))
    index = offset_index(disk)
    for key in chance.sample(keys, min(20, len(keys))):
        for target in (key - 1, key, key + 1):
            disk.bytes_read = 0
            at = bisect_right(keys, target)
            expected = (BASE + keys[at - 1], at) if at else (BASE, 0)
            assert index.lookup(BASE + target) == expected
            assert disk.bytes_read <= 12 * PAGE


def test_appending_writes_a_page_at_a_time() -> None:
    disk = CountingDisk()
    disk.make_dir("/log")
    index = offset_index(disk)
    before = disk.operations
    for number in range(1, 513):
        index.append(BASE + number, number)
    assert disk.operations == before
    for number in range(513, 2049):
        index.append(BASE + number, number)
    assert disk.size("/log/0.index") == 3 * PAGE
    assert disk.operations - before == 4  # the file, and three pages


def test_flush_makes_the_file_even_of_an_empty_index(disk: SimulatedDisk) -> None:
    """Kafka recovers a segment that has no index files."""
    index = offset_index(disk)
    index.flush()
    assert disk.read("/log/0.index") == b""


def test_sync_makes_entries_and_name_durable(disk: SimulatedDisk) -> None:
    index, aborted = offset_index(disk), transaction_index(disk)
    index.append(BASE + 1, 7)
    index.flush()
    aborted.append(AbortedTransaction(1, BASE, BASE + 1, BASE + 2))
    for each in (index, aborted):
        assert disk.durable_contents(each.path) != disk.read(each.path)
        each.sync()
        assert disk.durable_contents(each.path) == disk.read(each.path)
    index.close()
    index.append(BASE + 2, 8)
    index.close()
    index.sync()
    assert disk.durable_contents("/log/0.index") == struct.pack(">iiii", 1, 7, 2, 8)


def test_an_index_that_is_closed_while_it_is_synced_is_synced_all_the_same() -> None:
    """The sync runs in a thread; meanwhile its owner may give the descriptor back."""
    index: OffsetIndex

    class ClosingDisk(SimulatedDisk):
        def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
            file = super().open(path, create=create, read_only=read_only)
            sync = file.sync

            def close_and_sync() -> None:
                if not read_only:
                    index.close()
                sync()

            file.sync = close_and_sync  # type: ignore[method-assign]
            return file

    disk = ClosingDisk()
    disk.make_dir("/log")
    disk.sync_dir("/")
    index = offset_index(disk)
    index.append(BASE + 1, 7)
    index.flush()
    index.sync()
    assert disk.durable_contents("/log/0.index") == struct.pack(">ii", 1, 7)


def test_renaming_takes_the_file_along(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    index.rename("/log/nothing-yet")
    index.append(BASE + 1, 7)
    index.flush()
    index.rename("/log/0.index.deleted")
    index.append(BASE + 2, 8)
    index.close()
    assert disk.files() == {"/log/0.index.deleted": struct.pack(">iiii", 1, 7, 2, 8)}
    index.remove()
    index.remove()
    assert (disk.files(), index.entries) == ({}, 0)


def test_a_closed_index_opens_its_file_again(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    index.append(BASE + 1, 7)
    index.close()
    assert index.lookup(BASE + 1) == (BASE + 1, 7)
    index.append(BASE + 2, 8)
    index.close()
    assert list(offset_index(disk)) == [(BASE + 1, 7), (BASE + 2, 8)]


def test_an_index_that_cannot_be_written_says_so(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    for number in range(1, 513):
        index.append(BASE + number, number)
    disk.fail(errno.ENOSPC, "append")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        index.append(BASE + 513, 513)
    assert index.entries == 512
    index.append(BASE + 513, 513)
    index.close()
    assert list(offset_index(disk)) == [(BASE + number, number) for number in range(1, 514)]


# -- what Kafka and crashes leave behind


@pytest.mark.parametrize("used", [0, 1, 2, 511, 512, 600])
def test_the_zeros_of_a_preallocated_kafka_index_are_no_entries(disk: SimulatedDisk, used: int) -> None:
    """Kafka preallocates growing indexes, and does not come to cut them when it is killed."""
    entries = b"".join(struct.pack(">ii", 10 * number, number) for number in range(1, used + 1))
    disk.plant("/log/0.index", entries + bytes(8 * 1000))
    times = b"".join(struct.pack(">qi", 10 * number, number) for number in range(1, used + 1))
    disk.plant("/log/0.timeindex", times + bytes(12 * 1000))
    index, time = offset_index(disk), time_index(disk)
    index.sanity_check()
    time.sanity_check()
    assert (index.entries, time.entries) == (used, used)
    assert index.lookup(BASE + 10**6) == (BASE + 10 * used, used)
    assert time.last_entry == ((10 * used, BASE + used) if used else (-1, BASE))
    index.append(BASE + 10**6, 10**6)
    index.close()
    assert disk.read("/log/0.index") == entries + struct.pack(">ii", 10**6, 10**6)


def test_a_single_time_entry_of_zeros_is_one(disk: SimulatedDisk) -> None:
    disk.plant("/log/0.timeindex", bytes(12))
    assert list(time_index(disk)) == [TimestampOffset(0, BASE)]


def test_a_torn_entry_at_the_end_is_found_and_written_over(disk: SimulatedDisk) -> None:
    disk.plant("/log/0.index", struct.pack(">ii", 1, 7) + b"\0\0\0")
    index = offset_index(disk)
    with pytest.raises(CorruptIndex, match=r"/log/0.index: byte 11: 11 bytes are not a multiple of 8"):
        index.sanity_check()
    index.append(BASE + 2, 8)
    index.close()
    assert disk.read("/log/0.index") == struct.pack(">iiii", 1, 7, 2, 8)


@pytest.mark.parametrize(
    ("index", "contents"),
    [
        (offset_index, struct.pack(">iiii", 5, 50, -1, 60)),
        (offset_index, struct.pack(">iiii", 5, 50, 4, 60)),
        (offset_index, struct.pack(">iiii", 5, 50, 6, 40)),
        (offset_index, struct.pack(">ii", 5, -50)),
        (time_index, struct.pack(">qiqi", 5, 50, 4, 60)),
        (time_index, struct.pack(">qiqi", 5, 50, 6, 40)),
        (time_index, struct.pack(">qi", 5, -50)),
        (transaction_index, struct.pack(">hqqqq", 0, 1, BASE, BASE - 1, BASE)),
        (transaction_index, struct.pack(">hqqqq", 0, 1, BASE + 2, BASE + 1, BASE)),
        (transaction_index, struct.pack(">hqqqq", 0, 1, BASE, BASE + 1, BASE) * 2),
        (transaction_index, struct.pack(">hqqqq", 1, 1, BASE, BASE + 1, BASE)),
        (transaction_index, bytes(33)),
    ],
)
def test_what_cannot_be_right_is_corrupt(disk: SimulatedDisk, index: Any, contents: bytes) -> None:
    """Conformance 88: a corrupt index is noticed, to be rebuilt."""
    disk.plant("/log/0", contents)
    with pytest.raises(CorruptIndex, match="/log/0: byte "):
        index(disk, "/log/0").sanity_check()


def test_a_missing_index_is_missing(disk: SimulatedDisk) -> None:
    for index in (offset_index(disk), time_index(disk)):
        with pytest.raises(FileNotFoundError):
            index.sanity_check()
    transaction_index(disk).sanity_check()


def test_an_index_that_shrinks_under_the_feet_is_corrupt(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    for number in range(1, 3000):
        index.append(BASE + number, number)
    index.close()
    assert index.lookup(BASE + 1500) == (BASE + 1500, 1500)
    disk.open("/log/0.index").truncate(4000)
    with pytest.raises(CorruptIndex, match="the file ends where there was an entry"):
        index.lookup(BASE + 2500)


def test_a_power_cut_makes_an_offset_search_vague_but_never_wrong(disk: SimulatedDisk) -> None:
    """Zeros, missing pages, old pages: what a lookup returns was once written, and is at or below."""
    index = offset_index(disk)
    for number in range(1, 3000):
        index.append(BASE + 10 * number, 100 * number)
        if number == 600:
            index.flush()
            index.sync()
    index.flush()
    for seed in range(150):
        found = offset_index(disk.after_crash(Outcome.RANDOM, seed))
        for target in range(0, 31_000, 997):
            offset, position = found.lookup(BASE + target)
            assert (position, offset <= BASE + target) == (10 * (offset - BASE), True)


def test_synced_aborted_transactions_survive_every_power_cut() -> None:
    """They are the only index whose loss would show: aborted records would be served."""
    transactions = [AbortedTransaction(n, BASE + n, BASE + 10 * n, BASE + 10 * n + 1) for n in range(1, 6)]
    synced: list[int] = []

    def script(disk: SimulatedDisk) -> None:
        synced.clear()
        index = transaction_index(disk)
        for transaction in transactions:
            index.append(transaction)
            index.sync()
            synced.append(transaction.producer_id)

    def prepare() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_dir("/log")
        disk.sync_dir("/")
        return disk

    def check(after: SimulatedDisk, at: int) -> None:
        found = list(transaction_index(after))
        assert found[: len(synced)] == transactions[: len(synced)]

    assert each_crash(script, check, prepare=prepare, seeds=range(20)) > 400
