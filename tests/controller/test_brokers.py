"""Brokers that come, go, stop, or lose a disk; the worlds check store and brokers after every step."""

from __future__ import annotations

from controller import events, znodes
from controller.requests import ControlRequest
from controller.state import NO_LEADER, Endpoint, LeaderRecoveryState, ReplicaAssignment, TopicPartition
from tests.controller.simulated_store import answer_of
from tests.controller.worlds import CONTROLLER_EPOCH, World, at_once, nothing_changes
from wire.api.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from wire.api.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from wire.api.update_metadata import UpdateMetadataRequest
from wire.errors import ErrorCode


def shut_down(world: World, broker_id: int, epoch: int | None = None) -> ControlledShutdownResponse:
    broker_epoch = world.state.brokers[broker_id].epoch if epoch is None else epoch
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    reply = world.step(events.ControlledShutdown(request))
    assert isinstance(reply, ControlledShutdownResponse)
    return reply


def test_the_death_of_a_leader_hands_over_to_the_next_in_sync_replica() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    world.leave(1)
    assert [world.leader("t", p) for p in range(3)] == [2, 2, 3]
    assert [world.isr("t", p) for p in range(3)] == [(2, 3), (2, 3), (3, 2)]
    assert [world.leadership("t", p).leader_epoch for p in range(3)] == [1, 1, 1]
    assert world.leadership("t").controller_epoch == CONTROLLER_EPOCH


def test_each_broker_is_told_once_of_all_that_a_death_changes() -> None:
    world = World(1, 2, 3)
    world.topic("t", *[(1, 2, 3)] * 50)
    world.leave(1)
    for broker_id in (2, 3):
        assert world.messages(broker_id) == [
            UpdateMetadataRequest,
            LeaderAndIsrRequest,
            UpdateMetadataRequest,
        ]


def test_without_a_living_in_sync_replica_there_is_no_leader_until_one_is_back() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.set_isr("t", 1)
    world.leave(1)
    assert (world.leader("t"), world.isr("t")) == (NO_LEADER, (1,))
    world.join(1)
    assert (world.leader("t"), world.isr("t")) == (1, (1,))
    assert world.leadership("t").leader_epoch == 2


def test_those_who_die_together_stay_in_sync_together() -> None:
    """Either of them has all that was acknowledged, so the first one back may lead."""
    world = World(1, 2, 3)
    world.topic("t", (1, 2))
    world.leave(1, 2)
    assert (world.leader("t"), world.isr("t")) == (NO_LEADER, (1, 2))
    world.join(2)
    assert (world.leader("t"), world.isr("t")) == (2, (2,))


def test_an_out_of_sync_replica_leads_only_where_that_is_allowed() -> None:
    """conformance 91"""
    world = World(1, 2)
    world.topic("safe", (1, 2))
    world.topic("unsafe", (1, 2), unclean_leader_election_enable="true")
    world.set_isr("safe", 1)
    world.set_isr("unsafe", 1)
    world.leave(1)
    assert (world.leader("safe"), world.leader("unsafe")) == (NO_LEADER, 2)
    assert world.isr("unsafe") == (2,)
    assert world.leadership("unsafe").leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_a_broker_that_restarted_unseen_has_gone_and_come_back() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2), (2, 1))
    world.topic("alone", (1,))
    world.join(1)
    assert [world.leader("t", p) for p in (0, 1)] == [2, 2]
    assert world.isr("t") == (2,)
    assert (world.leader("alone"), world.leadership("alone").leader_epoch) == (1, 2)


def test_a_broker_that_changed_its_endpoints_only_is_made_known_and_nothing_else() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    path = znodes.BrokerRegistration.path(2)
    endpoint = Endpoint("PLAINTEXT", "elsewhere", 1)
    answer_of(world.store.set(path, znodes.BrokerRegistration((endpoint,), 0).encode()))
    before = world.leadership("t")
    world.brokers_changed()
    assert world.leadership("t") == before
    assert [type(request.message) for request in world.requests] == [UpdateMetadataRequest] * 2
    message = world.requests[0].message
    assert isinstance(message, UpdateMetadataRequest)
    assert [broker.endpoints[0].host for broker in message.live_brokers] == ["host1", "elsewhere"]
    nothing_changes(world, world.brokers_changed)


