"""DescribeProducers. The answers were measured on Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

from tests.kbroker.hosting import Hosting
from wire.api import ApiKey
from wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from wire.errors import ErrorCode
from wire.records import BatchBuilder, BatchHeader, ControlType, control_batch


def describe(hosting: Hosting, topic: str = "t", *partitions: int) -> list[Any]:
    topics = [TopicRequest(name=topic, partition_indexes=list(partitions or (0,)))]
    [answer] = hosting.ask(DescribeProducersRequest(topics=topics), ApiKey.DESCRIBE_PRODUCERS, 0).topics
    partitions_answered: list[Any] = answer.partitions
    return partitions_answered


def append(hosting: Hosting, data: bytes) -> None:
    """Past the rules for clients: transactions begin and end with their coordinator."""
    from storage.producer_state import Origin

    def run() -> None:
        log = hosting.broker.replicas.leader_of("t", 0).log
        log.append_as_leader([(data, BatchHeader.parse(data))], 0, 0, origin=Origin.COORDINATOR)

    hosting.do(run)


def of(producer_id: int, sequence: int, *, transactional: bool = False) -> bytes:
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=3, base_sequence=sequence, transactional=transactional
    )
    for timestamp_ms in (1000, 2000):
        builder.append(b"k", b"v", timestamp_ms=timestamp_ms)
    return builder.build()


def test_what_is_remembered_of_each_producer_is_told(hosting: Hosting) -> None:
    hosting.host()
    assert describe(hosting)[0].active_producers == []
    append(hosting, of(7, 0))
    append(hosting, of(7, 2))
    append(hosting, of(8, 0, transactional=True))
    [answer] = describe(hosting)
    assert (answer.error_code, answer.error_message) == (0, None)
    [plain, open_one] = answer.active_producers
    assert (plain.producer_id, plain.producer_epoch, plain.last_sequence) == (7, 3, 3)
    assert (plain.last_timestamp, plain.coordinator_epoch, plain.current_txn_start_offset) == (2000, -1, -1)
    assert (open_one.producer_id, open_one.current_txn_start_offset) == (8, 4)
    append(hosting, control_batch(ControlType.ABORT, 8, 3, 5, 3000))
    ended = describe(hosting)[0].active_producers[1]
    assert (ended.current_txn_start_offset, ended.coordinator_epoch, ended.last_timestamp) == (-1, 5, 3000)
    assert ended.last_sequence == 1


def test_each_partition_is_answered_by_itself(hosting: Hosting) -> None:
    partition = hosting.host()
    codes = [answer.error_code for answer in describe(hosting, "t", 0, 9)]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert describe(hosting, "unknown")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name in ("", "a b"):
        assert describe(hosting, name)[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    partition.leader_id = 99
    assert describe(hosting)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
