"""What a coordinator's decision is made of: records to append, replies to send, timers to set.

A coordinator is given a request and the time, and returns a Step. It sends nothing and stores nothing.
Whoever runs it does, for each Step, in this order and with nothing in between:

1. append the records to the coordinator's partition: in one batch if they fit, else in several, in order;
2. `replay` each record of a batch that was appended, with its offset: nothing else changes durable state, and
   loading does the same;
3. if something was refused, carry out, instead of the rest of this Step, the one that the coordinator returns
   for the refusal of just those records;
4. set and cancel the timers, in the order in which they stand: a key has one deadline, the last one set;
5. send the replies, and see to the markers, once the high watermark has reached the end of the log as it was
   after 1. That goes for a Step without records too: what it says may rest on records that can still be lost.

So a Step that is larger than a batch may be done in part: its first records make sense without those behind
them, and each without one before it that is too large for any batch. Offsets of different partitions do, and
so do a group's offsets without the tombstone of the group, and transactions. (Kafka refuses for ever what is
larger than a batch where it answers a request, and cuts only what it decides on its own.)

A token stands for a request that somebody waits for. Coordinators keep tokens while requests are parked, hand
each back in exactly one Reply, and never look at them. When the partition moves away, the replies still held
back are sent with an error instead (`refusals.refused`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

Token = object
"""A request that waits for its reply; opaque here."""


class RequestContext(Protocol):
    """What is known of a request besides its body."""

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it to people: with a slash before it."""
        ...


class Record(NamedTuple):
    """A record of the coordinator's topic. No value: a tombstone; `version` is that of the value's table."""

    key: object
    value: object | None
    version: int = 0


class Reply(NamedTuple):
    token: Token
    response: object


class Markers(NamedTuple):
    """The outcome of a transaction, to be written into all these partitions, each at its leader.

    Whoever does that tells `Transactions.markers_written` of every partition that has it. What cannot be
    written now is tried again, for as long as the coordinator's partition is led here.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: frozenset[tuple[str, int]]


class TimerKey(NamedTuple):
    """Names a timer; the coordinator that set it knows what it is for."""

    kind: str
    group_id: str = ""
    member_id: str = ""


class Timer(NamedTuple):
    """A deadline for a key, in place of the one it had; None cancels."""

    key: TimerKey
    deadline_ms: int | None


class Step:
    """One decision, taken at one moment. Filled by the coordinator, then only read."""

    __slots__ = ("markers", "notes", "now_ms", "records", "replies", "timers")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []
        self.markers: list[Markers] = []
        self.notes: list[str] = []
        """Sentences for the operator's log: why a group rebalances, who left it."""

    def append(self, key: object, value: object | None, version: int = 0) -> None:
        self.records.append(Record(key, value, version))

    def reply(self, token: Token, response: object) -> None:
        self.replies.append(Reply(token, response))

    def schedule(self, key: TimerKey, delay_ms: int) -> None:
        self.timers.append(Timer(key, self.now_ms + delay_ms))

    def cancel(self, key: TimerKey) -> None:
        self.timers.append(Timer(key, None))

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def of(self, records: list[Record]) -> Step:
        """This Step with only these of its records."""
        part = Step(self.now_ms)
        part.records, part.replies, part.timers = records, self.replies, self.timers
        part.markers, part.notes = self.markers, self.notes
        return part
