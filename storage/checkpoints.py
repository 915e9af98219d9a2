"""Kafka's small text files: contracts first; the bodies follow. Reading raises CorruptCheckpoint (file, line)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.files import Files

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

TopicPartition = tuple[str, int]


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """version 0: broker.id (ZooKeeper clusters); version 1: node.id."""

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: bytes | None = None


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint file; {} where it is missing or empty."""
    raise NotImplementedError


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Atomic and durable, as all writers here."""


def read_leader_epochs(files: Files, path: str) -> list[EpochEntry]:
    """[] where the file is missing or empty."""
    raise NotImplementedError


def write_leader_epochs(files: Files, path: str, entries: Sequence[EpochEntry]) -> None: ...


def read_partition_metadata(files: Files, directory: str) -> bytes | None:
    """The topic id (16 bytes); None where the file is missing."""
    raise NotImplementedError


def write_partition_metadata(files: Files, directory: str, topic_id: bytes) -> None: ...


def read_meta_properties(files: Files, directory: str) -> MetaProperties | None:
    """None where the file is missing."""
    raise NotImplementedError


def write_meta_properties(files: Files, directory: str, properties: MetaProperties) -> None: ...


def was_clean_shutdown(files: Files, directory: str) -> bool:
    """Whether the marker is there; its contents do not matter."""
    raise NotImplementedError


def clean_shutdown_epoch(files: Files, directory: str) -> int:
    """The broker epoch in the marker; -1 where there is none (Kafka before 3.8 leaves the file empty)."""
    raise NotImplementedError


def write_clean_shutdown(files: Files, directory: str, broker_epoch: int = -1) -> None: ...


def remove_clean_shutdown(files: Files, directory: str) -> None: ...
