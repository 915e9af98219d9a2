"""Checkpoints and the other small files: Kafka's formats, strict reading, atomic writing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.checkpoints import (
    EpochEntry,
    MetaProperties,
    parse_properties,
    read_leader_epochs,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
    remove_clean_shutdown,
    was_clean_shutdown,
    write_clean_shutdown,
    write_leader_epochs,
    write_meta_properties,
    write_offsets,
    write_partition_metadata,
)
from storage.errors import CorruptCheckpoint
from storage.files import Files
from tests.storage.crashes import each_crash
from tests.storage.simulated_disk import SimulatedDisk

PATH = "/log/checkpoint"
TOPIC_ID = bytes(range(0x6A, 0x7A))
TOPIC_ID_TEXT = "amtsbW5vcHFyc3R1dnd4eQ"

TOPICS = st.text("abcXYZ0189._-", min_size=1, max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_the_bytes_of_an_offset_checkpoint(disk: SimulatedDisk) -> None:
    write_offsets(disk, PATH, {("orders", 0): 15, ("__consumer_offsets", 49): 0, ("a.b_c-d", 7): 2**62})
    expected = b"0\n3\norders 0 15\n__consumer_offsets 49 0\na.b_c-d 7 4611686018427387904\n"
    assert disk.read(PATH) == expected
    write_offsets(disk, PATH, {})
    assert disk.read(PATH) == b"0\n0\n"


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), INT64))
def test_offsets_come_back(offsets: dict[tuple[str, int], int]) -> None:
    disk = SimulatedDisk()
    write_offsets(disk, "/checkpoint", offsets)
    assert read_offsets(disk, "/checkpoint") == offsets


def test_the_bytes_of_a_leader_epoch_checkpoint(disk: SimulatedDisk) -> None:
    entries = [EpochEntry(0, 0), EpochEntry(7, 1000)]
    write_leader_epochs(disk, PATH, entries)
    assert disk.read(PATH) == b"0\n2\n0 0\n7 1000\n"
    assert read_leader_epochs(disk, PATH) == entries


@pytest.mark.parametrize("contents", [None, b"", b"0\n"])
@pytest.mark.parametrize("read", [read_offsets, read_leader_epochs])
def test_a_missing_or_empty_checkpoint_has_no_entries(
    disk: SimulatedDisk, read: Callable[[Files, str], Any], contents: bytes | None
) -> None:
    """Kafka creates them empty."""
    if contents is not None:
        disk.plant(PATH, contents)
    assert not read(disk, PATH)


def test_what_kafka_reads_is_read(disk: SimulatedDisk) -> None:
    disk.plant(PATH, b"0\r\n2\r\na  0\t5\nb 1 +6")
    assert read_offsets(disk, PATH) == {("a", 0): 5, ("b", 1): 6}


@pytest.mark.parametrize(
    ("contents", "line", "why"),
    [
        (b"1\n0\n", 1, "version 1 is unknown"),
        (b"x\n0\n", 1, "'x' is not a number"),
        (b"0\nx\n", 2, "'x' is not a number"),
        (b"0\n2\na 0 5\n", 2, "2 entries announced, 1 there"),
        (b"0\n0\na 0 5\n", 2, "0 entries announced, 1 there"),
        (b"0\n1\na 0\n", 3, "2 fields where there should be 3"),
        (b"0\n1\na 0 5 6\n", 3, "4 fields where there should be 3"),
        (b"0\n2\na 0 5\n\n", 4, "0 fields where there should be 3"),
        (b"0\n1\na zero 5\n", 3, "'zero' is not a number"),
        (b"0\n1\na 0 1_000\n", 3, "'1_000' is not a number"),
        ("0\n1\na 0 ٣\n".encode(), 3, "'٣' is not a number"),
        (bytes(40), 1, "'.+' is not a number"),
    ],
)
def test_a_corrupt_checkpoint_names_file_and_line(
    disk: SimulatedDisk, contents: bytes, line: int, why: str
) -> None:
    disk.plant(PATH, contents)
    with pytest.raises(CorruptCheckpoint, match=f"{PATH}: line {line}: {why}") as caught:
        read_offsets(disk, PATH)
    assert caught.value.line == line


def test_a_checkpoint_that_is_no_text_is_corrupt(disk: SimulatedDisk) -> None:
    disk.plant(PATH, b"0\n1\na\xff 0 5\n")
    with pytest.raises(CorruptCheckpoint, match=f"{PATH}: byte 5: this is not text"):
        read_offsets(disk, PATH)


def test_a_checkpoint_is_the_old_or_the_new_one_after_every_crash() -> None:
    old = {("a", 0): 1}
    new = {("a", partition): partition for partition in range(200)}

    def prepare() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.plant("/checkpoint", b"0\n1\na 0 1\n")
        return disk

    def script(disk: SimulatedDisk) -> None:
        write_offsets(disk, "/checkpoint", new)

    def check(after: SimulatedDisk, at: int) -> None:
        assert read_offsets(after, "/checkpoint") in (old, new)
        write_offsets(after, "/checkpoint", old)  # also over what a crash left of the temporary file
        assert read_offsets(after, "/checkpoint") == old

    assert each_crash(script, check, prepare=prepare, seeds=range(20)) > 200


def test_an_unreadable_checkpoint_is_an_error_not_an_empty_one(disk: SimulatedDisk) -> None:
    disk.plant(PATH, b"0\n1\na 0 1\n")
    disk.fail(errno.EIO, "read")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        read_offsets(disk, PATH)


# -- partition.metadata


def test_the_bytes_of_partition_metadata(disk: SimulatedDisk) -> None:
    assert read_partition_metadata(disk, "/log") is None
    write_partition_metadata(disk, "/log", TOPIC_ID)
    assert disk.read("/log/partition.metadata") == f"version: 0\ntopic_id: {TOPIC_ID_TEXT}".encode()
    assert read_partition_metadata(disk, "/log") == TOPIC_ID


def test_newer_partition_metadata_can_be_read(disk: SimulatedDisk) -> None:
    disk.plant("/log/partition.metadata", f"version: 1\ntopic_id: {TOPIC_ID_TEXT}\nmore: things\n".encode())
    assert read_partition_metadata(disk, "/log") == TOPIC_ID


@pytest.mark.parametrize(
    ("contents", "where"),
    [
        ("", "line 1"),
        ("version: -1\ntopic_id: " + TOPIC_ID_TEXT, "line 1"),
        ("version: x\ntopic_id: " + TOPIC_ID_TEXT, "line 1"),
        ("version 0 0\ntopic_id: " + TOPIC_ID_TEXT, "line 1"),
        ("version: 0\n", "line 2"),
        ("version: 0\ntopic_id:", "line 2"),
        ("version: 0\ntopic_id: tooshort", "line 2"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2"),
        ("version: 0\ntopic_id: ÄÄÄÄ", "line 2"),
    ],
)
def test_corrupt_partition_metadata_is_named(disk: SimulatedDisk, contents: str, where: str) -> None:
    disk.plant("/log/partition.metadata", contents.encode())
    with pytest.raises(CorruptCheckpoint, match=f"/log/partition.metadata: {where}: "):
        read_partition_metadata(disk, "/log")


# -- meta.properties


def test_meta_properties_of_both_versions(disk: SimulatedDisk) -> None:
    assert read_meta_properties(disk, "/log") is None
    for properties, contents in (
        (MetaProperties(0), b"#\nversion=0\n"),
        (MetaProperties(0, "cl-1", 5), b"#\ncluster.id=cl-1\nbroker.id=5\nversion=0\n"),
        (
            MetaProperties(0, "cl-1", 5, None, "metadata.db"),
            b"#\ncluster.id=cl-1\nbroker.id=5\nkbroker.metadata.file=metadata.db\nversion=0\n",
        ),
        (
            MetaProperties(1, "cl-1", 5, TOPIC_ID),
            f"#\ncluster.id=cl-1\ndirectory.id={TOPIC_ID_TEXT}\nnode.id=5\nversion=1\n".encode(),
        ),
    ):
        write_meta_properties(disk, "/log", properties)
        assert disk.read("/log/meta.properties") == contents
        assert read_meta_properties(disk, "/log") == properties


def test_meta_properties_as_kafka_writes_them(disk: SimulatedDisk) -> None:
    contents = b"#\n#Tue Nov 18 11:31:00 UTC 2025\ncluster.id=4L6g3nShT-eMCtK--X86sw\nversion=1\nnode.id=1\n"
    disk.plant("/log/meta.properties", contents)
    assert read_meta_properties(disk, "/log") == MetaProperties(1, "4L6g3nShT-eMCtK--X86sw", 1)
    disk.plant("/log/meta.properties", b"broker.id=3\n")
    assert read_meta_properties(disk, "/log") == MetaProperties(0, None, 3)


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        (b"version=2\n", "version 2 is unknown"),
        (b"version=one\n", "'one' is not a number"),
        (b"version=1\nnode.id=1\n", "node.id or cluster.id is missing"),
        (b"version=1\ncluster.id=x\n", "node.id or cluster.id is missing"),
        (b"version=0\nbroker.id=none\n", "'none' is not a number"),
        (b"version=0\ndirectory.id=xyz\n", ""),
    ],
)
def test_corrupt_meta_properties_are_named(disk: SimulatedDisk, contents: bytes, why: str) -> None:
    disk.plant("/log/meta.properties", contents)
    with pytest.raises(CorruptCheckpoint, match=f"/log/meta.properties: byte 0: .*{why}"):
        read_meta_properties(disk, "/log")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a=1\nb = 2\nc:3\nd  4\n e=5\n\tf\t:\t6",
            {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6"},
        ),
        ("#a=1\n!b=2\n   # c=3\n\n   \nd=4", {"d": "4"}),
        ("a=one\\\n   two\\\n three", {"a": "onetwothree"}),
        ("a=one\\\\\nb=two", {"a": "one\\", "b": "two"}),
        ("a=\\u00e4\\t\\n\\\\\\x\nk\\:\\=\\ ey=v", {"a": "ä\t\n\\x", "k:= ey": "v"}),
        ("a\nb=\n=c", {"a": "", "b": "", "": "c"}),
        ("a=1=2:3", {"a": "1=2:3"}),
        ("a=1\ra=2\r\n", {"a": "2"}),
        ("a=x  ", {"a": "x  "}),
    ],
)
def test_java_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text.encode("latin-1")) == expected


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_cluster_id_comes_back(cluster_id: str) -> None:
    disk = SimulatedDisk()
    write_meta_properties(disk, "", MetaProperties(1, cluster_id, 1))
    read = read_meta_properties(disk, "")
    assert read == MetaProperties(1, cluster_id, 1)


# -- the clean shutdown marker


def test_the_clean_shutdown_marker(disk: SimulatedDisk) -> None:
    assert not was_clean_shutdown(disk, "/log")
    write_clean_shutdown(disk, "/log", 42)
    assert disk.read("/log/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    assert was_clean_shutdown(disk, "/log")
    remove_clean_shutdown(disk, "/log")
    remove_clean_shutdown(disk, "/log")
    assert not was_clean_shutdown(disk, "/log")


@pytest.mark.parametrize("contents", [b"", b"{}", b"[]", b'{"brokerEpoch":null}', b"\xff"])
def test_a_marker_of_any_contents_is_one(disk: SimulatedDisk, contents: bytes) -> None:
    """Kafka before 3.8 leaves it empty."""
    disk.plant("/log/.kafka_cleanshutdown", contents)
    assert was_clean_shutdown(disk, "/log")


def test_a_removed_marker_does_not_come_back_after_a_crash(disk: SimulatedDisk) -> None:
    """It would hide the crash, and recovery would not happen (conformance 88)."""
    write_clean_shutdown(disk, "/log", 1)
    remove_clean_shutdown(disk, "/log")
    for seed in range(50):
        assert not was_clean_shutdown(disk.after_crash(seed=seed), "/log")
