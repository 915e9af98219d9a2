"""Producer snapshots: `<offset, 20 digits>.snapshot` holds what every producer wrote last before that offset.

    int16 version 1 | uint32 CRC-32C of all that follows | int32 count | entries of 46 bytes:
    int64 producer id, int16 producer epoch, int32 last sequence, int64 last offset, int32 offset delta,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1

Of the five batches a producer is remembered by, Kafka's format keeps the last: a resend of an older one is
known again only if it lies behind the snapshot and is replayed. Last offset -1 stands for a producer
without any.

Crash policy: written in place, trusted only as far as the CRC. One that is torn or missing is replaced by
an older one and a longer replay.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from typing import NamedTuple

from storage.errors import CorruptSnapshot
from storage.files import Files

SUFFIX = ".snapshot"
VERSION = 1

_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NAME = re.compile(r"([0-9]{20})\.snapshot")


class SnapshotEntry(NamedTuple):
    """One producer, field by field as in the file."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def snapshot_name(offset: int) -> str:
    return f"{offset:020d}{SUFFIX}"


def snapshot_offset(name: str) -> int | None:
    """The offset in a file name; None for any other file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_snapshot(entries: Collection[SnapshotEntry]) -> bytes:
    from crc32c import crc32c

    body = b"".join((_COUNT.pack(len(entries)), *(_ENTRY.pack(*entry) for entry in entries)))
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(path: str, data: bytes) -> list[SnapshotEntry]:
    """CorruptSnapshot where these are not the bytes that were written."""
    from crc32c import crc32c

    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshot(path, f"{len(data)} bytes are too few", position=len(data))
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(path, f"version {version} is unknown")
    body = memoryview(data)[_PREFIX.size :]
    if (computed := crc32c(body)) != crc:
        raise CorruptSnapshot(path, f"the CRC is {computed:#010x}, not {crc:#010x}", position=2)
    count = _COUNT.unpack_from(body)[0]
    entries = body[_COUNT.size :]
    if count * _ENTRY.size != len(entries):
        raise CorruptSnapshot(
            path, f"{count} entries do not make {len(entries)} bytes", position=_PREFIX.size
        )
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(entries)]


class Snapshots:
    """The snapshot files of one log."""

    __slots__ = ("_files", "directory", "offsets")

    def __init__(self, files: Files, directory: str) -> None:
        """Lists the files and reads none."""
        self._files = files
        self.directory = directory
        self.offsets: list[int] = []
        """Ascending."""
        self.scan()

    def scan(self) -> None:
        """Look again."""
        names = self._files.list(self.directory) if self._files.exists(self.directory) else []
        self.offsets = [offset for name in names if (offset := snapshot_offset(name)) is not None]

    def path(self, offset: int) -> str:
        return f"{self.directory}/{snapshot_name(offset)}"

    def read(self, offset: int) -> tuple[SnapshotEntry, ...]:
        path = self.path(offset)
        return tuple(decode_snapshot(path, self._files.read(path)))

    def write(self, offset: int, entries: Collection[SnapshotEntry]) -> str:
        """Not durable before `sync`."""
        path = self.path(offset)
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            file.append([encode_snapshot(entries)])
        finally:
            file.close()
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])
        return path

    def sync(self, offset: int) -> None:
        """Its bytes; the name is durable once the directory is."""
        if offset in self.offsets:
            file = self._files.open(self.path(offset), read_only=True)
            try:
                file.sync()
            finally:
                file.close()

    def remove(self, *offsets: int) -> None:
        for offset in offsets:
            self.offsets.remove(offset)
            if self._files.exists(self.path(offset)):
                self._files.remove(self.path(offset))

    def remove_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Keep those at a segment's base offset, and the last of the others where it is above all segments: a
        clean shutdown took it."""
        strays = [offset for offset in self.offsets if offset not in segment_base_offsets]
        if strays and strays[-1] > max(segment_base_offsets, default=-1):
            strays.pop()
        self.remove(*strays)
