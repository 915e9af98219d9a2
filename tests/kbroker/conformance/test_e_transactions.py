"""Conformance E: transactions, in both versions of the protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.transacting import (
    GROUP,
    READ_COMMITTED,
    Transacting,
    committed_in,
    committed_offset,
    markers,
    read_committed,
    settled,
)
from wire.api import ApiKey
from wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from wire.api.api_versions import ApiVersionsRequest
from wire.api.describe_transactions import DescribeTransactionsRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.list_transactions import ListTransactionsRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from wire.errors import ErrorCode

LATEST = -1
BOTH = pytest.mark.parametrize("version", [1, 2])

MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
STATE = ErrorCode.INVALID_TXN_STATE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


def committed_end(speaker: Speaker, topic: str) -> int:
    return int(speaker.offset(topic, LATEST, isolation_level=READ_COMMITTED).offset)


@pytest.fixture
def old(speaker: Speaker, topic: str) -> Transacting:
    """A producer of the old protocol, and a topic with two partitions."""
    speaker.create(topic, partitions=2)
    return Transacting(speaker, topic, version=1).initialized()


@pytest.fixture
def new(speaker: Speaker, topic: str) -> Transacting:
    speaker.create(topic, partitions=2)
    return Transacting(speaker, topic, version=2).initialized()


def producer(speaker: Speaker, topic: str, version: int) -> Transacting:
    speaker.create(topic, partitions=2)
    return Transacting(speaker, topic, version).initialized()


# The features that say which protocol there is


def test_the_feature_says_that_there_is_version_two(speaker: Speaker) -> None:
    """conformance 42, 46: clients go by it. As supported it is told from v4 on: its lowest level is 0."""
    for version in (3, 4):
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        reply = speaker.ask(request, ApiKey.API_VERSIONS, version)
        supported = [(one.name, one.min_version, one.max_version) for one in reply.supported_features]
        assert supported == ([("transaction.version", 0, 2)] if version >= 4 else [])
        [level] = reply.finalized_features
        assert (level.name, level.max_version_level) == ("transaction.version", 2)
        assert reply.finalized_features_epoch >= 0


# InitProducerId


def test_what_cannot_be_initialized(speaker: Speaker, topic: str) -> None:
    """conformance 40"""
    one = Transacting(speaker, topic)
    one.find()
    assert one.init(timeout_ms=900_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert one.init(timeout_ms=0) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    one.epoch = 3
    assert one.init(claims=True) == ErrorCode.INVALID_REQUEST
    assert one.state() == ""


def test_a_producer_id_has_one_owner(speaker: Speaker, topic: str) -> None:
    """conformance 41"""
    one = Transacting(speaker, topic).initialized()
    other = Transacting(speaker, f"{topic}-other").initialized()
    assert one.producer_id != other.producer_id
    again = Transacting(speaker, topic).initialized()
    assert (again.producer_id, again.epoch) == (one.producer_id, 1)
    assert one.init(claims=True) == FENCED
    assert one.init(claims=True, version=3) == OLD_EPOCH


# Joining


def test_a_partition_that_was_not_added_is_refused(old: Transacting, topic: str) -> None:
    """conformance 42: 48 (what v11 has a milder word for), and nothing is appended."""
    assert old.send(topic, b"a", version=10) == (STATE, -1)
    assert old.add(topic, 1) == [0]
    assert old.send(topic, b"a", version=10) == (STATE, -1)
    assert old.send(topic, b"a", version=11) == (ErrorCode.TRANSACTION_ABORTABLE, -1)
    assert old.send(topic, b"a", partition=1) == (0, 0)


def test_in_version_two_a_partition_joins_by_being_written_to(new: Transacting, topic: str) -> None:
    """conformance 42"""
    assert new.send(topic, b"a") == (0, 0)
    assert new.send(topic, b"b") == (0, 1)
    assert new.send(topic, b"c", partition=1) == (0, 0)
    request = DescribeTransactionsRequest(transactional_ids=[topic, f"{topic}-unknown", ""])
    states = new.speaker.ask(request, ApiKey.DESCRIBE_TRANSACTIONS, 0).transaction_states
    assert [state.error_code for state in states] == [
        0,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]
    assert states[0].transaction_state == "Ongoing"
    assert [(one.topic, one.partitions) for one in states[0].topics] == [(topic, [0, 1])]
    new.settled_end(is_commit=True)
    assert read_committed(new.speaker, topic) == [b"a", b"b"]


def test_a_batch_of_a_transaction_needs_a_transactional_id(new: Transacting, topic: str) -> None:
    outcome = new.speaker.produce(topic, new.data(topic, b"a"), version=12)
    assert outcome.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_late_batch_begins_nothing(old: Transacting, topic: str) -> None:
    """conformance 42: a batch that comes when its transaction is over would hold back readers for good."""
    old.begun(topic, b"a")
    late = old.data(topic, b"late")
    old.settled_end(is_commit=False)
    assert old.send_data(topic, late)[0] in (STATE, ErrorCode.TRANSACTION_ABORTABLE)
    assert committed_end(old.speaker, topic) == 2


def test_who_may_add_partitions(old: Transacting, topic: str) -> None:
    """conformance 49: 49, 90, 3; of several partitions all or none."""
    stranger = Transacting(old.speaker, topic)
    stranger.producer_id, stranger.epoch = old.producer_id + 1, 0
    assert stranger.add(topic) == [MAPPING]
    stranger.producer_id, stranger.epoch = old.producer_id, old.epoch + 1
    assert stranger.add(topic) == [FENCED]
    assert stranger.add(topic, version=1) == [OLD_EPOCH]
    unknown = Transacting(old.speaker, f"{topic}-unknown")
    assert unknown.add(topic) == [MAPPING]
    not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert old.add(topic, 0, 2) == [not_attempted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert old.state() == "Empty"


def test_leaders_ask_about_several_transactions_at_once(old: Transacting, topic: str) -> None:
    """conformance 42: AddPartitionsToTxn 4 and 5 are what brokers ask of one another."""
    assert old.add(topic, 0) == [0]

    def asked(*partitions: int, verify_only: bool, producer_id: int) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=topic,
            producer_id=producer_id,
            producer_epoch=old.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

    def errors(version: int, *transactions: AddPartitionsToTxnTransaction) -> list[int]:
        request = AddPartitionsToTxnRequest(transactions=list(transactions))
        reply = old.speaker.ask(request, ApiKey.ADD_PARTITIONS_TO_TXN, version)
        assert reply.error_code == 0
        return [
            partition.partition_error_code
            for result in reply.results_by_transaction
            for named in result.topic_results
            for partition in named.results_by_partition
        ]

    me = old.producer_id
    assert errors(4, asked(0, 1, verify_only=True, producer_id=me)) == [0, ErrorCode.TRANSACTION_ABORTABLE]
    assert errors(5, asked(1, verify_only=False, producer_id=me)) == [0]
    assert errors(5, asked(0, 1, verify_only=True, producer_id=me)) == [0, 0]
    assert errors(5, asked(0, verify_only=True, producer_id=me + 1)) == [MAPPING]
    assert errors(5) == []


def test_a_write_outside_of_the_open_transaction_is_refused(old: Transacting, topic: str) -> None:
    """conformance 45"""
    old.begun(topic, b"a")
    assert old.send(topic, b"b", transactional=False)[0] == STATE
    assert old.send(topic, b"b") == (0, 1)


# What readers of committed data see


@BOTH
def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(
    speaker: Speaker, topic: str, version: int
) -> None:
    """conformance 43"""
    one = producer(speaker, topic, version)
    other = Transacting(speaker, f"{topic}-other", version).initialized()
    speaker.produce(topic, batch(b"plain"))
    assert committed_end(speaker, topic) == 1
    assert one.begun(topic, b"a") == 1
    assert other.begun(topic, b"b") == 2
    speaker.produce(topic, batch(b"plain too"))
    assert (committed_end(speaker, topic), speaker.offset(topic, LATEST).offset) == (1, 4)
    answer = speaker.fetch(topic, 0, isolation_level=READ_COMMITTED)
    assert (answer.high_watermark, answer.last_stable_offset) == (4, 1)
    one.settled_end(is_commit=True)
    assert committed_end(speaker, topic) == 2
    other.settled_end(is_commit=False)
    assert committed_end(speaker, topic) == 6


@BOTH
def test_only_committed_records_are_seen(speaker: Speaker, topic: str, version: int) -> None:
    """conformance 44: below the last stable offset, with a list of what was aborted; markers are offsets."""
    one = producer(speaker, topic, version)
    other = Transacting(speaker, f"{topic}-other", version).initialized()
    one.begun(topic, b"1")
    other.begun(topic, b"x")
    one.begun(topic, b"2")
    assert read_committed(speaker, topic) == []
    one.settled_end(is_commit=True)
    assert read_committed(speaker, topic) == [b"1"], "the rest lies behind an open transaction"
    one.begun(topic, b"3")
    other.settled_end(is_commit=False)
    assert read_committed(speaker, topic) == [b"1", b"2"]
    one.settled_end(is_commit=True)
    assert read_committed(speaker, topic) == [b"1", b"2", b"3"]
    answer = speaker.fetch(topic, 0, isolation_level=READ_COMMITTED)
    assert [(a.producer_id, a.first_offset) for a in answer.aborted_transactions] == [(other.producer_id, 1)]
    after = speaker.fetch(topic, 6, isolation_level=READ_COMMITTED)
    assert after.aborted_transactions == [], "none of them reaches that far"


@BOTH
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_waiting_reader_is_woken_by_the_end(
    speaker: Speaker, connect: Callable[[], Speaker], topic: str, version: int, is_commit: bool
) -> None:
    """conformance 44, 55: by a commit, and by an abort, which lets it see what comes after."""
    one = producer(speaker, topic, version)
    one.begun(topic, b"a")
    speaker.produce(topic, batch(b"plain"))
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=20_000,
        min_bytes=1,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    reader = connect()
    reader.send(reader.request(request, ApiKey.FETCH, 12))
    began = time.monotonic()
    one.settled_end(is_commit=is_commit)
    answer = reader.reply(ApiKey.FETCH, 12).responses[0].partitions[0]
    assert time.monotonic() - began < 10
    aborted = [(each.first_offset, each.producer_id) for each in answer.aborted_transactions]
    kept, end = committed_in(bytes(answer.records), aborted)
    assert [record.value for record in kept] == ([b"a", b"plain"] if is_commit else [b"plain"])
    assert end == 3


@BOTH
def test_a_transaction_over_partitions_is_seen_whole(speaker: Speaker, topic: str, version: int) -> None:
    """conformance 50: every partition has the marker, once."""
    one = producer(speaker, topic, version)
    for is_commit in (True, False, True):
        for partition in (0, 1):
            one.begun(topic, f"{is_commit}".encode(), partition=partition)
        one.settled_end(is_commit=is_commit)
    for partition in (0, 1):
        assert read_committed(speaker, topic, partition) == [b"True", b"True"]
        outcomes = [outcome for _, _, outcome in markers(speaker, topic, partition)]
        assert outcomes == ["COMMIT", "ABORT", "COMMIT"]


# Ending


def test_the_old_protocol_keeps_the_epoch(old: Transacting, topic: str) -> None:
    """conformance 46: an outcome may be repeated, the other one is refused."""
    old.begun(topic, b"a")
    old.settled_end(is_commit=True)
    assert old.end(is_commit=True) == 0
    assert old.end(is_commit=False) == STATE
    assert old.epoch == 0
    old.begun(topic, b"b")
    old.settled_end(is_commit=False)
    assert old.end(is_commit=True) == STATE
    assert markers(old.speaker, topic) == [
        (old.producer_id, 0, "COMMIT"),
        (old.producer_id, 0, "ABORT"),
    ]


def test_every_end_gives_another_epoch(new: Transacting, topic: str) -> None:
    """conformance 46: the retry with the epoch before succeeds, with the other outcome it fails."""
    new.begun(topic, b"a")
    assert new.end(is_commit=True) == 0
    assert new.epoch == 1
    assert settled(lambda: new.end(is_commit=True, epoch=0)) == 0
    assert new.end(is_commit=False, epoch=0) == STATE
    assert markers(new.speaker, topic) == [(new.producer_id, 1, "COMMIT")]


def test_a_late_end_does_not_end_the_next_transaction(
    new: Transacting, topic: str, connect: Callable[[], Speaker]
) -> None:
    """conformance 46: repeated on another connection it is refused, and the transaction goes on."""
    new.begun(topic, b"a")
    late = Transacting(connect(), topic, version=2)
    late.producer_id, late.epoch = new.producer_id, new.epoch
    new.settled_end(is_commit=True)
    new.begun(topic, b"b")
    assert late.end(is_commit=True) == FENCED
    assert late.end(is_commit=False) == FENCED
    assert new.state() == "Ongoing"
    new.settled_end(is_commit=True)
    assert read_committed(new.speaker, topic) == [b"a", b"b"]


def test_the_next_transaction_may_begin_at_once(new: Transacting, topic: str) -> None:
    """conformance 46: while the markers of the one before are being written, the leader waits a little."""
    for number in range(20):
        assert settled(lambda number=number: new.send(topic, b"%d" % number)[0]) == 0  # type: ignore[misc]
        assert new.end(is_commit=True) == 0
    new.completed()
    assert read_committed(new.speaker, topic) == [b"%d" % number for number in range(20)]
    assert new.epoch == 20


@BOTH
def test_a_new_producer_fences_off_the_old_one(speaker: Speaker, topic: str, version: int) -> None:
    """conformance 47: it first aborts what is open; epoch 0 -> 2; 47 on Produce, 90 on EndTxn."""
    first = producer(speaker, topic, version)
    first.begun(topic, b"lost")
    second = Transacting(speaker, topic, version)
    assert second.init() == BUSY
    assert settled(second.init) == 0
    assert (second.producer_id, second.epoch) == (first.producer_id, 2)
    assert first.send(topic, b"late")[0] == OLD_EPOCH
    assert first.end(is_commit=True) == FENCED
    assert first.end(is_commit=True, version=1) == OLD_EPOCH
    second.begun(topic, b"kept")
    second.settled_end(is_commit=True)
    assert read_committed(speaker, topic) == [b"kept"]


def test_who_may_end_a_transaction(old: Transacting, topic: str) -> None:
    """conformance 49"""
    old.begun(topic, b"a")
    stranger = Transacting(old.speaker, topic)
    stranger.producer_id, stranger.epoch = old.producer_id + 1, 0
    assert stranger.end(is_commit=True) == MAPPING
    unknown = Transacting(old.speaker, f"{topic}-unknown")
    assert unknown.end(is_commit=True) == MAPPING
    assert old.end(is_commit=True, epoch=7) == FENCED
    old.settled_end(is_commit=True)


def test_markers_are_written_for_tools_too(old: Transacting, topic: str) -> None:
    """conformance 50: what no coordinator remembers can be aborted by hand. A marker counts once."""
    old.begun(topic, b"a")
    marker = WritableTxnMarker(
        producer_id=old.producer_id,
        producer_epoch=old.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 7])],
        coordinator_epoch=0,
    )
    for _ in range(2):
        reply = old.speaker.ask(WriteTxnMarkersRequest(markers=[marker]), ApiKey.WRITE_TXN_MARKERS, 1)
        [result] = reply.markers
        errors = [partition.error_code for partition in result.topics[0].partitions]
        assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed_end(old.speaker, topic) == 2
    assert markers(old.speaker, topic) == [(old.producer_id, 0, "ABORT")]


@BOTH
def test_a_topic_made_anew_gets_no_marker_of_what_was_written_to_the_one_before(
    speaker: Speaker, topic: str, version: int
) -> None:
    """Kafka does not look for the leaders of partitions that were deleted when the transaction ends."""
    one = producer(speaker, topic, version)
    one.begun(topic, b"a")
    assert speaker.delete_topic(topic) == 0
    assert one.end(is_commit=True) == 0
    speaker.create(topic, partitions=2)
    one.completed()
    assert speaker.offset(topic, LATEST).offset == 0


def test_transactions_are_listed(old: Transacting, topic: str) -> None:
    old.begun(topic, b"a")

    def listed(states: list[str], version: int = 1, duration_filter: int = -1) -> list[str]:
        request = ListTransactionsRequest(
            state_filters=states, producer_id_filters=[old.producer_id], duration_filter=duration_filter
        )
        reply = old.speaker.ask(request, ApiKey.LIST_TRANSACTIONS, version)
        unknown.extend(reply.unknown_state_filters)
        return [one.transactional_id for one in reply.transaction_states]

    unknown: list[str] = []
    assert listed([]) == [topic]
    assert listed(["Ongoing"], 0) == [topic]
    assert listed(["CompleteCommit", "Dead"]) == []
    assert listed([], duration_filter=60_000) == []
    assert not unknown
    assert listed(["Nonsense"]) == []
    assert unknown == ["Nonsense"]


# Offsets


def with_group(one: Transacting, group_id: str) -> None:
    one.find(group_id, GROUP)


def add_offsets(one: Transacting, group_id: str) -> None:
    if one.version < 2:
        assert settled(lambda: one.add_offsets(group_id)) == 0


@BOTH
def test_offsets_are_seen_when_the_transaction_is_committed(
    speaker: Speaker, topic: str, version: int
) -> None:
    """conformance 51: invisible before, dropped on abort; 88 for these partitions and no others."""
    one = producer(speaker, topic, version)
    with_group(one, topic)
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    for is_commit, offset, before, after in ((True, 5, -1, 5), (False, 9, 5, 5), (True, 7, 5, 7)):
        add_offsets(one, topic)
        assert settled(lambda offset=offset: one.commit_offset(topic, topic, offset)) == 0  # type: ignore[misc]
        assert committed_offset(speaker, topic, topic) == (0, before)
        assert committed_offset(speaker, topic, topic, require_stable=True) == (unstable, -1)
        assert committed_offset(speaker, topic, topic, require_stable=True, partition=1) == (0, -1)
        one.settled_end(is_commit=is_commit)
        assert committed_offset(speaker, topic, topic, require_stable=True) == (0, after)


def test_offsets_of_a_group_that_was_not_added_are_refused(old: Transacting, topic: str) -> None:
    """conformance 42, 51"""
    with_group(old, topic)
    assert old.commit_offset(topic, topic, 5) == STATE
    assert old.commit_offset(topic, topic, 5, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert old.commit_offset(topic, f"{topic}-unknown", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed_offset(old.speaker, topic, topic, require_stable=True) == (0, -1)


def test_a_stale_member_cannot_commit_in_a_transaction(old: Transacting, topic: str) -> None:
    """conformance 51: a generation that is over, a member that is not known."""
    with_group(old, topic)
    add_offsets(old, topic)
    stale: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "gone"}
    assert old.commit_offset(topic, topic, 5, **stale) == ErrorCode.ILLEGAL_GENERATION
    assert old.commit_offset(topic, topic, 5) == 0
    assert old.commit_offset(topic, topic, 5, **stale) == ErrorCode.UNKNOWN_MEMBER_ID
    old.settled_end(is_commit=True)


def test_a_fenced_producer_cannot_commit_offsets(old: Transacting, topic: str) -> None:
    """conformance 47, 51"""
    with_group(old, topic)
    add_offsets(old, topic)
    assert old.commit_offset(topic, topic, 5) == 0
    Transacting(old.speaker, topic).initialized()
    assert old.commit_offset(topic, topic, 6) == OLD_EPOCH
    assert old.add_offsets(topic) == FENCED
    assert old.add_offsets(topic, version=1) == OLD_EPOCH
    assert committed_offset(old.speaker, topic, topic, require_stable=True) == (0, -1)


@BOTH
def test_a_later_plain_commit_survives_the_marker(speaker: Speaker, topic: str, version: int) -> None:
    """conformance 52"""
    one = producer(speaker, topic, version)
    with_group(one, topic)
    add_offsets(one, topic)
    assert one.commit_offset(topic, topic, 5) == 0
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=8, committed_metadata=None)
    plain = OffsetCommitRequest(
        group_id=topic,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    reply = speaker.ask(plain, ApiKey.OFFSET_COMMIT, 8)
    assert reply.topics[0].partitions[0].error_code == 0
    one.settled_end(is_commit=True)
    assert committed_offset(speaker, topic, topic, require_stable=True) == (0, 8)


def test_an_old_client_may_begin_the_next_transaction_at_once(old: Transacting, topic: str) -> None:
    """conformance 46: it waits for the markers of the one before, and is seldom told to come again."""
    with_group(old, topic)
    told: list[int] = []

    def noted(code: int) -> int:
        told.append(code)
        return code

    for number in range(10):
        assert settled(lambda: noted(old.add(topic)[0])) == 0
        assert old.send(topic, b"%d" % number)[0] == 0
        assert old.end(is_commit=True) == 0
        assert settled(lambda: noted(old.add_offsets(topic))) == 0
        assert old.commit_offset(topic, topic, number) == 0
        assert old.end(is_commit=True) == 0
    assert told.count(BUSY) <= 10, "without waiting it would be hundreds"
    old.completed()
    assert committed_offset(old.speaker, topic, topic, require_stable=True) == (0, 9)
    assert read_committed(old.speaker, topic) == [b"%d" % number for number in range(10)]
