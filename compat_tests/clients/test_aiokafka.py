"""aiokafka: the scenarios, and what else its classes offer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from compat_tests.clients.program import python_program
from compat_tests.clients.scenarios import Scenarios
from tests.kbroker.harness import BrokerProcess

CLIENT = "aiokafka 0.14.0"


class TestAiokafka(Scenarios):
    command = python_program("aio")
    lacks = {  # noqa: RUF012
        "cooperative": "no cooperative assignor",
        "delete_group": "its admin client deletes no groups",
    }


@asynccontextmanager
async def ten_records(broker: BrokerProcess, topic: str, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer beside a partition with the values 0 to 9, sent as one batch that the caller made."""
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        assert await producer.partitions_for(topic) == {0}
        batch = producer.create_batch()
        for number in range(10):
            assert batch.append(key=None, value=b"%d" % number, timestamp=None)
        batch.close()
        assert (await (await producer.send_batch(batch, topic, partition=0))).offset == 0
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.address, enable_auto_commit=False, **options
    ) as reader:
        yield reader


@pytest.mark.feature("fetch from offsets")
def test_a_consumer_moves_about_in_what_it_has_assigned_itself(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        place = TopicPartition(topic, 0)
        async with ten_records(broker, topic) as reader:
            reader.assign([place])
            await reader.seek_to_end(place)
            assert await reader.position(place) == 10
            await reader.seek_to_beginning(place)
            assert (await reader.getone()).value == b"0"
            reader.seek(place, 7)
            assert [(await reader.getone()).value for _ in range(3)] == [b"7", b"8", b"9"]
            assert reader.highwater(place) == reader.last_stable_offset(place) == 10
            reader.pause(place)
            reader.seek(place, 0)
            assert reader.paused() == {place}
            assert await reader.getmany(timeout_ms=300) == {}
            reader.resume(place)
            assert (await reader.getone()).value == b"0"

    asyncio.run(scenario())


@pytest.mark.feature("commit and resume")
def test_a_consumer_goes_back_to_what_it_committed(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        place = TopicPartition(topic, 0)
        async with ten_records(broker, topic, group_id=topic, auto_offset_reset="earliest") as reader:
            reader.subscribe([topic])
            assert [(await reader.getone()).offset for _ in range(10)] == list(range(10))
            await reader.commit({place: (4, "why")})
            assert await reader.committed(place) == 4
            await reader.seek_to_committed(place)
            assert (await reader.getone()).offset == 4
            assert topic in await reader.topics()
            assert reader.partitions_for_topic(topic) == {0}

    asyncio.run(scenario())
