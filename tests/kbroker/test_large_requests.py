"""Requests that name very much: answered in full, and bounded by keys that the log names."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from kbroker.handlers.fetch import MOST_AT_ONCE as MOST_FETCHED_AT_ONCE
from kbroker.handlers.produce import MOST_AT_ONCE as MOST_STAGED_AT_ONCE
from kbroker.offset_pieces import MOST_PARTITIONS
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import BROKER, Speaker, batch
from wire.api import ApiKey
from wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.errors import ErrorCode

pytestmark = pytest.mark.slow

PARTITIONS = 2 * MOST_PARTITIONS + 100
"""Of the topic `wide`."""
SECOND_MS = 1000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    limits = ("--set", "kbroker.request.max.elements=50000", "--set", "kbroker.reply.max.bytes=1048576")
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "broker.log", *limits)
    speaker = Speaker(broker.host, broker.port)
    speaker.create("t")
    speaker.create("wide", PARTITIONS)
    speaker.socket.close()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def speaker(running: BrokerProcess) -> Iterator[Speaker]:
    made = Speaker(running.host, running.port)
    yield made
    made.socket.close()


def test_a_metadata_request_for_very_many_names_is_answered_in_full(speaker: Speaker) -> None:
    names = [f"unknown-{number}" for number in range(20_000)]
    asked = [MetadataRequestTopic(name=name) for name in [*names, "t"]]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    topics = speaker.ask(request, ApiKey.METADATA, 12).topics
    assert [topic.name for topic in topics] == [*names, "t"]
    assert {topic.error_code for topic in topics[:-1]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert topics[-1].error_code == 0
    assert len(topics[-1].partitions) == 1


def test_others_are_served_while_a_large_request_is(running: BrokerProcess, speaker: Speaker) -> None:
    """A hundred small requests are answered before the replies to ten large ones are there."""
    asked = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(20_000)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    done = threading.Event()

    def ask_for_much() -> None:
        demanding = Speaker(running.host, running.port)
        demanding.send(*[demanding.request(request, ApiKey.METADATA, 12)] * 10)
        for _ in range(10):
            demanding.receive()
        done.set()
        demanding.socket.close()

    thread = threading.Thread(target=ask_for_much)
    thread.start()
    for _ in range(100):
        assert speaker.metadata("t").error_code == 0
    was_first = not done.is_set()
    thread.join()
    assert was_first


def commit(topic: str, partitions: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index * 10, committed_metadata=""
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def until_coordinated(speaker: Speaker) -> None:
    """The group's first request makes its topic."""
    deadline = time.monotonic() + 20
    while speaker.ask(commit("t", 1), ApiKey.OFFSET_COMMIT, 8).topics[0].partitions[0].error_code:
        assert time.monotonic() < deadline
        speaker.metadata("__consumer_offsets", create=True)


