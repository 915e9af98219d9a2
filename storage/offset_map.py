"""The last offset of each key, in bounded memory: what compaction decides by.

Rules:
- It never says of one key what is true of another: that would lose a record. Short keys are remembered as
  they are. A digest of 128 bits stands for a longer one, as it does in Kafka.
- It never takes more than `max_bytes`. A full map takes no new key, and says so; keys it has still move on.
  Whoever fills it stops there, and goes on next time.

A flat table with open addressing would do with 32 bytes per key where this dict takes 130 to 190. But in
Python it costs 1.4 microseconds for every record that is put or looked up, more than all the rest that is
done with it, and the dict 0.2. More keys than there is room for cost another pass over the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from wire.record_spans import Span

LONGEST_KEY = 31
"""A longer key costs more memory than its digest."""

BYTES_PER_KEY = 192
"""64 for a key or digest, 32 for an offset, 60 for the slots of a dict that has just grown, and 30 for those
it is growing out of at that moment."""

NOT_FOUND = -1


def _digest(key: bytes) -> int:
    # A number, so that it cannot be equal to any short key.
    return int.from_bytes(blake2b(key, digest_size=16).digest(), "big")


class OffsetMap:
    """Key -> offset of its last record. Offsets are put in ascending order."""

    __slots__ = ("_offsets", "capacity")

    def __init__(self, max_bytes: int) -> None:
        self.capacity = max(max_bytes // BYTES_PER_KEY, 1)
        """The most keys it takes."""
        self._offsets: dict[bytes | int, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put_all(self, spans: Iterable[Span], first_offset: int) -> int | None:
        """Note keyed records from `first_offset` on; the offset of the one for which there is no room."""
        offsets, capacity = self._offsets, self.capacity
        for offset, key, _, _, _, _ in spans:
            if key is None or offset < first_offset:
                continue
            name = key if len(key) <= LONGEST_KEY else _digest(key)
            if len(offsets) >= capacity and name not in offsets:
                return offset
            offsets[name] = offset
        return None

    def last_of(self, spans: Sequence[Span], end_offset: int, *, tombstones: bool) -> list[Span]:
        """The last records of their keys, with or without `tombstones`; and all from `end_offset` on."""
        offsets = self._offsets
        return [
            span
            for span in spans
            if span[0] >= end_offset
            or (
                (key := span[1]) is not None
                and offsets.get(key if len(key) <= LONGEST_KEY else _digest(key), NOT_FOUND) <= span[0]
                and (tombstones or not span[2])
            )
        ]

    def get(self, key: bytes) -> int:
        """The offset of its last record; -1 for a key that was not put."""
        return self._offsets.get(key if len(key) <= LONGEST_KEY else _digest(key), NOT_FOUND)
