"""The check of data directories: silent about sound ones, exact about checkpoints and metadata, bounded."""

from __future__ import annotations

import errno
import tracemalloc

import pytest

from storage.appending import Appended
from storage.check import check_directory
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
)
from storage.findings import MOST_OF_A_KIND, Finding, Kind, Report, Severity
from storage.producer_state import Origin
from tests.storage.check.checked_sample import (
    EPOCHS,
    ERROR,
    LOG,
    NOTE,
    WARNING,
    checkpoint,
    findings,
    only_finding,
    sample_files,
    segments,
)
from tests.storage.sample_directory import (
    Producer,
    Sample,
    Writer,
    open_manager,
    write_simply,
    write_transactions,
)
from tests.storage.simulated_disk import SimulatedDisk
from wire.records import Record, assign, build_batch

# -- what is sound


def test_a_sound_directory_has_no_findings(disk: SimulatedDisk) -> None:
    report = check_directory(disk, "/data")
    assert report.findings == []
    assert report.is_sound
    assert len(report.partitions) == 12


def test_a_crashed_directory_whose_files_are_whole_has_no_findings(crashed: SimulatedDisk) -> None:
    assert findings(crashed) == []


def test_the_report_knows_where_logs_begin_and_end(disk: SimulatedDisk) -> None:
    facts = {one.path: one for one in check_directory(disk, "/data").partitions}
    trimmed = facts["/data/trimmed-0"]
    assert (trimmed.log_start_offset, trimmed.high_watermark, trimmed.log_end_offset) == (47, 120, 120)
    assert trimmed.size == sum(disk.size(path) for path in segments(disk, "trimmed-0"))
    assert facts["/data/transactions-0"].records == 12 * (6 + 3 + 2)


def test_checking_changes_nothing(disk: SimulatedDisk) -> None:
    operations = disk.operations
    check_directory(disk, "/data")
    assert disk.operations == operations


class CheckedWriter(Writer):
    """Checks the directory after every append."""

    def append(self, batch: bytes, origin: Origin = Origin.CLIENT) -> Appended:
        outcome = super().append(batch, origin)
        assert findings(self.log.files, "/data") == []
        return outcome


def test_a_directory_in_use_is_sound_after_every_step() -> None:
    """What a broker writes late (indexes, epochs, checkpoints) is not missed above the recovery point."""
    writer = CheckedWriter(open_manager(SimulatedDisk(), "/data"), Sample("/data"), "live")
    write_transactions(writer)
    writer.leader_epoch = 3
    write_simply(writer, Producer(5), 5)
    assert len(writer.log.segments) > 3


def test_a_partition_in_use_is_sound_on_its_own() -> None:
    """Nobody has told how far it is durable."""
    used, disk = SimulatedDisk(), SimulatedDisk()
    writer = Writer(open_manager(used, "/data"), Sample("/data"), "live")
    write_transactions(writer)
    writer.leader_epoch = 3
    write_simply(writer, Producer(5), 5)
    for path, data in used.files("/data/live-0").items():
        disk.plant(path.replace("/data/", "/copy/"), data)
    assert findings(disk, "/copy/live-0") == []


def test_an_open_transaction_holds_back_the_last_stable_offset() -> None:
    disk = SimulatedDisk()
    manager = open_manager(disk, "/data")
    writer = Writer(manager, Sample("/data"), "open")
    writer.append(Producer(1).batch(5))
    writer.append(Producer(2).batch(3, transactional=True))
    manager.close()
    (facts,) = check_directory(disk, "/data").partitions
    assert (facts.last_stable_offset, facts.log_end_offset) == (5, 8)


# -- checkpoints


