"""Which partition of its coordinator's topic a group id or transactional id belongs to, as in Kafka.

Kafka takes the absolute value of Java's `String.hashCode`, and 0 for the smallest int (conformance 84).
Earlier kbrokers cleared the sign bit instead, so what they have kept for keys with a negative hash lies in
another partition. All such keys of one partition lie in the same other one, `old_place`, and the other way
round.
"""

from __future__ import annotations

from functools import lru_cache

SMALLEST_INT = -(1 << 31)


LONGEST_REMEMBERED = 256
"""Characters. A key may have 32,767, and clients may send as many of those as they like."""


def string_hash(text: str) -> int:
    """Java's `String.hashCode`."""
    return _remembered_hash(text) if len(text) <= LONGEST_REMEMBERED else _hash(text)


def _hash(text: str) -> int:
    hashed = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        hashed = (hashed * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >> 31 else hashed


_remembered_hash = lru_cache(maxsize=1 << 14)(_hash)


def partition_of(key: str, partitions: int) -> int:
    hashed = string_hash(key)
    return 0 if hashed == SMALLEST_INT else abs(hashed) % partitions


def old_partition_of(key: str, partitions: int) -> int:
    """Where earlier kbrokers kept it."""
    return (string_hash(key) & 0x7FFFFFFF) % partitions


def old_place(index: int, partitions: int) -> int:
    """Where earlier kbrokers kept the keys of a partition whose hash is negative: at 2**31 + hash."""
    return (-SMALLEST_INT - index) % partitions
