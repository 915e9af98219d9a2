"""What a scenario needs around the client under test, which may lack it: raw requests, a look at the disk."""

from __future__ import annotations

from typing import Any

from tests.kbroker.harness import BrokerProcess, RawClient
from wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.record_batch import BatchHeader, batch_headers


class Neutral:
    """Belongs to no client."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._data = broker.log.with_suffix(".data")
        self._connection = RawClient(broker.host, broker.port)

    def close(self) -> None:
        self._connection.socket.close()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
        self._succeeded([one.error_code for one in self._connection.ask(request, 19, 5).topics])

    def delete_records(self, topic: str, before: int) -> None:
        """Of partition 0."""
        partition = DeleteRecordsPartition(partition_index=0, offset=before)
        asked = DeleteRecordsTopic(name=topic, partitions=[partition])
        reply = self._connection.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=30_000), 21, 2)
        self._succeeded([one.error_code for one in reply.topics[0].partitions])

    def stored(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """The headers of the batches as they lie on the disk."""
        segments = sorted(self._data.glob(f"{topic}-{partition}/*.log"))
        assert segments
        return [header for path in segments for _, header in batch_headers(path.read_bytes())]

    @staticmethod
    def _succeeded(codes: list[Any]) -> None:
        assert not any(codes), codes
