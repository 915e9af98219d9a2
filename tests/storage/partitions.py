"""Batches to append, and logs to append them to: what the tests of the log have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from storage.appending import Appended
from storage.files import Buffer, Files
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.log_manager import LogManager
from storage.producer_state import Origin
from storage.reading import Isolation
from storage.recovery import create_log, load_log
from wire.compression import Codec
from wire.errors import KafkaError
from wire.record_batch import BatchHeader, batch_headers
from wire.records import BatchBuilder, ControlType, control_batch, records

T = TypeVar("T")

Batch = tuple[bytes, BatchHeader]

SMALL = LogConfig(
    segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=800, file_delete_delay_ms=1000
)
TOPIC_ID = bytes(range(16))


class Stored(NamedTuple):
    """A record, as a reader sees it."""

    offset: int
    value: bytes | None


def batch(
    *values: bytes | str,
    timestamps: Iterable[int] = (),
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> Batch:
    """A batch of records with these values, one millisecond apart unless told otherwise."""
    builder = BatchBuilder(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    times = list(timestamps) or range(1000, 1000 + len(values))
    for value, timestamp_ms in zip(values, times, strict=True):
        data = value if isinstance(value, bytes) else value.encode()
        builder.append(b"key", data, timestamp_ms=timestamp_ms)
    data = builder.build()
    return data, BatchHeader.parse(data)


def marker(producer_id: int, epoch: int = 0, *, commit: bool, timestamp: int = 1000) -> Batch:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    data = control_batch(kind, producer_id, epoch, coordinator_epoch=0, timestamp_ms=timestamp)
    return data, BatchHeader.parse(data)


def new_log(
    files: Files, config: LogConfig = SMALL, directory: str = "/log/topic-0", *, now_ms: int = 0
) -> UnifiedLog:
    return create_log(files, directory, "topic", 0, config, now_ms=now_ms, topic_id=TOPIC_ID)


def reopened(
    log: UnifiedLog,
    files: Files | None = None,
    *,
    clean: bool = False,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    now_ms: int = 0,
) -> UnifiedLog:
    """The log as the next process opens it, with the checkpoints of the last one unless told otherwise."""
    return load_log(
        files or log.files,
        log.directory,
        log.topic,
        log.partition,
        log.config,
        recovery_point=log.recovery_point if recovery_point is None else recovery_point,
        log_start_offset=log.log_start_offset if log_start_offset is None else log_start_offset,
        was_clean=clean,
        now_ms=now_ms,
    )


def append(log: UnifiedLog, *batches: Batch, epoch: int = 0, now_ms: int = 0) -> list[Appended]:
    """Append; a batch that is refused raises. The high watermark follows, as with one replica."""
    outcomes = []
    for batch_ in batches:
        origin = Origin.COORDINATOR if batch_[1].is_control else Origin.CLIENT
        (outcome,) = log.append_as_leader([batch_], epoch, now_ms, origin=origin)
        if isinstance(outcome, KafkaError):
            raise outcome
        outcomes.append(outcome)
    log.high_watermark = log.log_end_offset
    return outcomes


def fill(log: UnifiedLog, count: int, *, size: int = 50, epoch: int = 0) -> None:
    """Batches of one record each, numbered by their offsets, with growing timestamps."""
    for _ in range(count):
        offset = log.log_end_offset
        append(log, batch(b"%d" % offset + b"." * size, timestamps=[1000 + offset]), epoch=epoch)


def chunks(
    log: UnifiedLog, offset: int | None = None, max_bytes: int = 500, isolation: Isolation = Isolation.LOG_END
) -> Iterator[Buffer]:
    """What a reader gets that reads to the end."""
    offset = log.log_start_offset if offset is None else offset
    while True:
        result = log.read(offset, max_bytes, isolation)
        if not result.records:
            if result.next_offset == offset:
                return
        else:
            yield result.records
        offset = result.next_offset


def headers_of(log: UnifiedLog, offset: int | None = None, max_bytes: int = 500) -> list[BatchHeader]:
    return [header for chunk in chunks(log, offset, max_bytes) for _, header in batch_headers(chunk)]


def contents(log: UnifiedLog, max_bytes: int = 500, isolation: Isolation = Isolation.LOG_END) -> list[Stored]:
    """Every record from the log start on that is not a control record."""
    return [
        Stored(record.offset, record.value)
        for chunk in chunks(log, None, max_bytes, isolation)
        for position, header in batch_headers(chunk)
        if not header.is_control
        for record in records(chunk, position, header)
        if record.offset >= log.log_start_offset
    ]


def inline(function: Callable[[], T]) -> Future[T]:
    """An executor's `submit` that runs the function at once."""
    future: Future[T] = Future()
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
    return future


def new_manager(files: Files, paths: Iterable[str] = ("/log",), config: LogConfig = SMALL) -> LogManager:
    """A manager whose threads run at once, one after the other."""
    numbers = iter(range(1000))
    return LogManager(
        files,
        list(paths),
        config_for=lambda topic: config,
        submit=inline,
        call=lambda function: function(),
        unique=lambda: f"{next(numbers):032x}",
    )
