"""The topic-level settings a log obeys, under Kafka's names and with Kafka's defaults.

A value, never changed in place: a log is given a new one when its topic is altered. How settings are spelled,
parsed and validated is the broker's table of configuration; `storage/` only sees the outcome. Settings that
never reach the disk (who may write, how many replicas must be in sync) are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

FOREVER_MS = (1 << 63) - 1
"""Kafka's way to say never: the largest int64."""

DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds; -1 means without limit where Kafka says so."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    delete_retention_ms: int = DAY_MS
    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    file_delete_delay_ms: int = 60_000
    flush_messages: int = FOREVER_MS
    flush_ms: int = FOREVER_MS
    max_segment_ms: int = field(init=False)
    """How long a segment takes batches: what is not closed is not compacted."""

    def __post_init__(self) -> None:
        lag_ms = self.max_compaction_lag_ms if self.compacts else 0
        segment_ms = min(self.segment_ms, lag_ms) if lag_ms > 0 else self.segment_ms
        object.__setattr__(self, "max_segment_ms", segment_ms)

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    def roll_jitter_ms(self, below: Callable[[int], int]) -> int:
        """How much sooner the next segment is closed; `below` draws from [0, limit)."""
        limit = min(self.segment_jitter_ms, self.segment_ms)
        return below(limit) if limit else 0
