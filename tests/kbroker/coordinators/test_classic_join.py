"""JoinGroup: who comes in, and what the generation looks like to whom."""

from __future__ import annotations

import pytest

from kbroker.coordinators.classic_group import GroupConfig
from tests.kbroker.coordinators.clients import GROUP, Client, described, joined, stable, state
from tests.kbroker.coordinators.driver import Driver
from tests.kbroker.coordinators.requests import join, protocols, subscription
from wire.api.join_group import JoinGroupRequestProtocol
from wire.codec import encode
from wire.errors import ErrorCode

DELAY_MS = GroupConfig().group_initial_rebalance_delay_ms


@pytest.mark.parametrize("version", range(4, 10))
def test_a_new_member_is_given_an_id_first(driver: Driver, version: int) -> None:
    """Conformance 71: from v4 on 79 and a generated id, held as pending."""
    reply = driver.ask(join(GROUP), version, client_id="reader").reply
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert reply.member_id == "reader-1"
    assert described(driver).members == []
    again = driver.ask(join(GROUP, member_id=reply.member_id), version)
    assert again.is_parked
    assert [member.member_id for member in described(driver).members] == [reply.member_id]


@pytest.mark.parametrize("version", range(4))
def test_old_versions_join_at_once(driver: Driver, version: int) -> None:
    """Conformance 71."""
    asked = driver.ask(join(GROUP), version, client_id="reader")
    driver.advance(DELAY_MS)
    assert asked.reply.member_id == "reader-1"
    assert asked.reply.error_code == ErrorCode.NONE
    encode(asked.reply, version)


def test_a_static_member_joins_without_a_round_trip(driver: Driver) -> None:
    """Conformance 71; its id is made of the instance id."""
    asked = driver.ask(join(GROUP, instance_id="one"), 9)
    driver.advance(DELAY_MS)
    assert asked.reply.error_code == ErrorCode.NONE
    assert asked.reply.member_id == "one-1"


def test_a_pending_member_is_dropped_at_its_session_timeout(driver: Driver) -> None:
    """Conformance 71."""
    client = Client(driver, session_timeout_ms=7_000)
    client.ask_for_id()
    driver.advance(6_999)
    assert client.join().is_parked
    late = Client(driver, "late", session_timeout_ms=7_000)
    late.ask_for_id()
    driver.advance(7_000)
    assert late.join().reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_without_a_client_id_may_join(driver: Driver) -> None:
    """Conformance 5, 71."""
    asked = driver.ask(join(GROUP), 0, client_id=None)
    driver.advance(DELAY_MS)
    assert asked.reply.error_code == ErrorCode.NONE


