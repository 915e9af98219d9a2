"""What happened, as clients saw it, and what must hold of that.

Values are unique. An outcome that a client does not know counts as "may have happened". What is found wrong
is kept in `violations`, each under the name of an anomaly:

    lost write            acknowledged by all in-sync replicas, and not there in the end
    inconsistent offset   two values at one offset: acknowledged, read or stored
    duplicate             a value stored twice, where idempotence or a single attempt promises once
    reordered             values of one idempotent producer stored in another order than they were sent in
    phantom               a value stored although its refusal said that it was not
    stale group read      a committed offset that has gone back
    double ownership      two owners of a partition in one generation of a group
    late commit           taken from a generation although a later one had its assignment
    unseen                acknowledged or committed, and not read by a consumer that has come to the end

The digest is over everything that was noted, with its virtual time.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

LAST_NOTES = 60
MOST_VIOLATIONS = 5
Place = tuple[str, int]
"""A topic and the index of a partition."""


class Fate(Enum):
    """Of a value that was sent."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


@dataclass(eq=False)
class Sent:
    """A value on its way into a partition."""

    value: bytes
    place: Place
    producer: str
    acks: int
    idempotent: bool
    number: int
    """Rises with every value of the producer."""
    fate: Fate = Fate.UNKNOWN
    offset: int = -1


