"""The transactional producers and the consumers of three Python clients, behind one interface.

Values are numbers. A copier reads one topic and writes another: what it has read and what it has written
belong to the same transaction. Errors are the client's own; `FENCED` names those that mean that another
producer has taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.structs import TopicPartition as AioPartition

PATIENCE_S = 30
POLL_S = 0.2


class Copier(Protocol):
    """One producer with a transactional id, and one consumer of committed records in a group."""

    FENCED: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, address: str, transactional_id: str, source: str) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, numbers: Iterable[int]) -> None:
        """Returns when the broker has them."""
        ...

    def read(self) -> list[int]:
        """Some of the source, from where the group was or where the last `read` ended; maybe nothing."""
        ...

    def send_offsets(self) -> None:
        """That of all that was read."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def rewind(self) -> None:
        """To where the group is."""
        ...

    def close(self) -> None: ...


class KafkaPython:
    FENCED = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)

    def __init__(self, address: str, transactional_id: str, source: str) -> None:
        self._group = f"{transactional_id}-group"
        self._producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
        self._producer.init_transactions()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=address,
            group_id=self._group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=10,
        )
        self._place = kafka.TopicPartition(source, 0)
        self._consumer.assign([self._place])

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, numbers: Iterable[int]) -> None:
        sent = [self._producer.send(topic, b"%d" % number, partition=0) for number in numbers]
        self._producer.flush()
        for future in sent:
            future.get(PATIENCE_S)

    def read(self) -> list[int]:
        found = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [int(record.value) for records in found.values() for record in records]

    def send_offsets(self) -> None:
        offset = kafka.OffsetAndMetadata(self._consumer.position(self._place), "", -1)
        self._producer.send_offsets_to_transaction({self._place: offset}, self._group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def rewind(self) -> None:
        self._consumer.seek(self._place, self._consumer.committed(self._place) or 0)

    def close(self) -> None:
        self._producer.close(timeout=1)
        self._consumer.close()


class ConfluentError(Exception):
    """What librdkafka calls fenced."""


class Confluent:
    """Its producer keeps the brokers that it has learned when none of them answers.

    By default librdkafka 2.16 forgets them, but not that one of them coordinates the group, and then
    send_offsets_to_transaction may wait for ever: its issue 5511, docs/delivery.md.
    """

    FENCED = (ConfluentError,)

    def __init__(self, address: str, transactional_id: str, source: str) -> None:
        common = {"bootstrap.servers": address}
        self._producer = confluent_kafka.Producer(
            {**common, "transactional.id": transactional_id, "metadata.recovery.strategy": "none"}
        )
        self._producer.init_transactions(PATIENCE_S)
        self._consumer = confluent_kafka.Consumer(
            {
                **common,
                "group.id": f"{transactional_id}-group",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(source, 0)])

    def _do(self, what: Any, *arguments: Any) -> Any:
        try:
            return what(*arguments)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._FENCED:
                raise ConfluentError(str(error)) from error
            raise

    def begin(self) -> None:
        self._do(self._producer.begin_transaction)

    def send(self, topic: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._producer.produce(topic, b"%d" % number, partition=0)
        self._producer.flush(PATIENCE_S)

    def read(self) -> list[int]:
        found = self._consumer.consume(10, POLL_S)
        return [int(message.value() or b"") for message in found if message.error() is None]

    def send_offsets(self) -> None:
        places = self._consumer.position(self._consumer.assignment())
        metadata = self._consumer.consumer_group_metadata()
        self._do(self._producer.send_offsets_to_transaction, places, metadata, PATIENCE_S)

    def commit(self) -> None:
        self._do(self._producer.commit_transaction, PATIENCE_S)

    def abort(self) -> None:
        self._do(self._producer.abort_transaction, PATIENCE_S)

    def rewind(self) -> None:
        for place in self._consumer.committed(self._consumer.assignment(), PATIENCE_S):
            place.offset = max(place.offset, 0)
            self._consumer.seek(place)

    def close(self) -> None:
        self._consumer.close()


class Aio:
    FENCED = (aiokafka.errors.ProducerFenced,)

    def __init__(self, address: str, transactional_id: str, source: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._group = f"{transactional_id}-group"
        self._place = AioPartition(source, 0)
        self._await(self._start(address, transactional_id))

    def _await(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))

    async def _start(self, address: str, transactional_id: str) -> None:
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id
        )
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=self._group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.assign([self._place])
        await self._producer.start()
        await self._consumer.start()

    def begin(self) -> None:
        self._await(self._producer.begin_transaction())

    def send(self, topic: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._await(self._producer.send_and_wait(topic, b"%d" % number, partition=0))

    def read(self) -> list[int]:
        found = self._await(self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=10))
        return [int(record.value) for records in found.values() for record in records]

    def send_offsets(self) -> None:
        position = self._await(self._consumer.position(self._place))
        self._await(self._producer.send_offsets_to_transaction({self._place: position}, self._group))

    def commit(self) -> None:
        self._await(self._producer.commit_transaction())

    def abort(self) -> None:
        self._await(self._producer.abort_transaction())

    def rewind(self) -> None:
        self._consumer.seek(self._place, self._await(self._consumer.committed(self._place)) or 0)

    def close(self) -> None:
        self._await(self._consumer.stop())
        self._await(self._producer.stop())
        self._loop.close()