def test_a_new_broker_is_told_everything_before_it_is_asked_to_lead_or_follow() -> None:
    """As Kafka's `onBrokerStartup`. A coordinator that knew nothing took partitions for deleted."""
    world = World(1, 2)
    world.topic("t", (1,))
    world.topic("u", (2, 1), (1, 2))
    world.leave(2)
    world.join(2)
    assert world.messages(2) == [UpdateMetadataRequest, LeaderAndIsrRequest]
    first = next(one.message for one in world.requests if one.broker_id == 2)
    assert isinstance(first, UpdateMetadataRequest)
    told = {(topic.topic_name, len(topic.partition_states)) for topic in first.topic_states}
    assert told == {("t", 1), ("u", 2)}
    assert [broker.id for broker in first.live_brokers] == [1, 2]


def test_a_topic_whose_brokers_were_all_away_gets_leaders_when_one_comes() -> None:
    """Only somebody else can have written such a topic."""
    world = World(1)
    assignment = {0: ReplicaAssignment((7, 8))}
    data = znodes.Topic(bytes(range(16)), assignment).encode()
    answer_of(world.store.create(znodes.Topic.path("t"), data))
    world.step(events.TopicsAppeared(at_once(world.reader.topics()).states))
    assert world.state.topics["t"].leadership == {}
    world.join(8)
    assert (world.leader("t"), world.isr("t")) == (8, (8,))
    world.join(7)
    assert (world.leader("t"), world.isr("t")) == (8, (8,))


def test_controlled_shutdown_moves_leaders_and_stops_followers() -> None:
    """conformance 92: leadership is handed over first."""
    world = World(1, 2, 3)
    world.topic("led", (1, 2, 3))
    world.topic("followed", (2, 1))
    world.topic("alone", (1,))
    reply = shut_down(world, 1)
    assert (reply.error_code, reply.remaining_partitions) == (ErrorCode.NONE, [])
    assert (world.leader("led"), world.isr("led")) == (2, (2, 3))
    assert (world.leader("followed"), world.isr("followed")) == (2, (2,))
    assert world.leader("alone") == 1
    assert (TopicPartition("followed", 0), False) in world.fakes[1].stopped
    assert world.fakes[1].replicas[TopicPartition("led", 0)].leader == 2
    world.leave(1)
    assert world.leader("alone") == NO_LEADER
    assert world.leadership("led").leader_epoch == 1


def test_controlled_shutdown_says_what_nobody_can_take_over() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2), (1, 2))
    world.set_isr("t", 1)
    reply = shut_down(world, 1)
    assert [(one.topic_name, one.partition_index) for one in reply.remaining_partitions] == [("t", 0)]
    assert [world.leader("t", p) for p in (0, 1)] == [1, 2]
    world.set_isr("t", 1, 2)
    assert shut_down(world, 1).remaining_partitions == []


def test_a_broker_on_its_way_out_gets_nothing_new() -> None:
    world = World(1, 2)
    world.topic("t", (2, 1))
    shut_down(world, 1)
    world.leave(2)
    assert world.leader("t") == NO_LEADER
    world.join(1)
    world.join(2)
    assert world.leader("t") == 2


