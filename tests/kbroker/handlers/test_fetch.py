"""Fetch: conformance F, by raw frames to a broker that hosts partitions."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kbroker.partition import Leadership
from storage.log_config import LogConfig
from storage.producer_state import Origin
from tests.kbroker.handlers.test_produce import idempotent, produce
from tests.kbroker.harness import RawClient
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import batch, now_ms
from wire.api import ApiKey
from wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.metadata import MetadataRequest
from wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from wire.compression import Codec
from wire.errors import ErrorCode
from wire.records import BatchHeader, ControlType, batch_headers, control_batch
from wire.schema import fields_of

LONG_MS = 20_000


def fetch_request(*wanted: tuple[str, int, int], by_id: bool = False, **options: Any) -> FetchRequest:
    """(topic, partition, offset)s; options are those of the request and of every partition."""
    fields = {field.name for field in fields_of(FetchPartition)}
    of_partition = {name: options.pop(name) for name in list(options) if name in fields}
    values = {"max_wait_ms": 0, "min_bytes": 1, **options}
    topics = [
        FetchTopic(
            topic="" if by_id else topic,
            topic_id=topic.encode() * 16 if by_id else bytes(16),
            partitions=[
                FetchPartition(
                    **{
                        "partition": index,
                        "fetch_offset": offset,
                        "partition_max_bytes": 1 << 20,
                        **of_partition,
                    }
                )
            ],
        )
        for topic, index, offset in wanted
    ]
    return FetchRequest(topics=topics, **values)


def fetch(hosting: Hosting, offset: int = 0, version: int = 12, **options: Any) -> PartitionData:
    """The answer for partition 0 of t."""
    reply = hosting.ask(fetch_request(("t", 0, offset), **options), ApiKey.FETCH, version)
    data: PartitionData = reply.responses[0].partitions[0]
    return data


def offsets(data: PartitionData) -> list[int]:
    return [header.base_offset for _, header in batch_headers(bytes(data.records or b""))]


@pytest.mark.parametrize("version", range(4, 18))
def test_what_was_produced_is_read_in_every_version(hosting: Hosting, version: int) -> None:
    hosting.host()
    produce(hosting, batch(b"a"))
    request = fetch_request(("t", 0, 0), by_id=version >= 13)
    data = hosting.ask(request, ApiKey.FETCH, version).responses[0].partitions[0]
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 1, 1)
    assert offsets(data) == [0]


def test_an_offset_inside_a_batch_returns_the_whole_batch(hosting: Hosting) -> None:
    """conformance 53"""
    hosting.host()
    produce(hosting, batch(b"a", b"b", b"c"))
    assert offsets(fetch(hosting, 2)) == [0]


def test_the_log_end_is_empty_and_beyond_it_is_out_of_range(hosting: Hosting) -> None:
    """conformance 54, 61"""
    partition = hosting.host()
    produce(hosting, batch(b"a", b"b"))
    at_end = fetch(hosting, 2)
    assert (at_end.error_code, at_end.records, at_end.high_watermark) == (0, b"", 2)
    beyond = fetch(hosting, 3, max_wait_ms=LONG_MS)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (beyond.high_watermark, beyond.last_stable_offset, beyond.log_start_offset) == (-1, -1, -1)
    hosting.do(lambda: partition.log.delete_records_before(1))
    assert fetch(hosting, 0, max_wait_ms=LONG_MS).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_of_a_partition_that_is_named_twice_the_last_counts_in_the_place_of_the_first(
    hosting: Hosting,
) -> None:
    hosting.host()
    hosting.host("u")
    for data in (b"a", b"b"):
        produce(hosting, batch(data))
    request = fetch_request(("t", 0, 9), ("u", 0, 0), ("t", 0, 1))
    for session_epoch in (-1, 0):
        request.session_epoch = session_epoch
        reply = hosting.ask(request, ApiKey.FETCH, 12)
        found = [(topic.topic, one.error_code) for topic in reply.responses for one in topic.partitions]
        assert found == [("t", 0), ("u", 0)]
        assert offsets(reply.responses[0].partitions[0]) == [1]


@pytest.mark.parametrize("limits", [{"partition_max_bytes": -1}, {"max_bytes": -(2**31)}], ids=str)
def test_a_negative_limit_is_an_error_where_there_is_something_to_read(
    hosting: Hosting, limits: dict[str, int]
) -> None:
    hosting.host()
    produce(hosting, batch())
    answer = fetch(hosting, 0, **limits)
    assert (answer.error_code, answer.records) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
    assert fetch(hosting, 1, **limits).error_code == 0
    assert fetch(hosting, 9, **limits).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def park(hosting: Hosting, *wanted: tuple[str, int, int], **options: Any) -> RawClient:
    """A client whose fetch is known to wait."""
    client = hosting.connect()
    client.send(client.request(fetch_request(*wanted, max_wait_ms=LONG_MS, **options), ApiKey.FETCH, 12))
    until_it_waits(hosting, *wanted[0][:2])
    return client


def until_it_waits(hosting: Hosting, topic: str, index: int = 0) -> None:
    deadline = time.monotonic() + 10
    while not hosting.do(lambda: hosting.broker.replicas.leader_of(topic, index).fetches):
        assert time.monotonic() < deadline


def test_new_data_wakes_a_waiting_fetch(hosting: Hosting) -> None:
    """conformance 55"""
    hosting.host()
    client = park(hosting, ("t", 0, 0))
    produce(hosting, batch(b"a"))
    assert offsets(client.reply(ApiKey.FETCH, 12).responses[0].partitions[0]) == [0]


def test_less_than_min_bytes_goes_on_waiting_until_there_is_enough(hosting: Hosting) -> None:
    """conformance 55"""
    hosting.host()
    one = batch(b"x" * 1000)
    client = park(hosting, ("t", 0, 0), min_bytes=2 * len(one))
    produce(hosting, one)
    assert hosting.do(lambda: hosting.broker.replicas.leader_of("t", 0).fetches)
    produce(hosting, one)
    assert offsets(client.reply(ApiKey.FETCH, 12).responses[0].partitions[0]) == [0, 1]
    assert not hosting.do(lambda: hosting.broker.replicas.leader_of("t", 0).fetches)


def test_the_wait_ends_with_max_wait_and_gives_what_there_is(hosting: Hosting) -> None:
    """conformance 54, 55"""
    hosting.host()
    produce(hosting, batch(b"a"))
    began = time.monotonic()
    data = fetch(hosting, max_wait_ms=200, min_bytes=1 << 20)
    assert time.monotonic() - began >= 0.19
    assert offsets(data) == [0]


def test_an_error_in_any_partition_ends_the_wait_but_an_unknown_one_does_not(hosting: Hosting) -> None:
    """conformance 55"""
    hosting.host()
    hosting.host("u", topic_id=b"u" * 16)
    request = fetch_request(("t", 0, 0), ("u", 0, 7), max_wait_ms=LONG_MS)
    reply = hosting.ask(request, ApiKey.FETCH, 12)
    assert [topic.partitions[0].error_code for topic in reply.responses] == [0, 1]
    client = park(hosting, ("t", 0, 0), ("nowhere", 0, 0))
    produce(hosting, batch(b"a"))
    reply = client.reply(ApiKey.FETCH, 12)
    assert [topic.partitions[0].error_code for topic in reply.responses] == [0, 3]
    alone = hosting.ask(fetch_request(("nowhere", 0, 0), max_wait_ms=LONG_MS), ApiKey.FETCH, 12)
    assert alone.responses[0].partitions[0].error_code == 3


def test_a_parked_fetch_holds_back_what_is_behind_it(hosting: Hosting) -> None:
    """conformance 1"""
    hosting.host()
    client = park(hosting, ("t", 0, 0))
    client.send(client.request(MetadataRequest(topics=[]), ApiKey.METADATA, 12, 8))
    produce(hosting, batch(b"a"))
    client.reply(ApiKey.FETCH, 12)
    client.reply(ApiKey.METADATA, 12, 8)


def test_the_first_partition_with_data_gives_a_whole_batch_whatever_the_limits(hosting: Hosting) -> None:
    """conformance 56"""
    for name in "tuv":
        hosting.host(name, topic_id=name.encode() * 16)
    for name in "uv":
        produce(hosting, batch(b"x" * 1000), topic=name)
    request = fetch_request(("t", 0, 0), ("u", 0, 0), ("v", 0, 0), max_bytes=10, partition_max_bytes=10)
    sizes = [len(t.partitions[0].records) for t in hosting.ask(request, ApiKey.FETCH, 12).responses]
    assert sizes[0] == sizes[2] == 0
    assert sizes[1] > 1000


def test_a_partition_limit_gives_only_whole_batches(hosting: Hosting) -> None:
    """conformance 56"""
    hosting.host()
    one = batch(b"x" * 300)
    for _ in range(3):
        produce(hosting, one)
    assert offsets(fetch(hosting, partition_max_bytes=2 * len(one) + 50)) == [0, 1]


def test_an_unknown_topic_id_is_told_as_such(hosting: Hosting) -> None:
    """conformance 14"""
    hosting.host()
    reply = hosting.ask(fetch_request(("?", 0, 0), by_id=True), ApiKey.FETCH, 13)
    assert reply.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_are_compared(hosting: Hosting) -> None:
    """conformance 59"""
    partition = hosting.host()
    partition.leader_epoch = 5
    codes = [fetch(hosting, current_leader_epoch=epoch).error_code for epoch in (4, 5, 6, -1)]
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH, 0]


def test_leader_epochs_are_compared_by_who_does_not_lead_as_well(hosting: Hosting) -> None:
    """conformance 59; Kafka's `Partition.getLocalLog`."""
    partition = hosting.host()
    partition.leader_epoch, partition.leader_id = 5, 9
    epochs = (4, 5, 6, -1)
    refused = [ErrorCode.FENCED_LEADER_EPOCH, 6, ErrorCode.UNKNOWN_LEADER_EPOCH, 6]
    assert [fetch(hosting, version=9, current_leader_epoch=epoch).error_code for epoch in epochs] == refused

    def listed(epoch: int) -> int:
        one = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[one])])
        code: int = hosting.ask(request, ApiKey.LIST_OFFSETS, 6).topics[0].partitions[0].error_code
        return code

    def ended(epoch: int) -> int:
        one = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[one])])
        reply = hosting.ask(request, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)
        code: int = reply.topics[0].partitions[0].error_code
        return code

    assert [listed(epoch) for epoch in epochs] == refused
    assert [ended(epoch) for epoch in epochs] == refused


