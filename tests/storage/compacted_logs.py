"""A log that is compacted, as its producers and consumers see it.

`Writer` appends to a log as producers and a transaction coordinator do, and remembers what ought to become of
every record; `written` and `large` give one that has written. `consumed` reads a log as a client does, with
read_committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from storage.cleaner import LogCleaner
from storage.files import Files
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.offset_map import BYTES_PER_KEY
from storage.producer_state import Origin
from storage.reading import Isolation
from storage.recovery import LogSettings, create_log, load_log
from wire.compression import Codec
from wire.errors import KafkaError
from wire.record_batch import BatchHeader, batch_headers
from wire.records import ControlType, Record, build_batch, control_batch, control_type, records

DIRECTORY = "/data/topic-0"
DAY_MS = 24 * 60 * 60 * 1000
START_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=1000,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DAY_MS,
)

SETTINGS = LogSettings(producer_id_expiration_ms=lambda: 1 << 60)
"""However far a test moves the clock."""

Pair = tuple[bytes | None, bytes | None]


def new_log(files: Files, config: LogConfig = CONFIG, directory: str = DIRECTORY) -> UnifiedLog:
    return create_log(files, directory, "topic", 0, config, now_ms=START_MS, settings=SETTINGS)


def reopened(log: UnifiedLog, files: Files | None = None, *, clean: bool = False) -> UnifiedLog:
    """The log as the next process finds it: after a clean shutdown, or after a crash."""
    if clean:
        log.close()
    again = load_log(
        files or log.files,
        log.directory,
        log.topic,
        log.partition,
        log.config,
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
        was_clean=clean,
        now_ms=START_MS,
        settings=SETTINGS,
    )
    again.high_watermark = log.high_watermark
    again.first_dirty_offset = log.first_dirty_offset
    return again


def cleaner_of(*logs: UnifiedLog, max_keys: int = 1000, **options: object) -> LogCleaner:
    return LogCleaner(logs[0].files, logs, dedupe_buffer_bytes=lambda: max_keys * BYTES_PER_KEY, **options)  # type: ignore[arg-type]


def clean(log: UnifiedLog, now_ms: int = START_MS, *, max_keys: int = 1000) -> bool:
    """Clean it once, if it can be."""
    cleaner = cleaner_of(log, max_keys=max_keys)
    cleaning = cleaner.choose(now_ms)
    if cleaning is None:
        return False
    cleaner.run(cleaning)
    assert cleaning.error is None, cleaning.error
    assert not cleaner.uncleanable
    assert log.offline is None
    return True


def clean_again(log: UnifiedLog, now_ms: int = START_MS, *, max_keys: int = 1000) -> None:
    """Clean all of it, as if nothing had been cleaned before, until the map has held every key."""
    log.first_dirty_offset = log.log_start_offset
    while clean(log, now_ms, max_keys=max_keys):
        pass


class Written(NamedTuple):
    """A record, with its offset."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Event(NamedTuple):
    """A batch of data, or a marker (`kind`)."""

    producer_id: int
    producer_epoch: int
    next_sequence: int
    transactional: bool
    written: list[Written]
    kind: ControlType | None
    last_offset: int


