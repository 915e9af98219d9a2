"""aiokafka, as a program that `program.py` speaks with."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from compat_tests.clients.programs.lines import (
    HEARTBEAT_MS,
    LARGEST_RECORD,
    METADATA_MS,
    SESSION_MS,
    as_json,
    report,
    to_bytes,
    to_headers,
    to_text,
    told_to_leave,
)

ADDRESS = sys.argv[-1]

producers: dict[tuple[Any, ...], AIOKafkaProducer] = {}
admins: list[AIOKafkaAdminClient] = []


def check(code: int) -> None:
    if code:
        raise for_code(code)


async def producer(codec: str, acks: str, idempotent: bool) -> AIOKafkaProducer:
    options = (codec, acks, idempotent)
    if options not in producers:
        producers[options] = AIOKafkaProducer(
            bootstrap_servers=ADDRESS,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=LARGEST_RECORD,
        )
        await producers[options].start()
    return producers[options]


async def produce(
    topic: str, records: list[Any], codec: str = "none", acks: str = "all", idempotent: bool = False
) -> Any:
    sender = await producer(codec, acks, idempotent)
    futures = [
        await sender.send(
            topic,
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            partition=record["partition"],
            timestamp_ms=record["timestamp"],
            headers=to_headers(record["headers"]),
        )
        for record in records
    ]
    await sender.flush()
    answers = [await future for future in futures]
    return {"offsets": [[one.partition, one.offset] if one else [-1, -1] for one in answers]}


def consumer(*topics: str, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=ADDRESS,
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
        metadata_max_age_ms=METADATA_MS,
        **options,
    )


async def consume(
    topic: str, starts: dict[str, int], count: int, reset: str = "none", timeout_ms: int = 30_000
) -> Any:
    reader = consumer(auto_offset_reset=reset)
    await reader.start()
    records: list[Any] = []
    try:
        reader.assign([TopicPartition(topic, int(number)) for number in starts])
        for number, offset in starts.items():
            reader.seek(TopicPartition(topic, int(number)), offset)
        async with asyncio.timeout(timeout_ms / 1000):
            while len(records) < count:
                found = await reader.getmany(timeout_ms=200, max_records=count - len(records))
                records += [as_json(record) for batch in found.values() for record in batch]
    except TimeoutError:
        pass
    finally:
        await reader.stop()
    return {"records": records}


class Reporter(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_revoked(self, revoked: Any) -> None:
        report(assigned=[])

    def on_partitions_assigned(self, assigned: Any) -> None:
        report(assigned=sorted(assigned))


async def member(
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
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    reader.subscribe(topics=topics or (), pattern=pattern, listener=Reporter())
    await reader.start()
    got = 0
    while not told_to_leave() and (count is None or got < count):
        found = await reader.getmany(timeout_ms=50, max_records=None if count is None else count - got)
        for place, records in found.items():
            got += len(records)
            report(records=[[*place, record.offset, to_text(record.value)] for record in records])
            if place in reader.assignment():
                await reader.commit({place: records[-1].offset + 1})
    await reader.stop()
    return {"left": True}


async def admin() -> AIOKafkaAdminClient:
    if not admins:
        admins.append(AIOKafkaAdminClient(bootstrap_servers=ADDRESS))
        await admins[0].start()
    return admins[0]


async def offsets(topic: str, at: Any) -> Any:
    reader = consumer()
    await reader.start()
    places = [TopicPartition(topic, int(number)) for number in (await describe_topic(topic))["leaders"]]
    try:
        if at == "earliest":
            found = await reader.beginning_offsets(places)
        elif at == "latest":
            found = await reader.end_offsets(places)
        else:
            answer = await reader.offsets_for_times(dict.fromkeys(places, at))
            found = {place: -1 if one is None else one.offset for place, one in answer.items()}
    finally:
        await reader.stop()
    return {"offsets": {place.partition: offset for place, offset in found.items()}}


async def create_topic(topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    answer = await (await admin()).create_topics(
        [NewTopic(topic, partitions, 1, topic_configs=configs or {})]
    )
    check(answer.topic_errors[0][1])


async def delete_topic(topic: str) -> None:
    answer = await (await admin()).delete_topics([topic])
    check(answer.topic_error_codes[0][1])


async def topics() -> Any:
    return {"topics": await (await admin()).list_topics()}


async def describe_topic(topic: str) -> Any:
    [found] = await (await admin()).describe_topics([topic])
    check(found["error_code"])
    return {"leaders": {one["partition"]: one["leader"] for one in found["partitions"]}}


async def grow_topic(topic: str, partitions: int) -> None:
    answer = await (await admin()).create_partitions({topic: NewPartitions(partitions)})
    check(answer.topic_errors[0][1])


async def topic_configs(topic: str) -> Any:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    [answer] = await (await admin()).describe_configs([resource])
    [(code, _, _, _, entries)] = answer.resources
    check(code)
    return {"configs": {entry[0]: entry[1] for entry in entries}}


async def alter_topic_configs(topic: str, configs: dict[str, str]) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)
    [answer] = await (await admin()).alter_configs([resource])
    check(answer.resources[0][0])


async def delete_records(topic: str, before: dict[str, int]) -> None:
    wanted = {
        TopicPartition(topic, int(number)): RecordsToDelete(offset) for number, offset in before.items()
    }
    await (await admin()).delete_records(wanted)


async def groups() -> Any:
    return {"groups": [name for name, *_ in await (await admin()).list_consumer_groups()]}


async def describe_group(group: str) -> Any:
    [answer] = await (await admin()).describe_consumer_groups([group])
    [(code, _, state, _, _, members, *_)] = answer.groups
    check(code)
    return {"state": state, "members": len(members)}


async def group_offsets(group: str, topic: str, partitions: list[int]) -> Any:
    asked = [TopicPartition(topic, number) for number in partitions]
    found = await (await admin()).list_consumer_group_offsets(group, partitions=asked)
    return {"offsets": {place.partition: one.offset for place, one in found.items()}}


async def alter_group_offsets(group: str, topic: str, offsets: dict[str, int]) -> None:
    """As a consumer of the group that has assigned itself the partitions."""
    reader = consumer(group_id=group)
    await reader.start()
    try:
        positions = {TopicPartition(topic, int(number)): offset for number, offset in offsets.items()}
        reader.assign(list(positions))
        await reader.commit(positions)
    finally:
        await reader.stop()


async def cluster() -> Any:
    found = await (await admin()).describe_cluster()
    brokers = [[one["node_id"], one["host"], one["port"]] for one in found["brokers"]]
    return {"brokers": brokers, "controller": found["controller_id"]}


VERBS: tuple[Callable[..., Any], ...] = (
    *(produce, consume, member, offsets, cluster),
    *(create_topic, delete_topic, topics, describe_topic, grow_topic, topic_configs, alter_topic_configs),
    *(delete_records, groups, describe_group, group_offsets, alter_group_offsets),
)


async def main() -> None:
    """The loop of lines.serve, with requests read beside the event loop."""
    verbs = {verb.__name__: verb for verb in VERBS}
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        try:
            report(**(await verbs[request.pop("do")](**request) or {}))
        except Exception as error:
            code = getattr(error, "errno", -1)
            report(error=-1 if code is None else code, text=f"{type(error).__name__}: {error}")
    for one in (*producers.values(),):
        await one.stop()
    for one in admins:
        await one.close()


if __name__ == "__main__":
    asyncio.run(main())