def test_a_diverging_history_is_told_instead_of_data(hosting: Hosting) -> None:
    """conformance 60"""
    partition = hosting.host()
    produce(hosting, batch(b"a", b"b"))
    partition.leader_epoch = 3
    produce(hosting, batch(b"c"))
    same = fetch(hosting, 2, last_fetched_epoch=0)
    assert (same.diverging_epoch, offsets(same)) == (None, [2])
    diverging = fetch(hosting, 3, last_fetched_epoch=0, max_wait_ms=LONG_MS)
    assert diverging.diverging_epoch is not None
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 2)
    assert diverging.records == b""


def test_nothing_above_the_high_watermark_is_given(hosting: Hosting) -> None:
    """conformance 61"""
    partition = hosting.host()
    produce(hosting, batch(b"a"))
    partition.in_sync_replicas = [1, 2]
    produce(hosting, batch(b"b"), acks=1)
    assert partition.log.log_end_offset == 2
    data = fetch(hosting)
    assert (data.high_watermark, offsets(data)) == (1, [0])


def test_zstd_is_sent_as_it_is_in_any_version(hosting: Hosting) -> None:
    """conformance 62"""
    hosting.host()
    produce(hosting, batch(b"a", codec=Codec.ZSTD))
    assert BatchHeader.parse(bytes(fetch(hosting, version=4).records or b"")).codec is Codec.ZSTD


