"""Any file of a data directory, taken apart for people and programs to read.

    for entry in dump_file(files, "data/orders-0/00000000000000000000.log", records=True): ...

An entry is a mapping that is ready for JSON but for bytes: of a batch its header, of a record its contents,
of an index, snapshot or checkpoint a line each. Records of Kafka's internal topics are decoded, going by the
name of the directory; control records are decoded everywhere.

Rules:
- What is damaged is an entry like any other, under "corrupt", with the byte where it is. Only what cannot be
  opened is an OSError, and a name that no file of a data directory has is a ValueError.
- Files are read in pieces; no more than a batch is in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from storage.batch_scan import CorruptBatch
from storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_leader_epochs,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
)
from storage.errors import CorruptFile
from storage.files import Files, parent
from storage.indexes import OffsetIndex, TimeIndex
from storage.producer_snapshots import decode_snapshot
from storage.survey import survey
from storage.transaction_index import TransactionIndex
from wire.errors import WireError
from wire.internal import TABLES, decode_record
from wire.primitives import uuid_to_text
from wire.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid
from wire.records import ControlType, Record, control_type, coordinator_epoch, records

Entry = dict[str, object]

SEGMENT_FILE = re.compile(
    r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)(?:\.(?:deleted|cleaned|swap|set-aside(?:-[0-9]+)?))?"
)
CONTROLLER_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
ANY_SIZE = 1 << 31
UUID_SIZE = 16


def dump_file(files: Files, path: str, *, records: bool = False) -> Iterator[Entry]:
    """The entries of a file. With `records`, those of a segment include what is in its batches."""
    dump = _dump_of(files, path, records)
    files.size(path)  # Most readers take a missing file for an empty one.
    try:
        yield from dump()
    except CorruptFile as error:
        place = {"line": error.line} if error.line is not None else {"position": error.position}
        yield {**place, "corrupt": error.reason}


def _dump_of(files: Files, path: str, with_records: bool) -> Callable[[], Iterator[Entry]]:
    name = path.rpartition("/")[2]
    if name in OTHER_FILES:
        return partial(OTHER_FILES[name], files, path)
    if CONTROLLER_SNAPSHOT.fullmatch(name):
        return partial(_segment, files, path, with_records)
    match = SEGMENT_FILE.fullmatch(name)
    if match is None:
        raise ValueError(f"{path} is not named like a segment, an index, a snapshot or a checkpoint")
    base_offset = int(match[1])
    if match[2] == "log":
        return partial(_segment, files, path, with_records)
    if match[2] == "snapshot":
        return partial(_snapshot, files, path)
    return partial(_INDEXES[match[2]], files, path, base_offset)


# -- segments


def _segment(files: Files, path: str, with_records: bool) -> Iterator[Entry]:
    topic = parent(path).rpartition("/")[2].rpartition("-")[0]
    file = files.open(path, read_only=True)
    try:
        for found in survey(file):
            if isinstance(found, CorruptBatch):
                yield {
                    "position": found.position,
                    "corrupt": found.reason,
                    "rest": file.size - found.position,
                }
                continue
            position, header, batch = found
            is_valid = crc_is_valid(batch, 0, header)
            yield _batch(position, header, is_valid)
            if with_records and is_valid:
                yield from _records(topic, position, header, batch)
    finally:
        file.close()


def _batch(position: int, header: BatchHeader, is_valid: bool) -> Entry:
    entry: Entry = {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "size": header.size,
        "codec": _codec_of(header),
        "leader_epoch": header.leader_epoch,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "max_timestamp": header.max_timestamp,
    }
    if header.has_producer_id:
        entry["producer_id"] = header.producer_id
        entry["producer_epoch"] = header.producer_epoch
        entry["base_sequence"] = header.base_sequence
        entry["last_sequence"] = header.last_sequence
    if header.is_transactional:
        entry["transactional"] = True
    if header.is_control:
        entry["control"] = True
    if header.has_delete_horizon:
        entry["delete_horizon_ms"] = header.delete_horizon_ms
    entry["crc"] = f"{header.crc:#010x}"
    if not is_valid:
        entry["corrupt"] = "the checksum does not match"
    return entry


def _codec_of(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except WireError as error:
        return str(error)


def _records(topic: str, position: int, header: BatchHeader, batch: memoryview) -> Iterator[Entry]:
    decode = _control_record if header.is_control else partial(_internal_record, topic)
    try:
        for record in records(batch, 0, header):
            entry: Entry = {"offset": record.offset, "timestamp": record.timestamp}
            yield {**entry, **(decode(record) or _contents(record))}
    except WireError as error:
        yield {"position": position + HEADER_SIZE, "corrupt": str(error)}


def _contents(record: Record) -> Entry:
    contents: Entry = {"key": record.key, "value": record.value}
    if record.headers:
        contents["headers"] = [[key, value] for key, value in record.headers]
    return contents


def _control_record(record: Record) -> Entry | None:
    kind = control_type(record)
    if kind is ControlType.UNKNOWN:
        return None
    entry: Entry = {"control": kind.name.lower()}
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        entry["coordinator_epoch"] = coordinator_epoch(record)
    return entry


def _internal_record(topic: str, record: Record) -> Entry | None:
    """None for records of other topics, and for types nobody knows."""
    if topic not in TABLES or record.key is None:
        return None
    try:
        decoded = decode_record(topic, record.key, record.value)
    except WireError as error:
        return {**_contents(record), "corrupt": str(error)}
    if decoded is None:
        return None
    key, value = decoded
    return {"type": type(key).__name__.removesuffix("Key"), "key": _plain(key), "value": _plain(value)}


def _plain(value: object) -> object:
    """A message as mappings and lists; topic ids as Kafka spells them."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    names = getattr(type(value), "__slots__", None)
    if names is None or isinstance(value, (str, bytes, int, float)):
        return value
    return {name: _plain_field(name, getattr(value, name)) for name in names}


