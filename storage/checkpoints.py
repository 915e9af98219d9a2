"""The small files of a data directory, in Kafka's formats.

    recovery-point-offset-checkpoint    per data directory: "0\\n", number of entries, then one line
    log-start-offset-checkpoint         "topic partition offset" each
    replication-offset-checkpoint       (the high watermarks)
    cleaner-offset-checkpoint
    meta.properties                     per data directory: whose it is, a Java properties file
    .kafka_cleanshutdown                per data directory: {"version":0,"brokerEpoch":n}, or nothing
    leader-epoch-checkpoint             per log: "0\\n", number of entries, then "epoch start_offset" each
    partition.metadata                  per log: "version: 0\\ntopic_id: " and the topic id as Kafka spells it

Reading is as strict as Kafka: a malformed line, a wrong count or an unknown version is a CorruptCheckpoint
that names file and line; a missing or empty checkpoint has no entries. Writing goes through
`Files.replace`, so a crash leaves the old file or the new one, and what was written is durable. Nothing is
cached: a writer may run in another thread, on a mapping that nobody changes meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from storage.errors import CorruptCheckpoint
from storage.files import Files, parent
from wire.errors import WireError
from wire.primitives import ZERO_UUID, uuid_from_text, uuid_to_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
METADATA_FILE = "kbroker.metadata.file"
LOG_DIRS = "kbroker.log.dirs"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

CHECKPOINT_VERSION = 0
UNKNOWN_BROKER_EPOCH = -1

TopicPartition = tuple[str, int]
Entry = TypeVar("Entry")

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LINE_END = re.compile(r"\r\n|\r|\n")


class EpochEntry(NamedTuple):
    """The leader of `epoch` wrote its first record at `start_offset`."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose data directory it is. Version 0 is that of ZooKeeper clusters, where nothing is required."""

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    """`broker.id` in version 0, `node.id` in version 1."""
    directory_id: bytes | None = None
    metadata_file: str | None = None
    """A file beside it that says which topics there are: of a kbroker alone. Kafka passes over the key."""
    log_dirs: tuple[str, ...] = ()
    """All data directories of the broker, where there are several. Kafka passes over the key, too."""


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """The entries of an offset checkpoint file."""

    def entry(topic: str, partition: str, offset: str) -> tuple[TopicPartition, int]:
        return (topic, _integer(partition)), _integer(offset)

    return dict(_read_entries(files, path, 3, entry))


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    _write_entries(files, path, len(offsets), lines)


def read_leader_epochs(files: Files, path: str) -> list[EpochEntry]:
    """The entries of a leader epoch checkpoint file, in the order of the file."""

    def entry(epoch: str, start_offset: str) -> EpochEntry:
        return EpochEntry(_integer(epoch), _integer(start_offset))

    return list(_read_entries(files, path, 2, entry))


def write_leader_epochs(files: Files, path: str, entries: Sequence[EpochEntry]) -> None:
    _write_entries(files, path, len(entries), (f"{epoch} {offset}" for epoch, offset in entries))


def _read_entries(files: Files, path: str, fields: int, entry: Callable[..., Entry]) -> list[Entry]:
    lines = _lines(files, path)
    # Kafka creates these files empty, and reads what has no count as empty.
    if lines and _number(path, lines, 0) != CHECKPOINT_VERSION:
        raise CorruptCheckpoint(path, f"version {lines[0]} is unknown", line=1)
    if len(lines) < 2:
        return []
    entries = []
    for number, line in enumerate(lines[2:], 3):
        words = line.split()
        try:
            if len(words) != fields:
                raise ValueError(f"{len(words)} fields where there should be {fields}")
            entries.append(entry(*words))
        except ValueError as error:
            raise CorruptCheckpoint(path, str(error), line=number) from error
    if len(entries) != _number(path, lines, 1):
        raise CorruptCheckpoint(path, f"{lines[1]} entries announced, {len(entries)} there", line=2)
    return entries


def _write_entries(files: Files, path: str, count: int, lines: Iterable[str]) -> None:
    files.replace(path, "".join(f"{line}\n" for line in (CHECKPOINT_VERSION, count, *lines)).encode())


def _lines(files: Files, path: str) -> list[str]:
    """The lines of a text file, none where it is missing."""
    try:
        lines = _LINE_END.split(files.read(path).decode())
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(path, "this is not text", position=error.start) from error
    return lines if lines[-1] else lines[:-1]


def _number(path: str, lines: list[str], index: int) -> int:
    try:
        return _integer(lines[index])
    except ValueError as error:
        raise CorruptCheckpoint(path, str(error), line=index + 1) from error


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    return int(text)


