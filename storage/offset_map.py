"""The last offset of each key, in bounded memory: what compaction decides by.

Rules:
- It never says of one key what is true of another: that would lose a record. Short keys are remembered as
  they are. A digest of 128 bits stands for a longer one, as it does in Kafka.
- It never takes more than `max_bytes`. A full map takes no new key, and says so; keys it has still move on.
  Whoever fills it stops there, and goes on next time.

A flat table with open addressing would do with 32 bytes per key where this dict takes up to 192. But it
costs 1.4 microseconds for every record that is put or looked up, more than decoding one does, and the dict
0.3. More keys than there is room for cost another pass over the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from wire.records import Record

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

    def put_all(self, records: Iterable[Record], first_offset: int) -> int | None:
        """Note the keyed records from `first_offset` on; the offset of the one that found the map full."""
        offsets, capacity = self._offsets, self.capacity
        for offset, _, key, _, _ in records:
            if key is None or offset < first_offset:
                continue
            name = key if len(key) <= LONGEST_KEY else _digest(key)
            if len(offsets) >= capacity and name not in offsets:
                return offset
            offsets[name] = offset
        return None

    def get(self, key: bytes) -> int:
        """The offset of its last record; -1 for a key that was not put."""
        return self._offsets.get(key if len(key) <= LONGEST_KEY else _digest(key), NOT_FOUND)
