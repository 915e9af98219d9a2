"""All groups of a partition: describing, deleting, loading, giving up, undoing what was refused."""

from __future__ import annotations

import pytest

from kbroker.coordinators.classic_group import GroupConfig
from kbroker.coordinators.groups import EXPIRATION
from kbroker.coordinators.step import TimerKey
from tests.kbroker.coordinators.clients import (
    GROUP,
    Client,
    described,
    joined,
    partition_error,
    stable,
    state,
    synced,
)
from tests.kbroker.coordinators.driver import START_MS, Driver
from tests.kbroker.coordinators.requests import (
    RANGE,
    commit,
    delete_offsets,
    fetch,
    heartbeat,
    leave,
    list_groups,
    sync,
)
from wire.api.delete_groups import DeleteGroupsRequest
from wire.codec import encode
from wire.errors import ErrorCode
from wire.internal import CONSUMER_OFFSETS, decode_record
from wire.internal.consumer_groups import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from wire.internal.offsets_and_groups import GroupMetadataKey, GroupMetadataValue


def listed(driver: Driver, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, str]:
    reply = driver.ask(list_groups(states, types), 5).reply
    assert reply.error_code == ErrorCode.NONE
    return {group.group_id: group.group_state for group in reply.groups}


def three_groups(driver: Driver) -> Driver:
    driver.ask(commit("simple", "t", {0: 1}), 8)
    stable(Client(driver, group_id="reading"))
    joined(Client(driver, group_id="syncing"))
    return driver


# Listing and describing


def test_groups_are_listed_with_type_and_state(driver: Driver) -> None:
    reply = three_groups(driver).ask(list_groups(), 5).reply
    assert [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in reply.groups] == [
        ("simple", "", "Empty", "classic"),
        ("reading", "consumer", "Stable", "classic"),
        ("syncing", "consumer", "CompletingRebalance", "classic"),
    ]
    for version in range(6):
        encode(reply, version)


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ((), {"simple", "reading", "syncing"}),
        (("Stable",), {"reading"}),
        (("EMPTY", " completingrebalance "), {"simple", "syncing"}),
        (("Dead",), set()),
        (("nonsense",), set()),
    ],
)
def test_groups_are_filtered_by_state(driver: Driver, states: tuple[str, ...], found: set[str]) -> None:
    """v4; whatever the case."""
    assert listed(three_groups(driver), states).keys() == found


@pytest.mark.parametrize(
    ("types", "count"),
    [((), 3), (("classic",), 3), (("CLASSIC", "share"), 3), (("consumer",), 0), (("nonsense",), 0)],
)
def test_groups_are_filtered_by_type(driver: Driver, types: tuple[str, ...], count: int) -> None:
    """v5."""
    assert len(listed(three_groups(driver), types=types)) == count


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_does_not_exist_is_described_as_dead(driver: Driver, version: int) -> None:
    """Conformance 81: error 0 up to v5, 69 in v6."""
    group = described(driver, "nobody", version)
    assert (group.group_id, group.group_state, group.members) == ("nobody", "Dead", [])
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version == 6 else ErrorCode.NONE)
    assert (group.error_message is not None) == (version == 6)


def test_subscriptions_are_described_once_they_count(driver: Driver) -> None:
    """In the state Stable; assignments always."""
    client = Client(driver, instance_id="i")
    joined(client)
    (member,) = described(driver).members
    assert (member.member_metadata, member.member_assignment) == (b"", b"")
    assert described(driver).protocol_data == ""
    synced(client)
    (member,) = described(driver).members
    assert (member.member_metadata, member.member_assignment) == (RANGE[0].metadata, b"for client")
    assert (member.group_instance_id, described(driver).protocol_data) == ("i", "range")
    client.join()
    synced(client)
    other = Client(driver, "other")
    other.join()
    (member, _) = described(driver).members
    assert (member.member_metadata, member.member_assignment) == (b"", b"for client")


# Deleting