class History:
    def __init__(self, time: Callable[[], float]) -> None:
        self.violations: list[str] = []
        self.sent: dict[bytes, Sent] = {}
        self.counts: dict[str, int] = {}
        self.last: deque[str] = deque(maxlen=LAST_NOTES)
        self._time = time
        self._digest = hashlib.sha256()
        self._at: dict[tuple[Place, int], bytes] = {}
        self._committed: dict[tuple[str, Place], int] = {}
        self._owners: dict[tuple[str, int, Place], str] = {}
        self._generations: dict[str, int] = {}
        self._consumed: dict[tuple[str, Place], dict[int, bytes]] = {}

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()[:16]

    def note(self, what: str, *about: object) -> None:
        line = f"{self._time():.6f} {what} {' '.join(map(str, about))}"
        self._digest.update(line.encode())
        self.counts[what] = self.counts.get(what, 0) + 1
        self.last.append(line)

    def broken(self, anomaly: str, detail: str) -> None:
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(f"{anomaly}: {detail} (at {self._time():.3f} s)")

    # -- producers

    def sending(self, sent: Sent) -> None:
        self.sent[sent.value] = sent

    def acknowledged(self, sent: Sent, offset: int) -> None:
        """`offset` is -1 where the broker only says that it has it already."""
        sent.fate, sent.offset = Fate.ACKNOWLEDGED, offset
        self.note("acknowledged", sent.value.decode(), *sent.place, offset)
        if sent.acks == -1 and offset >= 0:
            self._is_at(sent.place, offset, sent.value, "acknowledged")

    def refused(self, sent: Sent) -> None:
        sent.fate = Fate.REFUSED

    # -- consumers

    def read(self, who: str, place: Place, offset: int, value: bytes) -> None:
        self.counts["read"] = self.counts.get("read", 0) + 1
        self._is_at(place, offset, value, f"read by {who}")

    def _is_at(self, place: Place, offset: int, value: bytes, how: str) -> None:
        before = self._at.setdefault((place, offset), value)
        if before != value:
            self.broken("inconsistent offset", f"{place} {offset}: {value!r} {how}, but it was {before!r}")

    # -- groups

    def committed(self, group: str, place: Place, offset: int) -> None:
        self.note("committed", group, *place, offset)
        self._committed[group, place] = max(offset, self._committed.get((group, place), -1))

    def known_commit(self, group: str, place: Place) -> int:
        return self._committed.get((group, place), -1)

    def has_committed(self, group: str, ends: Mapping[Place, int]) -> bool:
        """Whether a group has come to all these ends. Where there is nothing, nothing need be committed."""
        return all(max(self.known_commit(group, place), 0) >= end for place, end in ends.items())

    def fetched_commit(self, group: str, place: Place, offset: int, known: int) -> None:
        """`known` is what had been committed when it was asked for. What one was told stays true for all."""
        if offset < known:
            self.broken("stale group read", f"{group} {place}: {offset}, after {known} was committed")
        self._committed[group, place] = max(offset, self.known_commit(group, place))

    def in_generation(self, group: str, generation: int) -> None:
        """A member has its assignment."""
        self._generations[group] = max(generation, self.latest_generation(group))

    def latest_generation(self, group: str) -> int:
        return self._generations.get(group, -1)

    def late_commit(self, group: str, generation: int, latest: int) -> None:
        """`latest` is the generation that had its assignments before the commit was asked for."""
        if generation < latest:
            self.broken("late commit", f"{group}: generation {generation}, after {latest} had begun")

    def owns(self, group: str, generation: int, place: Place, member: str) -> None:
        owner = self._owners.setdefault((group, generation, place), member)
        if owner != member:
            both = f"{owner} and {member}"
            self.broken("double ownership", f"{group}, generation {generation}, {place}: {both}")

    def consumed(self, group: str, member: str, place: Place, offset: int, value: bytes) -> None:
        self.read(member, place, offset, value)
        self._consumed.setdefault((group, place), {})[offset] = value

    # -- the end

    def compare(self, place: Place, stored: Mapping[int, bytes]) -> None:
        """What a partition has in the end, all of it, by offset."""
        where: dict[bytes, int] = {}
        for offset, value in stored.items():
            if value in where:
                self.broken("duplicate", f"{place}: {value!r} is at {where[value]} and at {offset}")
            where.setdefault(value, offset)
        for (at, offset), value in self._at.items():
            if at == place and stored.get(offset) != value:
                found = stored.get(offset)
                self.broken("lost write", f"{place} {offset}: {value!r} was seen there; now {found!r}")
        last: dict[str, tuple[int, int]] = {}
        for value, offset in where.items():
            self._compare_one(place, value, offset, last)
        for sent in self.sent.values():
            is_promised = sent.place == place and sent.fate is Fate.ACKNOWLEDGED and sent.acks == -1
            if is_promised and sent.value not in where:
                self.broken("lost write", f"{place}: {sent.value!r}, acknowledged at {sent.offset}")

    def _compare_one(self, place: Place, value: bytes, offset: int, last: dict[str, tuple[int, int]]) -> None:
        sent = self.sent.get(value)
        if sent is None or sent.place != place:
            self.broken("phantom", f"{place} {offset}: nobody sent {value!r} there")
            return
        if sent.fate is Fate.REFUSED:
            self.broken("phantom", f"{place} {offset}: {value!r} was refused")
        if sent.idempotent:
            number, before = last.get(sent.producer, (-1, -1))
            if (sent.number < number) != (offset < before):
                self.broken("reordered", f"{place}: {value!r} at {offset}, number {number} at {before}")
            last[sent.producer] = sent.number, offset

    def seen_at_end(self, place: Place, seen: Mapping[int, bytes]) -> None:
        """What a consumer has read of a partition, once everything had come to rest."""
        for sent in self.sent.values():
            is_promised = sent.place == place and sent.fate is Fate.ACKNOWLEDGED and sent.acks == -1
            if is_promised and sent.offset >= 0 and seen.get(sent.offset) != sent.value:
                self.broken("unseen", f"{place} {sent.offset}: {sent.value!r}")

    def consumed_at_end(self, group: str, place: Place, stored: Mapping[int, bytes]) -> None:
        """A group has committed everything, so its members have read it, at least once."""
        consumed = self._consumed.get((group, place), {})
        for offset, value in stored.items():
            if consumed.get(offset) != value:
                self.broken("unseen", f"{group} {place} {offset}: {value!r}")
