"""What a check of a data directory found.

A finding names a file, the place in it, what is wrong there in a sentence, and what to do about it. Three
severities:

    ERROR    data is damaged, or files contradict one another: something that no crash leaves behind
    WARNING  the next start of a broker repairs it, or cannot tell whether it is right
    NOTE     worth knowing, and in order

So a directory is sound if nothing is an error, and one that was recovered or shut down cleanly has no
warnings either. A damaged file can be wrong in a million places: findings beyond the first few of a file and
kind are counted, not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import NamedTuple

MOST_OF_A_KIND = 10


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Kind(StrEnum):
    """What is wrong, for programs."""

    BATCH = "batch"
    """Bytes that are no batch, or not the one that was written."""
    OFFSETS = "offsets"
    """Batches or segments that overlap, or lie outside their segment."""
    GAP = "gap"
    """Missing offsets, which only compaction may leave."""
    SEQUENCE = "sequence"
    """A producer's numbers that repeat or leave out some."""
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    SNAPSHOT = "producer snapshot"
    LEADER_EPOCHS = "leader epochs"
    CHECKPOINT = "checkpoint"
    METADATA = "metadata"
    LEFTOVER = "leftover"
    """What an interrupted or delayed removal, compaction or write has left."""
    UNKNOWN_FILE = "unknown file"
    UNREADABLE = "unreadable"
    """The operating system would not let it be read."""


class Finding(NamedTuple):
    """One thing that was found."""

    severity: Severity
    kind: Kind
    path: str
    what: str
    advice: str = ""
    position: int | None = None
    """The byte of the file."""
    offset: int | None = None
    """The offset in the log."""

    def __str__(self) -> str:
        place = "" if self.position is None else f", byte {self.position}"
        place += "" if self.offset is None else f", offset {self.offset}"
        advice = f" {self.advice}" if self.advice else ""
        return f"{self.severity}: {self.path}{place}: {self.what}{advice}"


@dataclass(slots=True)
class PartitionFacts:
    """A log, as its files show it. None is what no checkpoint tells."""

    path: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    log_start_offset: int = 0
    last_stable_offset: int = 0
    """Where the first transaction begins that has no end marker; the log end where there is none."""
    high_watermark: int | None = None
    log_end_offset: int = 0


@dataclass(slots=True)
class Report:
    """The outcome of a check."""

    path: str
    partitions: list[PartitionFacts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    left_out: Counter[tuple[str, Severity, Kind]] = field(default_factory=Counter)
    """How many findings were not kept, by file."""
    _kept: Counter[tuple[str, Severity, Kind]] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        group = finding.path, finding.severity, finding.kind
        if self._kept[group] < MOST_OF_A_KIND:
            self._kept[group] += 1
            self.findings.append(finding)
        else:
            self.left_out[group] += 1

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is severity]

    @property
    def is_sound(self) -> bool:
        return not self.of(Severity.ERROR)

    def counts(self) -> dict[Severity, int]:
        """How many there are of each severity, those that were not kept included."""
        counts = Counter(finding.severity for finding in self.findings)
        for (_, severity, _), number in self.left_out.items():
            counts[severity] += number
        return {severity: counts[severity] for severity in Severity}

    def lines(self) -> Iterator[str]:
        """The findings as text, the worst first."""
        for severity in Severity:
            yield from map(str, self.of(severity))
            for (path, of_severity, kind), number in self.left_out.items():
                if of_severity is severity:
                    yield f"{severity}: {path}: {number} more of this kind ({kind})."

    def as_json(self) -> dict[str, object]:
        return {
            "path": self.path,
            "sound": self.is_sound,
            "counts": self.counts(),
            "partitions": [asdict(facts) for facts in self.partitions],
            "findings": [finding._asdict() for finding in self.findings],
        }