class Writer:
    """Appends to a log. What is written is replicated at once: the high watermark follows."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.now_ms = START_MS
        self.leader_epoch = 0
        self.events: list[Event] = []

    def put(
        self,
        pairs: Sequence[Pair],
        *,
        producer_id: int = -1,
        transactional: bool = False,
        codec: Codec = Codec.NONE,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> int:
        """Append a batch; its first offset."""
        self.now_ms += 1
        entries = [Record(i, self.now_ms + i % 3, *pair, headers) for i, pair in enumerate(pairs)]
        epoch, sequence = self._state_of(producer_id)
        options: dict[str, object] = {}
        if producer_id >= 0:
            options = {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": sequence,
                "transactional": transactional,
            }
        batch = build_batch(entries, codec=codec, **options)
        first = self.log.log_end_offset
        written = [Written(first + i, self.now_ms + i % 3, *pair) for i, pair in enumerate(pairs)]
        last_offset = first + len(pairs) - 1
        self._append(
            batch,
            Event(producer_id, epoch, sequence + len(pairs), transactional, written, None, last_offset),
        )
        return first

    def end(self, producer_id: int, kind: ControlType, *, bump: bool = False) -> int:
        """End a transaction; the offset of the marker. With `bump`, as transaction version 2 does."""
        self.now_ms += 1
        epoch, sequence = self._state_of(producer_id)
        if bump:
            epoch, sequence = epoch + 1, 0
        offset = self.log.log_end_offset
        self._append(
            control_batch(kind, producer_id, epoch, 0, self.now_ms),
            Event(producer_id, epoch, sequence, True, [], kind, offset),
        )
        return offset

    def _append(self, batch: bytes, event: Event) -> None:
        # Noted before it is written: if the power goes meanwhile, it may be there or not.
        self.events.append(event)
        log, header = self.log, BatchHeader.parse(batch)
        origin = Origin.CLIENT if event.kind is None else Origin.COORDINATOR
        (outcome,) = log.append_as_leader([(batch, header)], self.leader_epoch, self.now_ms, origin=origin)
        if isinstance(outcome, KafkaError):
            raise outcome
        assert outcome.last_offset == event.last_offset
        log.high_watermark = log.log_end_offset

    def roll(self) -> None:
        """Close the active segment, durably."""
        self.log.roll(self.now_ms)
        self.log.flush()

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset, self.now_ms)
        self.events = [event for event in self.events if event.last_offset < self.log.log_end_offset]

    def _state_of(self, producer_id: int) -> tuple[int, int]:
        for event in reversed(self.events):
            if event.producer_id == producer_id >= 0:
                return event.producer_epoch, event.next_sequence
        return 0, 0

    @property
    def committed(self) -> list[Written]:
        """In order of offsets; what belongs to a transaction counts when that is committed."""
        found: list[Written] = []
        open_transactions: dict[int, list[Written]] = {}
        for event in self.events:
            if event.kind is not None:
                pending = open_transactions.pop(event.producer_id, [])
                found += pending if event.kind is ControlType.COMMIT else []
            elif event.transactional:
                open_transactions.setdefault(event.producer_id, []).extend(event.written)
            else:
                found += event.written
        return sorted(one for one in found if self.log.log_start_offset <= one.offset)

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins, or the log ends."""
        begun: dict[int, int] = {}
        for event in self.events:
            if event.kind is not None:
                begun.pop(event.producer_id, None)
            elif event.transactional:
                begun.setdefault(event.producer_id, event.written[0].offset)
        return min(begun.values(), default=self.log.log_end_offset)

    def last_values(self) -> dict[bytes, bytes]:
        """What a reader of everything that is stable ends up with: keys without a value are gone."""
        stable = self.log.last_stable_offset
        return last_values(one for one in self.committed if one.offset < stable)


def written(files: Files, batches: int = 40, keys: int = 7, **changes: object) -> Writer:
    """A log of several closed segments in which every key comes often."""
    writer = Writer(new_log(files, replace(CONFIG, **changes)))  # type: ignore[arg-type]
    for number in range(batches):
        writer.put([(b"key-%d" % (number % keys), b"value %d" % number), (b"all", b"%d" % number)])
    writer.roll()
    return writer


def large(files: Files) -> Writer:
    """Enough for the throttle to be asked now and then: it is told of 256 KiB at a time."""
    writer = Writer(new_log(files, replace(CONFIG, segment_bytes=400_000)))
    for number in range(400):
        writer.put([(b"key-%d" % (number % 90), b"%d" % number + bytes(3000))])
    writer.roll()
    return writer


def last_values(written: Iterable[Written]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes | None] = {}
    for one in written:
        if one.key is not None:
            found[one.key] = one.value
    return {key: value for key, value in found.items() if value is not None}


def all_batches(log: UnifiedLog) -> list[tuple[BatchHeader, bytes]]:
    """Everything there is, by way of the reading side of the log."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, Isolation.LOG_END)
        data = bytes(result.records)
        found += [(header, data[at : at + header.size]) for at, header in batch_headers(data)]
        if result.next_offset == offset:
            break
        offset = result.next_offset
    return found


def all_records(log: UnifiedLog) -> list[Record]:
    """Every data record."""
    return [
        record
        for header, batch in all_batches(log)
        if not header.is_control
        for record in records(batch, 0, header)
    ]


def consumed(log: UnifiedLog, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Written]:
    """What a client gets that reads with read_committed, in pieces, from an offset or the beginning."""
    found: list[Written] = []
    offset = log.log_start_offset if offset is None else offset
    end = log.last_stable_offset
    while offset < end:
        result = log.read(offset, max_bytes, Isolation.COMMITTED)
        data = bytes(result.records)
        if not data:
            break
        aborted = sorted(result.aborted_transactions, key=lambda one: one.first_offset)
        active: set[int] = set()
        for at, header in batch_headers(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                active.add(aborted.pop(0).producer_id)
            if header.is_control:
                for record in records(data, at, header):
                    if control_type(record) is ControlType.ABORT:
                        active.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                found += (
                    Written(*record[:4]) for record in records(data, at, header) if record.offset >= offset
                )
        offset = result.next_offset
    return found