def _plain_field(name: str, value: object) -> object:
    if isinstance(value, bytes) and len(value) == UUID_SIZE and name.endswith("_id"):
        return uuid_to_text(value)
    return _plain(value)


# -- what is made from segments


def _index(
    index: OffsetIndex | TimeIndex | TransactionIndex,
) -> Iterator[Entry]:
    """What can be read of it, and then what cannot be right."""
    try:
        for entry in index:
            yield entry._asdict()
        index.sanity_check()
    finally:
        index.close()


def _offset_index(files: Files, path: str, base_offset: int) -> Iterator[Entry]:
    return _index(OffsetIndex(files, path, base_offset, ANY_SIZE))


def _time_index(files: Files, path: str, base_offset: int) -> Iterator[Entry]:
    return _index(TimeIndex(files, path, base_offset, ANY_SIZE))


def _transaction_index(files: Files, path: str, base_offset: int) -> Iterator[Entry]:
    return _index(TransactionIndex(files, path, base_offset))


def _snapshot(files: Files, path: str) -> Iterator[Entry]:
    for entry in decode_snapshot(path, files.read(path)):
        yield entry._asdict()


# -- text files


def _offsets(files: Files, path: str) -> Iterator[Entry]:
    for (topic, partition), offset in read_offsets(files, path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _leader_epochs(files: Files, path: str) -> Iterator[Entry]:
    for epoch, start_offset in read_leader_epochs(files, path):
        yield {"epoch": epoch, "start_offset": start_offset}


def _partition_metadata(files: Files, path: str) -> Iterator[Entry]:
    topic_id = read_partition_metadata(files, parent(path))
    if topic_id is not None:
        yield {"topic_id": uuid_to_text(topic_id)}


def _meta_properties(files: Files, path: str) -> Iterator[Entry]:
    properties = read_meta_properties(files, parent(path))
    if properties is not None:
        directory_id = properties.directory_id
        yield {
            "version": properties.version,
            "cluster_id": properties.cluster_id,
            "node_id": properties.node_id,
            "directory_id": None if directory_id is None else uuid_to_text(directory_id),
        }


_INDEXES: Mapping[str, Callable[[Files, str, int], Iterator[Entry]]] = {
    "index": _offset_index,
    "timeindex": _time_index,
    "txnindex": _transaction_index,
}

OTHER_FILES: Mapping[str, Callable[[Files, str], Iterator[Entry]]] = {
    RECOVERY_POINTS: _offsets,
    LOG_START_OFFSETS: _offsets,
    HIGH_WATERMARKS: _offsets,
    CLEANER_OFFSETS: _offsets,
    LEADER_EPOCHS: _leader_epochs,
    PARTITION_METADATA: _partition_metadata,
    META_PROPERTIES: _meta_properties,
}
"""Those that have a fixed name."""
