"""The log: how fast it appends, reads, looks up and recovers, beside what the system calls alone take.

    .venv/bin/python -m benchmarks.storage [DIRECTORY]

Real files, no fsync: everything happens in the page cache. Each figure is the best of several rounds, in CPU
time; ratios are to `os.pwritev` or `os.pread` of the same buffers and sizes in the same run. CRCs of appended
batches are not part of it, since they are checked before a log sees them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

from storage.files import Disk
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.reading import Isolation
from storage.recovery import create_log, load_log
from wire.record_batch import BatchHeader
from wire.records import BatchBuilder

ROUNDS = 5
CONFIG = LogConfig(max_message_bytes=2 << 20)
FILES = Disk(durable=False)
Batch = tuple[bytes, BatchHeader]
SIZES = {"200 B": 200, "16 KiB": 16 << 10, "1 MiB": 1 << 20}


def batch(size: int, timestamp_ms: int = 0) -> Batch:
    """One record, in a batch of about this size."""
    builder = BatchBuilder()
    builder.append(None, os.urandom(size - 75), timestamp_ms=timestamp_ms)
    data = builder.build()
    return data, BatchHeader.parse(data)


def new_log(directory: Path, name: str) -> UnifiedLog:
    return create_log(FILES, str(directory / f"{name}-0"), name, 0, CONFIG, now_ms=0)


def best_s(run: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def append_groups(logs: list[UnifiedLog], groups: list[list[Batch]]) -> None:
    for number, group in enumerate(groups):
        logs[number % len(logs)].append_as_leader(group, 0, 0)


def appends(directory: Path) -> None:
    print("| Append | at once | logs | µs per batch | MB/s | writev, µs | of writev |")
    print("|---|---|---|---|---|---|---|")
    for name, size in SIZES.items():
        for at_once, count in ((1, 1), (10, 1), (10, 100)):
            groups = max(1, min(4000, (32 << 20) // (size * at_once)))
            work = [[batch(size, number) for _ in range(at_once)] for number in range(groups)]
            # In turns, and each time into new files: what a page costs depends on who had it before.
            times = [(logs_s(directory, count, work), raw_s(directory, count, work)) for _ in range(ROUNDS)]
            mine, raw = (min(column) / groups / at_once for column in zip(*times, strict=True))
            print(
                f"| {name} | {at_once} | {count} | {mine * 1e6:.1f} | {size / mine / 1e6:.0f} "
                f"| {raw * 1e6:.1f} | **{raw / mine:.2f}** |",
                flush=True,
            )


def logs_s(directory: Path, count: int, groups: list[list[Batch]]) -> float:
    """CPU time of appending the groups to new logs in turn."""
    logs = [new_log(directory, f"append{number}") for number in range(count)]
    append_groups(logs, [[batch(200)]] * count)  # opens the files
    start = time.process_time()
    append_groups(logs, groups)
    took = time.process_time() - start
    for log in logs:
        log.release()
        shutil.rmtree(log.directory)
    return took


def raw_s(directory: Path, count: int, groups: list[list[Batch]]) -> float:
    """CPU time of writing the same bytes to as many files, with nothing around them."""
    paths = [directory / f"raw{number}" for number in range(count)]
    files = [os.open(path, os.O_RDWR | os.O_CREAT) for path in paths]
    positions = [0] * count
    start = time.process_time()
    for number, group in enumerate(groups):
        file = number % count
        positions[file] += os.pwritev(files[file], [data for data, _ in group], positions[file])
    took = time.process_time() - start
    for descriptor, path in zip(files, paths, strict=True):
        os.close(descriptor)
        path.unlink()
    return took


def filled(directory: Path, name: str, size: int, total: int) -> UnifiedLog:
    log = new_log(directory, name)
    for number in range(0, total // size, 100):
        log.append_as_leader([batch(size, number + i) for i in range(100 if size < 1 << 20 else 1)], 0, 0)
    log.flush()
    log.high_watermark = log.log_end_offset
    return log


def read_all(log: UnifiedLog, chunk: int) -> None:
    offset = 0
    while offset < log.log_end_offset:
        offset = log.read(offset, chunk, Isolation.LOG_END).next_offset


def pread_all(path: str, chunk: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    position = 0
    while data := os.pread(descriptor, chunk, position):
        position += len(data)
    os.close(descriptor)


def reopened(log: UnifiedLog, *, clean: bool) -> UnifiedLog:
    recovery_point = log.log_end_offset if clean else 0
    return load_log(
        FILES, log.directory, log.topic, 0, CONFIG, recovery_point=recovery_point, was_clean=clean, now_ms=0
    )


def reads(directory: Path) -> None:
    print("\n| Batches of | read in | MB/s | first read after a restart, MB/s | pread, MB/s | of pread |")
    print("|---|---|---|---|---|---|")
    for name, size in SIZES.items():
        log = filled(directory, f"read-{size}", size, 64 << 20)
        log.close()
        for chunk in (1 << 20, 64 << 10):
            fresh = reopened(log, clean=True)
            start = time.process_time()
            read_all(fresh, chunk)
            first = time.process_time() - start
            again = best_s(partial(read_all, fresh, chunk))
            raw = best_s(partial(pread_all, fresh.segments.active.path, max(chunk, size)))
            total = fresh.size / 1e6
            print(
                f"| {name} | {chunk >> 10} KiB | {total / again:.0f} | {total / first:.0f} "
                f"| {total / raw:.0f} | **{raw / again:.2f}** |",
                flush=True,
            )
            fresh.release()


def look_up(log: UnifiedLog, timestamps: range) -> None:
    for timestamp in timestamps:
        log.offset_for_timestamp(timestamp)


def tail(log: UnifiedLog, one: Batch, count: int) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        log.append_as_leader([one], 0, 0)
        log.read(offset, 1 << 20, Isolation.LOG_END)


def the_rest(directory: Path) -> None:
    print("\n| Other | |")
    print("|---|---|")
    log = filled(directory, "tail", 200, 1 << 20)
    print(
        f"| append 200 B and read it | {best_s(partial(tail, log, batch(200), 2000)) / 2000 * 1e6:.1f} µs |"
    )
    log = filled(directory, "times", 1000, 32 << 20)
    span = range(0, log.segments.active.largest_timestamp, 97)
    print(f"| look up a time | {best_s(partial(look_up, log, span)) / len(span) * 1e6:.0f} µs |")
    for name, size in SIZES.items():
        log = filled(directory, f"recover-{size}", size, 64 << 20)
        log.segments.active.finish()
        took = best_s(lambda log=log: reopened(log, clean=False).release())  # type: ignore[misc]
        print(f"| recover batches of {name} | {log.size / took / 1e6:.0f} MB/s |", flush=True)
        log.release()
    for megabytes in (32, 256):
        memory = memory_kib(directory, megabytes)
        print(f"| memory of a log of {megabytes} MiB, read once | {memory:.0f} KiB |")
    print(f"| open 1,000 logs after a clean shutdown | {opening_ms(directory):.0f} ms |")


def memory_kib(directory: Path, megabytes: int) -> float:
    tracemalloc.start()
    log = filled(directory, f"memory-{megabytes}", 16 << 10, megabytes << 20)
    read_all(log, 1 << 20)
    took, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    log.release()
    return took / 1024


def opening_ms(directory: Path) -> float:
    logs = [new_log(directory, f"many{number}") for number in range(1000)]
    for log in logs:
        log.append_as_leader([batch(200)], 0, 0)
        log.close()
    return best_s(lambda: [reopened(log, clean=True) for log in logs]) * 1e3


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        for table in (appends, reads, the_rest):
            table(Path(directory))


if __name__ == "__main__":
    main()
