"""Disks to check."""

from __future__ import annotations

import pytest

from storage.checkpoints import CLEAN_SHUTDOWN
from tests.storage.check.checked_sample import sample_files
from tests.storage.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    """A disk with the sample directory, cleanly shut down."""
    disk = SimulatedDisk()
    for path, data in sample_files().items():
        disk.plant(path, data)
    return disk


@pytest.fixture
def crashed(disk: SimulatedDisk) -> SimulatedDisk:
    """The same after a crash: everything was on disk, up to the recovery points."""
    disk.remove(f"/data/{CLEAN_SHUTDOWN}")
    return disk
