"""What a start looks at before it writes: whose the data directories are, whether they are there."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from controller.embedded import EmbeddedTree
from kbroker.broker import Broker
from kbroker.commands.start import UnusableMetadata, join, make_broker, run_alone
from kbroker.configuration.layers import Configuration
from kbroker.data_directories import NotMounted, WrongCluster
from kbroker.handlers import BETWEEN_BROKERS, HANDLERS
from kbroker.listeners import Listeners
from kbroker.membership import Membership
from kbroker.replica_manager import Durability
from storage.checkpoints import MetaProperties, read_meta_properties, write_meta_properties
from storage.files import Disk
from tests.kbroker.cluster.in_process import Cluster, run, until
from tests.storage.partitions import SMALL, TOPIC_ID, fill, new_manager

DISK = Disk(durable=False)
LISTENERS = ("127.0.0.1", 0)
Contents = dict[str, tuple[int, bytes]]


def configured(*directories: Path, **properties: object) -> Configuration:
    settings = {name.replace("_", "."): str(value) for name, value in properties.items()}
    settings |= {"log.dirs": ",".join(map(str, directories)), "kbroker.flush": "never"}
    return Configuration(settings)


def lived(*directories: Path, **properties: object) -> Broker:
    """A broker alone that was started, and stopped."""

    async def live() -> Broker:
        configuration = configured(*directories, **properties)
        broker = make_broker(configuration, Listeners.on(*LISTENERS))
        await broker.start(lambda broker: join(broker, configuration))
        broker.create_topics(["t"])
        await broker.stop()
        return broker

    return asyncio.run(live())


def joined(directory: Path, tree: EmbeddedTree) -> None:
    """A broker of a cluster that was started, and stopped."""

    async def live() -> None:
        broker = Broker(
            Listeners.on(*LISTENERS),
            {**HANDLERS, **BETWEEN_BROKERS},
            configuration=configured(directory, broker_id=1),
            data=[str(directory)],
            durability=Durability.NEVER,
        )

        def member(broker: Broker) -> Membership:
            return Membership(broker, tree.connect(asyncio.get_running_loop().call_soon), is_shared=True)

        await broker.start(member)
        await broker.stop()

    asyncio.run(live())


def a_directory(place: Path, cluster_id: str, broker_id: int = 1) -> Path:
    """Another broker's: two logs, closed cleanly, with damage that recovery would cut off."""
    manager = new_manager(DISK, [str(place)], SMALL)
    manager.start(0)
    for number in range(2):
        fill(manager.create(("t", number), 0, TOPIC_ID), 60)
    manager.close()
    with (place / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(bytes(100))
    write_meta_properties(DISK, str(place), MetaProperties(0, cluster_id, broker_id))
    return place


def contents(directory: Path) -> Contents:
    """All files but those that keep others out, when they were written, and what is in them."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock" and not path.name.startswith("metadata.db")
    }


class TestWhoseItIs:
    def test_a_directory_of_another_cluster_is_refused_unchanged(self, tmp_path: Path) -> None:
        foreign = a_directory(tmp_path / "foreign", "another")
        before = contents(foreign)
        with pytest.raises(WrongCluster, match="belongs to cluster another, not "):
            joined(foreign, EmbeddedTree.open(None, now_ms=lambda: 0))
        assert contents(foreign) == before

    def test_a_directory_of_another_broker_is_refused_unchanged(self, tmp_path: Path) -> None:
        tree = EmbeddedTree.open(None, now_ms=lambda: 0)
        joined(tmp_path / "mine", tree)
        properties = read_meta_properties(DISK, str(tmp_path / "mine"))
        assert properties is not None
        assert properties.cluster_id is not None
        theirs = a_directory(tmp_path / "theirs", properties.cluster_id, 2)
        before = contents(theirs)
        with pytest.raises(WrongCluster, match="belongs to broker 2, not 1"):
            joined(theirs, tree)
        assert contents(theirs) == before

    @pytest.mark.parametrize("first", [True, False])
    def test_a_second_directory_of_another_cluster_is_refused_unchanged(
        self, tmp_path: Path, first: bool
    ) -> None:
        mine = tmp_path / "mine"
        lived(mine)
        foreign = a_directory(tmp_path / "foreign", "another")
        before = contents(foreign), contents(mine)
        directories = (foreign, mine) if first else (mine, foreign)
        with pytest.raises(WrongCluster, match="belongs to cluster"):
            lived(*directories)
        assert (contents(foreign), contents(mine)) == before
        assert not (foreign / "metadata.db").exists()

    def test_metadata_of_another_cluster_is_refused_unchanged(self, tmp_path: Path) -> None:
        lived(tmp_path / "mine")
        foreign = a_directory(tmp_path / "foreign", "another")
        shutil.copy(tmp_path / "mine" / "metadata.db", foreign)
        before = contents(foreign)
        with pytest.raises(WrongCluster, match="belongs to cluster another, not "):
            lived(foreign)
        assert contents(foreign) == before
        lived(tmp_path / "mine")  # the locks are free again

    def test_a_broker_alone_makes_no_metadata_in_a_directory_of_a_cluster(self, tmp_path: Path) -> None:
        place = tmp_path / "empty"
        place.mkdir()
        write_meta_properties(DISK, str(place), MetaProperties(0, "another", 1))
        before = contents(place)
        with pytest.raises(UnusableMetadata, match="belongs to cluster another"):
            run_alone(configured(place), Listeners.on(*LISTENERS), lambda broker: None)
        assert contents(place) == before
        assert not (place / "metadata.db").exists()


def left_empty(path: Path) -> None:
    """As the directory below a mount point is."""
    shutil.rmtree(path)
    path.mkdir()


class TestWhetherItIsThere:
    @pytest.mark.parametrize("gone", [0, 1])
    @pytest.mark.parametrize("unmount", [shutil.rmtree, left_empty])
    def test_a_directory_that_is_not_mounted_is_refused(
        self, tmp_path: Path, gone: int, unmount: Callable[[Path], object]
    ) -> None:
        """As by Kafka: "No `meta.properties` found in ..."."""
        directories = [tmp_path / "one", tmp_path / "other"]
        lived(*directories)
        unmount(directories[gone])
        before = contents(tmp_path)
        with pytest.raises(NotMounted, match=rf"{directories[gone]}: it has no meta.properties.*mounted"):
            lived(*directories)
        with pytest.raises(NotMounted):
            run_alone(configured(*directories), Listeners.on(*LISTENERS), lambda broker: None)
        assert contents(tmp_path) == before
        assert not (directories[gone] / "metadata.db").exists()

    def test_it_is_taken_again_when_it_is_back(self, tmp_path: Path) -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        cluster_id = lived(one, other).cluster_id
        other.rename(tmp_path / "unmounted")
        with pytest.raises(NotMounted):
            lived(one, other)
        (tmp_path / "unmounted").rename(other)
        assert lived(one, other).cluster_id == cluster_id

    def test_an_empty_file_says_that_it_is_to_begin_empty(self, tmp_path: Path) -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        cluster_id = lived(one, other).cluster_id
        shutil.rmtree(other)
        other.mkdir()
        (other / "meta.properties").touch()
        lived(one, other)
        properties = read_meta_properties(DISK, str(other))
        assert properties is not None
        assert (properties.cluster_id, properties.node_id) == (cluster_id, 1)
        assert properties.log_dirs == (str(one), str(other))

    def test_a_new_directory_is_taken_and_known_from_then_on(self, tmp_path: Path) -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        lived(one)
        lived(one, other)
        shutil.rmtree(other)
        with pytest.raises(NotMounted):
            lived(one, other)

    def test_a_directory_that_is_not_named_any_more_is_forgotten(self, tmp_path: Path) -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        lived(one, other)
        lived(one)
        shutil.rmtree(other)
        lived(one, other)

    def test_a_crash_between_the_first_files_leaves_nothing_to_put_right(self, tmp_path: Path) -> None:
        """Others get to know a new directory when its own file is there."""
        directories = [tmp_path / name for name in ("one", "other", "third")]
        wrote: list[str] = []

        class Dying(Disk):
            def replace(self, path: str, data: bytes | bytearray | memoryview) -> None:
                if path.endswith("meta.properties"):
                    if len(wrote) == crash_at:
                        raise KeyboardInterrupt
                    wrote.append(path)
                super().replace(path, data)

        async def die() -> None:
            configuration = configured(*directories)
            broker = make_broker(configuration, Listeners.on(*LISTENERS))
            for directory in broker.logs.directories:
                directory.files = Dying(durable=False)
            await broker.start(lambda broker: join(broker, configuration))
            await broker.stop()

        for crash_at in range(7):  # noqa: B007 -- Dying reads it
            wrote.clear()
            for directory in directories:
                shutil.rmtree(directory, ignore_errors=True)
            try:
                asyncio.run(die())
            except KeyboardInterrupt:
                lived(*directories)
        assert len(wrote) == 6


class TestWhatOthersKnow:
    """A broker with one directory: nobody knows it but the cluster."""

    def test_the_only_copy_is_not_begun_anew(self, tmp_path: Path) -> None:
        async def test(cluster: Cluster) -> None:
            await cluster.create("t", 1, partitions=4)
            assert (await cluster.produce(1, b"v")).error_code == 0
            await cluster.crash(1)
            (tmp_path / "broker-1").rename(tmp_path / "unmounted")
            why = r"4 logs \(t-0, t-1, t-2, ...\) with no other in-sync replica"
            with pytest.raises(NotMounted, match=why):
                await cluster.start(1)
            assert list((tmp_path / "broker-1").iterdir()) == []
            (tmp_path / "broker-1").rmdir()
            (tmp_path / "unmounted").rename(tmp_path / "broker-1")
            await cluster.start(1)
            await until(lambda: cluster.values(1) == [b"v"])

        run(test, tmp_path, 1)

    def test_an_empty_file_gives_the_only_copy_up(self, tmp_path: Path) -> None:
        async def test(cluster: Cluster) -> None:
            await cluster.create("t", 1)
            assert (await cluster.produce(1, b"v")).error_code == 0
            await cluster.crash(1)
            shutil.rmtree(tmp_path / "broker-1")
            (tmp_path / "broker-1").mkdir()
            (tmp_path / "broker-1" / "meta.properties").touch()
            await cluster.start(1)
            await until(lambda: cluster.leader() == 1)
            assert cluster.values(1) == []

        run(test, tmp_path, 1)

    def test_a_replica_that_others_have_is_copied_again(self, tmp_path: Path) -> None:
        """As Kafka does with ZooKeeper, when a disk was replaced."""

        async def test(cluster: Cluster) -> None:
            await cluster.create("t", 1, 2)
            assert (await cluster.produce(1, b"v")).error_code == 0
            await cluster.crash(2)
            await until(lambda: cluster.isr() == {1})
            shutil.rmtree(tmp_path / "broker-2")
            await cluster.start(2)
            await until(lambda: cluster.isr() == {1, 2})
            assert cluster.values(2) == [b"v"]

        run(test, tmp_path, 2)

    def test_a_second_directory_that_no_record_names(self, tmp_path: Path) -> None:
        """As those of Kafka, or of an earlier kbroker."""
        one, other = tmp_path / "one", tmp_path / "other"
        lived(one, other, num_partitions=4)
        for place in (one, other):
            properties = read_meta_properties(DISK, str(place))
            assert properties is not None
            write_meta_properties(DISK, str(place), replace(properties, log_dirs=()))
        held = sorted(path.name for path in other.iterdir() if path.is_dir())
        assert held
        shutil.rmtree(other)
        with pytest.raises(NotMounted, match=f"{other}: it has no meta.properties, and 2 logs"):
            lived(one, other)


def test_topics_are_configured_when_their_logs_are_opened(tmp_path: Path) -> None:
    """Kafka reads /config/topics before it loads a log: a compacted one may have gaps."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, cleanup_policy="compact", segment_bytes=300)
        for number in range(20):
            assert (await cluster.produce(1, b"%d" % number)).error_code == 0
        await cluster.crash(1)
        directory = tmp_path / "broker-1"
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            (directory / name).unlink()
        segments = sorted((directory / "t-0").glob("*.log"))
        lost = int(segments[2].stem) - int(segments[1].stem)
        segments[1].unlink()
        await cluster.start(1)
        log = cluster.brokers[1].logs.get(("t", 0))
        assert log is not None
        assert (log.log_end_offset, log.hole, len(cluster.values(1))) == (20, None, 20 - lost)

    run(test, tmp_path, 1)
