"""What the controller orders a broker to do: lead, follow, stop, and what to know of the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.context import Context, HangUp
from kbroker.handlers.leader_and_isr import leader_and_isr
from kbroker.handlers.stop_replica import stop_replica
from kbroker.handlers.update_metadata import update_metadata
from kbroker.metadata_cache import LEADER_DURING_DELETE, MetadataCache
from tests.kbroker.handlers.test_fetch import fetch
from tests.kbroker.handlers.test_produce import produce
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import batch
from wire.api.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from wire.api.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from wire.api.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from wire.errors import ErrorCode
from wire.primitives import uuid_to_text
from wire.record_batch import BatchHeader, batch_headers

ME, OTHER = 1, 2
CONTEXT = Context(7, None)
TOPIC_ID = b"t" * 16


def order(
    hosting: Hosting,
    leader: int = ME,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    *,
    isr: list[int] | None = None,
    topic_id: bytes = TOPIC_ID,
    controller_epoch: int = 1,
    broker_epoch: int = -1,
) -> ErrorCode:
    """The outcome for partition 0 of t, or that of the whole request."""
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=isr or [ME],
        partition_epoch=partition_epoch,
        replicas=isr or [ME],
    )
    request = LeaderAndIsrRequest(
        controller_id=ME,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])],
        live_leaders=[],
    )
    response = hosting.do(lambda: leader_and_isr(hosting.broker, CONTEXT, request))
    if response.error_code:
        return ErrorCode(response.error_code)
    return ErrorCode(response.topics[0].partition_errors[0].error_code)


def stop(hosting: Hosting, leader_epoch: int, *, delete: bool) -> ErrorCode:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=delete)
    request = StopReplicaRequest(
        controller_id=ME,
        controller_epoch=1,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[state])],
    )
    response = hosting.do(lambda: stop_replica(hosting.broker, CONTEXT, request))
    return ErrorCode(response.partition_errors[0].error_code)


def test_a_broker_that_is_told_to_lead_takes_records(hosting: Hosting) -> None:
    assert order(hosting, leader_epoch=4) == ErrorCode.NONE
    assert produce(hosting, batch()).base_offset == 0
    assert fetch(hosting, current_leader_epoch=4).high_watermark == 1


def test_a_broker_that_follows_refuses_records_and_those_who_believe_that_it_leads(hosting: Hosting) -> None:
    """conformance 91; who can know that it follows may read (KIP-392)."""
    order(hosting)
    assert order(hosting, leader=OTHER, leader_epoch=1, isr=[ME, OTHER]) == ErrorCode.NONE
    assert produce(hosting, batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(hosting, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(hosting, current_leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fetch(hosting, current_leader_epoch=1).error_code == ErrorCode.NONE


def test_an_old_order_is_refused(hosting: Hosting) -> None:
    """conformance 91"""
    order(hosting, leader_epoch=5, partition_epoch=3)
    assert order(hosting, leader_epoch=4, partition_epoch=9) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert order(hosting, leader_epoch=5, partition_epoch=2) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert order(hosting, leader_epoch=5, partition_epoch=3) == ErrorCode.NONE
    assert order(hosting, leader_epoch=5, partition_epoch=4) == ErrorCode.NONE


def test_a_replaced_controller_and_another_life_of_the_broker_are_refused(hosting: Hosting) -> None:
    assert order(hosting, controller_epoch=7) == ErrorCode.NONE
    assert order(hosting, controller_epoch=6) == ErrorCode.STALE_CONTROLLER_EPOCH
    hosting.broker.broker_epoch = 100
    assert order(hosting, controller_epoch=7, broker_epoch=99) == ErrorCode.STALE_BROKER_EPOCH
    assert order(hosting, controller_epoch=7, broker_epoch=100) == ErrorCode.NONE


@pytest.mark.parametrize("is_hosted", [False, True])
def test_a_log_of_another_topic_of_the_same_name_is_not_taken(
    hosting: Hosting, caplog: pytest.LogCaptureFixture, is_hosted: bool
) -> None:
    """conformance 15; Kafka logs it as well, with both ids. A broker may have missed the other one's end."""
    order(hosting)
    if not is_hosted:
        stop(hosting, 0, delete=False)
    assert order(hosting, topic_id=b"u" * 16) == ErrorCode.INCONSISTENT_TOPIC_ID
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert f"/t-0 is not used: it is the log of a topic with the id {uuid_to_text(TOPIC_ID)}" in said
    assert uuid_to_text(b"u" * 16) in said