def transactional(hosting: Hosting, producer_id: int, sequence: int) -> int:
    """Appended past the coordinator, which comes later; its offset."""
    data = batch(b"t", producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    return append(hosting, data)


def end(hosting: Hosting, producer_id: int, outcome: ControlType) -> int:
    return append(hosting, control_batch(outcome, producer_id, 0, 0, now_ms()))


def append(hosting: Hosting, data: bytes) -> int:
    def run() -> int:
        partition = hosting.broker.replicas.leader_of("t", 0)
        batches = [(data, BatchHeader.parse(data))]
        [outcome] = partition.log.append_as_leader(batches, 0, now_ms(), origin=Origin.COORDINATOR)
        hosting.broker.replicas.advance_high_watermark(partition, len(data))
        return outcome.first_offset  # type: ignore[union-attr]

    offset = hosting.do(run)
    partition = hosting.broker.replicas.leader_of("t", 0)
    if partition.leadership is None:
        hosting.until_visible(partition)
    return offset


def test_read_committed_stops_at_the_open_transaction_and_names_the_aborted_ones(hosting: Hosting) -> None:
    """conformance 43, 44"""
    hosting.host()
    transactional(hosting, 7, 0)
    end(hosting, 7, ControlType.ABORT)
    transactional(hosting, 8, 0)
    end(hosting, 8, ControlType.COMMIT)
    transactional(hosting, 9, 0)
    produce(hosting, batch(b"plain"))
    data = fetch(hosting, isolation_level=1)
    assert (data.high_watermark, data.last_stable_offset) == (6, 4)
    assert offsets(data) == [0, 1, 2, 3]
    assert [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()] == [(7, 0)]
    plain = fetch(hosting)
    assert (offsets(plain), plain.aborted_transactions) == ([0, 1, 2, 3, 4, 5], None)


def test_a_session_is_granted_and_then_tells_only_what_changed(hosting: Hosting) -> None:
    """conformance 57"""
    hosting.host()
    hosting.host("u", topic_id=b"u" * 16)
    first = hosting.ask(
        fetch_request(("t", 0, 0), ("u", 0, 0), session_id=0, session_epoch=0), ApiKey.FETCH, 12
    )
    assert first.session_id > 0
    assert len(first.responses) == 2
    produce(hosting, batch(b"a"), topic="u")
    second = hosting.ask(fetch_request(session_id=first.session_id, session_epoch=1), ApiKey.FETCH, 12)
    assert [topic.topic for topic in second.responses] == ["u"]
    assert second.session_id == first.session_id
    wrong = hosting.ask(fetch_request(session_id=first.session_id, session_epoch=9), ApiKey.FETCH, 12)
    assert (wrong.error_code, wrong.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    unknown = hosting.ask(fetch_request(session_id=12345, session_epoch=1), ApiKey.FETCH, 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def waiting_in_a_session(hosting: Hosting, *topics: str) -> tuple[int, RawClient]:
    """A fetch that is the second of a session, which it names."""
    request = fetch_request(*((topic, 0, 0) for topic in topics), session_id=0, session_epoch=0)
    session_id = hosting.ask(request, ApiKey.FETCH, 12).session_id
    waits = hosting.connect()
    again = fetch_request(session_id=session_id, session_epoch=1, max_wait_ms=LONG_MS)
    waits.send(waits.request(again, ApiKey.FETCH, 12))
    until_it_waits(hosting, topics[-1])
    return session_id, waits


def forget(hosting: Hosting, session_id: int, topic: str) -> FetchResponse:
    """The third of that session, on another connection."""
    request = fetch_request(session_id=session_id, session_epoch=2)
    request.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[0])]
    response: FetchResponse = hosting.ask(request, ApiKey.FETCH, 12)
    return response


def test_a_fetch_that_waits_while_its_session_goes_on_elsewhere_gets_71_and_produces_go_on(
    hosting: Hosting,
) -> None:
    """Kafka's `IncrementalFetchContext` compares the session's epoch again before it answers."""
    for name in ("t", "u"):
        hosting.host(name, topic_id=name.encode() * 16)
    session_id, waits = waiting_in_a_session(hosting, "t", "u")
    assert forget(hosting, session_id, "t").error_code == 0
    assert produce(hosting, batch(b"a")).error_code == 0
    refused = waits.reply(ApiKey.FETCH, 12)
    assert (refused.error_code, refused.session_id, refused.responses) == (71, session_id, [])
    assert produce(hosting, batch(b"b")).base_offset == 1
    third = hosting.ask(fetch_request(session_id=session_id, session_epoch=3), ApiKey.FETCH, 12)
    assert (third.error_code, third.responses) == (0, [])


def test_a_fetch_that_waits_while_its_session_is_emptied_elsewhere_is_answered(hosting: Hosting) -> None:
    hosting.host()
    session_id, waits = waiting_in_a_session(hosting, "t")
    assert forget(hosting, session_id, "t").session_id == 0
    assert produce(hosting, batch(b"a")).error_code == 0
    assert waits.reply(ApiKey.FETCH, 12).error_code == 71


def as_follower(*wanted: tuple[str, int, int], **options: Any) -> FetchRequest:
    return fetch_request(*wanted, replica_id=2, **options)


def test_a_follower_that_forgets_a_partition_falls_out_of_sync(hosting: Hosting) -> None:
    """Kafka's followers forget a partition that they stop to follow, and keep the session for the others."""
    clock_ms = [1000]
    leadership = Leadership(1, lambda broker_id: True)
    partitions = [hosting.host(name, topic_id=name.encode() * 16) for name in ("t", "u")]

    def replicate() -> None:
        replicas = hosting.broker.replicas
        replicas.others = replicas.others._replace(steady_ms=lambda: clock_ms[0])
        for partition, led in zip(
            partitions, (leadership, Leadership(1, lambda broker_id: True)), strict=True
        ):
            partition.replicas, partition.in_sync_replicas = [1, 2], [1, 2]
            led.ordered([1, 2], [1, 2], 0, clock_ms[0], is_new=True)
            partition.leadership = led

    hosting.do(replicate)
    client = hosting.connect()
    wanted = as_follower(("t", 0, 0), ("u", 0, 0), session_id=0, session_epoch=0)
    session_id = client.ask(wanted, ApiKey.FETCH, 12).session_id
    client.ask(as_follower(session_id=session_id, session_epoch=1), ApiKey.FETCH, 12)
    forgets = as_follower(session_id=session_id, session_epoch=2)
    forgets.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0])]
    clock_ms[0] = 2000
    client.ask(forgets, ApiKey.FETCH, 12)
    append(hosting, batch(b"a"))
    clock_ms[0] = 9000
    client.ask(as_follower(session_id=session_id, session_epoch=3), ApiKey.FETCH, 12)
    assert hosting.do(lambda: leadership.shrinkage(1, clock_ms[0], 5000)) == (1,)
    assert hosting.do(lambda: leadership.shrinkage(1, 5900, 5000)) is None, "it was heard at 1000"


