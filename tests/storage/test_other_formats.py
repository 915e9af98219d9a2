"""Logs with batches of message formats that kbroker does not read: they are refused, and stay as they are.

Kafka wrote formats 0 and 1 before 0.11, and later where a topic asked for it. Its brokers still read them.
"""

from __future__ import annotations

import struct
import zlib

import pytest

from storage.batch_scan import CorruptBatch, OtherFormat
from storage.errors import StorageError
from storage.findings import Severity
from storage.log import UnifiedLog
from storage.recovery import load_log
from tests.storage.check.checked_sample import findings
from tests.storage.partitions import SMALL, append, batch, contents, new_log, new_manager, reopened
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.errors import ErrorCode

LOG = "/log/topic-0/00000000000000000000.log"


def message(offset: int, magic: int, value: bytes = b"value") -> bytes:
    """Of format 0 or 1: offset, size, crc, magic, attributes, perhaps a timestamp, key, value."""
    body = struct.pack(">bb", magic, 0)
    body += struct.pack(">q", 1_500_000_000_000 + offset) if magic else b""
    body += struct.pack(">i3s", 3, b"key") + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def planted(disk: SimulatedDisk, data: bytes) -> UnifiedLog:
    """A log that has these bytes in front of a batch that can be read."""
    log = new_log(disk)
    append(log, batch("a"), batch("b"))
    log.close()
    whole = disk.read(LOG)
    disk.plant(LOG, data + whole[len(whole) // 2 :])
    return log


OTHERS = [message(0, 0), message(0, 1), message(0, 1, b"x" * 3_000_000)]


@pytest.mark.parametrize("data", OTHERS, ids=["0", "1", "large"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_begins_with_another_format_is_refused_and_stays_as_it_is(
    disk: SimulatedDisk, data: bytes, clean: bool
) -> None:
    log = planted(disk, data)
    before = disk.files()
    with pytest.raises(StorageError, match=f"message format {data[16]} begins here") as caught:
        load_log(disk, log.directory, "topic", 0, SMALL, was_clean=clean, now_ms=0)
    assert caught.value.path == LOG
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.files() == before


@pytest.mark.parametrize("data", OTHERS, ids=["0", "1", "large"])
def test_no_batch_is_cut_off_where_another_format_begins_later(disk: SimulatedDisk, data: bytes) -> None:
    log = new_log(disk)
    append(log, batch("a"))
    log.close()
    whole = disk.read(LOG) + data
    disk.plant(LOG, whole)
    with pytest.raises(StorageError, match="message format"):
        reopened(log, clean=False, recovery_point=0)
    assert disk.read(LOG) == whole


@pytest.mark.parametrize(
    "rest",
    [b"\0" * 500, message(1, 1)[:-1], message(1, 0)[:-1] + b"!"],
    ids=["zeros", "cut", "another value"],
)
def test_what_is_damaged_is_no_other_format(disk: SimulatedDisk, rest: bytes) -> None:
    """Its checksum is not right: it is cut off, as after any crash."""
    log = new_log(disk)
    append(log, batch("a"))
    log.close()
    whole = disk.read(LOG)
    disk.plant(LOG, whole + rest)
    assert len(contents(reopened(log, clean=False, recovery_point=0))) == 1
    assert disk.read(LOG) == whole


def test_after_a_clean_shutdown_readers_are_told_and_others_served(disk: SimulatedDisk) -> None:
    """Nothing is read at such a start, and nothing has to be."""
    old = message(0, 1)
    log = planted(disk, old)
    before = disk.files()
    log = reopened(log, clean=True, recovery_point=2)
    log.high_watermark = 2
    with pytest.raises(CorruptBatch) as caught:
        log.read(0, 1000)
    assert isinstance(caught.value, OtherFormat)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.offline is None
    log.release()
    assert disk.read(LOG) == before[LOG]


def test_other_logs_of_the_directory_are_used(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    manager = new_manager(disk)
    manager.start(0)
    for index in (0, 1):
        append(manager.create(("topic", index), 0), batch("a"))
    for log in manager:
        log.flush()
    disk = disk.after_crash(Outcome.KEPT)
    disk.plant(LOG, message(0, 1))
    manager = new_manager(disk)
    manager.start(0)
    assert [log.partition for log in manager] == [1]
    with pytest.raises(StorageError, match="format 1"):
        manager.get(("topic", 0))
    assert "Log topic-0 of /log cannot be used" in caplog.text


def test_checking_names_the_format_and_does_not_say_that_it_will_be_cut(disk: SimulatedDisk) -> None:
    log = planted(disk, message(0, 1))
    first = findings(disk, log.directory)[0]
    assert (first.path, first.position, first.severity) == (LOG, 0, Severity.ERROR)
    assert "leaves it as it is" in first.advice
    assert first.what == "a batch of message format 1 begins here, which kbroker does not read."
