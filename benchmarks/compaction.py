"""Compaction: how fast a log is cleaned, and what its map of keys costs.

    .venv/bin/python -m benchmarks.compaction

Real files in a temporary directory, no fsync. Rates are bytes of log per second of CPU, best of several
rounds; "x decoding" is the CPU time in units of decoding every record of the log once, which is the least a
cleaner in Python could do. Prints the tables of docs/performance.md.
"""

from __future__ import annotations

import random
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from storage.batch_scan import batches
from storage.cleaner import LogCleaner
from storage.cleaning import CleaningStatistics
from storage.files import Disk
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.offset_map import BYTES_PER_KEY, OffsetMap
from storage.recovery import create_log
from wire.compression import Codec
from wire.record_batch import BatchHeader
from wire.records import Record, build_batch, records

ROUNDS = 3
RECORDS = 120_000
PER_BATCH = 100
CONFIG = LogConfig(
    segment_bytes=8 << 20, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
)


def written(directory: Path, size: int, codec: Codec, keys: int) -> UnifiedLog:
    """A log with RECORDS records, of random keys."""
    files = Disk(durable=False)
    log = create_log(files, str(directory / "topic-0"), "topic", 0, CONFIG, now_ms=0)
    chance = random.Random(1)
    words = [b"%x" % chance.getrandbits(64) for _ in range(1000)]
    for start in range(0, RECORDS, PER_BATCH):
        entries = [
            Record(
                i,
                start,
                b"user-%08d" % chance.randrange(keys),
                b" ".join(chance.choices(words, k=size // 17)),
            )
            for i in range(PER_BATCH)
        ]
        batch = build_batch(entries, codec=codec)
        log.append_as_leader([(batch, BatchHeader.parse(batch))], 0, start)
    log.roll(RECORDS)
    log.flush()
    log.high_watermark = log.log_end_offset
    return log


def decoding_s(log: UnifiedLog) -> float:
    """CPU seconds to decode every record once."""
    start = time.process_time()
    for segment in log.segments:
        for _, header, batch in batches(segment.file, 0, segment.size):
            for _ in records(batch, 0, header):
                pass
    return time.process_time() - start


def cleaning_s(log: UnifiedLog) -> tuple[float, float, CleaningStatistics]:
    """CPU seconds to learn the keys, and to write what is left."""
    cleaner = LogCleaner(log.files, [log])
    cleaning = cleaner.choose(RECORDS)
    if cleaning is None:
        raise SystemExit("there is nothing to clean")
    start = time.process_time()
    cleaning.work()
    learnt = time.process_time()
    while cleaner.advance(cleaning):
        cleaning.work()
    if cleaning.error is not None:
        raise cleaning.error
    return learnt - start, time.process_time() - learnt, cleaning.statistics


def cases() -> Iterator[tuple[int, Codec, int]]:
    for size in (100, 1000):
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            yield size, codec, RECORDS // 4
    yield 1000, Codec.NONE, RECORDS // 100
    yield 1000, Codec.NONE, RECORDS * 100


def cleaning_table() -> None:
    print("| Values | Codec | Records that stay | MB/s | µs per record | of it learning | x decoding |")
    print("|---|---|---|---|---|---|---|")
    for size, codec, keys in cases():
        best: tuple[float, float] | None = None
        decoding = float("inf")
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as directory:
                log = written(Path(directory), size, codec, keys)
                decoding = min(decoding, decoding_s(log))
                learning, writing, statistics = cleaning_s(log)
                log.release()
            if best is None or learning + writing < sum(best):
                best = learning, writing
        if best is None:
            raise SystemExit("no rounds")
        total = sum(best)
        print(
            f"| {size} B | {codec.name.lower()} | {statistics.records_kept / RECORDS:.0%} "
            f"| {statistics.bytes_read / total / 1e6:.0f} | {total / RECORDS * 1e6:.1f} "
            f"| {best[0] / RECORDS * 1e6:.1f} | **{total / decoding:.1f}** |",
            flush=True,
        )


def map_table() -> None:
    print("\n| Keys of | µs per key put | bytes per key, when full | bound |")
    print("|---|---|---|---|")
    count = 400_000
    for size in (16, 36, 200):
        keyed = [(i, b"%0*d" % (size, i), False, 0, 0, 0) for i in range(count)]
        times = []
        for _ in range(ROUNDS):
            offsets = OffsetMap(count * BYTES_PER_KEY)
            start = time.process_time()
            offsets.put_all(keyed, 0)
            times.append(time.process_time() - start)
        tracemalloc.start()
        offsets = OffsetMap(count * BYTES_PER_KEY)
        offsets.put_all(((i, b"%0*d" % (size, i), False, 0, 0, 0) for i in range(count)), 0)
        used, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(
            f"| {size} B | {min(times) / count * 1e6:.2f} | {used / count:.0f}, {peak / count:.0f} at most "
            f"| {BYTES_PER_KEY} |"
        )


def main() -> None:
    cleaning_table()
    map_table()


if __name__ == "__main__":
    main()