def answered_at_once(hosting: Hosting, **options: Any) -> PartitionData:
    """What a Fetch that may wait for very long gets."""
    client = hosting.connect()
    client.socket.settimeout(LONG_MS / 2000)
    request = fetch_request(("t", 0, 0), max_wait_ms=LONG_MS, **options)
    data: PartitionData = client.ask(request, ApiKey.FETCH, 12).responses[0].partitions[0]
    return data


def test_a_partition_that_gives_all_it_may_is_not_waited_for(hosting: Hosting) -> None:
    """conformance 55: Kafka counts what there is up to the limit, whole batches or not."""
    hosting.host()
    one = batch(b"x" * 1000)
    for _ in range(3):
        produce(hosting, one)
    limit = 2 * len(one) + 500
    data = answered_at_once(hosting, partition_max_bytes=limit, min_bytes=limit)
    assert offsets(data) == [0, 1]


def test_the_end_of_a_segment_ends_the_wait(hosting: Hosting) -> None:
    """conformance 55; Kafka's `DelayedFetch` calls it a fetch that is behind the active segment."""
    one = batch(b"x" * 1000)
    hosting.host(config=LogConfig(segment_bytes=2 * len(one)))
    for _ in range(4):
        produce(hosting, one)
    assert offsets(answered_at_once(hosting, min_bytes=1 << 20)) == [0, 1]


