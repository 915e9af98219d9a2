"""From one generation to the next: who is waited for, how long, and what becomes of the others."""

from __future__ import annotations

import pytest

from kbroker.coordinators.classic_group import GroupConfig
from kbroker.coordinators.classic_rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from tests.kbroker.coordinators.clients import Client, described, joined, stable, state, synced
from tests.kbroker.coordinators.driver import Asked, Driver
from tests.kbroker.coordinators.requests import protocols, subscription, sync
from wire.errors import ErrorCode

DELAY_MS = GroupConfig().group_initial_rebalance_delay_ms


def errors(*asked: Asked) -> list[ErrorCode | None]:
    return [None if answer.is_parked else ErrorCode(answer.reply.error_code) for answer in asked]


# The first rebalance after Empty


def test_the_first_rebalance_is_held_back_for_others_to_come(driver: Driver) -> None:
    first = Client(driver, "a").join()
    driver.advance(DELAY_MS - 1)
    assert first.is_parked
    driver.advance(1)
    assert first.reply.generation_id == 1


def test_newcomers_prolong_the_delay_once_each_time_it_ends(driver: Driver) -> None:
    first = Client(driver, "a").join()
    driver.advance(DELAY_MS - 1)
    second = Client(driver, "b").join()
    driver.advance(1)
    assert first.is_parked
    driver.advance(DELAY_MS - 1)
    assert first.is_parked
    driver.advance(1)
    assert first.reply.generation_id == second.reply.generation_id == 1


def test_newcomers_cannot_prolong_it_beyond_the_first_members_rebalance_timeout(driver: Driver) -> None:
    """3 + 3 + 1 s: the last piece is what is left of the timeout."""
    first = Client(driver, "c0", rebalance_timeout_ms=7_000).join()
    for second in range(1, 7):
        driver.advance(1_000)
        Client(driver, f"c{second}", rebalance_timeout_ms=60_000).join()
    assert first.is_parked
    driver.advance(999)
    assert first.is_parked
    driver.advance(1)
    assert first.reply.generation_id == 1
    assert len(first.reply.members) == 7


def test_without_a_delay_the_first_member_does_not_wait() -> None:
    """`group.initial.rebalance.delay.ms=0`, the profile for tests."""
    driver = Driver(GroupConfig(group_initial_rebalance_delay_ms=0))
    assert Client(driver).join().reply.generation_id == 1


def test_a_first_rebalance_that_everybody_leaves_ends_in_an_empty_group(driver: Driver) -> None:
    """Conformance 73: nothing is stuck; the next one begins as usual."""
    client = Client(driver)
    client.ask_for_id()
    asked = client.join()
    client.leave()
    assert errors(asked) == [ErrorCode.UNKNOWN_MEMBER_ID]
    driver.advance(DELAY_MS)
    assert state(driver) == "Empty"
    stable(Client(driver, "next"))


# The join phase


def test_a_rebalance_completes_when_all_known_members_have_rejoined(driver: Driver) -> None:
    """Conformance 73."""
    a, b, newcomer = Client(driver, "a"), Client(driver, "b"), Client(driver, "c")
    stable(a, b)
    asked = [newcomer.join(), b.join()]
    assert errors(*asked) == [None, None]
    asked.append(a.join())
    assert errors(*asked) == [ErrorCode.NONE] * 3
    assert {client.generation for client in (a, b, newcomer)} == {2}