def test_a_broker_that_is_none_of_the_replicas_makes_no_log(hosting: Hosting) -> None:
    """As Kafka's ReplicaManager.becomeLeaderOrFollower."""
    assert order(hosting, leader=OTHER, isr=[OTHER]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert hosting.broker.logs.get(("t", 0)) is None


def test_a_log_that_was_in_a_later_epoch_can_be_written(hosting: Hosting) -> None:
    """It comes from a Kafka that was restarted. Kafka drops later epochs, and serves their batches."""

    def write() -> None:
        log = hosting.broker.logs.create(("t", 0), 0, TOPIC_ID)
        records = batch()
        log.append_as_leader([(records, BatchHeader.parse(records))], 3, 0)

    hosting.do(write)
    assert order(hosting, leader_epoch=0) == ErrorCode.NONE
    outcome = produce(hosting, batch())
    assert (outcome.error_code, outcome.base_offset) == (0, 1)
    read = fetch(hosting, current_leader_epoch=0)
    assert [header.leader_epoch for _, header in batch_headers(read.records or b"")] == [3, 0]


def test_a_partition_whose_disk_has_failed_is_not_unknown(hosting: Hosting) -> None:
    """As Kafka's `HostedPartition.Offline`, until the controller takes the partition away."""
    directory = hosting.broker.logs.directories[0]
    hosting.do(lambda: directory.fail(OSError(5, "Input/output error")))
    assert order(hosting) == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(hosting, batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetch(hosting, version=10).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    stop(hosting, 0, delete=False)
    assert produce(hosting, batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_is_elsewhere_is_not_unknown(hosting: Hosting) -> None:
    """Kafka's `getPartitionOrError`: clients look for the leader, and do not take the topic for gone."""
    hosting.order("t")
    hosting.do(lambda: hosting.broker.replicas.forget("t", 0))
    assert produce(hosting, batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deleted_replica_begins_anew(hosting: Hosting) -> None:
    """conformance 15"""
    order(hosting, leader_epoch=2)
    produce(hosting, batch())
    assert stop(hosting, 1, delete=True) == ErrorCode.FENCED_LEADER_EPOCH
    assert stop(hosting, -2, delete=True) == ErrorCode.NONE
    assert produce(hosting, batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert order(hosting, topic_id=b"u" * 16) == ErrorCode.NONE
    assert produce(hosting, batch()).base_offset == 0


def test_a_replica_that_the_disk_does_not_let_go_is_not_deleted(hosting: Hosting) -> None:
    order(hosting)
    directory = hosting.broker.logs.directories[0]
    hosting.do(lambda: directory.fail(OSError(5, "Input/output error")))
    assert stop(hosting, -2, delete=True) == ErrorCode.KAFKA_STORAGE_ERROR


MANY = 120


def many(controller_epoch: int = 1) -> LeaderAndIsrRequest:
    """Lead many partitions, none of which is here."""
    states = [
        LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=controller_epoch,
            leader=ME,
            leader_epoch=0,
            isr=[ME],
            partition_epoch=0,
            replicas=[ME],
            is_new=True,
        )
        for index in range(MANY)
    ]
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=states)
    return LeaderAndIsrRequest(
        controller_id=ME, controller_epoch=controller_epoch, topic_states=[topic], live_leaders=[]
    )


def test_many_logs_are_made_beside_other_requests_and_answered_when_all_are_there(hosting: Hosting) -> None:
    """Nothing is led before its log is there."""
    broker, led, answered = hosting.broker, list[int](), threading.Event()

    def count() -> None:
        led.append(len(list(broker.replicas)))
        if not answered.is_set():
            broker.call_later_ms(0, count)

    def done(response: LeaderAndIsrResponse) -> None:
        led.append(len(list(broker.replicas)))
        assert [one.error_code for one in response.topics[0].partition_errors] == [0] * MANY
        answered.set()

    def begin() -> None:
        leader_and_isr(broker, CONTEXT, many()).when_done(done)
        count()

    hosting.do(begin)
    assert answered.wait(30)
    assert led[0] == 0, "it was done in one go"
    assert any(0 < one < MANY for one in led), "nobody else had a turn"
    assert led[-1] == MANY
    assert produce(hosting, batch(), index=MANY - 1).base_offset == 0


def test_orders_about_a_topic_are_carried_out_one_after_the_other(hosting: Hosting) -> None:
    """The second one finds what the first one leaves, and a replaced controller is refused in its turn."""
    broker, outcomes, answered = hosting.broker, list[tuple[str, int]](), threading.Event()
    news_of_the_next = news(partition_state(0))
    to_stop = StopReplicaRequest(
        controller_id=ME,
        controller_epoch=3,
        topic_states=[
            StopReplicaTopicState(
                topic_name="t",
                partition_states=[
                    StopReplicaPartitionState(partition_index=index, leader_epoch=0, delete_partition=True)
                    for index in range(MANY)
                ],
            )
        ],
    )

    def note(what: str) -> Callable[[Any], None]:
        return lambda response: outcomes.append((what, response.error_code))

    def stopped(response: Any) -> None:
        note("stop")(response)
        answered.set()

    def begin() -> None:
        leader_and_isr(broker, CONTEXT, many()).when_done(note("lead"))
        assert not broker.metadata.topics
        update_metadata(broker, CONTEXT, news_of_the_next).when_done(note("know"))
        leader_and_isr(broker, CONTEXT, many(controller_epoch=2)).when_done(note("lead, by an old one"))
        stop_replica(broker, CONTEXT, to_stop).when_done(stopped)

    hosting.do(begin)
    assert answered.wait(30)
    assert outcomes == [
        ("lead", 0),
        ("know", 0),
        ("lead, by an old one", ErrorCode.STALE_CONTROLLER_EPOCH),
        ("stop", 0),
    ]
    assert hosting.do(lambda: (list(broker.replicas), list(broker.logs))) == ([], [])


def test_orders_about_another_topic_do_not_wait(hosting: Hosting) -> None:
    """Nor does news of brokers, and what is older of that does not come back."""
    broker, answered = hosting.broker, threading.Event()
    of_t = news(partition_state(0), brokers=(ME,))
    of_u = news(partition_state(0), brokers=(ME, OTHER))
    of_u.topic_states[0].topic_name, of_u.topic_states[0].topic_id = "u", b"u" * 16
    of_v = news(partition_state(0), brokers=(ME, OTHER))
    of_v.topic_states[0].topic_name, of_v.topic_states[0].topic_id = "v", b"v" * 16
    to_lead = many(controller_epoch=3)
    to_lead.topic_states[0].topic_name, to_lead.topic_states[0].topic_id = "v", b"v" * 16
    to_lead.topic_states[0].partition_states[1:] = []

    def begin() -> None:
        leader_and_isr(broker, CONTEXT, many()).when_done(lambda response: None)
        update_metadata(broker, CONTEXT, of_t).when_done(lambda response: answered.set())
        assert update_metadata(broker, CONTEXT, news(brokers=(OTHER,))).error_code == 0
        assert list(broker.metadata.nodes) == [OTHER]
        assert update_metadata(broker, CONTEXT, of_u).error_code == 0
        assert leader_and_isr(broker, CONTEXT, to_lead).error_code == 0
        assert update_metadata(broker, CONTEXT, of_v).error_code == 0
        assert list(broker.metadata.topics) == ["u", "v"]
        assert broker.orders.is_busy

    hosting.do(begin)
    assert answered.wait(30)
    assert hosting.do(lambda: list(broker.metadata.topics)) == ["u", "v", "t"]
    assert hosting.do(lambda: list(broker.metadata.nodes)) == [ME, OTHER]
    assert not hosting.do(lambda: broker.orders.is_busy)


def test_a_broker_stops_in_order_while_it_makes_logs(tmp_path: Path) -> None:
    with Hosting(tmp_path / "data") as hosting:
        hosting.do(lambda: leader_and_isr(hosting.broker, CONTEXT, many()))
    with Hosting(tmp_path / "data") as hosting:
        assert hosting.obeyed(lambda: leader_and_isr(hosting.broker, CONTEXT, many())).error_code == 0
        assert hosting.do(lambda: len(list(hosting.broker.replicas))) == MANY


NEW_ID = b"n" * 16


def partition_state(index: int, leader: int = ME, **fields: object) -> UpdateMetadataPartitionState:
    values = {"controller_epoch": 1, "leader_epoch": 0, "isr": [ME], "zk_version": 0, "replicas": [ME, OTHER]}
    return UpdateMetadataPartitionState(
        partition_index=index,
        leader=leader,
        **{**values, **fields},  # type: ignore[arg-type]
    )


def news(
    *partitions: UpdateMetadataPartitionState, brokers: tuple[int, ...] = (ME,)
) -> UpdateMetadataRequest:
    live = [
        UpdateMetadataBroker(
            id=broker,
            endpoints=[
                UpdateMetadataEndpoint(port=9092, host=f"b{broker}", listener="L", security_protocol=0)
            ],
        )
        for broker in brokers
    ]
    topics = [UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=list(partitions))]
    return UpdateMetadataRequest(
        controller_id=ME, controller_epoch=3, topic_states=topics if partitions else [], live_brokers=live
    )


def test_the_cache_knows_what_it_was_told() -> None:
    """conformance 19"""
    cache = MetadataCache()
    cache.update(news(partition_state(1), partition_state(0)))
    topic = cache.topics["t"]
    described = cache.described(topic, "L")
    assert [(p.partition_index, p.leader_id, p.error_code) for p in described] == [(0, ME, 0), (1, ME, 0)]
    assert described[0].offline_replicas == [OTHER]
    assert cache.topic_name(TOPIC_ID) == "t"
    assert (cache.leader("t", 0), cache.leader("t", 9), cache.controller_epoch) == (ME, -1, 3)
    assert cache.nodes[ME].endpoints == {"L": ("b1", 9092)}


def test_answers_follow_changes_of_topics_and_of_brokers() -> None:
    cache = MetadataCache()
    cache.update(news(partition_state(0, leader=OTHER)))
    assert cache.described(cache.topics["t"], "L")[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    cache.update(news(brokers=(ME, OTHER)))
    [described] = cache.described(cache.topics["t"], "L")
    assert (described.leader_id, described.offline_replicas) == (OTHER, [])
    assert cache.described(cache.topics["t"], "M")[0].error_code == ErrorCode.LISTENER_NOT_FOUND
    cache.update(news(partition_state(0, leader_epoch=9), brokers=(ME, OTHER)))
    assert cache.described(cache.topics["t"], "L")[0].leader_epoch == 9


def test_a_deleted_topic_is_gone_by_name_and_by_id() -> None:
    """conformance 15"""
    cache = MetadataCache()
    cache.update(news(partition_state(0), partition_state(1)))
    gone = news(*(partition_state(index, leader=LEADER_DURING_DELETE) for index in (0, 1)))
    assert cache.update(gone) == ["t"]
    assert (cache.topics, cache.topic_name(TOPIC_ID)) == ({}, None)
    assert cache.update(gone) == ["t"], "also if it was not known here: something may be left of it"


def test_a_topic_that_was_made_again_is_another_one() -> None:
    """conformance 15: what is said of the old one, by its id or late, does not concern the new one."""
    cache = MetadataCache()
    cache.update(news(partition_state(0), partition_state(1)))
    again = news(partition_state(0))
    again.topic_states[0].topic_id = NEW_ID
    assert cache.update(again) == ["t"], "nobody has said here that the old one was deleted"
    assert (cache.topic_name(TOPIC_ID), cache.topic_name(NEW_ID)) == (None, "t")
    late = news(*(partition_state(index, leader=LEADER_DURING_DELETE) for index in (0, 1)))
    assert cache.update(late) == []
    assert list(cache.topics["t"].partitions) == [0]
    assert cache.update(again) == []


def test_news_of_a_replaced_controller_are_refused(hosting: Hosting) -> None:
    def tell(epoch: int) -> Any:
        request = news(partition_state(0))
        request.controller_epoch = epoch
        return hosting.do(lambda: update_metadata(hosting.broker, CONTEXT, request)).error_code

    assert [tell(5), tell(4), tell(5)] == [0, ErrorCode.STALE_CONTROLLER_EPOCH, 0]


def test_what_comes_late_on_a_connection_that_the_controller_has_given_up_is_not_obeyed(
    hosting: Hosting,
) -> None:
    """It was sent before what has come on the next connection, of the same controller."""

    def tell(epoch: int, connection: int, *partitions: int) -> Any:
        request = news(*map(partition_state, partitions))
        request.controller_epoch = epoch
        context = CONTEXT._replace(connection=connection)
        return hosting.do(lambda: update_metadata(hosting.broker, context, request)).error_code

    def known() -> list[int]:
        return hosting.do(lambda: sorted(hosting.broker.metadata.topics["t"].partitions))

    assert [tell(5, 1, 0), tell(5, 2, 1)] == [0, 0]
    with pytest.raises(HangUp):
        tell(5, 1, 0, 1, 2)
    assert known() == [0, 1]
    assert tell(6, 1, 2) == 0, "another controller may have connected earlier"
    assert known() == [0, 1, 2]
