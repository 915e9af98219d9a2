"""Apache Kafka and we compact the same directory: the same batches are left, with the same records.

Kafka is filled while min.compaction.lag.ms keeps its cleaner away, and stopped; that is what we clean. Then
it is started again without the lag, and cleans its own.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from compat_tests.apache_kafka import ApacheKafka, reason_to_skip
from compat_tests.storage.filled_kafka import (
    CODECS,
    PROPERTIES,
    admin_of,
    producer_of,
    read_partition,
    roll,
    text,
    wait_until,
    write_transactions,
)
from storage.batch_scan import checked_batches
from storage.checkpoints import CLEANER_OFFSETS, read_offsets
from storage.cleaner import LogCleaner
from storage.files import Disk
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.log_manager import LogManager
from tests.storage.sample_directory import at_once
from wire.record_batch import BatchHeader
from wire.records import Record, records

pytestmark = pytest.mark.slow
DISK = Disk(durable=False)
FAR_MS = 10 * 365 * 24 * 60 * 60 * 1000
TOPICS = ("plain", "mixed")


def settings(lag_ms: int) -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "4000000",
        "min.compaction.lag.ms": str(lag_ms),
        "segment.ms": "700",
        "index.interval.bytes": "400",
    }


def fill(kafka: ApacheKafka) -> None:
    with admin_of(kafka) as admin:
        admin.create_topics([NewTopic(name, 1, 1, topic_configs=settings(FAR_MS)) for name in TOPICS])
    chance = random.Random(4)
    for codec in CODECS:
        with producer_of(kafka, compression_type=codec, batch_size=900, linger_ms=2) as producer:
            for number in range(250):
                value = None if number % 9 == 4 else text(chance, 60)
                producer.send(
                    "plain",
                    value,
                    b"key-%d" % chance.randrange(60),
                    [("h", b"%d" % number)],
                    0,
                )
        roll(kafka, "plain")
    write_transactions(kafka, "mixed", (0,), 9)
    roll(kafka, "mixed")
    write_transactions(kafka, "mixed", (0,), 6)
    roll(kafka, "mixed")
    roll(kafka, "mixed")


def let_it_clean(kafka: ApacheKafka) -> None:
    with admin_of(kafka) as admin:
        for name in TOPICS:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=settings(0))])

    def is_done() -> bool:
        offsets = read_offsets(DISK, str(kafka.log_dir / CLEANER_OFFSETS))
        bases = {n: max(int(p.stem) for p in (kafka.log_dir / f"{n}-0").glob("*.log")) for n in TOPICS}
        return all(offsets.get((name, 0), 0) >= bases[name] for name in TOPICS)

    wait_until(is_done, "the cleaner")


def batches_below(directory: Path, end_offset: int) -> list[tuple[BatchHeader, list[Record]]]:
    found: list[tuple[BatchHeader, list[Record]]] = []
    for path in sorted(directory.glob("*.log")):
        file = DISK.open(str(path), read_only=True)
        for _, header, batch in checked_batches(file, 0, file.size):
            if header.base_offset < end_offset:
                masked = header._replace(batch_length=0, crc=0, base_timestamp=0)
                found.append((masked, list(records(batch, 0, header))))
        file.close()
    return found


def test_the_same_batches_are_left(tmp_path: Path) -> None:
    """Conformance 68, 69, 70."""
    if reason := reason_to_skip("4.3.1"):
        pytest.skip(reason)
    with ApacheKafka("4.3.1", tmp_path / "kafka", properties=PROPERTIES) as kafka:
        fill(kafka)
        kafka.stop()
        ours = shutil.copytree(kafka.log_dir, tmp_path / "ours")
        before = {name: batches_below(ours / f"{name}-0", 1 << 60) for name in TOPICS}
        kafka.start()
        let_it_clean(kafka)
        seen = {name: read_partition(kafka, name, 0) for name in TOPICS}
        kafka.stop()
        theirs = kafka.log_dir
        config = LogConfig(
            segment_bytes=4_000_000,
            index_interval_bytes=400,
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.01,
        )
        manager = LogManager(
            DISK,
            [str(ours)],
            config_for=lambda topic: config,
            submit=at_once,
            call=lambda function: function(),
            unique=lambda: "0" * 32,
        )
        now_ms = time.time_ns() // 1_000_000
        manager.start(now_ms)
        logs: list[UnifiedLog] = [log for log in manager if log.topic in TOPICS]
        cleaner = LogCleaner(DISK, logs)
        while (cleaning := cleaner.choose(now_ms)) is not None:
            cleaner.run(cleaning)
            assert cleaning.error is None
        for log in logs:
            end = min(
                log.first_dirty_offset,
                read_offsets(DISK, str(theirs / CLEANER_OFFSETS))[(log.topic, 0)],
            )
            mine = batches_below(ours / f"{log.topic}-0", end)
            his = batches_below(theirs / f"{log.topic}-0", end)
            print(
                log.topic,
                "end",
                end,
                "batches before",
                len(before[log.topic]),
                "ours",
                len(mine),
                "theirs",
                len(his),
            )
            assert mine == his
            assert 0 < len(mine) < len(before[log.topic])
            left = [(r.offset, r.key, r.value) for h, some in mine if not h.is_control for r in some]
            assert [(r.offset, r.key, r.value) for r in seen[log.topic].records if r.offset < end] == left
        manager.close()
