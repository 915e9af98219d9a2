"""Leaders that ask for other in-sync replicas, and what they are told."""

from __future__ import annotations

import pytest

from controller import events, znodes
from controller.state import LeaderAndIsr, LeaderRecoveryState, TopicPartition
from tests.controller.simulated_store import answer_of
from tests.controller.worlds import World, at_once, nothing_changes
from wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResponse,
    TopicData,
)
from wire.api.controlled_shutdown import ControlledShutdownRequest
from wire.api.update_metadata import UpdateMetadataRequest
from wire.errors import ErrorCode

ANY = -1


def alter(
    world: World,
    *isr: int | tuple[int, int],
    leader: int = 1,
    version: int = 3,
    broker_epoch: int | None = None,
    leader_epoch: int | None = None,
    partition_epoch: int | None = None,
    recovery: int = 0,
    topic: str = "t",
    partition: int = 0,
) -> AlterPartitionResponse:
    """Ask as the leader would that knows what the controller knows, but for what is given."""
    state = world.state.topics["t"].leadership[0]
    members = [one if isinstance(one, tuple) else (one, ANY) for one in isr]
    known = world.state.topics.get(topic)
    asked = PartitionData(
        partition_index=partition,
        leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
        partition_epoch=state.partition_epoch if partition_epoch is None else partition_epoch,
        leader_recovery_state=recovery,
        new_isr=[broker_id for broker_id, _ in members],
        new_isr_with_epochs=[BrokerState(broker_id=one, broker_epoch=epoch) for one, epoch in members],
    )
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=world.state.brokers[leader].epoch if broker_epoch is None else broker_epoch,
        topics=[
            TopicData(topic_name=topic, topic_id=known.topic_id if known else bytes(16), partitions=[asked])
        ],
    )
    reply = world.step(events.AlterPartition(request, version))
    assert isinstance(reply, AlterPartitionResponse)
    return reply


def outcome(reply: AlterPartitionResponse) -> PartitionDataResponse:
    assert reply.error_code == ErrorCode.NONE
    ((result,),) = [topic.partitions for topic in reply.topics]
    return result


@pytest.fixture
def world() -> World:
    """A partition led by 1, with 1 and 2 in sync, and 3 behind."""
    world = World(1, 2, 3, 4)
    world.topic("t", (1, 2, 3))
    world.set_isr("t", 1, 2)
    return world


def test_a_replica_that_has_caught_up_is_let_in(world: World) -> None:
    before = world.leadership("t")
    result = outcome(alter(world, 1, 2, 3))
    assert (result.error_code, result.leader_id, result.isr) == (ErrorCode.NONE, 1, [1, 2, 3])
    assert (result.leader_epoch, result.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1)
    assert world.isr("t") == (1, 2, 3)
    assert all(world.messages(broker_id) == [UpdateMetadataRequest] for broker_id in (1, 2, 3, 4))


def test_a_replica_that_has_fallen_behind_is_left_out(world: World) -> None:
    assert outcome(alter(world, 1)).isr == [1]
    assert world.isr("t") == (1,)


def test_the_leader_knows_the_lives_of_its_followers(world: World) -> None:
    epochs = {broker_id: broker.epoch for broker_id, broker in world.state.brokers.items()}
    refused = outcome(alter(world, (1, epochs[1]), (2, epochs[2]), (3, epochs[3] - 1)))
    assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA
    result = outcome(alter(world, (1, epochs[1]), (2, epochs[2]), (3, epochs[3])))
    assert result.isr == [1, 2, 3]


