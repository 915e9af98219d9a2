"""A client of one connection, for what goes on around a measurement: topics, offsets, a look at a reply."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from wire.api import ApiKey
from wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from wire.codec import decode, encode
from wire.errors import ErrorCode
from wire.frames import frame
from wire.headers import encode_request_header, response_header_version

CLIENT_ID = "benchmark"
PATIENCE_S = 60
EARLIEST, LATEST = -2, -1

VERSIONS = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.INIT_PRODUCER_ID: 4,
}
"""Such as all brokers serve."""

T = TypeVar("T")


class Unexpected(Exception):
    """A broker did not answer as it must."""


def request_frame(key: ApiKey, request: object) -> bytes:
    """A request as it goes over the wire; whoever sends it sets the correlation id."""
    version = VERSIONS[key]
    return b"".join(frame([encode_request_header(key, version, 0, CLIENT_ID), encode(request, version)]))


class Client:
    """Closed at the end of its `with` block."""

    replicas: Sequence[int] = ()
    """Of every partition that it creates, the leader first; any one where there is none."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, request: object, response: type[T]) -> T:
        return self.exchange(request_frame(key, request), key, response)

    def administer(self, key: ApiKey, request: object, response: type[T]) -> T:
        """Ask the controller."""
        return self.ask(key, request, response)

    def exchange(self, request: bytes, key: ApiKey, response: type[T]) -> T:
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", self._exactly(4))
        body = self._exactly(size)
        return decode(response, body[4 + response_header_version(key, VERSIONS[key]) :], VERSIONS[key])

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            taken = self._socket.recv_into(view)
            if not taken:
                raise Unexpected("the broker has hung up")
            view = view[taken:]
        return bytes(data)

    def create_topic(self, name: str, partitions: int) -> None:
        """Returns when every partition answers."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(self.replicas))
            for index in range(partitions if self.replicas else 0)
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else 1,
            assignments=assignments,
            configs=[],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        deadline = time.monotonic() + PATIENCE_S
        answers = self.administer(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse).topics
        while answers[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS and time.monotonic() < deadline:
            time.sleep(0.05)  # the last one of this name is still being deleted
            answers = self.administer(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse).topics
        check(answers)
        while True:
            ends = self._list_offsets(name, range(partitions), LATEST).topics[0].partitions
            if not any(end.error_code for end in ends):
                return
            if time.monotonic() > deadline:
                raise Unexpected(f"{name} is still not there")
            time.sleep(0.01)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
        check(self.administer(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse).responses)

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        answers = self._list_offsets(topic, range(partitions), LATEST).topics[0].partitions
        check(answers)
        return [answer.offset for answer in sorted(answers, key=lambda answer: answer.partition_index)]

    def _list_offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> ListOffsetsResponse:
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
        return self.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse)


def check(answers: Sequence[Any]) -> None:
    """Every one without an error."""
    for answer in answers:
        if answer.error_code:
            raise Unexpected(f"{ErrorCode(answer.error_code).name} instead of success")