def test_the_offsets_of_very_many_partitions_are_committed_and_fetched(speaker: Speaker) -> None:
    """Each has its own outcome, in one entry for the topic; what does not exist is refused."""
    until_coordinated(speaker)
    [topic] = speaker.ask(commit("wide", PARTITIONS + 5), ApiKey.OFFSET_COMMIT, 8).topics
    codes = {one.partition_index: one.error_code for one in topic.partitions}
    assert codes == dict.fromkeys(range(PARTITIONS), 0) | dict.fromkeys(
        range(PARTITIONS, PARTITIONS + 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    every = OffsetFetchRequestTopics(name="wide", partition_indexes=list(range(PARTITIONS)))
    for topics in ([every], None):
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        [answer] = speaker.ask(OffsetFetchRequest(groups=[group]), ApiKey.OFFSET_FETCH, 8).groups
        wide = next(one for one in answer.topics if one.name == "wide")
        found = {one.partition_index: one.committed_offset for one in wide.partitions}
        assert found == {index: index * 10 for index in range(PARTITIONS)}


def test_a_produce_of_very_many_partitions_is_acknowledged_partition_by_partition(speaker: Speaker) -> None:
    assert PARTITIONS > MOST_STAGED_AT_ONCE
    data = [
        PartitionProduceData(index=index, records=batch(b"%d" % index)) for index in range(PARTITIONS + 3)
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=SECOND_MS, topic_data=[TopicProduceData(name="wide", partition_data=data)]
    )
    speaker.send(*[speaker.request(request, ApiKey.PRODUCE, 9)] * 2)
    for offset in (0, 1):
        [topic] = speaker.reply(ApiKey.PRODUCE, 9).responses
        answers = topic.partition_responses
        assert [one.index for one in answers] == list(range(PARTITIONS + 3))
        assert {one.base_offset for one in answers[:PARTITIONS]} == {offset}
        assert {one.error_code for one in answers[:PARTITIONS]} == {0}
        assert {one.error_code for one in answers[PARTITIONS:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for index in (0, PARTITIONS // 2, PARTITIONS - 1):
        assert [record.value for record in speaker.records("wide", partition=index)] == [b"%d" % index] * 2


def wide_fetch(max_wait_ms: int, offset: int, *, session_epoch: int = -1) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
        for index in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="wide", partitions=partitions)],
    )


def records_of(response: FetchResponse) -> dict[int, int]:
    """Bytes by partition, of those that gave any."""
    return {
        one.partition_index: len(one.records)
        for topic in response.responses
        for one in topic.partitions
        if one.records
    }


def test_a_fetch_of_very_many_partitions_waits_and_is_woken(running: BrokerProcess, speaker: Speaker) -> None:
    assert PARTITIONS > MOST_FETCHED_AT_ONCE
    ends = [speaker.offset("wide", -1, partition=index).offset for index in (0, 777)]
    end = ends[0]
    assert ends == [end] * 2
    reply = speaker.ask(wide_fetch(1, end), ApiKey.FETCH, 11)
    assert len(reply.responses[0].partitions) == PARTITIONS
    assert records_of(reply) == {}
    other = Speaker(running.host, running.port)
    speaker.send(speaker.request(wide_fetch(30 * SECOND_MS, end), ApiKey.FETCH, 11))
    assert other.produce("wide", partition=777).error_code == 0
    assert list(records_of(speaker.reply(ApiKey.FETCH, 11))) == [777]
    other.socket.close()


def test_a_session_of_very_many_partitions_tells_what_is_new(
    running: BrokerProcess, speaker: Speaker
) -> None:
    begun = speaker.ask(wide_fetch(0, 1 << 40, session_epoch=0), ApiKey.FETCH, 11)
    assert begun.session_id > 0
    assert len(begun.responses[0].partitions) == PARTITIONS
    again = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=begun.session_id, session_epoch=1, topics=[])
    told = speaker.ask(again, ApiKey.FETCH, 11).responses[0].partitions
    assert {one.error_code for one in told} == {ErrorCode.OFFSET_OUT_OF_RANGE}


def test_more_elements_than_allowed_close_the_connection(running: BrokerProcess, speaker: Speaker) -> None:
    asked = [MetadataRequestTopic(name="") for _ in range(50_001)]
    speaker.send(speaker.request(MetadataRequest(topics=asked), ApiKey.METADATA, 12))
    assert speaker.receive() == b""
    assert "more than 50000 elements (kbroker.request.max.elements)" in running.log.read_text()


def test_a_reply_larger_than_allowed_closes_the_connection(running: BrokerProcess, speaker: Speaker) -> None:
    """The whole configuration of a broker, a thousand times."""
    myself = str(speaker.ask(MetadataRequest(topics=[]), ApiKey.METADATA, 12).brokers[0].node_id)
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name=myself, configuration_keys=None)
    once = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    [alone] = speaker.ask(once, ApiKey.DESCRIBE_CONFIGS, 4).results
    assert len(alone.configs) > 100
    often = DescribeConfigsRequest(resources=[resource] * 1000, include_documentation=True)
    speaker.send(speaker.request(often, ApiKey.DESCRIBE_CONFIGS, 4))
    assert speaker.receive() == b""
    assert "more than 1048576 bytes (kbroker.reply.max.bytes)" in running.log.read_text()
