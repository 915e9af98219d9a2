"""Static members (KIP-345): they come and go without a rebalance, and one instance has one member."""

from __future__ import annotations

import pytest

from kbroker.coordinators.step import TimerKey
from tests.kbroker.coordinators.clients import GROUP, Client, described, joined, stable, state, synced
from tests.kbroker.coordinators.driver import Driver
from tests.kbroker.coordinators.requests import (
    commit,
    heartbeat,
    join,
    leave_all,
    protocols,
    subscription,
    sync,
)
from wire.api.leave_group import MemberIdentity
from wire.errors import ErrorCode


def group_of_two(driver: Driver) -> tuple[Client, Client]:
    leader, follower = Client(driver, "a", instance_id="i"), Client(driver, "b", instance_id="j")
    stable(leader, follower)
    return leader, follower


def test_a_follower_that_restarts_gets_the_generation_and_nobody_notices(driver: Driver) -> None:
    """Conformance 78: with a new id and its old assignment."""
    leader, follower = group_of_two(driver)
    former = follower.member_id
    follower.forget()
    reply = follower.join().reply
    assert (reply.error_code, reply.generation_id) == (ErrorCode.NONE, 1)
    assert reply.member_id not in ("", former)
    assert not reply.skip_assignment
    assert follower.sync().reply.assignment == b"for b"
    assert leader.heartbeat() == follower.heartbeat() == ErrorCode.NONE


def test_the_former_id_is_fenced_everywhere(driver: Driver) -> None:
    """Conformance 78: 82."""
    _, follower = group_of_two(driver)
    former = follower.member_id
    follower.forget()
    follower.join()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert driver.ask(join(GROUP, member_id=former, instance_id="j"), 9).reply.error_code == fenced
    assert driver.ask(sync(GROUP, 1, former, {}, instance_id="j"), 4).reply.error_code == fenced
    assert driver.ask(heartbeat(GROUP, 1, former, "j"), 4).reply.error_code == fenced
    request = commit(GROUP, "t", {0: 1}, generation=1, member_id=former, instance_id="j")
    assert driver.ask(request, 8).reply.topics[0].partitions[0].error_code == fenced
    identity = MemberIdentity(member_id=former, group_instance_id="j")
    assert driver.ask(leave_all(GROUP, identity), 5).reply.members[0].error_code == fenced


def test_the_former_id_without_its_instance_id_is_unknown(driver: Driver) -> None:
    """Conformance 75, 78."""
    _, follower = group_of_two(driver)
    former = follower.member_id
    follower.forget()
    follower.join()
    assert driver.ask(heartbeat(GROUP, 1, former), 4).reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.ask(heartbeat(GROUP, 1, former, "nobody"), 4).reply.error_code == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_leader_that_restarts_is_told_to_skip_the_assignment(driver: Driver) -> None:
    """Since v9: it gets the members, since it has to watch their topics."""
    leader, follower = group_of_two(driver)
    leader.forget()
    reply = leader.join().reply
    assert reply.skip_assignment
    assert reply.leader == leader.member_id
    assert {member.member_id for member in reply.members} == {leader.member_id, follower.member_id}
    assert follower.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("version", range(5, 9))
def test_an_old_leader_that_restarts_takes_itself_for_a_follower(driver: Driver, version: int) -> None:
    """Before v9 it would assign anew, without a rebalance: it is given its former id as the leader's."""
    leader, follower = group_of_two(driver)
    former = leader.member_id
    leader.forget()
    reply = leader.join(version).reply
    assert (reply.leader, reply.members, reply.skip_assignment) == (former, [], False)
    assert leader.sync().reply.assignment == b"for a"
    assert follower.heartbeat() == ErrorCode.NONE


def test_a_restart_is_durable(driver: Driver) -> None:
    """Conformance 78: the new id, and no other, is known to the next coordinator."""
    _, follower = group_of_two(driver)
    former = follower.member_id
    follower.forget()
    follower.join()
    driver.restart()
    assert follower.heartbeat() == ErrorCode.NONE
    assert driver.ask(heartbeat(GROUP, 1, former, "j"), 4).reply.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_another_subscription_alone_makes_no_rebalance(driver: Driver) -> None:
    """Conformance 78: Kafka 4.3.1 goes by the protocol that would be chosen, and by nothing else."""
    leader, follower = group_of_two(driver)
    follower.forget()
    follower.protocols = protocols(range=subscription("more"))
    assert follower.join().reply.generation_id == 1
    assert state(driver) == "Stable"
    assert leader.heartbeat() == ErrorCode.NONE