REFUSED = {
    "session too short": (join(GROUP, session_timeout_ms=5_999), ErrorCode.INVALID_SESSION_TIMEOUT),
    "session too long": (join(GROUP, session_timeout_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
    "empty group id": (join(""), ErrorCode.INVALID_GROUP_ID),
    "no protocols": (join(GROUP, protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "no protocol type": (join(GROUP, protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "invented member id": (join(GROUP, member_id="invented"), ErrorCode.UNKNOWN_MEMBER_ID),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("version", [0, 3, 4, 6, 9])
def test_a_member_that_does_not_fit_is_refused(driver: Driver, case: str, version: int) -> None:
    """Conformance 72. The group does not come to be."""
    request, error = REFUSED[case]
    reply = driver.ask(request, version).reply
    assert reply.error_code == error
    assert reply.member_id == request.member_id
    assert reply.protocol_name == (None if version >= 7 else "")
    encode(reply, version)
    assert state(driver) == "Dead"


@pytest.mark.parametrize("timeout_ms", [6_000, 1_800_000])
def test_the_bounds_of_a_session_are_allowed(driver: Driver, timeout_ms: int) -> None:
    """Conformance 72."""
    reply = driver.ask(join(GROUP, session_timeout_ms=timeout_ms), 9).reply
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize(
    "request_",
    [
        join(GROUP, protocol_type="connect"),
        join(GROUP, protocols=protocols(sticky=b"")),
        join(GROUP, protocols=[]),
        join(GROUP, member_id="invented", protocol_type="connect"),
    ],
)
def test_a_group_with_members_wants_its_protocol_type_and_a_common_protocol(
    driver: Driver, request_: object
) -> None:
    """Conformance 72: 23."""
    stable(Client(driver))
    assert driver.ask(request_, 9).reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert state(driver) == "Stable"


def test_an_invented_member_id_is_refused_by_a_group_that_exists(driver: Driver) -> None:
    """Conformance 72: 25."""
    stable(Client(driver))
    reply = driver.ask(join(GROUP, member_id="invented"), 9).reply
    assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_protocol_named_twice_is_answered(driver: Driver) -> None:
    """Conformance 6: Kafka leaves that client waiting."""
    twice = [JoinGroupRequestProtocol(name="range", metadata=b"") for _ in range(2)]
    reply = driver.ask(join(GROUP, protocols=twice), 9).reply
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_pending_id_cannot_be_taken_by_a_static_member(driver: Driver) -> None:
    member_id = Client(driver).ask_for_id()
    reply = driver.ask(join(GROUP, member_id=member_id, instance_id="one"), 9).reply
    assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_the_leader_learns_who_is_in_the_group(driver: Driver) -> None:
    """Conformance 76."""
    leader, follower = Client(driver, "a", instance_id="i"), Client(driver, "b")
    asked = [leader.join(), follower.join()]
    driver.advance(2 * DELAY_MS)
    first, second = (answer.reply for answer in asked)
    assert first.leader == second.leader == leader.member_id
    assert [(member.member_id, member.group_instance_id) for member in first.members] == [
        (leader.member_id, "i"),
        (follower.member_id, None),
    ]
    assert second.members == []
    assert (first.protocol_type, first.protocol_name) == ("consumer", "range")
    assert not first.skip_assignment


def test_subscriptions_are_handed_to_the_leader_byte_for_byte(driver: Driver) -> None:
    """Conformance 83: nobody looks into them, so nothing can be wrong with them."""
    odd = [b"", b"\xff", b"\0\0\x7f\xff\xff\xff", bytes(range(256))]
    clients = [Client(driver, f"c{n}", protocols=protocols(x=data)) for n, data in enumerate(odd)]
    asked = [client.join() for client in clients]
    driver.advance(5 * DELAY_MS)
    assert [member.metadata for member in asked[0].reply.members] == odd


def test_members_vote_for_a_protocol_that_all_of_them_know(driver: Driver) -> None:
    """Each for the first of its list that is a candidate; most votes win."""
    lists = [["a", "b", "c"], ["c", "b", "x"], ["b", "c"]]
    clients = [
        Client(driver, f"c{n}", protocols=protocols(**dict.fromkeys(names, b"")))
        for n, names in enumerate(lists)
    ]
    joined(*clients)
    assert clients[0].sync().reply.error_code == ErrorCode.NONE
    assert described(driver).protocol_data == "b"


def test_a_full_group_takes_nobody_more() -> None:
    """81, at the first half of joining already; who is in may rejoin."""
    driver = Driver(GroupConfig(group_max_size=2))
    members = [Client(driver, "a"), Client(driver, "b")]
    stable(*members)
    for version in (3, 9):
        reply = driver.ask(join(GROUP), version).reply
        assert reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert reply.member_id == ""
    asked = members[0].join()
    assert members[1].join().reply.error_code == asked.reply.error_code == ErrorCode.NONE


def test_the_last_to_come_lose_their_place_when_too_many_have_an_id() -> None:
    driver = Driver(GroupConfig(group_max_size=2))
    clients = [Client(driver, f"c{n}") for n in range(3)]
    for client in clients:
        client.ask_for_id()
    asked = [client.join() for client in clients]
    assert asked[2].reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.advance(2 * DELAY_MS)
    assert [answer.reply.error_code for answer in asked[:2]] == [ErrorCode.NONE] * 2


def test_a_group_loaded_with_too_many_members_drops_those_that_come_last() -> None:
    """The limit was lowered in the meantime."""
    driver = Driver()
    clients = [Client(driver, f"c{n}", rebalance_timeout_ms=9_000) for n in range(3)]
    stable(*clients)
    driver.config = driver.config._replace(group_max_size=2)
    driver.restart()
    assert state(driver) == "PreparingRebalance"
    asked = [client.join() for client in clients]
    errors = [answer.reply.error_code for answer in asked]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_being_turned_away_does_not_keep_the_others_waiting() -> None:
    """Conformance 73: a pending member that loses its id was the last that the group waited for."""
    driver = Driver(GroupConfig(group_max_size=1))
    member = Client(driver)
    joined(member)
    driver.groups.reconfigure(GroupConfig(group_max_size=2))
    pending = Client(driver, "pending")
    pending.ask_for_id()
    driver.groups.reconfigure(GroupConfig(group_max_size=1))
    member.sync()
    asked = member.join()
    assert asked.is_parked
    assert pending.join().reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert asked.reply.error_code == ErrorCode.NONE


def test_the_second_of_two_joins_takes_the_place_of_the_first(driver: Driver) -> None:
    """The client has given up on the first; nobody is left without an answer."""
    client = Client(driver)
    client.ask_for_id()
    first, second = client.join(), client.join()
    assert first.reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(DELAY_MS)
    assert second.reply.error_code == ErrorCode.NONE


def test_a_follower_that_rejoins_with_the_same_protocols_disturbs_nobody(driver: Driver) -> None:
    leader, follower = Client(driver, "a"), Client(driver, "b")
    stable(leader, follower)
    reply = follower.join().reply
    assert (reply.error_code, reply.generation_id, reply.members) == (ErrorCode.NONE, 1, [])
    assert state(driver) == "Stable"


def test_a_follower_with_other_protocols_makes_the_group_rebalance(driver: Driver) -> None:
    leader, follower = Client(driver, "a"), Client(driver, "b")
    stable(leader, follower)
    follower.protocols = protocols(range=subscription("more"))
    assert follower.join().is_parked
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_rejoins_makes_the_group_rebalance(driver: Driver) -> None:
    leader, follower = Client(driver, "a"), Client(driver, "b")
    stable(leader, follower)
    assert leader.join().is_parked
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_whoever_missed_the_generation_is_told_again(driver: Driver) -> None:
    """The reply to JoinGroup was lost, and the group waits for the leader's assignment."""
    leader, follower = Client(driver, "a"), Client(driver, "b")
    joined(leader, follower)
    assert len(leader.join().reply.members) == 2
    assert follower.join().reply.members == []
    assert leader.generation == follower.generation == 1
    assert state(driver) == "CompletingRebalance"


def test_whoever_rejoins_with_other_protocols_starts_the_generation_over(driver: Driver) -> None:
    leader, follower = Client(driver, "a"), Client(driver, "b")
    joined(leader, follower)
    waiting = follower.sync()
    leader.protocols = protocols(range=subscription("more"))
    assert leader.join().is_parked
    assert waiting.reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_first_version_has_no_rebalance_timeout_but_the_session(driver: Driver) -> None:
    """Conformance 73."""
    old = driver.ask(join(GROUP, session_timeout_ms=6_000, rebalance_timeout_ms=60_000), 0)
    driver.advance(DELAY_MS)
    Client(driver, "new").join()
    driver.advance(5_999)
    assert len(described(driver).members) == 2
    driver.advance(1)
    assert old.reply.member_id not in [member.member_id for member in described(driver).members]


def test_members_are_described_as_they_introduced_themselves(driver: Driver) -> None:
    driver.ask(join(GROUP), 3, client_id="reader", host="/10.1.2.3")
    (member,) = described(driver).members
    assert (member.client_id, member.client_host) == ("reader", "/10.1.2.3")


def test_reasons_reach_the_operator_in_one_line(driver: Driver) -> None:
    Client(driver).join(reason="need\nto go " + 1_000 * "x")
    (note,) = [note for note in driver.notes if "reason" in note]
    assert "need\\nto go" in note
    assert len(note) < 500


def test_an_empty_group_begins_anew_with_any_protocol_type(driver: Driver) -> None:
    consumer = Client(driver)
    stable(consumer)
    consumer.leave()
    worker = Client(driver, "worker", protocol_type="connect", protocols=protocols(eager=b""))
    asked = worker.join()
    driver.advance(DELAY_MS)
    assert asked.reply.protocol_type == "connect"
    assert asked.reply.generation_id == 3