def test_a_request_that_comes_twice_is_granted_twice_and_done_once(world: World) -> None:
    before = world.leadership("t").partition_epoch
    first = outcome(alter(world, 1, 2, 3, partition_epoch=before))
    nothing_written = world.writes
    again = outcome(alter(world, 1, 2, 3, partition_epoch=before))
    assert again == first
    assert world.writes == nothing_written


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_topics_are_named_or_identified_by_version(world: World, version: int) -> None:
    assert outcome(alter(world, 1, 2, 3, version=version)).isr == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"leader": 2}, ErrorCode.INVALID_REQUEST),
        ({"recovery": 1}, ErrorCode.INVALID_REQUEST),
        ({"recovery": 7}, ErrorCode.INVALID_REQUEST),
        ({"topic": "none"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"topic": "none", "version": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(world: World, changes: dict[str, object], code: ErrorCode) -> None:
    nothing_changes(world, lambda: alter(world, 1, 2, 3, **changes))  # type: ignore[arg-type]
    assert outcome(alter(world, 1, 2, 3, **changes)).error_code == code  # type: ignore[arg-type]


@pytest.mark.parametrize("isr", [(2, 3), (1, 4), (1, 1), ()], ids=str)
def test_a_set_that_cannot_be_in_sync_is_refused(world: World, isr: tuple[int, ...]) -> None:
    nothing_changes(world, lambda: alter(world, *isr))
    assert outcome(alter(world, *isr)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.OPERATION_NOT_ATTEMPTED), (3, ErrorCode.INELIGIBLE_REPLICA)]
)
def test_a_replica_that_is_away_is_not_let_in(world: World, version: int, code: ErrorCode) -> None:
    world.leave(3)
    assert outcome(alter(world, 1, 2, 3, version=version)).error_code == code
    world.join(3)
    assert outcome(alter(world, 1, 2, 3, version=version)).error_code == ErrorCode.NONE


def test_a_replica_on_its_way_out_is_not_let_in(world: World) -> None:
    epoch = world.state.brokers[3].epoch
    world.step(events.ControlledShutdown(ControlledShutdownRequest(broker_id=3, broker_epoch=epoch)))
    assert outcome(alter(world, 1, 2, 3)).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_of_an_earlier_life_is_refused_as_a_whole(world: World) -> None:
    reply = alter(world, 1, 2, 3, broker_epoch=world.state.brokers[1].epoch - 1)
    assert (reply.error_code, reply.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_a_leader_that_was_replaced_is_fenced(world: World) -> None:
    """conformance 91"""
    old = world.leadership("t")
    world.join(1)
    assert world.leader("t") == 2
    stale = alter(world, 1, leader_epoch=old.leader_epoch, partition_epoch=old.partition_epoch)
    assert outcome(stale).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_leader_that_was_not_in_sync_recovers_alone() -> None:
    world = World(1, 2)
    world.topic("t", (2, 1), unclean_leader_election_enable="true")
    world.set_isr("t", 2)
    world.leave(2)
    world.join(2)
    assert world.leadership("t").leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert outcome(alter(world, 1, 2, recovery=1)).error_code == ErrorCode.INVALID_REQUEST
    assert outcome(alter(world, 1, recovery=0)).leader_recovery_state == 0
    assert outcome(alter(world, 1, 2)).isr == [1, 2]
    assert world.leadership("t").leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_topic_going_has_no_in_sync_replicas_to_ask_for(world: World) -> None:
    world.leave(3)
    answer_of(world.store.create(znodes.DeleteTopic.path("t")))
    world.step(events.DeletionsRequested(["t"]))
    assert outcome(alter(world, 1)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_what_leaders_of_an_older_kafka_wrote_themselves_is_taken_in(world: World) -> None:
    partition = TopicPartition("t", 0)
    old = world.leadership("t")
    new = LeaderAndIsr(1, (1,), old.leader_epoch, 0, old.controller_epoch)
    path = znodes.PartitionState.path(partition)
    answer_of(world.store.set(path, znodes.PartitionState.encode(new), old.partition_epoch))
    change = znodes.IsrChange([partition, TopicPartition("none", 1)])
    answer_of(world.store.create(znodes.ISR_CHANGE_PREFIX, change.encode(), sequential=True))
    world.step(events.IsrsChanged(*at_once(world.reader.isr_changes())))
    assert world.isr("t") == (1,)
    assert answer_of(world.store.children(znodes.ISR_CHANGES)) == []