def read_partition_metadata(files: Files, directory: str) -> bytes | None:
    """The topic id; None where there is no file."""
    path = f"{directory}/{PARTITION_METADATA}"
    lines = _lines(files, path)
    if not lines and not files.exists(path):
        return None
    # Newer versions only add lines.
    if _integer_field(path, lines, 0) < CHECKPOINT_VERSION:
        raise CorruptCheckpoint(path, "the version is negative", line=1)
    try:
        topic_id = uuid_from_text(_field(path, lines, 1))
    except (WireError, ValueError) as error:
        raise CorruptCheckpoint(path, str(error), line=2) from error
    if topic_id == ZERO_UUID:
        raise CorruptCheckpoint(path, "the topic id is zero", line=2)
    return topic_id


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: {CHECKPOINT_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


def write_partition_metadata(files: Files, directory: str, topic_id: bytes) -> None:
    files.replace(f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))


def _field(path: str, lines: list[str], index: int) -> str:
    """The value of a line "name: value"."""
    words = lines[index].split() if index < len(lines) else []
    if len(words) != 2:
        raise CorruptCheckpoint(path, "this is not a name and a value", line=index + 1)
    return words[1]


def _integer_field(path: str, lines: list[str], index: int) -> int:
    try:
        return _integer(_field(path, lines, index))
    except ValueError as error:
        raise CorruptCheckpoint(path, str(error), line=index + 1) from error


def read_meta_properties(files: Files, directory: str) -> MetaProperties | None:
    """None where there is no file."""
    path = f"{directory}/{META_PROPERTIES}"
    if not files.exists(path):
        return None
    properties = parse_properties(files.read(path))
    try:
        version = _integer(properties.get("version", "0"))
        if version not in (0, 1):
            raise ValueError(f"version {version} is unknown")
        node_id = properties.get("node.id" if version else "broker.id")
        cluster_id = properties.get("cluster.id")
        if version and (node_id is None or cluster_id is None):
            raise ValueError("node.id or cluster.id is missing")
        directory_id = properties.get("directory.id")
        return MetaProperties(
            version,
            cluster_id,
            None if node_id is None else _integer(node_id),
            None if directory_id is None else uuid_from_text(directory_id),
            properties.get(METADATA_FILE),
            tuple(properties[LOG_DIRS].split(",")) if LOG_DIRS in properties else (),
        )
    except (WireError, ValueError) as error:
        raise CorruptCheckpoint(path, str(error)) from error


def write_meta_properties(files: Files, directory: str, properties: MetaProperties) -> None:
    values = {
        "cluster.id": properties.cluster_id,
        "directory.id": None if properties.directory_id is None else uuid_to_text(properties.directory_id),
        "node.id" if properties.version else "broker.id": properties.node_id,
        LOG_DIRS: ",".join(properties.log_dirs) or None,
        METADATA_FILE: properties.metadata_file,
        "version": properties.version,
    }
    lines = [f"{key}={_escaped(str(value))}\n" for key, value in values.items() if value is not None]
    files.replace(f"{directory}/{META_PROPERTIES}", "".join(["#\n", *lines]).encode("ascii"))


_PROPERTY = re.compile(r"[ \t\f]*((?:\\.|[^\\:= \t\f])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:\r\n|\r|\n)[ \t\f]*")
_ESCAPED_NAMES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """A Java properties file: comments, three kinds of separators, escapes, continued lines."""
    properties = {}
    for line in _LINE_END.split(_CONTINUED.sub(r"\1", data.decode("latin-1"))):
        line = line.lstrip(" \t\f")
        match = _PROPERTY.match(line)
        if line and line[0] not in "#!" and match:
            properties[_unescaped(match[1])] = _unescaped(match[2])
    return properties


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _ESCAPED_NAMES.get(match[2], match[2])

    # Characters beyond 16 bits are escaped as two halves.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escaped(value: str) -> str:
    return re.sub(
        r"^ |[^ -~]|[\\:=#!]",
        lambda match: f"\\{match[0]}" if " " <= match[0] <= "~" else _utf16_escapes(match[0]),
        value,
    )


def _utf16_escapes(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def was_clean_shutdown(files: Files, directory: str) -> bool:
    """Whether the marker is there; its contents do not matter, and before Kafka 3.8 there were none."""
    return files.exists(f"{directory}/{CLEAN_SHUTDOWN}")


def write_clean_shutdown(files: Files, directory: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
    """The last thing a broker writes, when everything else is durable."""
    text = f'{{"version":{CHECKPOINT_VERSION},"brokerEpoch":{broker_epoch}}}'
    files.replace(f"{directory}/{CLEAN_SHUTDOWN}", text.encode())


def remove_clean_shutdown(files: Files, directory: str) -> None:
    """The first thing a broker does to a directory, durably: from now on a crash is a crash."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if files.exists(path):
        files.remove(path)
        files.sync_dir(parent(path))
