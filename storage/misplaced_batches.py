"""Telling batches in their place from those whose offset cannot be right.

The checksum does not cover a batch's offset. So a batch may be whole, and yet say an offset that makes no
sense beside its neighbours: it reaches into the next segment or begins before the one in front of it ends.
That is no reason to give up what follows. Such a batch stays where it is, readers who ask for it are told so,
and everything else goes on without it.

Of two batches that contradict one another, the first one is wrong if the second one fits behind what was
before the two, else the second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from storage.batch_scan import LARGEST_OFFSET, CorruptBatch, headers
from storage.files import File
from wire.record_batch import BatchHeader

SMALLEST_OFFSET = -(1 << 63)

Found = TypeVar("Found", bound=tuple[Any, ...])
"""Position and header of a batch, and perhaps more."""
Found_co = TypeVar("Found_co", bound=tuple[Any, ...], covariant=True)


class Walk(Protocol[Found_co]):
    """`headers`, or `checked_batches`."""

    def __call__(
        self, file: File, position: int, end: int, /, *, least_offset: int
    ) -> Iterator[Found_co]: ...


def in_any_order(walk: Walk[Found_co], file: File, begin: int, end: int) -> Iterator[Found_co]:
    """What a walk of `batch_scan` finds, which does not end where an offset does not grow."""
    stuck_at = -1
    while True:
        try:
            yield from walk(file, begin, end, least_offset=SMALLEST_OFFSET)
            return
        except CorruptBatch as error:
            if error.position == stuck_at:
                raise
            begin = stuck_at = error.position


def in_order(
    walk: Iterator[Found], end_offset: int, limit: int, misplaced: Callable[[Found], object]
) -> Iterator[Found]:
    """The batches in their place: from `end_offset` on, below `limit`, each behind the one before it.

    The others are passed to `misplaced`. Errors of the walk come when all that was found before is told.
    """
    last: Found | None = None
    last_end = end_offset
    try:
        for found in walk:
            header = found[1]
            begin, end = header.base_offset, header.next_offset
            if begin < end_offset or end > limit:
                misplaced(found)
                continue
            if last is not None:
                if begin < last_end:
                    misplaced(last)
                else:
                    yield last
                    end_offset = last_end
            last, last_end = found, end
    except CorruptBatch:
        if last is not None:
            yield last
        raise
    if last is not None:
        yield last


def headers_in_order(
    file: File, begin: int, end: int, end_offset: int = 0, limit: int = LARGEST_OFFSET
) -> Iterator[tuple[int, BatchHeader]]:
    """As `batch_scan.headers`, without those that are not in their place."""
    return in_order(in_any_order(headers, file, begin, end), end_offset, limit, lambda found: None)
