"""Putting compacted segments in the place of those they were made from, so that a crash leaves the old or
the new.

The names of the files say how far it got. In this order, each step durable before the next begins:

    1  the new segments are written under `.cleaned`, and synced                   the old ones count
    2  they are renamed to `.swap`, the one with the lowest offset last            the new ones count
    3  the old ones are renamed to `.deleted`, to be removed in a while
    4  the new ones lose their suffix, the log file before its indexes

`finish_replacements`, when the log is loaded, tells from the names what to do. While any `.cleaned` file
is there, it and every `.swap` from its offset on go: not all of the new ones had got through step 2.
Otherwise a log file with `.swap` replaces whatever without suffix lies between its base offset and its
last one (a segment beyond was not needed any more, but does no harm), and all that is left is step 4.
These are Kafka's names and Kafka's rules.

Step 2 is `stage`, and may run in the thread that wrote the new segments. Steps 3 and 4 are `replace`;
they belong to the owner of the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.files import Files
from storage.log_config import LogConfig
from storage.segment import CLEANED, DELETED, SWAP, LogSegment

if TYPE_CHECKING:
    from storage.log import UnifiedLog

logger = logging.getLogger(__name__)

SEGMENT_FILE = re.compile(r"[0-9]{20}\.(log|index|timeindex|txnindex)")
LOG_SWAP = ".log" + SWAP
UNFINISHED = (CLEANED, SWAP, DELETED, ".tmp")


def stage(files: Files, directory: str, new: Sequence[LogSegment]) -> None:
    """Step 2, for segments that are synced. From here on they will replace the old ones, come what may."""
    for segment in sorted(new, key=lambda segment: segment.base_offset, reverse=True):
        segment.rename(SWAP)
        files.sync_dir(directory)


def replace(log: UnifiedLog, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
    """Steps 3 and 4, for staged segments."""
    log.check_online()
    try:
        log.remove_segments(old)
        for segment in new:
            log.segments.add(segment)
        log.files.sync_dir(log.directory)
        for segment in new:
            segment.rename("", sync=True)
        log.files.sync_dir(log.directory)
    except BaseException as error:
        raise log.fail(error, half_done=True) from error


def finish_replacements(files: Files, directory: str, config: LogConfig) -> Sequence[str]:
    """Bring the names in a directory in order, before its segments are loaded; which ones there are then."""
    names = files.list(directory)
    if not any(name.endswith(UNFINISHED) for name in names):
        return names
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swapped = [name for name in names if name.endswith(SWAP)]
    if cleaned:
        first = min(map(_offset, cleaned))
        _remove(files, directory, [name for name in swapped if _offset(name) >= first])
        swapped = [name for name in swapped if _offset(name) < first]
    _remove(files, directory, cleaned + [name for name in names if name.endswith((DELETED, ".tmp"))])
    logs = [name for name in swapped if name.endswith(LOG_SWAP)]
    for name in logs:
        _remove(files, directory, _replaced_by(files, directory, config, name))
    for name in logs:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    if swapped:
        files.sync_dir(directory)
    for name in files.list(directory):
        if name.endswith(SWAP):
            files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    if swapped:
        files.sync_dir(directory)
    return files.list(directory)


def _replaced_by(files: Files, directory: str, config: LogConfig, name: str) -> list[str]:
    """The files of the segments that a `.log.swap` was made from."""
    size = files.size(f"{directory}/{name}")
    segment = LogSegment(files, directory, _offset(name), config, size=size, suffix=SWAP)
    logger.info("%s replaces the segments it was made from", segment.path)
    covered = range(segment.base_offset, max(segment.end_offset(), segment.base_offset + 1))
    segment.release()
    return [
        name for name in files.list(directory) if SEGMENT_FILE.fullmatch(name) and _offset(name) in covered
    ]


def _remove(files: Files, directory: str, names: Sequence[str]) -> None:
    for name in names:
        files.remove(f"{directory}/{name}")
    if names:
        files.sync_dir(directory)


def _offset(name: str) -> int:
    return int(name[:20])