def test_groups_are_deleted_if_they_are_empty_and_exist(driver: Driver) -> None:
    """Conformance 80: 68 for one with members, 69 for an unknown one."""
    three_groups(driver)
    names = ["simple", "reading", "syncing", "nobody", "simple"]
    reply = driver.ask(DeleteGroupsRequest(groups_names=names), 2).reply
    assert [(result.group_id, result.error_code) for result in reply.results] == [
        ("simple", ErrorCode.NONE),
        ("reading", ErrorCode.NON_EMPTY_GROUP),
        ("syncing", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert listed(driver).keys() == {"reading", "syncing"}


def test_a_deleted_group_begins_at_generation_one_again(driver: Driver) -> None:
    client = Client(driver)
    stable(client)
    client.leave()
    driver.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    driver.restart()
    assert state(driver) == "Dead"
    client.forget()
    stable(client)
    assert client.generation == 1


def test_the_timers_of_a_deleted_group_do_nothing(driver: Driver) -> None:
    client = Client(driver)
    stable(client)
    Client(driver, "pending").ask_for_id()
    client.leave()
    driver.advance(0)
    driver.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    driver.advance(60_000)
    assert state(driver) == "Dead"


# Loading and giving up


def test_what_is_written_are_kafkas_records(driver: Driver) -> None:
    client = Client(driver, "reader", instance_id="i")
    joined(client)
    driver.advance(1_000)
    synced(client)
    (entry,) = driver.log
    assert entry.key[:2] == b"\0\2"
    assert entry.value is not None
    assert entry.value[:2] == b"\0\3"
    decoded = decode_record(CONSUMER_OFFSETS, entry.key, entry.value)
    assert decoded is not None
    key, value = decoded
    assert key == GroupMetadataKey(group=GROUP)
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.protocol, value.generation) == ("consumer", "range", 1)
    assert (value.leader, value.current_state_timestamp) == (client.member_id, driver.now_ms)
    (member,) = value.members
    assert (member.member_id, member.group_instance_id) == (client.member_id, "i")
    assert (member.client_id, member.client_host) == ("reader", "/127.0.0.1")
    assert (member.session_timeout, member.rebalance_timeout) == (10_000, 20_000)
    assert (member.subscription, member.assignment) == (RANGE[0].metadata, b"for reader")


def test_a_stable_group_goes_on_with_the_next_coordinator(driver: Driver) -> None:
    """Conformance 84."""
    leader, follower = Client(driver, "a"), Client(driver, "b", instance_id="j")
    stable(leader, follower)
    before = described(driver)
    driver.restart()
    assert described(driver) == before
    assert leader.heartbeat() == follower.heartbeat() == ErrorCode.NONE
    assert follower.sync().reply.assignment == b"for b"
    assert leader.commit() == ErrorCode.NONE
    follower.join()
    assert follower.generation == 1


def test_loaded_members_have_a_whole_session_to_be_heard_from(driver: Driver) -> None:
    """Conformance 84."""
    a, b = Client(driver, "a", session_timeout_ms=6_000), Client(driver, "b", session_timeout_ms=9_000)
    stable(a, b)
    driver.advance(5_000)
    driver.restart()
    driver.advance(5_999)
    assert b.heartbeat() == ErrorCode.NONE
    driver.advance(1)
    assert b.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_group_keeps_its_generation(driver: Driver) -> None:
    """Conformance 84."""
    client = Client(driver)
    stable(client)
    client.leave()
    driver.restart()
    assert (state(driver), described(driver).protocol_type) == ("Empty", "consumer")
    client.forget()
    stable(client)
    assert client.generation == 3


def test_a_generation_that_was_never_assigned_is_forgotten(driver: Driver) -> None:
    """Conformance 84: its members are told that theirs is not the current one, and join again."""
    a, b = Client(driver, "a"), Client(driver, "b")
    stable(a)
    b.join()
    a.join()
    assert a.generation == 2
    driver.restart()
    assert a.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.join().reply.generation_id == 2


def test_giving_up_answers_all_who_wait(driver: Driver) -> None:
    """Conformance 84: 16, never silence."""
    a, b = Client(driver, "a"), Client(driver, "b")
    joined(a, b)
    syncing = b.sync()
    joining = Client(driver, "c", group_id="other").join()
    driver.run(driver.groups.unloaded(driver.now_ms))
    assert syncing.reply.error_code == joining.reply.error_code == ErrorCode.NOT_COORDINATOR
    assert listed(driver) == {}


def test_records_of_other_kinds_of_groups_are_passed_over(driver: Driver) -> None:
    driver.groups.replay(ConsumerGroupMetadataKey(group_id="new"), ConsumerGroupMetadataValue(epoch=1), 0)
    assert listed(driver) == {}


def test_expiration_goes_on_after_loading(driver: Driver) -> None:
    interval_ms = GroupConfig().offsets_retention_check_interval_ms
    assert driver.timers == {EXPIRATION: START_MS + interval_ms}
    driver.restart()
    assert driver.timers == {EXPIRATION: START_MS + interval_ms}


# Refused appends


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_refused_commit_is_told_in_the_clients_terms(
    driver: Driver, refused: ErrorCode, told: ErrorCode
) -> None:
    """Conformance 84; and nothing is committed."""
    driver.refuse_with = refused
    request = commit(GROUP, "t", {0: 1, 1: 1})
    request.topics[0].partitions[1].committed_metadata = 5_000 * "m"
    reply = driver.ask(request, 8).reply
    assert [partition.error_code for partition in reply.topics[0].partitions] == [
        told,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert state(driver) == "Dead"


def test_a_refused_assignment_goes_to_nobody(driver: Driver) -> None:
    """Everybody who waited gets the error, and the group is where its last record left it: here, nowhere."""
    leader, follower = Client(driver, "a"), Client(driver, "b")
    joined(leader, follower, Client(driver, "slow"))
    waiting = follower.sync()
    driver.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    asked = leader.sync({leader: b"1", follower: b"2"})
    for answer in (waiting, asked):
        assert answer.reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert answer.reply.assignment == b""
    assert state(driver) == "Dead"
    assert driver.timers.keys() == {EXPIRATION}
    driver.refuse_with = None
    assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    for client in (leader, follower):
        client.forget()
    stable(leader, follower)


def test_a_refused_assignment_leaves_the_generation_before(driver: Driver) -> None:
    a, b = Client(driver, "a"), Client(driver, "b")
    stable(a, b)
    before = described(driver)
    newcomer = Client(driver, "c")
    newcomer.join()
    a.join()
    b.join()
    driver.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert a.sync({a: b"1"}).reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert described(driver) == before
    assert a.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert newcomer.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    driver.refuse_with = None
    newcomer.forget()
    newcomer.join()
    b.join()
    a.join()
    synced(a, b, newcomer)


def test_a_refused_restart_leaves_the_former_member(driver: Driver) -> None:
    leader, follower = Client(driver, "a", instance_id="i"), Client(driver, "b", instance_id="j")
    stable(leader, follower)
    before, former = described(driver), follower.member_id
    driver.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    follower.forget()
    reply = follower.join().reply
    assert (reply.error_code, reply.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert described(driver) == before
    assert driver.ask(heartbeat(GROUP, 1, former, "j"), 4).reply.error_code == ErrorCode.NONE
    driver.refuse_with = None
    assert follower.join().reply.generation_id == 1
    assert follower.heartbeat() == ErrorCode.NONE


def test_a_refused_farewell_is_taken_back_and_tried_again(driver: Driver) -> None:
    """The last member's leave was not recorded, so it is there until its session ends."""
    client = Client(driver, session_timeout_ms=6_000)
    stable(client)
    driver.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.leave().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state(driver) == "Stable"
    driver.advance(13_000)
    assert state(driver) == "Stable"
    driver.refuse_with = None
    driver.advance(6_000)
    assert state(driver) == "Empty"


def test_a_refused_deletion_deletes_nothing(driver: Driver) -> None:
    client = Client(driver)
    stable(client)
    client.commit()
    client.leave()
    pending = Client(driver, "pending")
    pending.ask_for_id()
    driver.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    reply = driver.ask(DeleteGroupsRequest(groups_names=[GROUP, "nobody"]), 2).reply
    assert [result.error_code for result in reply.results] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    reply = driver.ask(delete_offsets(GROUP, "topic", [0]), 0).reply
    assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state(driver) == "Empty"
    reply = driver.ask(fetch(GROUP, {"topic": [0]}), 8).reply
    assert reply.groups[0].topics[0].partitions[0].committed_offset == 5
    assert pending.join().is_parked


def test_a_refused_round_of_expiration_comes_again(driver: Driver) -> None:
    config = GroupConfig()
    driver.ask(commit(GROUP, "t", {0: 1}), 8)
    driver.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.advance(config.offsets_retention_ms + config.offsets_retention_check_interval_ms)
    assert state(driver) == "Empty"
    driver.refuse_with = None
    driver.advance(config.offsets_retention_check_interval_ms)
    assert state(driver) == "Dead"


# Odds and ends of single requests


@pytest.mark.parametrize("version", [0, 5])
def test_an_empty_group_id_is_invalid(driver: Driver, version: int) -> None:
    """Conformance 72: 24. Offsets may be kept under it, as in Kafka."""
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    assert driver.ask(sync("", 1, "m", {}, **named), version).reply.error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.ask(heartbeat("", 1, "m"), 4).reply.error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.ask(leave("", "m", version), version).reply.error_code == ErrorCode.INVALID_GROUP_ID
    assert partition_error(driver.ask(commit("", "t", {0: 1}), 8).reply) == ErrorCode.NONE


def test_a_changed_configuration_holds_for_groups_that_exist(driver: Driver) -> None:
    stable(Client(driver))
    driver.groups.reconfigure(GroupConfig(group_max_size=1))
    assert Client(driver, "b").join().reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_each_member_has_one_session(driver: Driver) -> None:
    a, b = Client(driver, "a"), Client(driver, "b")
    stable(a, b)
    assert driver.timers.keys() == {
        EXPIRATION,
        TimerKey("session", GROUP, a.member_id),
        TimerKey("session", GROUP, b.member_id),
    }
