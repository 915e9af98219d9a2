"""One record, with its place in the log. Imports nothing of the protocol."""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970: the producer's, or the broker's where the topic says so."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
