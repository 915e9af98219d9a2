"""Disks to test on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.files import Disk, Files
from tests.storage.simulated_disk import SimulatedDisk


@pytest.fixture(params=["real", "simulated"])
def files_and_directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Files, str]]:
    """The real disk and the simulated one, with an empty directory on it: both must behave alike."""
    if request.param == "real":
        yield Disk(), str(tmp_path)
    else:
        disk = SimulatedDisk()
        disk.make_dir("/data")
        disk.sync_dir("/")
        yield disk, "/data"


@pytest.fixture
def disk() -> SimulatedDisk:
    """A simulated disk with the durable directories /data and /log."""
    disk = SimulatedDisk()
    disk.make_dir("/data")
    disk.make_dir("/log")
    disk.sync_dir("/")
    return disk
