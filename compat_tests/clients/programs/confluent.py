"""confluent-kafka (librdkafka), as a program that `program.py` speaks with."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions as GroupOffsets
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from compat_tests.clients.programs.lines import (
    HEARTBEAT_MS,
    LARGEST_RECORD,
    METADATA_MS,
    SESSION_MS,
    report,
    serve,
    to_bytes,
    to_headers,
    to_text,
    told_to_leave,
)

ADDRESS: dict[str, Any] = {"bootstrap.servers": sys.argv[-1]}
ASSIGNORS = {"range": "range", "cooperative": "cooperative-sticky"}
NO_OFFSET = -1001

producers: dict[tuple[Any, ...], Producer] = {}
admin = AdminClient(ADDRESS)


def code_of(error: Exception) -> int:
    if isinstance(error, KafkaException):
        code: int = error.args[0].code()
        return code
    return -1


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """What is received is a list of pairs; the type says what may be sent as well."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def produce(
    topic: str, records: list[Any], codec: str = "none", acks: str = "all", idempotent: bool = False
) -> Any:
    producer = producers.get((codec, acks, idempotent)) or Producer(
        {
            **ADDRESS,
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": idempotent,
            "linger.ms": 5,
            "message.max.bytes": LARGEST_RECORD,
            "queue.buffering.max.messages": 200_000,
        }
    )
    producers[codec, acks, idempotent] = producer
    offsets: list[list[int]] = [[-1, -1] for _ in records]
    failures: list[Any] = []

    def delivered(index: int, error: Any, message: Any) -> None:
        if error:
            failures.append(error)
        offsets[index] = [message.partition(), message.offset()]

    for index, record in enumerate(records):
        producer.produce(
            topic,
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            headers=to_headers(record["headers"]),
            timestamp=record["timestamp"] or 0,
            on_delivery=partial(delivered, index),
            **({} if record["partition"] is None else {"partition": record["partition"]}),
        )
        producer.poll(0)
    producer.flush()
    if failures:
        raise KafkaException(failures[0])
    return {"offsets": offsets}


def consumer(**options: Any) -> Consumer:
    return Consumer(
        {
            **ADDRESS,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": METADATA_MS,
            **options,
        }
    )


def consume(
    topic: str, starts: dict[str, int], count: int, reset: str = "none", timeout_ms: int = 30_000
) -> Any:
    reader = consumer(**{"auto.offset.reset": {"none": "error"}.get(reset, reset)})
    reader.assign([TopicPartition(topic, int(number), offset) for number, offset in starts.items()])
    records: list[Any] = []
    deadline = time.monotonic() + timeout_ms / 1000
    try:
        while len(records) < count and time.monotonic() < deadline:
            for message in reader.consume(min(1000, count - len(records)), 0.2):
                if message.error():
                    raise KafkaException(message.error())
                records.append(
                    {
                        "partition": message.partition(),
                        "offset": message.offset(),
                        "key": to_text(message.key()),
                        "value": to_text(message.value()),
                        "headers": [(name, to_text(value)) for name, value in headers_of(message)],
                        "timestamp": message.timestamp()[1],
                    }
                )
    finally:
        reader.close()
    return {"records": records}


