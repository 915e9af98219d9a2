"""LeaveGroup: one or several members, by what they are called."""

from __future__ import annotations

import pytest

from tests.kbroker.coordinators.clients import GROUP, Client, described, joined, stable, state
from tests.kbroker.coordinators.driver import Driver
from tests.kbroker.coordinators.requests import leave, leave_all
from wire.api.leave_group import MemberIdentity
from wire.codec import encode
from wire.errors import ErrorCode


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_and_the_rest_is_told_at_once(driver: Driver, version: int) -> None:
    """Conformance 79."""
    leaver, other = Client(driver, "a"), Client(driver, "b")
    stable(leaver, other)
    reply = leaver.leave(version)
    assert reply.error_code == ErrorCode.NONE
    encode(reply, version)
    assert other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert other.join().reply.generation_id == 2


@pytest.mark.parametrize("version", range(3))
def test_old_versions_have_the_members_error_for_the_whole_reply(driver: Driver, version: int) -> None:
    stable(Client(driver))
    reply = driver.ask(leave(GROUP, "invented", version), version).reply
    assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_newer_versions_have_an_error_per_member(driver: Driver, version: int) -> None:
    for request in (leave(GROUP, "invented", version), leave("elsewhere", "invented", version)):
        reply = driver.ask(request, version).reply
        assert reply.error_code == ErrorCode.NONE
        assert [member.error_code for member in reply.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", range(6))
def test_an_empty_group_id_is_invalid(driver: Driver, version: int) -> None:
    """Conformance 72: 24."""
    reply = driver.ask(leave("", "somebody", version), version).reply
    assert reply.error_code == ErrorCode.INVALID_GROUP_ID


def test_an_administrator_removes_static_members_by_instance_id(driver: Driver) -> None:
    """Conformance 79: the others rebalance once."""
    a, b, c = (Client(driver, name, instance_id=name) for name in "abc")
    stable(a, b, c)
    b_id = b.member_id
    identities = [
        MemberIdentity(member_id="", group_instance_id="a"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id="wrong", group_instance_id="c"),
        MemberIdentity(member_id="", group_instance_id=None),
        MemberIdentity(member_id=b_id, group_instance_id="b", reason="maintenance\n"),
        MemberIdentity(member_id="", group_instance_id="a"),
    ]
    before = len(driver.notes)
    reply = driver.ask(leave_all(GROUP, *identities), 5).reply
    assert [member.error_code for member in reply.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [(member.member_id, member.group_instance_id) for member in reply.members][:2] == [
        ("", "a"),
        ("", "nobody"),
    ]
    assert [member.member_id for member in described(driver).members] == [c.member_id]
    assert sum("rebalances" in note for note in driver.notes[before:]) == 1
    assert any("maintenance\\n" in note for note in driver.notes)


def test_whoever_is_removed_while_it_waits_learns_of_it(driver: Driver) -> None:
    """Its JoinGroup, and its SyncGroup; Kafka leaves the latter unanswered."""
    a, b = (Client(driver, name, instance_id=name) for name in "ab")
    joined(a, b)
    waiting = b.sync()
    driver.ask(leave_all(GROUP, MemberIdentity(member_id="", group_instance_id="b")), 5)
    assert waiting.reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    asked = Client(driver, "c").join()
    member_id = described(driver).members[-1].member_id
    driver.ask(leave(GROUP, member_id, 5), 5)
    assert asked.reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_that_leaves_no_longer_holds_up_the_others(driver: Driver) -> None:
    """Conformance 73."""
    member, pending = Client(driver, "a"), Client(driver, "pending")
    stable(member)
    pending.ask_for_id()
    asked = member.join()
    assert asked.is_parked
    assert pending.leave().members[0].error_code == ErrorCode.NONE
    assert asked.reply.generation_id == 2
    assert pending.join().reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_that_leaves_a_stable_group_changes_nothing(driver: Driver) -> None:
    """Kafka makes the members rebalance for somebody whom they never saw."""
    member, pending = Client(driver, "a"), Client(driver, "pending")
    stable(member)
    pending.ask_for_id()
    pending.leave()
    assert member.heartbeat() == ErrorCode.NONE


def test_members_that_leave_together_do_not_begin_a_generation_in_between(driver: Driver) -> None:
    """A pending one goes first, and so all others have joined for a moment; but they are leaving, too."""
    a, b, pending = (Client(driver, name) for name in ("a", "b", "pending"))
    stable(a, b)
    pending.ask_for_id()
    asked = [a.join(), b.join()]
    identities = [MemberIdentity(member_id=client.member_id) for client in (pending, a, b)]
    driver.ask(leave_all(GROUP, *identities), 5)
    assert [answer.reply.error_code for answer in asked] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert state(driver) == "Empty"


def test_the_last_member_leaves_an_empty_group(driver: Driver) -> None:
    """Conformance 80: the group stays for its offsets."""
    member = Client(driver)
    stable(member)
    member.leave()
    assert state(driver) == "Empty"
    assert described(driver).members == []