@pytest.mark.parametrize(
    ("name", "offset", "after_a_crash"),
    [
        (RECOVERY_POINTS, 121, WARNING),
        (HIGH_WATERMARKS, 121, NOTE),
        (LOG_START_OFFSETS, 121, WARNING),
        (CLEANER_OFFSETS, 121, None),
        (RECOVERY_POINTS, 119, None),
    ],
)
def test_checkpoints_are_held_against_the_log(
    disk: SimulatedDisk, name: str, offset: int, after_a_crash: Severity | None
) -> None:
    checkpoint(disk, name, f"codecs 2 {offset}")
    errors = [one for one in findings(disk) if one.severity is ERROR]
    assert {(one.kind, one.path) for one in errors} >= {(Kind.CHECKPOINT, f"/data/{name}")}
    assert all(f"{offset}" in one.what for one in errors)
    disk.remove(f"/data/{CLEAN_SHUTDOWN}")
    assert [one.severity for one in findings(disk)] == ([after_a_crash] if after_a_crash else [])


def test_the_log_start_is_not_above_the_high_watermark(disk: SimulatedDisk) -> None:
    checkpoint(disk, HIGH_WATERMARKS, "trimmed 0 46")
    assert "below the log start 47" in only_finding(disk).what


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS])
def test_a_checkpoint_that_cannot_be_read_is_named_with_its_line(disk: SimulatedDisk, name: str) -> None:
    disk.plant(f"/data/{name}", b"0\n1\ncodecs one 17\n")
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (ERROR, Kind.CHECKPOINT, f"/data/{name}")
    assert "line 3" in finding.what


def test_an_entry_for_a_partition_that_is_not_there_is_a_note(disk: SimulatedDisk) -> None:
    checkpoint(disk, RECOVERY_POINTS, "gone 3 17")
    assert (only_finding(disk).severity, "gone-3" in only_finding(disk).what) == (NOTE, True)


# -- metadata


def test_a_topic_id_that_cannot_be_read_is_an_error(disk: SimulatedDisk) -> None:
    disk.plant("/data/codecs-3/partition.metadata", b"version: 0\ntopic_id: !\n")
    assert (only_finding(disk).severity, only_finding(disk).kind) == (ERROR, Kind.METADATA)


@pytest.mark.parametrize("torn", [b"", b"version: 0\n", b"version: 0\ntopic_id: YWFh", bytes(40)])
def test_a_topic_id_that_a_crash_has_torn_is_learned_again(crashed: SimulatedDisk, torn: bytes) -> None:
    """A broker that was killed before the first flush, and a power cut."""
    crashed.plant("/data/codecs-3/partition.metadata", torn)
    assert (only_finding(crashed).severity, only_finding(crashed).kind) == (WARNING, Kind.METADATA)


def test_what_is_wrong_in_a_deleted_log_is_of_no_interest(crashed: SimulatedDisk) -> None:
    """Its files go one by one, and were not synced before."""
    deleted = "/data/gone-0.0123456789abcdef0123456789abcdef-delete"
    for path, data in crashed.files("/data/stamped-0").items():
        if not path.endswith(".log"):
            crashed.plant(path.replace("/data/stamped-0", deleted), data[:-5])
    crashed.plant(f"{deleted}/partition.metadata", b"")
    finding = only_finding(crashed)
    assert (finding.severity, finding.kind, finding.path) == (NOTE, Kind.LEFTOVER, deleted)


def test_partitions_of_one_topic_have_one_topic_id(disk: SimulatedDisk) -> None:
    disk.plant("/data/codecs-3/partition.metadata", disk.read("/data/stamped-0/partition.metadata"))
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (ERROR, Kind.METADATA, "/data/codecs-3")


def test_a_missing_topic_id_is_a_note(disk: SimulatedDisk) -> None:
    disk.remove("/data/codecs-3/partition.metadata")
    assert only_finding(disk).severity is NOTE


def test_meta_properties_that_cannot_be_read_are_an_error(disk: SimulatedDisk) -> None:
    disk.plant(f"/data/{META_PROPERTIES}", b"version=1\n")
    assert (only_finding(disk).severity, only_finding(disk).kind) == (ERROR, Kind.METADATA)