def test_it_waits_as_long_as_the_most_patient_member_and_drops_who_is_late(driver: Driver) -> None:
    """Conformance 73."""
    late = Client(driver, "late", rebalance_timeout_ms=12_000, session_timeout_ms=30_000)
    other = Client(driver, "other", rebalance_timeout_ms=7_000, session_timeout_ms=30_000)
    stable(late, other)
    newcomer = Client(driver, "new", rebalance_timeout_ms=5_000, session_timeout_ms=30_000).join()
    rejoined = other.join()
    driver.advance(11_999)
    assert errors(newcomer, rejoined) == [None, None]
    driver.advance(1)
    assert errors(newcomer, rejoined) == [ErrorCode.NONE, ErrorCode.NONE]
    assert rejoined.reply.leader == other.member_id, "the leader that is gone was replaced"
    assert len(described(driver).members) == 2
    assert late.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_holds_it_up_no_longer_than_its_session(driver: Driver) -> None:
    """Conformance 73."""
    member = Client(driver, session_timeout_ms=60_000, rebalance_timeout_ms=300_000)
    stable(member)
    Client(driver, "pending", session_timeout_ms=6_000).ask_for_id()
    asked = member.join()
    driver.advance(5_999)
    assert asked.is_parked
    driver.advance(1)
    assert asked.reply.generation_id == 2


