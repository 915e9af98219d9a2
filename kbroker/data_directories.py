"""Whose the data directories are: looked at before anything is written, noted before logs are opened.

`meta.properties` of each says which cluster and which broker it belongs to, and with which other directories
it was used (`kbroker.log.dirs`, which Kafka passes over).

- A directory of another cluster, or of another broker, is refused with nothing changed.
- So is one without the file, where another directory knows it, or where the log of a partition is missing
  that has no other in-sync replica: its disk may not be mounted, and what would be written there now would be
  hidden later. An empty `meta.properties` says that it is to begin empty.
- A new directory has no file, and nobody misses anything. The others get to know it when its own file is
  durable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from storage.checkpoints import META_PROPERTIES, MetaProperties, read_meta_properties, write_meta_properties
from storage.errors import StorageError
from storage.files import Files
from storage.log_directory import LogDirectory, log_name
from wire.words import count

MOST_NAMES = 3


class WrongCluster(Exception):
    """A data directory belongs to another cluster, or to another broker."""


class NotMounted(StorageError):
    """A data directory is not what it was: it has no `meta.properties`."""

    def __init__(self, path: str, why: str) -> None:
        remedy = f"if it is to begin empty, make an empty file {path}/{META_PROPERTIES}"
        super().__init__(path, f"it has no {META_PROPERTIES}, {why}. Is its disk mounted? ({remedy})")


def check_owner(
    files: Files, paths: Sequence[str], node_id: int, cluster_id: str | None = None
) -> Mapping[str, MetaProperties | None]:
    """What the directories say. WrongCluster or NotMounted where they cannot be used; only reads."""
    found: dict[str, MetaProperties | None] = {}
    for path in paths:
        with suppress(OSError):  # opening it will tell
            found[path] = read_meta_properties(files, path)
    for path, properties in found.items():
        if properties is None:
            _check_unknown(path, found)
            continue
        if properties.node_id not in (None, node_id):
            raise WrongCluster(f"{path} belongs to broker {properties.node_id}, not {node_id}")
        if properties.cluster_id is not None:
            cluster_id = cluster_id or properties.cluster_id
            if properties.cluster_id != cluster_id:
                raise WrongCluster(f"{path} belongs to cluster {properties.cluster_id}, not {cluster_id}")
    return found


def _check_unknown(path: str, found: Mapping[str, MetaProperties | None]) -> None:
    for other, properties in found.items():
        if properties is not None and os.path.abspath(path) in properties.log_dirs:
            raise NotMounted(path, f"and {other} was used together with it")


def check_only_copies(
    files: Files, found: Mapping[str, MetaProperties | None], wanted: Iterable[tuple[str, int]]
) -> None:
    """NotMounted where a directory has no file, and logs that nobody else has are in none of them."""
    unknown = next((path for path, properties in found.items() if properties is None), None)
    if unknown is None:
        return
    names = [log_name(partition) for partition in wanted]
    missing = [name for name in names if not any(files.is_dir(f"{path}/{name}") for path in found)]
    if missing:
        others = ", ..." if len(missing) > MOST_NAMES else ""
        what = f"{count(len(missing), 'log')} ({', '.join(missing[:MOST_NAMES])}{others})"
        raise NotMounted(unknown, f"and {what} with no other in-sync replica should be on this broker")


def note_owner(
    directories: Iterable[LogDirectory], cluster_id: str, node_id: int, metadata_file: str | None
) -> None:
    """Write in every directory whose it is, and then which others there are."""
    directories = list(directories)
    paths = tuple(os.path.abspath(directory.path) for directory in directories)
    for log_dirs in (None, paths if len(paths) > 1 else ()):
        for directory in directories:
            with suppress(StorageError):  # it is offline now
                directory.run(
                    partial(
                        _note,
                        directory,
                        cluster_id=cluster_id,
                        node_id=node_id,
                        metadata_file=metadata_file if directory is directories[0] else None,
                        log_dirs=log_dirs,
                    )
                )


def _note(
    directory: LogDirectory,
    *,
    cluster_id: str,
    node_id: int,
    metadata_file: str | None,
    log_dirs: tuple[str, ...] | None,
) -> None:
    found = read_meta_properties(directory.files, directory.path)
    known = () if found is None else found.log_dirs
    mine = replace(
        found or MetaProperties(0),
        cluster_id=cluster_id,
        node_id=node_id,
        metadata_file=metadata_file,
        log_dirs=known if log_dirs is None else log_dirs,
    )
    if mine != found:
        write_meta_properties(directory.files, directory.path, mine)
