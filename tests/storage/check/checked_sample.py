"""The sample directory to be checked, what the check finds in it, and the places where a test damages it."""

from __future__ import annotations

from storage.check import check_directory
from storage.files import Files
from storage.findings import Finding, Severity
from tests.storage.sample_directory import written_sample
from tests.storage.simulated_disk import SimulatedDisk
from wire.records import BatchHeader, batch_headers

LOG = "/data/codecs-1/00000000000000000000.log"
EPOCHS = "/data/truncated-0/leader-epoch-checkpoint"
ERROR, WARNING, NOTE = Severity


def sample_files() -> dict[str, bytes]:
    return {path: data for path, data in written_sample()[0].items() if not path.endswith(".deleted")}


def findings(disk: Files, path: str = "/data") -> list[Finding]:
    return check_directory(disk, path).findings


def only_finding(disk: SimulatedDisk, path: str = "/data") -> Finding:
    (finding,) = findings(disk, path)
    return finding


def segments(disk: SimulatedDisk, partition: str) -> list[str]:
    names = disk.list(f"/data/{partition}")
    return [f"/data/{partition}/{name}" for name in names if name.endswith(".log")]


def checkpoint(disk: SimulatedDisk, name: str, line: str) -> None:
    """Replace the entry of a partition, or add one."""
    path = f"/data/{name}"
    entries = disk.read(path).decode().splitlines()[2:] if disk.exists(path) else []
    partition = line.rsplit(" ", 1)[0] + " "
    entries = [entry for entry in entries if not entry.startswith(partition)] + [line]
    disk.plant(path, "\n".join(["0", str(len(entries)), *entries, ""]).encode())


def batches_of(disk: SimulatedDisk, path: str) -> list[tuple[int, BatchHeader]]:
    return list(batch_headers(disk.read(path)))