def member(
    group: str,
    topics: list[str] | None = None,
    pattern: str | None = None,
    assignor: str = "range",
    instance_id: str | None = None,
    count: int | None = None,
    session_ms: int = SESSION_MS,
) -> Any:
    options: dict[str, Any] = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": ASSIGNORS[assignor],
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    if instance_id is not None:
        options["group.instance.id"] = instance_id
    reader = consumer(**options)
    mine: set[tuple[str, int]] = set()

    def assigned(_: Any, partitions: list[TopicPartition]) -> None:
        mine.update((one.topic, one.partition) for one in partitions)
        report(assigned=sorted(mine))

    def revoked(_: Any, partitions: list[TopicPartition]) -> None:
        mine.difference_update((one.topic, one.partition) for one in partitions)
        report(assigned=sorted(mine))

    reader.subscribe(topics or [pattern or ""], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    got = 0
    while not told_to_leave() and (count is None or got < count):
        found = reader.consume(100 if count is None else count - got, 0.05)
        messages = [message for message in found if not message.error()]
        if messages:
            got += len(messages)
            report(
                records=[
                    [one.topic(), one.partition(), one.offset(), to_text(one.value())] for one in messages
                ]
            )
            commit(reader, messages)
    reader.close()
    return {"left": True}


def commit(reader: Consumer, messages: list[Any]) -> None:
    positions = {(one.topic(), one.partition()): one.offset() + 1 for one in messages}
    try:
        reader.commit(
            offsets=[TopicPartition(*place, offset) for place, offset in positions.items()],
            asynchronous=False,
        )
    except KafkaException as error:
        if not error.args[0].retriable() and error.args[0].name() not in (
            "ILLEGAL_GENERATION",
            "REBALANCE_IN_PROGRESS",
        ):
            print(error, file=sys.stderr)


def offsets(topic: str, at: Any) -> Any:
    specs = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest()}
    spec = specs.get(at) or OffsetSpec.for_timestamp(at)
    asked = {TopicPartition(topic, int(number)): spec for number in describe_topic(topic)["leaders"]}
    found = {place.partition: future.result().offset for place, future in admin.list_offsets(asked).items()}
    return {"offsets": found}


def done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result()


def create_topic(topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    done(admin.create_topics([NewTopic(topic, partitions, 1, config=configs or {})]))


def delete_topic(topic: str) -> None:
    done(admin.delete_topics([topic]))


def topics() -> Any:
    return {"topics": list(admin.list_topics(timeout=30).topics)}


def describe_topic(topic: str) -> Any:
    described = admin.describe_topics(TopicCollection([topic]))[topic].result()
    return {"leaders": {one.id: one.leader.id for one in described.partitions}}


def grow_topic(topic: str, partitions: int) -> None:
    done(admin.create_partitions([NewPartitions(topic, partitions)]))


def topic_configs(topic: str) -> Any:
    [future] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {"configs": {name: entry.value for name, entry in future.result().items()}}


def alter_topic_configs(topic: str, configs: dict[str, str]) -> None:
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
    done(admin.incremental_alter_configs([resource]))


def delete_records(topic: str, before: dict[str, int]) -> None:
    done(
        admin.delete_records(
            [TopicPartition(topic, int(number), offset) for number, offset in before.items()]
        )
    )


def groups() -> Any:
    return {"groups": [one.group_id for one in admin.list_consumer_groups().result().valid]}


def describe_group(group: str) -> Any:
    described = admin.describe_consumer_groups([group])[group].result()
    return {"state": described.state.name.title(), "members": len(described.members)}


def delete_group(group: str) -> None:
    done(admin.delete_consumer_groups([group]))


def group_offsets(group: str, topic: str, partitions: list[int]) -> Any:
    asked = GroupOffsets(group, [TopicPartition(topic, number) for number in partitions])
    found = admin.list_consumer_group_offsets([asked])[group].result().topic_partitions
    return {"offsets": {one.partition: -1 if one.offset == NO_OFFSET else one.offset for one in found}}


def alter_group_offsets(group: str, topic: str, offsets: dict[str, int]) -> None:
    positions = [TopicPartition(topic, int(number), offset) for number, offset in offsets.items()]
    done(admin.alter_consumer_group_offsets([GroupOffsets(group, positions)]))


def cluster() -> Any:
    described = admin.describe_cluster().result()
    return {
        "brokers": [[node.id, node.host, node.port] for node in described.nodes],
        "controller": described.controller.id,
    }


VERBS = (
    *(produce, consume, member, offsets, cluster),
    *(create_topic, delete_topic, topics, describe_topic, grow_topic, topic_configs, alter_topic_configs),
    *(delete_records, groups, describe_group, delete_group, group_offsets, alter_group_offsets),
)

if __name__ == "__main__":
    serve({verb.__name__: verb for verb in VERBS}, code_of)