@pytest.mark.parametrize("contents", [None, b""])
def test_a_missing_metadata_file_of_a_broker_alone_is_an_error(
    disk: SimulatedDisk, contents: bytes | None
) -> None:
    """No broker starts on these logs; those of a cluster's broker, or of Kafka's, need no such file."""
    properties = disk.read(f"/data/{META_PROPERTIES}")
    if contents is not None:
        disk.plant("/data/metadata.db", contents)
    assert findings(disk) == []
    disk.plant(f"/data/{META_PROPERTIES}", properties + b"kbroker.metadata.file=metadata.db\n")
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (ERROR, Kind.METADATA, "/data/metadata.db")
    assert "kbroker check --rebuild-metadata" in finding.advice
    disk.plant("/data/metadata.db", b"something")
    assert findings(disk) == []


# -- where to begin, and limits


def test_a_partition_is_judged_by_the_checkpoints_of_its_directory(disk: SimulatedDisk) -> None:
    checkpoint(disk, HIGH_WATERMARKS, "trimmed 0 46")
    assert [one.kind for one in findings(disk, "/data/trimmed-0")] == [Kind.CHECKPOINT]
    assert findings(disk, "/data/codecs-0/") == []


def test_a_directory_of_data_directories_is_checked_as_a_whole(disk: SimulatedDisk) -> None:
    both = SimulatedDisk()
    for path, data in sample_files().items():
        both.plant(f"/disks/1{path}", data)
        both.plant(f"/disks/2{path}", data)
    both.corrupt("/disks/2" + LOG, 80)
    report = check_directory(both, "/disks/2")
    assert len(report.partitions) == 12
    assert [one.path for one in report.findings] == ["/disks/2" + LOG]


def test_a_file_that_cannot_be_read_does_not_hide_the_others(disk: SimulatedDisk) -> None:
    disk.fail(errno.EIO, "read", LOG, times=None)
    other = LOG.replace("codecs-1", "codecs-3")
    disk.corrupt(other, 80)
    found = {one.path: one for one in findings(disk) if one.severity is ERROR}
    assert set(found) >= {LOG, other}
    assert found[LOG].kind is Kind.UNREADABLE


def test_a_missing_directory_is_an_error_of_the_caller() -> None:
    with pytest.raises(FileNotFoundError):
        check_directory(SimulatedDisk(), "/nothing")


def test_findings_are_bounded_and_counted(disk: SimulatedDisk) -> None:
    disk.plant(EPOCHS, b"0\n1\n9 0\n")
    report = check_directory(disk, "/data")
    assert len(report.findings) < report.counts()[ERROR] == 44
    assert max(map(len, by_file(report).values())) == MOST_OF_A_KIND
    assert any("more of this kind" in line for line in report.lines())


def by_file(report: Report) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.path, []).append(finding)
    return found


def test_memory_does_not_grow_with_a_segment() -> None:
    disk = SimulatedDisk()
    batch = bytearray(build_batch(Record(number, 0, None, bytes(3000)) for number in range(30)))
    whole = bytearray()
    for offset in range(0, 30 * 400, 30):
        assign(batch, 0, offset, 0)
        whole += batch
    disk.plant("/data/large-0/00000000000000000000.log", whole)
    tracemalloc.start()
    report = check_directory(disk, "/data/large-0")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.partitions[0].size == len(whole) > 30 << 20
    assert peak < 2 << 20


def test_progress_is_told_in_bytes(disk: SimulatedDisk) -> None:
    told: list[tuple[str, int, int]] = []
    report = check_directory(disk, "/data", lambda *news: told.append(news))
    assert told[-1][1] == told[-1][2] == sum(one.size for one in report.partitions)
    assert {name for name, _, _ in told} == {one.path.rpartition("/")[2] for one in report.partitions}
