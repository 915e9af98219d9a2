"""Where coordinators keep their keys: in the partitions that Kafka's own classes choose."""

from __future__ import annotations

import base64
import random
from uuid import UUID

import pytest

from kbroker.client.producing import murmur2
from kbroker.coordinators.key_partition import (
    SMALLEST_INT,
    old_partition_of,
    old_place,
    partition_of,
    string_hash,
)
from tests.wire.kafka_jars import run_java, server_class_path

SMALLEST = "polygenelubricants"
"""Its hash is Integer.MIN_VALUE, of which Math.abs is negative."""
VECTORS = {
    "": (0, 0),
    "g": (3, 3),
    "simple": (26, 2),
    "console-consumer-1": (24, 0),
    "ünïcode-漢": (25, 1),
    "\U0001f600": (49, 3),
    "a" * 300: (14, 0),
    SMALLEST: (0, 0),
}
"""Key -> the partition of 50 and of 4 that Kafka 4.3.1's GroupCoordinatorService.partitionFor gives."""
TOPIC_ID = UUID(int=0x0123456789ABCDEF_7654321001234567)


@pytest.mark.parametrize("key", VECTORS)
def test_keys_are_spread_as_kafka_spreads_them(key: str) -> None:
    assert (partition_of(key, 50), partition_of(key, 4)) == VECTORS[key]


def test_keys_with_a_negative_hash_were_kept_in_one_other_partition() -> None:
    """Which is told by the right one alone, and tells it again."""
    chosen = random.Random(7)
    keys = [chosen.randbytes(6).hex() for _ in range(2_000)]
    for partitions in (1, 2, 3, 5, 7, 50, 64, 1000):
        for key in (*keys, *VECTORS):
            right, old = partition_of(key, partitions), old_partition_of(key, partitions)
            if string_hash(key) in range(SMALLEST_INT + 1, 0):
                assert old == old_place(right, partitions)
                assert right == old_place(old, partitions)
        assert [old_place(old_place(index, partitions), partitions) for index in range(partitions)] == list(
            range(partitions)
        )


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3, 4, 50, 1000])
def test_kafkas_own_classes_choose_the_same_partitions(partitions: int) -> None:
    """Groups, transactional ids, share partitions, and the records of producers."""
    chosen = random.Random(partitions)
    texts = [*VECTORS, *(f"group-{number}" for number in range(300))]
    texts += [
        "".join(map(chr, chosen.choices(range(0x20, 0xD800), k=chosen.randrange(40)))) for _ in range(300)
    ]
    sent = "\n".join(base64.b64encode(text.encode()).decode() or "" for text in texts)
    lines = run_java(server_class_path(), "PartitionsCheck.java", str(partitions), input=sent + "\n")
    assert len(lines) == len(texts)
    negative = 0
    for text, line in zip(texts, lines, strict=True):
        group, transaction, share, record, share_hash, murmur = map(int, line.split())
        share_key = f"{text}:{share_topic()}:7"
        assert (group, transaction) == (partition_of(text, partitions),) * 2, text
        assert (share, share_hash) == (partition_of(share_key, partitions), string_hash(share_key)), text
        ours = murmur2(text.encode())
        assert (record, murmur & 0xFFFFFFFF) == ((ours & 0x7FFFFFFF) % partitions, ours), text
        negative += string_hash(text) < 0
    assert negative > 200


def share_topic() -> str:
    """As Kafka writes an id."""
    return base64.urlsafe_b64encode(TOPIC_ID.bytes).decode().rstrip("=")
