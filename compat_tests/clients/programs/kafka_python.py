"""kafka-python, as a program that `program.py` speaks with."""

from __future__ import annotations

import re
import sys
import time
import warnings
from typing import Any

from compat_tests.clients.programs.lines import (
    HEARTBEAT_MS,
    LARGEST_RECORD,
    METADATA_MS,
    SESSION_MS,
    as_json,
    report,
    serve,
    to_bytes,
    to_headers,
    to_text,
    told_to_leave,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka import (
        ConsumerRebalanceListener,
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
        errors,
    )
    from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

ADDRESS = sys.argv[-1]
ASSIGNORS = {"range": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}
POLL_MS = 1000
"""A poll that ends in the middle of a rebalance makes kafka-python 3.0.12 forget its assignment for good."""

producers: dict[tuple[Any, ...], Any] = {}
admins: list[Any] = []


def code_of(error: Exception) -> int:
    code = getattr(error, "errno", None)
    return -1 if code is None else int(code)


def produce(
    topic: str, records: list[Any], codec: str = "none", acks: str = "all", idempotent: bool = False
) -> Any:
    options = (codec, acks, idempotent)
    if options not in producers:
        producers[options] = KafkaProducer(
            bootstrap_servers=ADDRESS,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=LARGEST_RECORD,
        )
    producer = producers[options]
    futures = [
        producer.send(
            topic,
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            headers=to_headers(record["headers"]),
            partition=record["partition"],
            timestamp_ms=record["timestamp"],
        )
        for record in records
    ]
    producer.flush()
    answers = [future.get() for future in futures]
    return {"offsets": [[one.partition, one.offset] for one in answers]}


def consumer(**options: Any) -> Any:
    settings = {"enable_auto_commit": False, "fetch_max_wait_ms": 100, "metadata_max_age_ms": METADATA_MS}
    return KafkaConsumer(bootstrap_servers=ADDRESS, **settings, **options)


def consume(
    topic: str, starts: dict[str, int], count: int, reset: str = "none", timeout_ms: int = 30_000
) -> Any:
    reader = consumer(auto_offset_reset=reset)
    records: list[Any] = []
    deadline = time.monotonic() + timeout_ms / 1000
    try:
        reader.assign([TopicPartition(topic, int(number)) for number in starts])
        for number, offset in starts.items():
            reader.seek(TopicPartition(topic, int(number)), offset)
        while len(records) < count and time.monotonic() < deadline:
            found = reader.poll(200, max_records=count - len(records))
            records += [as_json(record) for batch in found.values() for record in batch]
    finally:
        reader.close()
    return {"records": records}


class Reporter(ConsumerRebalanceListener):  # type: ignore[misc]
    """With a cooperative assignor the calls say what came and what went, otherwise what there is."""

    def __init__(self) -> None:
        self.mine: set[Any] = set()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.mine -= set(revoked)
        report(assigned=sorted(self.mine))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.mine |= set(assigned)
        report(assigned=sorted(self.mine))


def member(
    group: str,
    topics: list[str] | None = None,
    pattern: str | None = None,
    assignor: str = "range",
    instance_id: str | None = None,
    count: int | None = None,
    session_ms: int = SESSION_MS,
) -> Any:
    reader = consumer(
        group_id=group,
        auto_offset_reset="earliest",
        group_instance_id=instance_id,
        partition_assignment_strategy=[ASSIGNORS[assignor]],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    reader.subscribe(topics=topics or (), pattern=pattern, listener=Reporter())
    got = 0
    while not told_to_leave() and (count is None or got < count):
        try:
            for place, records in reader.poll(
                POLL_MS, max_records=None if count is None else count - got
            ).items():
                got += len(records)
                report(records=[[*place, record.offset, to_text(record.value)] for record in records])
                reader.commit({place: OffsetAndMetadata(records[-1].offset + 1, "", -1)})
        except errors.KafkaConnectionError:
            continue  # the next poll tries again, and what comes then commits this as well
    reader.close()
    return {"left": True}


def admin() -> Any:
    if not admins:
        admins.append(KafkaAdminClient(bootstrap_servers=ADDRESS))
    return admins[0]


def offsets(topic: str, at: Any) -> Any:
    spec = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}.get(at, at)
    asked = {TopicPartition(topic, int(number)): spec for number in describe_topic(topic)["leaders"]}
    found = admin().list_partition_offsets(asked)
    return {"offsets": {place.partition: one.offset for place, one in found.items()}}


def create_topic(topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    options = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
    admin().create_topics({topic: options})


def delete_topic(topic: str) -> None:
    admin().delete_topics([topic])


def topics() -> Any:
    return {"topics": admin().list_topics()}


def describe_topic(topic: str) -> Any:
    [found] = admin().describe_topics([topic])
    return {"leaders": {one["partition_index"]: one["leader_id"] for one in found["partitions"]}}


def grow_topic(topic: str, partitions: int) -> None:
    admin().create_partitions({topic: partitions})


def topic_configs(topic: str) -> Any:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    [by_name] = admin().describe_configs([resource], config_filter="all").values()
    return {"configs": {name: found["value"] for name, found in by_name[topic].items()}}


def alter_topic_configs(topic: str, configs: dict[str, str]) -> None:
    """Errors come as texts that begin with their numbers."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)
    outcome = admin().alter_configs([resource])["topic"][topic]
    if outcome != "OK":
        raise errors.for_code(int(re.findall(r"\d+", outcome)[0]))(outcome)


def delete_records(topic: str, before: dict[str, int]) -> None:
    admin().delete_records({TopicPartition(topic, int(number)): offset for number, offset in before.items()})


def groups() -> Any:
    return {"groups": [one["group_id"] for one in admin().list_groups()]}


def describe_group(group: str) -> Any:
    found = admin().describe_groups([group])[group]
    return {"state": found["group_state"], "members": len(found["members"])}


def delete_group(group: str) -> None:
    """Errors come by the names of their classes."""
    for name in admin().delete_groups([group]).values():
        if name != "OK":
            raise getattr(errors, name)


def group_offsets(group: str, topic: str, partitions: list[int]) -> Any:
    asked = [TopicPartition(topic, number) for number in partitions]
    found = admin().list_group_offsets({group: asked})[group]
    return {"offsets": {place.partition: one.offset for place, one in found.items()}}


def alter_group_offsets(group: str, topic: str, offsets: dict[str, int]) -> None:
    positions = {
        TopicPartition(topic, int(number)): OffsetAndMetadata(offset, "", -1)
        for number, offset in offsets.items()
    }
    for error in admin().alter_group_offsets(group, positions).values():
        if error.errno:
            raise error


def cluster() -> Any:
    found = admin().describe_cluster()
    brokers = [[one["broker_id"], one["host"], one["port"]] for one in found["brokers"]]
    return {"brokers": brokers, "controller": found["controller_id"]}


VERBS = (
    *(produce, consume, member, offsets, cluster),
    *(create_topic, delete_topic, topics, describe_topic, grow_topic, topic_configs, alter_topic_configs),
    *(delete_records, groups, describe_group, delete_group, group_offsets, alter_group_offsets),
)

if __name__ == "__main__":
    serve({verb.__name__: verb for verb in VERBS}, code_of)
