"""A client that speaks in raw frames and knows the everyday requests: what tests of behaviour ask a broker.

Every method is one request on one connection and gives the decoded answer, with its error codes; only
`create` insists on success, and waits until the topic can be used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tests.kbroker.harness import RawClient
from wire.api import ApiKey
from wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.api.delete_topics import DeleteTopicsRequest
from wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records import BatchBuilder, BatchHeader, Record, batch_headers, records

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DEADLINE_S = 20


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(
    *values: bytes | None, key: bytes | None = b"k", timestamp_ms: int | None = None, **of: Any
) -> bytes:
    """Records of one key and time; the rest is BatchBuilder's."""
    builder = BatchBuilder(**of)
    for value in values or (b"v",):
        builder.append(key, value, timestamp_ms=now_ms() if timestamp_ms is None else timestamp_ms)
    return builder.build()


class Speaker(RawClient):
    """One connection."""

    # -- topics

    def create_topics(self, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Any:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
        return self.ask(request, ApiKey.CREATE_TOPICS, version).topics

    def create(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """The topic's id, once its partitions have leaders. Configs with `_` for `.`."""
        [outcome] = self.create_topics(new_topic(name, partitions, configs=dotted(configs)))
        assert outcome.error_code == 0, outcome
        deadline = time.monotonic() + DEADLINE_S
        while self.metadata(name).error_code or any(p.error_code for p in self.metadata(name).partitions):
            assert time.monotonic() < deadline, name
        topic_id: bytes = outcome.topic_id
        return topic_id

    def delete_topic(self, name: str) -> int:
        """Its error code, once the broker has done with the topic."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        code: int = self.ask(request, ApiKey.DELETE_TOPICS, 5).responses[0].error_code
        deadline = time.monotonic() + DEADLINE_S
        while self.metadata(name).error_code == 0:
            assert time.monotonic() < deadline, name
        return code

    def metadata(self, name: str, version: int = 12, *, create: bool = False) -> Any:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
        return self.ask(asked, ApiKey.METADATA, version).topics[0]

    # -- records

    def produce(
        self,
        topic: str,
        data: bytes | None = None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        topic_id: bytes = bytes(16),
    ) -> Any:
        """The answer for the one partition."""
        piece = PartitionProduceData(index=partition, records=batch() if data is None else data)
        one = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[piece])
        request = ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[one])
        return self.ask(request, ApiKey.PRODUCE, version).responses[0].partition_responses[0]

    def fetch(
        self,
        topic: str,
        offset: int = 0,
        *,
        partition: int = 0,
        version: int = 12,
        topic_id: bytes = bytes(16),
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        isolation_level: int = 0,
        **of_partition: Any,
    ) -> Any:
        """The answer for the one partition."""
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=of_partition.pop("partition_max_bytes", 1 << 20),
            **of_partition,
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
        )
        return self.ask(request, ApiKey.FETCH, version).responses[0].partitions[0]

    def batches(self, topic: str, offset: int = 0, partition: int = 0) -> list[BatchHeader]:
        """The headers of all that is stored from there on."""
        return [header for _, header in self._stored(topic, offset, partition)]

    def records(self, topic: str, offset: int = 0, partition: int = 0) -> list[Record]:
        return [record for data, _ in self._stored(topic, offset, partition) for record in records(data)]

    def _stored(self, topic: str, offset: int, partition: int) -> Iterator[tuple[bytes, BatchHeader]]:
        """Every batch. A fetch ends where a segment does: so it is repeated, up to the end."""
        while data := bytes(self.fetch(topic, offset, partition=partition).records or b""):
            for position, header in batch_headers(data):
                yield data[position:], header
                offset = header.last_offset + 1

    def offset(
        self, topic: str, timestamp: int, partition: int = 0, *, version: int = 11, isolation_level: int = 0
    ) -> Any:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        return self.ask(request, ApiKey.LIST_OFFSETS, version).topics[0].partitions[0]

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> Any:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [DeleteRecordsTopic(name=topic, partitions=[wanted])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=5000)
        return self.ask(request, ApiKey.DELETE_RECORDS, 2).topics[0].partitions[0]

    # -- configuration

    def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
        """The answer for the one resource: key, operation, value."""
        configs = [AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        return self.ask(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses[0]

    def configure(self, topic: str, **configs: object) -> None:
        """Set a topic's configs, with `_` for `.`."""
        outcome = self.alter(TOPIC, topic, *((key, SET, value) for key, value in dotted(configs).items()))
        assert outcome.error_code == 0, outcome

    def describe(self, kind: int, name: str, *keys: str) -> Any:
        """The whole answer for the one resource."""
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        return self.ask(request, ApiKey.DESCRIBE_CONFIGS, 4).results[0]


def new_topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def dotted(configs: dict[str, object]) -> dict[str, str | None]:
    return {name.replace("_", "."): None if value is None else str(value) for name, value in configs.items()}