def test_a_marker_wakes_a_committed_reader_for_all_that_it_makes_stable(hosting: Hosting) -> None:
    """conformance 44, 55"""
    hosting.host()
    size = 0
    for sequence in range(20):
        data = batch(b"t" * 1000, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        append(hosting, data)
        size += len(data)
    client = park(hosting, ("t", 0, 0), min_bytes=size, isolation_level=1)
    client.socket.settimeout(LONG_MS / 2000)
    marker = control_batch(ControlType.COMMIT, 7, 0, 0, now_ms())

    def commit() -> None:
        replicas = hosting.broker.replicas
        replicas.append(replicas.leader_of("t", 0), marker, origin=Origin.COORDINATOR)

    hosting.do(commit)
    assert offsets(client.reply(ApiKey.FETCH, 12).responses[0].partitions[0]) == list(range(21))


def test_deleting_records_does_not_end_the_wait_of_who_reads_behind_them(hosting: Hosting) -> None:
    hosting.host()
    produce(hosting, batch(b"a"))
    waits = park(hosting, ("t", 0, 1))
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=0
    )
    assert hosting.ask(request, ApiKey.DELETE_RECORDS, 2).topics[0].partitions[0].error_code == 0
    assert hosting.do(lambda: hosting.broker.replicas.leader_of("t", 0).fetches)
    produce(hosting, batch(b"b"))
    assert offsets(waits.reply(ApiKey.FETCH, 12).responses[0].partitions[0]) == [1]


def test_a_deleted_partition_ends_the_wait(hosting: Hosting) -> None:
    hosting.host()
    client = park(hosting, ("t", 0, 0))
    hosting.do(lambda: hosting.broker.replicas.forget("t", 0))
    assert client.reply(ApiKey.FETCH, 12).responses[0].partitions[0].error_code == 3


def test_a_waiting_fetch_of_a_client_that_left_costs_nothing_when_it_wakes(hosting: Hosting) -> None:
    hosting.host()
    park(hosting, ("t", 0, 0)).socket.close()
    assert produce(hosting, idempotent(0)).error_code == 0
    assert produce(hosting, batch(b"b")).base_offset == 1