def test_pending_members_that_keep_coming_hold_it_up_no_longer_than_the_rebalance_timeout(
    driver: Driver,
) -> None:
    """Conformance 73."""
    member = Client(driver, session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    stable(member)
    Client(driver, "p0").ask_for_id()
    asked = member.join()
    for number in range(1, 10):
        driver.advance(1_000)
        Client(driver, f"p{number}").ask_for_id()
    assert asked.is_parked
    driver.advance(1_000)
    assert asked.reply.generation_id == 2


def test_pending_members_do_not_keep_an_otherwise_empty_group_alive(driver: Driver) -> None:
    """Conformance 73."""
    member = Client(driver)
    stable(member)
    pending = Client(driver, "pending")
    pending.ask_for_id()
    member.leave()
    driver.advance(0)
    assert state(driver) == "Empty"
    asked = pending.join()
    driver.advance(DELAY_MS)
    assert asked.reply.error_code == ErrorCode.NONE


def test_a_member_that_comes_too_late_for_the_generation_starts_the_next(driver: Driver) -> None:
    member = Client(driver, session_timeout_ms=30_000)
    stable(member)
    newcomer = Client(driver, "new")
    newcomer.ask_for_id()
    synced(member)
    assert newcomer.join().is_parked
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


# Sessions


def test_heartbeats_and_commits_keep_a_session_alive(driver: Driver) -> None:
    client = Client(driver, session_timeout_ms=6_000)
    stable(client)
    for keep_alive in (client.heartbeat, client.commit, client.heartbeat):
        driver.advance(5_999)
        assert keep_alive() == ErrorCode.NONE


def test_a_silent_member_is_dropped_and_the_others_are_told(driver: Driver) -> None:
    """Conformance 79: a departed member triggers 27 for the rest at once."""
    silent = Client(driver, "silent", session_timeout_ms=6_000)
    other = Client(driver, "other", session_timeout_ms=20_000)
    stable(silent, other)
    driver.advance(5_999)
    assert other.heartbeat() == ErrorCode.NONE
    driver.advance(1)
    assert other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    other.join()
    assert other.generation == 2


def test_waiting_for_the_group_is_not_silence(driver: Driver) -> None:
    a = Client(driver, "a", session_timeout_ms=6_000, rebalance_timeout_ms=20_000)
    b = Client(driver, "b", session_timeout_ms=30_000, rebalance_timeout_ms=20_000)
    stable(a, b)
    asked = a.join()
    driver.advance(19_999)
    assert asked.is_parked
    b.join()
    assert asked.reply.error_code == ErrorCode.NONE
    waiting = b.sync()
    driver.advance(5_999)
    a.sync({a: b"1", b: b"2"})
    assert waiting.reply.assignment == b"2"


def test_the_session_begins_anew_when_the_group_has_answered(driver: Driver) -> None:
    client = Client(driver, session_timeout_ms=6_000)
    joined(client)
    driver.advance(5_999)
    client.sync({client: b"all"})
    driver.advance(5_999)
    assert client.heartbeat() == ErrorCode.NONE


def test_a_new_member_that_waits_too_long_has_to_begin_anew(driver: Driver) -> None:
    """It may have given up long ago, and its requests pile up as members otherwise."""
    patient = Client(driver, "a", session_timeout_ms=1_800_000, rebalance_timeout_ms=1_800_000)
    stable(patient)
    newcomer = Client(driver, "new", session_timeout_ms=6_000)
    asked = newcomer.join()
    driver.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert asked.is_parked
    driver.advance(1)
    assert asked.reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert asked.reply.member_id == ""


def test_the_last_sessions_end_empties_the_group(driver: Driver) -> None:
    """Conformance 80."""
    client = Client(driver, session_timeout_ms=6_000)
    stable(client)
    driver.advance(6_000)
    assert state(driver) == "Empty"
    assert described(driver).protocol_type == "consumer"


# The sync phase


def test_followers_wait_for_the_leaders_assignment(driver: Driver) -> None:
    """Conformance 76: every reply carries an assignment, be it empty; bytes go through untouched."""
    leader, given, forgotten = (Client(driver, name) for name in "abc")
    joined(leader, given, forgotten)
    asked = [forgotten.sync(), given.sync()]
    assert errors(*asked) == [None, None]
    asked.append(leader.sync({given: b"\0\xffopaque"}))
    assert [answer.reply.assignment for answer in asked] == [b"", b"\0\xffopaque", b""]
    assert errors(*asked) == [ErrorCode.NONE] * 3
    assert (asked[0].reply.protocol_type, asked[0].reply.protocol_name) == ("consumer", "range")
    assert state(driver) == "Stable"


def test_assignments_for_strangers_are_ignored(driver: Driver) -> None:
    leader = Client(driver)
    joined(leader)
    request = sync(leader.group_id, 1, leader.member_id, {"stranger": b"x", leader.member_id: b"mine"})
    assert driver.ask(request, 4).reply.assignment == b"mine"
    assert [member.member_assignment for member in described(driver).members] == [b"mine"]


def test_syncing_again_returns_the_same_assignment(driver: Driver) -> None:
    """Conformance 76; a leader cannot change its mind."""
    leader, follower = Client(driver, "a"), Client(driver, "b")
    stable(leader, follower)
    assert follower.sync().reply.assignment == b"for b"
    assert leader.sync({leader: b"other", follower: b"other"}).reply.assignment == b"for a"
    assert follower.sync().reply.assignment == b"for b"


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
        ({"protocol_type": "connect", "protocol_name": "range"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "range"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_since_v5_the_protocol_has_to_be_named_and_right(
    driver: Driver, named: dict[str, str], error: ErrorCode
) -> None:
    """Conformance 76: v5 with another protocol type or name 23."""
    client = Client(driver)
    stable(client)
    request = sync(client.group_id, client.generation, client.member_id, {}, **named)
    assert driver.ask(request, 5).reply.error_code == error


def test_before_v5_the_protocol_is_not_named(driver: Driver) -> None:
    client = Client(driver)
    joined(client)
    assert client.sync(version=4).reply.error_code == ErrorCode.NONE


def test_a_leader_that_does_not_sync_is_dropped_with_all_who_did_not(driver: Driver) -> None:
    """Conformance 77: after the rebalance timeout, and a new rebalance starts."""
    leader, lazy, waiting = (
        Client(driver, name, session_timeout_ms=60_000, rebalance_timeout_ms=9_000) for name in "abc"
    )
    joined(leader, lazy, waiting)
    asked = waiting.sync()
    driver.advance(8_999)
    assert asked.is_parked
    driver.advance(1)
    assert asked.reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert state(driver) == "PreparingRebalance"
    assert leader.heartbeat() == lazy.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    waiting.join()
    assert waiting.generation == 2
    synced(waiting)


def test_a_follower_that_does_not_fetch_its_assignment_is_dropped(driver: Driver) -> None:
    """Conformance 77, in a group that is stable already."""
    leader, lazy = (
        Client(driver, name, session_timeout_ms=60_000, rebalance_timeout_ms=9_000) for name in "ab"
    )
    joined(leader, lazy)
    leader.sync({leader: b"1", lazy: b"2"})
    driver.advance(8_999)
    assert leader.heartbeat() == lazy.heartbeat() == ErrorCode.NONE
    driver.advance(1)
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert lazy.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_is_dropped_once_all_have_synced(driver: Driver) -> None:
    """Conformance 77."""
    a, b = (Client(driver, name, session_timeout_ms=60_000, rebalance_timeout_ms=9_000) for name in "ab")
    stable(a, b)
    driver.advance(50_000)
    assert a.heartbeat() == b.heartbeat() == ErrorCode.NONE


def test_if_nobody_syncs_the_group_is_empty_again(driver: Driver) -> None:
    """Conformance 73, 77: no group is stuck."""
    joined(Client(driver, rebalance_timeout_ms=9_000))
    driver.advance(9_000)
    assert state(driver) == "Empty"


def test_a_new_rebalance_sends_those_back_who_wait_for_an_assignment(driver: Driver) -> None:
    leader, follower, newcomer = (Client(driver, name) for name in "abc")
    joined(leader, follower)
    asked = follower.sync()
    newcomer.join()
    assert asked.reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.sync({leader: b"late"}).reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_is_void_once_its_generation_has_failed(driver: Driver) -> None:
    """It is the one before that is still described while members join, and it goes with the next failure."""
    a, b = Client(driver, "a"), Client(driver, "b")
    stable(a, b)
    a.join()
    b.join()
    assert [member.member_assignment for member in described(driver).members] == [b"for a", b"for b"]
    Client(driver, "c").join()
    assert [member.member_assignment for member in described(driver).members] == [b"", b"", b""]


def test_whoever_is_sent_back_has_a_session_again(driver: Driver) -> None:
    """Its session may have ended, without effect, while it waited for the leader."""
    leader = Client(driver, "a", session_timeout_ms=60_000, rebalance_timeout_ms=50_000)
    follower = Client(driver, "b", session_timeout_ms=6_000, rebalance_timeout_ms=50_000)
    joined(leader, follower)
    waiting = follower.sync()
    driver.advance(7_000)
    leader.leave()
    assert waiting.reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(5_999)
    assert state(driver) == "PreparingRebalance"
    driver.advance(1)
    assert state(driver) == "Empty"


def test_the_second_of_two_syncs_takes_the_place_of_the_first(driver: Driver) -> None:
    """Nobody is left without an answer."""
    leader, follower = Client(driver, "a"), Client(driver, "b")
    joined(leader, follower)
    first, second = follower.sync(), follower.sync()
    assert first.reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    leader.sync({follower: b"x"})
    assert second.reply.assignment == b"x"


def test_a_cooperative_client_changes_what_it_says_in_a_second_rebalance(driver: Driver) -> None:
    """Conformance 83: the coordinator cannot tell; two generations, each with the bytes of its time."""
    a, b = (Client(driver, name, protocols=protocols(**{"cooperative-sticky": b"owns 1,2"})) for name in "ab")
    stable(a)
    b.join()
    asked = a.join()
    assert asked.reply.members[0].metadata == b"owns 1,2"
    synced(a, b)
    a.protocols = protocols(**{"cooperative-sticky": b"owns 1"})
    asked = a.join()
    b.join()
    assert asked.reply.generation_id == 3
    assert {member.member_id: member.metadata for member in asked.reply.members}[a.member_id] == b"owns 1"


def test_a_subscription_that_cannot_be_read_hurts_nobody(driver: Driver) -> None:
    """Conformance 83: Kafka 4.3.1 fails to end this rebalance, and never answers the other members."""
    huge = b"\x63\x68\x61\x6e\x67\x65\x64"
    a, b = Client(driver, "a", protocols=protocols(range=subscription("t"))), Client(driver, "b")
    b.protocols = protocols(range=huge)
    stable(a, b)
    assert state(driver) == "Stable"
