"""Makes the metadata of a broker alone again, from the logs in its data directories.

Directories say which topics and partitions there are; `partition.metadata` the topic's id; `meta.properties`
whose they are; batches how far leader epochs and producer ids have come, and `__transaction_state` which ids
belong to transactional producers. So a topic has one replica, here, in a leader epoch above all in its logs,
and no producer id is given out twice.

Nothing says how topics were configured. So that nothing is removed which somebody wanted to keep, topics get
`retention.ms=-1` and `retention.bytes=-1`, and those of the coordinators `cleanup.policy=compact`. What was
set for brokers and clients is gone.

Logs are only read. No broker may run on the directories meanwhile. A metadata file that is there and cannot
be used is set aside; one with topics in it is left alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from controller.embedded import EmbeddedTree
from controller.membership import prepare
from controller.metadata_store import Create, MetadataStore, NoNode, Operation, Set, StoreDamaged, StoreError
from controller.producer_ids import BLOCK_SIZE
from controller.state import EntityType, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.znodes import Config, PartitionState, ProducerIdBlock, Topic
from storage.batch_scan import CorruptBatch, batches
from storage.checkpoints import LOCK, read_meta_properties, read_partition_metadata
from storage.files import Files
from storage.log_directory import LOG_NAME
from wire.errors import WireError
from wire.internal import INTERNAL_TOPICS, TRANSACTION_STATE, decode_record
from wire.record_batch import BatchHeader
from wire.records import records
from wire.words import count

METADATA = "metadata.db"
SET_ASIDE = ".set-aside"
KRAFT_METADATA = "__cluster_metadata"
KEEP = {"retention.bytes": "-1", "retention.ms": "-1"}
COMPACT = {"cleanup.policy": "compact"}
BROKER_ID = 1
"""Where no directory has one."""


class CannotRebuild(Exception):
    """The directories contradict each other, or there is nothing to do."""


@dataclass
class FoundTopic:
    """What the directories say of a topic."""

    topic_id: bytes | None = None
    partitions: dict[int, int] = field(default_factory=dict)
    """The latest leader epoch in each."""


@dataclass
class Found:
    cluster_id: str | None = None
    broker_id: int = BROKER_ID
    topics: dict[str, FoundTopic] = field(default_factory=dict)
    last_producer_id: int = -1


def rebuild(files: Files, directories: Sequence[str], progress: Callable[[str], object]) -> Found:
    """Write the metadata file into the first of all data directories of a broker.

    CannotRebuild, StorageError or OSError, and then everything is as it was.
    """
    target = Path(directories[0]) / METADATA
    with ExitStack() as stack:
        for directory in directories:
            if not files.is_dir(directory):
                raise CannotRebuild(f"{directory} is not a directory")
            stack.callback(files.lock(f"{directory}/{LOCK}").release)
        for present in (Path(directory) / METADATA for directory in directories):
            if topics := topics_in(present):
                raise CannotRebuild(
                    f"{present} can be read, and has {count(topics, 'topic')}; it is left alone"
                )
        found = survey(files, directories, progress)
        if not found.topics:
            raise CannotRebuild(f"there are no logs in {', '.join(directories)}")
        written = target.with_name(f"{METADATA}.new")
        remove(written)
        asyncio.run(write(written, found))
        for path in with_companions(target):
            if path.exists():
                os.replace(path, f"{path}{SET_ASIDE}")
        os.replace(written, target)
        files.sync_dir(directories[0])
    return found


def topics_in(target: Path) -> int:
    """How many topics a metadata file knows; 0 where it is not there or makes no sense."""
    if not target.exists():
        return 0
    try:
        tree = EmbeddedTree.open(target, now_ms=lambda: 0)
    except (StoreDamaged, LookupError, ValueError, TypeError):
        return 0
    except StoreError as error:
        raise CannotRebuild(f"{error}; what is in it may be whole") from error
    try:
        store = tree.connect(lambda call: None)
        names = asyncio.run(children(store))
        return sum(1 for node in names if is_topic(node))
    finally:
        tree.close()


async def children(store: MetadataStore) -> list[bytes]:
    try:
        names = await store.children("/brokers/topics")
        return [(await store.get(Topic.path(name))).data for name in names]
    except NoNode:
        return []


def is_topic(data: bytes) -> bool:
    try:
        Topic.decode(data)
    except ValueError:
        return False
    return True


def with_companions(path: Path) -> list[Path]:
    """A database, and the files that belong to it."""
    return [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))]


def remove(path: Path) -> None:
    for one in with_companions(path):
        one.unlink(missing_ok=True)


# -- what is there


def survey(files: Files, directories: Iterable[str], progress: Callable[[str], object]) -> Found:
    found = Found()
    owners = set()
    for directory in directories:
        properties = read_meta_properties(files, directory)
        if properties is not None:
            owners.add((properties.cluster_id, properties.node_id))
        for name in sorted(files.list(directory)):
            match = LOG_NAME.fullmatch(name)
            if match and match[1] != KRAFT_METADATA and files.is_dir(f"{directory}/{name}"):
                progress(name)
                add_partition(files, f"{directory}/{name}", found, match[1], int(match[2]))
    if len(owners) > 1:
        raise CannotRebuild(f"the directories belong to different brokers or clusters: {sorted(owners)}")
    for cluster_id, broker_id in owners:
        found.cluster_id = cluster_id
        found.broker_id = BROKER_ID if broker_id is None else broker_id
    return found


def add_partition(files: Files, path: str, found: Found, topic: str, partition: int) -> None:
    known = found.topics.setdefault(topic, FoundTopic())
    topic_id = read_partition_metadata(files, path)
    if topic_id is not None and known.topic_id not in (None, topic_id):
        raise CannotRebuild(f"{path}: its topic id is not that of the topic's other partitions")
    if partition in known.partitions:
        raise CannotRebuild(f"{path}: the partition is in another directory as well")
    known.topic_id = known.topic_id or topic_id
    latest = -1
    for name in sorted(files.list(path)):
        if name.endswith(".log"):
            file = files.open(f"{path}/{name}")
            try:
                has_state = topic == TRANSACTION_STATE
                for _, header, batch in batches(file, 0, file.size, bodies=has_state):
                    latest = max(latest, header.leader_epoch)
                    ids = [header.producer_id, *(producer_ids(header, batch) if has_state else ())]
                    found.last_producer_id = max(found.last_producer_id, *ids)
            except CorruptBatch:
                pass  # the start of the broker cuts the log there
            finally:
                file.close()
    known.partitions[partition] = latest


def producer_ids(header: BatchHeader, batch: memoryview) -> list[int]:
    """Those that transactional producers have been given."""
    found = []
    try:
        for record in records(batch, 0, header):
            decoded = decode_record(TRANSACTION_STATE, record.key or b"", record.value)
            found.append(getattr(decoded and decoded[1], "producer_id", -1))
    except WireError:
        pass  # the broker says so when it loads them
    return found


# -- what is written


async def write(path: Path, found: Found) -> None:
    tree = EmbeddedTree.open(path, now_ms=lambda: time.time_ns() // 1_000_000)
    try:
        store = tree.connect(lambda call: None)
        await prepare(store, found.cluster_id or uuid4().hex)
        block = ProducerIdBlock(found.broker_id, 0, found.last_producer_id + BLOCK_SIZE)
        if found.last_producer_id >= 0:
            await store.multi([Set(ProducerIdBlock.path(), block.encode())])
        for name, topic in found.topics.items():
            await store.multi(operations(name, topic, found.broker_id))
    finally:
        tree.close()


def operations(name: str, topic: FoundTopic, broker_id: int) -> list[Operation]:
    """Partitions whose directory is missing are made, empty: their numbers have no gaps."""
    numbers = range(max(topic.partitions) + 1)
    replicas = ReplicaAssignment((broker_id,))
    node = Topic(topic.topic_id or uuid4().bytes, dict.fromkeys(numbers, replicas))
    config = COMPACT if name in INTERNAL_TOPICS else KEEP
    made: list[Operation] = [
        Create(Config.path((EntityType.TOPIC, name)), Config.encode(config)),
        Create(Topic.path(name), node.encode()),
        Create(Topic.partitions_path(name)),
    ]
    for number, latest_epoch in topic.partitions.items():
        place = TopicPartition(name, number)
        state = LeaderAndIsr(broker_id, (broker_id,), leader_epoch=latest_epoch + 1)
        made += [
            Create(PartitionState.parent_path(place)),
            Create(PartitionState.path(place), PartitionState.encode(state)),
        ]
    return made