def test_controlled_shutdown_is_for_the_life_that_asked() -> None:
    world = World(1)
    assert (
        shut_down(world, 1, epoch=world.state.brokers[1].epoch - 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    )
    request = ControlledShutdownRequest(broker_id=9, broker_epoch=1)
    reply = world.step(events.ControlledShutdown(request))
    assert reply.error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert world.state.shutting_down == {}


def test_a_replica_on_a_failed_disk_is_as_good_as_dead_until_it_answers_again() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2), (1, 2))
    broken = TopicPartition("t", 0)
    world.fakes[1].failed_disks.add(broken)
    event = znodes.LogDirEvent(1).encode()
    answer_of(world.store.create(znodes.LOG_DIR_EVENT_PREFIX, event, sequential=True))
    world.step(events.DisksFailed(*at_once(world.reader.failed_disks())))
    assert [world.leader("t", p) for p in (0, 1)] == [2, 1]
    assert world.isr("t") == (2,)
    assert answer_of(world.store.children(znodes.LOG_DIR_EVENTS)) == []
    world.fakes[1].failed_disks.clear()
    world.join(1)
    assert world.state.offline_replicas.get(1, {}) == {}


def test_an_answer_counts_for_the_life_that_gave_it() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.join(1)
    (order,) = [one for one in world.requests if one.broker_id == 1 and is_order(one)]
    world.join(1)
    world.fakes[1].failed_disks.add(TopicPartition("t", 0))
    answer = LeaderAndIsrResponse(
        error_code=ErrorCode.NONE,
        topics=[
            LeaderAndIsrTopicError(
                topic_id=world.state.topics["t"].topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
                ],
            )
        ],
    )
    nothing_changes(world, lambda: world.step(events.RequestAnswered(order, answer)))


def is_order(request: ControlRequest) -> bool:
    return isinstance(request.message, LeaderAndIsrRequest)


def test_a_new_controller_tells_everybody_everything_and_settles_what_happened_meanwhile() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2), (2, 3), (3, 1))
    answer_of(world.store.delete(znodes.BrokerRegistration.path(1)))
    del world.fakes[1]
    world.take_over()
    assert [world.leader("t", p) for p in range(3)] == [2, 2, 3]
    assert all(fake.controller_epoch == CONTROLLER_EPOCH + 1 for fake in world.fakes.values())
    assert world.messages(3) == [UpdateMetadataRequest, LeaderAndIsrRequest]


def test_a_new_controller_writes_nothing_when_nothing_has_happened() -> None:
    world = World(1)
    world.topic("t", *[(1,)] * 20)
    before = world.writes
    world.take_over()
    assert world.writes == before
    assert world.messages(1) == [UpdateMetadataRequest, LeaderAndIsrRequest]


def test_a_new_controller_takes_who_registered_after_the_last_write_for_one_that_was_away() -> None:
    """Its log may be shorter than when it was in sync; another one is known to have everything."""
    world = World(1, 2, 3)
    world.topic("t", (1, 2, 3), (2, 3, 1), (3, 2, 1))
    world.topic("later", (1, 2))
    world.topic("elsewhere", (2, 3))
    world.topic("alone", (1,))
    world.register(1)
    world.take_over()
    assert [world.leader("t", p) for p in range(3)] == [2, 2, 3]
    assert [world.isr("t", p) for p in range(3)] == [(2, 3), (2, 3), (3, 2)]
    assert [world.leadership("t", p).leader_epoch for p in range(3)] == [1, 1, 1]
    assert (world.leader("later"), world.isr("later")) == (2, (2,))
    assert (world.leader("alone"), world.leadership("alone").leader_epoch) == (1, 0)
    assert (world.leader("elsewhere"), world.leadership("elsewhere").leader_epoch) == (2, 0)
    nothing_more(world)


def test_those_who_restarted_lead_in_a_new_epoch_where_nobody_else_is_in_sync() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2, 3), (2, 1, 3))
    world.set_isr("t", 1)
    world.register(1, 2, 3)
    world.take_over()
    assert [(world.leader("t", p), world.isr("t", p)) for p in (0, 1)] == [(1, (1,)), (2, (2, 1, 3))]
    assert [world.leadership("t", p).leader_epoch for p in (0, 1)] == [1, 1]
    nothing_more(world)


def nothing_more(world: World) -> None:
    """What a new controller has settled is settled."""
    before = world.writes
    world.take_over()
    assert world.writes == before
