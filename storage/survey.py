"""Walking over a segment that may be damaged, to tell what is there and what is not.

Where `batch_scan` stops at the first thing that cannot be right, a survey says so and goes on as long as it
can tell where the next batch begins: an offset that does not grow breaks nothing, a header that is none ends
the walk. It reads in chunks and never holds more than one batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from storage.batch_scan import CorruptBatch, batches
from storage.files import File
from wire.record_batch import BatchHeader

Found = tuple[int, BatchHeader, memoryview]


def survey(file: File, begin: int = 0) -> Iterator[Found | CorruptBatch]:
    """Position, header and bytes of every batch that can be told apart, and what is wrong between them."""
    position, stuck_at = begin, -1
    while position < file.size:
        try:
            for position, header, batch in batches(file, position, file.size):  # noqa: B020 -- where it stops
                yield position, header, batch
            return
        except CorruptBatch as error:
            if error.position == stuck_at:
                return
            yield error
            position = stuck_at = error.position
