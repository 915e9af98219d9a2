"""The check of names: which files belong in a data directory, and what half an exchange of segments means."""

from __future__ import annotations

import pytest

from storage.findings import Kind
from tests.storage.check.checked_sample import NOTE, WARNING, findings, only_finding, sample_files, segments
from tests.storage.simulated_disk import SimulatedDisk


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("codecs-0/00000000000000000077.log.deleted", Kind.LEFTOVER),
        ("codecs-0/00000000000000000077.snapshot.deleted", Kind.LEFTOVER),
        ("codecs-0/00000000000000000077.log.cleaned", Kind.LEFTOVER),
        ("codecs-0/00000000000000000077.index", Kind.LEFTOVER),
        ("codecs-0/leader-epoch-checkpoint.tmp", Kind.LEFTOVER),
        ("codecs-0/notes.txt", Kind.UNKNOWN_FILE),
        ("notes.txt", Kind.UNKNOWN_FILE),
        ("recovery-point-offset-checkpoint.tmp", Kind.LEFTOVER),
        ("lost+found/x", Kind.UNKNOWN_FILE),
        ("gone-0.0123456789abcdef0123456789abcdef-delete/partition.metadata", Kind.LEFTOVER),
    ],
)
def test_what_does_not_belong_there_is_a_note(disk: SimulatedDisk, path: str, kind: Kind) -> None:
    content = disk.read("/data/codecs-0/partition.metadata") if path.endswith("metadata") else b""
    disk.plant(f"/data/{path}", content)
    assert (only_finding(disk).severity, only_finding(disk).kind) == (NOTE, kind)


def test_the_metadata_store_of_a_kbroker_is_known(disk: SimulatedDisk) -> None:
    disk.plant("/data/metadata.db", b"")
    disk.plant("/data/metadata.db-wal", b"")
    assert findings(disk) == []


@pytest.mark.parametrize("name", ["__cluster_metadata-0", "codecs-0"])
def test_files_of_a_controller_are_known(disk: SimulatedDisk, name: str) -> None:
    disk.plant("/data/bootstrap.checkpoint", b"")
    disk.plant(f"/data/{name}/quorum-state", b"")
    disk.plant(f"/data/{name}/00000000000000000100-0000000001.checkpoint", b"")
    disk.plant(f"/data/{name}/partition.metadata", sample_files()["/data/codecs-0/partition.metadata"])
    assert [one for one in findings(disk) if one.kind is Kind.UNKNOWN_FILE] == []


# -- exchanges of segments


def exchange(disk: SimulatedDisk, suffix: str) -> list[str]:
    """Compaction is about to put a copy of the first two segments in their place."""
    first, second, *_ = segments(disk, "codecs-0")
    disk.plant(f"{first}{suffix}", disk.read(first) + disk.read(second))
    for extension in (".index", ".timeindex"):
        disk.plant(f"{first.replace('.log', extension)}{suffix}", b"")
    return [first, second]


def test_a_complete_exchange_of_segments_counts_as_finished(crashed: SimulatedDisk) -> None:
    first, second = exchange(crashed, ".swap")
    crashed.corrupt(first, 80)
    crashed.corrupt(second, 80)
    assert {one.severity for one in findings(crashed)} <= {NOTE, WARNING}
    assert [one.path for one in findings(crashed) if one.kind is Kind.BATCH] == []
    crashed.corrupt(f"{first}.swap", 80)
    assert [one.path for one in findings(crashed) if one.kind is Kind.BATCH] == [f"{first}.swap"]


def test_an_unfinished_exchange_of_segments_counts_as_not_begun(crashed: SimulatedDisk) -> None:
    first, _ = exchange(crashed, ".swap")
    crashed.plant(f"{first}.cleaned", b"")
    crashed.corrupt(f"{first}.swap", 80)
    assert {one.severity for one in findings(crashed)} == {NOTE}