def test_a_restart_that_changes_the_chosen_protocol_makes_a_rebalance(driver: Driver) -> None:
    """Conformance 78."""
    both = protocols(range=b"", roundrobin=b"")
    leader = Client(driver, "a", instance_id="i", protocols=both)
    follower = Client(driver, "b", instance_id="j", protocols=both)
    stable(leader, follower)
    follower.forget()
    follower.protocols = protocols(roundrobin=b"")
    assert follower.join().is_parked
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_instance_that_joins_twice_has_one_member(driver: Driver) -> None:
    """Conformance 78: the one that waits is fenced at once."""
    first, second = Client(driver, "a", instance_id="i"), Client(driver, "a", instance_id="i")
    asked = first.join()
    former = described(driver).members[0].member_id
    again = second.join()
    assert asked.reply.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert asked.reply.member_id == former
    driver.advance(3_000)
    assert again.reply.error_code == ErrorCode.NONE
    assert len(described(driver).members) == 1


def test_an_instance_that_comes_back_before_its_first_generation_may_wait(driver: Driver) -> None:
    """Its second request is no first join: silence does not count while it waits."""
    patient = Client(driver, "a", session_timeout_ms=900_000, rebalance_timeout_ms=800_000)
    stable(patient)
    newcomer = Client(driver, "b", instance_id="j", session_timeout_ms=6_000)
    newcomer.join()
    newcomer.forget()
    asked = newcomer.join()
    driver.advance(7 * 60_000)
    assert asked.is_parked


def test_a_restart_in_the_sync_phase_starts_the_generation_over(driver: Driver) -> None:
    """The leader may have the former id in hand, and would give the new one nothing."""
    leader, follower = Client(driver, "a", instance_id="i"), Client(driver, "b", instance_id="j")
    joined(leader, follower)
    waiting = follower.sync()
    follower.forget()
    assert follower.join().is_parked
    assert waiting.reply.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.join().reply.generation_id == 2


def test_a_static_member_is_back_within_its_session_or_loses_its_place(driver: Driver) -> None:
    """Conformance 79: static members do not leave on close; their session ends."""
    leader, follower = group_of_two(driver)
    driver.advance(9_999)
    follower.forget()
    follower.join()
    leader.heartbeat()
    driver.advance(9_999)
    assert leader.heartbeat() == ErrorCode.NONE
    driver.advance(1)
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_session_of_the_former_id_harms_nobody(driver: Driver) -> None:
    _, follower = group_of_two(driver)
    former = follower.member_id
    follower.forget()
    follower.join()
    assert TimerKey("session", GROUP, former) not in driver.timers
    assert TimerKey("session", GROUP, follower.member_id) in driver.timers


def test_static_members_keep_their_place_in_a_rebalance_that_they_miss(driver: Driver) -> None:
    """Conformance 73, 79: dropping late members is for dynamic ones."""
    away = Client(driver, "a", instance_id="i", session_timeout_ms=60_000, rebalance_timeout_ms=9_000)
    here = Client(driver, "b", instance_id="j", session_timeout_ms=60_000, rebalance_timeout_ms=9_000)
    stable(away, here)
    newcomer = Client(driver, "c", session_timeout_ms=60_000, rebalance_timeout_ms=9_000)
    newcomer.join()
    asked = here.join()
    driver.advance(9_000)
    assert asked.reply.leader == here.member_id, "one that is there leads"
    assert len(asked.reply.members) == 3
    synced(here, newcomer)
    away.forget()
    assert away.join().reply.generation_id == 2
    assert away.sync().reply.assignment == b""


def test_a_rebalance_that_only_absent_members_could_join_waits_for_their_sessions(driver: Driver) -> None:
    """Conformance 73: it ends with the last of them, and is not stuck."""
    a = Client(driver, "a", instance_id="i", session_timeout_ms=30_000, rebalance_timeout_ms=9_000)
    dynamic = Client(driver, "b", session_timeout_ms=6_000, rebalance_timeout_ms=9_000)
    stable(a, dynamic)
    driver.advance(6_000)
    assert state(driver) == "PreparingRebalance"
    driver.advance(23_999)
    assert state(driver) == "PreparingRebalance"
    driver.advance(1)
    assert state(driver) == "Empty"


def test_the_new_id_fetches_the_assignment_in_place_of_the_former(driver: Driver) -> None:
    """Conformance 77: a restart before the first SyncGroup does not get the member dropped."""
    leader = Client(driver, "a", instance_id="i", session_timeout_ms=60_000, rebalance_timeout_ms=9_000)
    follower = Client(driver, "b", instance_id="j", session_timeout_ms=60_000, rebalance_timeout_ms=9_000)
    joined(leader, follower)
    leader.sync({leader: b"1", follower: b"2"})
    follower.forget()
    follower.join()
    assert follower.sync().reply.assignment == b"2"
    driver.advance(9_000)
    assert state(driver) == "Stable"
