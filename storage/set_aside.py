"""What lies beyond the end that recovery has found for a log: kept under another name, never deleted.

    00000000000000000042.log.set-aside     what the log had from offset 42 on, perhaps with indexes
    00000000000000000042.log.set-aside-2   the same, another time

That is a segment behind one that is damaged, or the rest of the damaged one, if any of it can be read. Such
files belong to no log: a broker counts them, `kbroker dump` reads them, and they go with their topic. An
operator who does not need them can remove them.
"""

from __future__ import annotations

import logging
import re
from itertools import count

from storage.batch_scan import CorruptBatch
from storage.files import File, Files
from storage.segment import LogSegment
from storage.survey import survey
from wire.record_batch import crc_is_valid

logger = logging.getLogger(__name__)

SUFFIX = ".set-aside"
_NAME = re.compile(r"[0-9]{20}\.log\.set-aside(-[0-9]+)?")
_CHUNK_BYTES = 1 << 20


def is_set_aside(name: str) -> bool:
    """Whether a file of a log's directory has batches that were set aside."""
    return _NAME.fullmatch(name) is not None


def set_aside(files: Files, segment: LogSegment) -> None:
    """Give a segment another name, durably."""
    old = segment.path
    segment.rename(_unused_suffix(files, segment.directory, segment.base_offset), sync=True)
    segment.release()
    logger.error("%s lies beyond the end of the log; it is set aside as %s", old, segment.path)


def set_tail_aside(files: Files, segment: LogSegment, position: int, offset: int) -> bool:
    """Keep what a segment has from `position` on, which is to be cut off, if any of it can be read."""
    if not _can_be_read(segment.file, position):
        return False
    path = f"{segment.directory}/{offset:020d}.log{_unused_suffix(files, segment.directory, offset)}"
    copy = files.open(path, create=True)
    try:
        for begin in range(position, segment.size, _CHUNK_BYTES):
            copy.append([segment.file.read(begin, min(_CHUNK_BYTES, segment.size - begin))])
        copy.sync()
    finally:
        copy.close()
    files.sync_dir(segment.directory)
    logger.error("%s has batches behind byte %d, which is damaged: see %s", segment.path, position, path)
    return True


def _can_be_read(file: File, begin: int) -> bool:
    for found in survey(file, begin):
        if not isinstance(found, CorruptBatch) and crc_is_valid(found[2], 0, found[1]):
            return True
    return False


def _unused_suffix(files: Files, directory: str, offset: int) -> str:
    suffixes = (SUFFIX if number == 1 else f"{SUFFIX}-{number}" for number in count(1))
    return next(it for it in suffixes if not files.exists(f"{directory}/{offset:020d}.log{it}"))
