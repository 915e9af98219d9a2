"""The simulated disk loses what it may lose, and nothing else."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from storage.files import Files
from tests.storage.crashes import each_crash
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_files import PowerCut
from tests.storage.simulated_nodes import SECTOR, Outcome

SEEDS = range(200)


def outcomes(disk: SimulatedDisk, path: str) -> set[bytes | None]:
    """All that may be in a file after a power cut now; None for no such file."""
    disks = [disk.after_crash(outcome) for outcome in Outcome]
    disks += [disk.after_crash(Outcome.RANDOM, seed) for seed in SEEDS]
    disks += [disk.after_crash(Outcome.TORN, seed) for seed in SEEDS]
    return {after.read(path) if after.exists(path) else None for after in disks}


def test_what_was_synced_with_its_name_stays(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a", create=True)
    file.append([b"synced"])
    file.sync()
    disk.sync_dir("/log")
    assert disk.durable_contents("/log/a") == b"synced"
    assert outcomes(disk, "/log/a") == {b"synced"}


def test_bytes_after_the_last_sync_are_lost_kept_or_torn(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a", create=True)
    file.append([b"synced"])
    file.sync()
    disk.sync_dir("/log")
    file.append([b"-new"])
    assert disk.durable_contents("/log/a") == b"synced"
    after = {outcome: disk.after_crash(outcome).read("/log/a") for outcome in Outcome}
    assert (after[Outcome.LOST], after[Outcome.KEPT], after[Outcome.EMPTY]) == (
        b"synced",
        b"synced-new",
        b"synced",
    )
    torn = {disk.after_crash(Outcome.TORN, seed).read("/log/a") for seed in SEEDS}
    assert torn == {b"synced", b"synced-", b"synced-n", b"synced-ne", b"synced-new"}


def test_a_synced_file_without_a_durable_name_may_be_gone(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a", create=True)
    file.append([b"synced"])
    file.sync()
    assert disk.durable_contents("/log/a") is None
    assert outcomes(disk, "/log/a") == {None, b"synced"}


def test_a_durable_name_does_not_make_bytes_durable(disk: SimulatedDisk) -> None:
    """The classic: write, rename, no sync, and after the power cut the file is empty."""
    disk.open("/log/a.tmp", create=True).append([b"data"])
    disk.rename("/log/a.tmp", "/log/a")
    disk.sync_dir("/log")
    assert disk.after_crash(Outcome.EMPTY).read("/log/a") == b""
    assert {b"", b"da", b"data"} <= outcomes(disk, "/log/a")


def test_a_directory_is_as_durable_as_its_own_name(disk: SimulatedDisk) -> None:
    disk.make_dir("/log/t-0")
    disk.replace("/log/t-0/a", b"data")
    assert outcomes(disk, "/log/t-0/a") == {None, b"data"}
    disk.sync_dir("/log")
    assert outcomes(disk, "/log/t-0/a") == {b"data"}


def test_renames_and_removals_are_undone_or_not_each_on_its_own(disk: SimulatedDisk) -> None:
    for name in "ab":
        disk.replace(f"/log/{name}", name.encode())
    disk.rename("/log/a", "/log/c")
    disk.remove("/log/b")
    found = {tuple(disk.after_crash(Outcome.RANDOM, seed).list("/log")) for seed in SEEDS}
    assert found == {("a", "b"), ("a",), ("b", "c"), ("c",)}
    disk.sync_dir("/log")
    assert {tuple(disk.after_crash(Outcome.RANDOM, seed).list("/log")) for seed in SEEDS} == {("c",)}


def test_two_renames_of_one_file_are_not_swapped(disk: SimulatedDisk) -> None:
    disk.replace("/log/a", b"data")
    disk.rename("/log/a", "/log/b")
    disk.rename("/log/b", "/log/c")
    found = {tuple(disk.after_crash(Outcome.RANDOM, seed).list("/log")) for seed in SEEDS}
    assert found == {("a",), ("b",), ("c",)}


def test_a_rename_over_a_file_leaves_the_old_or_the_new_one(disk: SimulatedDisk) -> None:
    disk.replace("/log/a", b"old")
    new = disk.open("/log/b", create=True)
    new.append([b"new"])
    new.sync()
    disk.rename("/log/b", "/log/a")
    assert outcomes(disk, "/log/a") == {b"old", b"new"}


def test_a_move_between_directories_is_one_change(disk: SimulatedDisk) -> None:
    for name in ("x", "y"):
        disk.make_dir(f"/log/{name}")
    disk.sync_dir("/log")
    disk.replace("/log/x/a", b"data")
    disk.rename("/log/x/a", "/log/y/a")
    for seed in SEEDS:
        after = disk.after_crash(Outcome.RANDOM, seed)
        assert after.exists("/log/x/a") != after.exists("/log/y/a")
    disk.sync_dir("/log/y")
    assert outcomes(disk, "/log/x/a") == {None}


def test_replace_is_atomic_and_durable_at_every_operation() -> None:
    def prepare() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.plant("/log/a", b"old")
        return disk

    done = prepare()
    done.replace("/log/a", b"a new version")
    assert outcomes(done, "/log/a") == {b"a new version"}
    seen = set()
    checked = each_crash(
        lambda disk: disk.replace("/log/a", b"a new version"),
        lambda after, at: seen.add(after.read("/log/a")),
        prepare=prepare,
        seeds=SEEDS,
    )
    assert seen == {b"old", b"a new version"}
    assert [kind for _, kind, _ in done.history] == ["create", "append", "sync", "rename", "sync_dir"]
    assert checked == 5 * (3 + 2 * len(SEEDS))


def test_an_unsynced_truncation_may_be_undone(disk: SimulatedDisk) -> None:
    disk.plant("/log/a", b"0123456789")
    file = disk.open("/log/a")
    file.truncate(4)
    file.append([b"abc"])
    found = outcomes(disk, "/log/a")
    assert {b"0123456789", b"0123", b"0123a", b"0123ab", b"0123abc"} <= found
    file.sync()
    assert outcomes(disk, "/log/a") == {b"0123abc"}


def test_sectors_of_unsynced_writes_survive_in_any_mixture(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a", create=True)
    disk.sync_dir("/log")
    file.append([b"x" * 4 * SECTOR])
    found = {disk.after_crash(Outcome.RANDOM, seed).read("/log/a") for seed in range(1000)}
    shapes = {
        tuple(not any(contents[at : at + SECTOR]) for at in range(0, len(contents), SECTOR))
        for contents in found
        if len(contents) == 4 * SECTOR
    }
    assert shapes == set(itertools.product([True, False], repeat=4))


def test_the_same_seed_gives_the_same_disk(disk: SimulatedDisk) -> None:
    for name in "abcd":
        disk.open(f"/log/{name}", create=True).append([os.urandom(5000)])
    for seed in range(20):
        first, second = (disk.after_crash(Outcome.RANDOM, seed).files() for _ in range(2))
        assert first == second
    assert len({str(disk.after_crash(Outcome.RANDOM, seed).files()) for seed in range(20)}) > 15


@pytest.mark.parametrize(
    "operation",
    [
        lambda disk: disk.open("/log/new", create=True),
        lambda disk: disk.open("/log/a").append([b"x"]),
        lambda disk: disk.open("/log/a").truncate(1),
        lambda disk: disk.open("/log/a").sync(),
        lambda disk: disk.rename("/log/a", "/log/b"),
        lambda disk: disk.remove("/log/a"),
        lambda disk: disk.remove_tree("/log/empty"),
        lambda disk: disk.make_dir("/log/x"),
        lambda disk: disk.sync_dir("/log"),
        lambda disk: disk.set_modified_ms("/log/a", 5),
    ],
)
def test_every_mutation_is_counted_and_can_be_cut(operation: Callable[[Files], object]) -> None:
    def prepare() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.plant("/log/a", b"data")
        disk.make_dir("/log/empty")
        return disk

    counted = prepare()
    before = counted.operations
    operation(counted)
    assert counted.operations == before + 1
    cut = prepare()
    cut.crash(at=before + 1)
    with pytest.raises(PowerCut):
        operation(cut)
    for attempt in (operation, lambda disk: disk.read("/log/a"), lambda disk: disk.exists("/log/a")):
        with pytest.raises(PowerCut):
            attempt(cut)
    assert cut.operations == before + 1
    assert cut.after_crash(Outcome.KEPT).exists("/log")


def test_a_cut_sync_has_made_nothing_durable(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a", create=True)
    disk.sync_dir("/log")
    file.append([b"data"])
    disk.crash(at=disk.operations + 1)
    with pytest.raises(PowerCut):
        file.sync()
    assert {b"", b"data"} <= outcomes(disk, "/log/a")


def test_no_error_handler_survives_a_power_cut(disk: SimulatedDisk) -> None:
    def handle_everything() -> None:
        with suppress(Exception):
            disk.list("/log")

    disk.cut_power()
    with pytest.raises(PowerCut):
        handle_everything()


def test_what_is_read_has_no_number(disk: SimulatedDisk) -> None:
    disk.plant("/log/a", b"data")
    before = disk.operations
    disk.open("/log/a", read_only=True).read(0, 1)
    disk.open("/log/a", create=True).close()
    disk.read("/log/a")
    disk.list("/log")
    disk.space("/log")
    assert (disk.exists("/log/a"), disk.size("/log/a"), disk.operations) == (True, 4, before)


def test_a_killed_process_loses_its_files_and_locks_but_not_the_cache(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a", create=True)
    file.append([b"data"])
    disk.lock("/log/.lock")
    disk.kill()
    for late in (lambda: file.append([b"x"]), lambda: file.read(0, 1), file.sync, lambda: file.truncate(0)):
        with pytest.raises(PowerCut, match="a process that is dead"):
            late()
    disk.lock("/log/.lock")
    assert disk.read("/log/a") == b"data"
    assert disk.after_crash(Outcome.LOST).list("/log") == []


def test_a_fault_hits_the_operation_it_was_ordered_for(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a.log", create=True)
    disk.fail(errno.EIO, "append", "*.log", from_operation=disk.operations + 2, times=2)
    file.append([b"1"])
    disk.open("/log/other", create=True).append([b"x"])
    for _ in range(2):
        with pytest.raises(OSError, match=r"Input/output error: '/log/a.log'"):
            file.append([b"2"])
    assert file.append([b"3"]) == 1
    assert disk.read("/log/a.log") == b"13"


def test_a_read_only_file_system_refuses_all_changes_and_no_reading(disk: SimulatedDisk) -> None:
    disk.plant("/log/a", b"data")
    disk.fail(errno.EROFS, path="/log*", times=None)
    for change in (
        lambda: disk.open("/log/b", create=True),
        lambda: disk.open("/log/a").append([b"x"]),
        lambda: disk.remove("/log/a"),
        lambda: disk.sync_dir("/log"),
        lambda: disk.replace("/log/a", b""),
    ):
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            change()
    assert disk.files() == {"/log/a": b"data"}
    disk.heal()
    disk.remove("/log/a")


def test_a_dead_disk_answers_nothing(disk: SimulatedDisk) -> None:
    disk.plant("/log/a", b"data")
    file = disk.open("/log/a")
    disk.fail(errno.EIO, "any", times=None)
    for attempt in (
        lambda: file.read(0, 1),
        lambda: file.append([b"x"]),
        lambda: disk.open("/log/a"),
        lambda: disk.exists("/log/a"),
        lambda: disk.list("/log"),
    ):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            attempt()


def test_a_write_may_fail_after_some_bytes_and_is_cut_off(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a", create=True)
    disk.fail(errno.EIO, "append", after_bytes=6)
    file.append([b"0123"])
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.append([b"4567"])
    assert (file.size, disk.read("/log/a")) == (4, b"0123")
    assert file.append([b"abc"]) == 4


def test_what_a_failed_write_left_shows_when_the_file_is_opened_again(disk: SimulatedDisk) -> None:
    file = disk.open("/log/a", create=True)
    file.append([b"0123"])
    disk.fail(errno.EIO, "append", after_bytes=2, leaves_part=True)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.append([b"4567"])
    assert file.size == 4
    assert disk.open("/log/a").size == 6


def test_a_full_disk_refuses_until_there_is_room() -> None:
    disk = SimulatedDisk(capacity=10)
    for name in "ab":
        disk.open(f"/{name}", create=True).append([b"0123"])
    file = disk.open("/c", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.append([b"456"])
    assert (disk.read("/c"), disk.space("/")) == (b"", (10, 2))
    disk.remove("/a")
    file.append([b"456"])
    assert disk.space("/") == (10, 3)


def test_what_a_failed_sync_dropped_is_never_made_durable(disk: SimulatedDisk) -> None:
    """Readable until the power goes; then zeros, although a later sync said that all was well."""
    file = disk.open("/log/a", create=True)
    disk.sync_dir("/log")
    file.append([b"0123"])
    file.sync()
    file.append([b"4567"])
    disk.fail(errno.EIO, "sync")
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            file.sync()
    again = disk.open("/log/a")
    again.append([b"89"])
    again.sync()
    assert disk.read("/log/a") == b"0123456789"
    assert disk.durable_contents("/log/a") == b"0123\0\0\0\x0089"


def test_a_flipped_bit_is_there_before_and_after_a_crash(disk: SimulatedDisk) -> None:
    disk.plant("/log/a", b"data")
    disk.corrupt("/log/a", 1, 0x20)
    assert disk.read("/log/a") == b"dAta"
    assert outcomes(disk, "/log/a") == {b"dAta"}


def test_a_crash_script_that_is_not_repeatable_is_refused() -> None:
    runs = itertools.count()

    def script(disk: SimulatedDisk) -> None:
        for number in range(3 - next(runs)):
            disk.make_dir(f"/{number}")

    with pytest.raises(RuntimeError, match="not repeatable"):
        each_crash(script, lambda after, at: None)
