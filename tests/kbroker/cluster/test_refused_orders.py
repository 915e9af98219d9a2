"""Replicas that a broker had no descriptor for: they are led, or followed, when there is one."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from storage.files import Disk, File
from tests.kbroker.cluster.in_process import Cluster, run, until

pytestmark = pytest.mark.slow


class Exhausted(Disk):
    """No file of one topic can be opened."""

    def __init__(self, disk: Disk) -> None:
        for name in Disk.__slots__:
            setattr(self, name, getattr(disk, name))
        self.is_exhausted = True
        self.refused = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if self.is_exhausted and "/t-" in path:
            self.refused += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize("refusing", [1, 2], ids=["leader", "follower"])
def test_a_replica_without_a_descriptor_is_there_when_there_is_one(tmp_path: Path, refusing: int) -> None:
    async def test(cluster: Cluster) -> None:
        logs = cluster.brokers[refusing].logs
        assert isinstance(logs.files, Disk)
        disk = logs.files = Exhausted(logs.files)
        await cluster.create("t", 1, 2)
        assert disk.refused
        assert cluster.leader() == 3 - refusing
        disk.is_exhausted = False
        await until(lambda: cluster.isr() == {1, 2})
        assert (await cluster.produce(3 - refusing, b"v")).error_code == 0
        await cluster.agreed()

    run(test, tmp_path, brokers=2)


def test_the_only_replica_is_led_without_another_order(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        logs = cluster.brokers[1].logs
        assert isinstance(logs.files, Disk)
        disk = logs.files = Exhausted(logs.files)
        creating = asyncio.create_task(cluster.create("t", 1))
        await until(lambda: disk.refused > 0 and cluster.leader() < 0)
        disk.is_exhausted = False
        await creating
        assert (await cluster.produce(1, b"v")).error_code == 0

    run(test, tmp_path, brokers=1)
