"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.conversation import Conversation, script
from compat_tests.differential.scripts_produce import THEN_MS, batch
from wire.compression import Codec
from wire.records import BatchBuilder

SPECIAL = (-1, -2, -3, -4, -5, -6, -7)


def list_offsets(
    talk: Conversation, version: int, label: str, name: str, *timestamps: int, partition: int = 0, **more: Any
) -> None:
    epoch = {"current_leader_epoch": more.pop("epoch")} if "epoch" in more else {}
    rows = [{"partition_index": partition, "timestamp": one, **epoch} for one in timestamps]
    talk.ask(
        "ListOffsets",
        version,
        label,
        replica_id=-1,
        topics=[{"name": talk.name(name), "partitions": rows}],
        **more,
    )


def out_of_order(*delays_ms: int, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec)
    for delay_ms in delays_ms:
        builder.append(b"k", b"v", timestamp_ms=THEN_MS + delay_ms)
    return builder.build()


@script
def offsets_in_every_version(talk: Conversation) -> None:
    """conformance 59, 63-65"""
    talk.create("empty")
    talk.create("t")
    talk.produce(
        "t",
        out_of_order(0, 30, 10, 20),
        out_of_order(5, 40, 40, 15, codec=Codec.ZSTD),
        out_of_order(25, codec=Codec.GZIP),
    )
    for version in talk.versions("ListOffsets"):
        for timestamp in (*SPECIAL, -100, 0, THEN_MS):
            list_offsets(talk, version, f"empty at {timestamp}", "empty", timestamp)
            list_offsets(talk, version, f"at {timestamp}", "t", timestamp)
        list_offsets(talk, version, "unknown topic", "no", -1)
        list_offsets(talk, version, "unknown partition", "t", -1, partition=1)
        list_offsets(talk, version, "negative partition", "t", -1, partition=-1)
        list_offsets(talk, version, "one twice", "t", -1, -2)
        talk.ask("ListOffsets", version, "nothing", replica_id=-1, topics=[])
        if version >= 2:
            list_offsets(talk, version, "committed", "t", -1, isolation_level=1)
        if version >= 4:
            for epoch in (0, 1, 99):
                list_offsets(talk, version, f"epoch {epoch}", "t", -1, epoch=epoch)
    for delay_ms in range(-5, 50, 5):
        list_offsets(talk, 9, f"after {delay_ms} ms", "t", THEN_MS + delay_ms)


@script
def offsets_after_deletion(talk: Conversation) -> None:
    talk.create("t")
    talk.produce("t", out_of_order(0, 30, 10), out_of_order(5, 6))
    for offset in (1, 4, 5):
        delete_records(talk, 2, f"to {offset}", {"t": {0: offset}})
        for timestamp in (*SPECIAL[:4], THEN_MS, THEN_MS + 6):
            list_offsets(talk, 9, f"at {timestamp} after {offset} deleted", "t", timestamp)


def delete_records(talk: Conversation, version: int, label: str, offsets: dict[str, dict[int, int]]) -> None:
    topics = [
        {
            "name": talk.name(name),
            "partitions": [
                {"partition_index": index, "offset": offset} for index, offset in partitions.items()
            ],
        }
        for name, partitions in offsets.items()
    ]
    talk.ask("DeleteRecords", version, label, topics=topics, timeout_ms=10_000)


@script
def records_are_deleted(talk: Conversation) -> None:
    """conformance 66"""
    for version in talk.versions("DeleteRecords"):
        name = f"v{version}"
        talk.create(name, 2)
        talk.produce(name, batch(b"1", b"2", b"3"), batch(b"4"))
        for offset in (0, 2, 1, 5, -2, 2, -1, -1, 4):
            delete_records(talk, version, f"to {offset}", {name: {0: offset, 1: 0}})
        delete_records(talk, version, "unknown", {"no": {0: 0}, name: {7: 0, -1: 0}})
        delete_records(talk, version, "nothing", {})
        talk.produce(name, batch(b"5"))
        list_offsets(talk, 9, "the end", name, -1)
        list_offsets(talk, 9, "the beginning", name, -2)
    talk.create("compacted", cleanup_policy="compact")
    talk.produce("compacted", batch())
    delete_records(talk, 2, "of a compacted topic", {"compacted": {0: 1}})
    internal = [{"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}]
    talk.until(
        lambda reply: reply.topics[0].error_code == 0, "Metadata", 9, topics=[{"name": "__consumer_offsets"}]
    )
    talk.ask("DeleteRecords", 2, "of an internal topic", topics=internal, timeout_ms=10_000)


@script
def ends_of_epochs(talk: Conversation) -> None:
    """conformance 59, 65"""
    talk.create("t")
    talk.create("empty")
    talk.produce("t", batch(b"1", b"2"))
    for version in talk.versions("OffsetForLeaderEpoch"):
        for name in ("t", "empty", "no"):
            for epoch in (0, 1, -1, -2, 99):
                row = {"partition": 0, "leader_epoch": epoch}
                talk.ask(
                    "OffsetForLeaderEpoch",
                    version,
                    f"{name} {epoch}",
                    topics=[{"topic": talk.name(name), "partitions": [row]}],
                )
        rows = [{"partition": one, "leader_epoch": 0} for one in (1, -1)]
        topics = [{"topic": talk.name("t"), "partitions": rows}]
        talk.ask("OffsetForLeaderEpoch", version, "unknown partitions", topics=topics)
        talk.ask("OffsetForLeaderEpoch", version, "nothing", topics=[])
        for epoch in (0, 1) if version >= 2 else ():
            row = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": epoch}
            topics = [{"topic": talk.name("t"), "partitions": [row]}]
            talk.ask("OffsetForLeaderEpoch", version, f"current {epoch}", topics=topics)


@script
def offsets_where_no_record_has_a_time(talk: Conversation) -> None:
    """The largest timestamp is that of the first record then, and -1."""
    timeless = [BatchBuilder() for _ in range(3)]
    for number, builder in enumerate(timeless):
        for _ in range(2):
            builder.append(b"k", b"%d" % number, timestamp_ms=-1)
    talk.create("timeless")
    talk.create("mixed")
    talk.produce("timeless", *(builder.build() for builder in timeless))
    talk.produce("mixed", timeless[0].build(), out_of_order(0), timeless[1].build())
    for version in talk.versions("ListOffsets"):
        for name in ("timeless", "mixed"):
            for timestamp in (*SPECIAL[:4], 0, 1):
                list_offsets(talk, version, f"{name} at {timestamp}", name, timestamp)
    delete_records(talk, 2, "one of them", {"timeless": {0: 1}})
    list_offsets(talk, 9, "timeless at -3, one deleted", "timeless", -3)
    delete_records(talk, 2, "a batch of them", {"timeless": {0: 3}})
    list_offsets(talk, 9, "timeless at -3, a batch deleted", "timeless", -3)
    delete_records(talk, 2, "all of them", {"timeless": {0: -1}})
    list_offsets(talk, 9, "timeless at -3, all deleted", "timeless", -3)
