"""The classic groups' state machines against Apache Kafka: one script of requests, two worlds, equal replies.

A script asks in the name of clients, sleeps, and looks at what came back, or that nothing came. Scripts stay
away from what Kafka does badly: a subscription that claims a huge number of topics makes it answer
UNKNOWN_SERVER_ERROR and never end the rebalance; a protocol named twice, and the older one of two requests
parked for one member, are never answered; an id that is given back unused makes a stable group rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from compat_tests.apache_kafka import ApacheKafka, reason_to_skip
from compat_tests.differential.group_worlds import (
    DELAY_MS,
    MIN_SESSION_MS,
    PROPERTIES,
    TOPIC,
    Kafka,
    Machines,
    Play,
    prepare,
    read_group_log,
)
from tests.kbroker.coordinators.driver import Driver
from tests.kbroker.coordinators.requests import (
    commit,
    commit_in_transaction,
    delete_offsets,
    describe,
    fetch,
    heartbeat,
    join,
    leave,
    leave_all,
    list_groups,
    protocols,
    subscription,
    sync,
)
from wire.api.delete_groups import DeleteGroupsRequest
from wire.api.leave_group import MemberIdentity

VERSION = "4.3.1"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(reason_to_skip(VERSION) is not None, reason=str(reason_to_skip(VERSION))),
]

Script = Callable[[Play], None]
SCRIPTS: list[Script] = []


def script(function: Script) -> Script:
    SCRIPTS.append(function)
    return function


@script
def refusals(play: Play) -> None:
    for version in (0, 3, 5, 9):
        play.call("a", join(""), version)
        play.call("a", join(play.group, session_timeout_ms=999), version)
        play.call("a", join(play.group, session_timeout_ms=1_800_001), version)
        play.call("a", join(play.group, member_id="invented"), version)
        play.call("a", join(f"{play.group}-{version}", protocols=[]), version)
        play.call("a", join(f"{play.group}-{version}", protocol_type=""), version)
    for version in range(5):
        play.call("a", heartbeat(play.group, 1, "invented"), version)
        play.call("a", heartbeat("", 1, "invented"), version)
    for version in range(6):
        play.call("a", sync(play.group, 1, "invented", {}), version)
        play.call("a", sync("", 1, "invented", {}), version)
        play.call("a", leave(play.group, "invented", version), version)
        play.call("a", leave("", "invented", version), version)
    play.describe()
    play.call("admin", DeleteGroupsRequest(groups_names=[play.group]), 2)


@script
def one_member_from_join_to_leave(play: Play) -> None:
    play.join("a")
    play.see_waiting("a")
    play.describe()
    play.see("a")
    play.describe()
    play.heartbeat("a")
    play.commit("a")
    play.sync("a", a=b"all of it")
    play.see("a")
    play.describe()
    play.heartbeat("a")
    play.commit("a")
    play.sync("a")
    play.see("a")
    play.call("a", leave(play.group, play.id("a"), 5), 5)
    play.describe()
    play.call("a", fetch(play.group, {TOPIC: [0, 1], "nowhere": [0]}), 8)
    play.call("a", fetch(play.group, None), 8)
    play.call("admin", list_groups(), 5)
    play.call("admin", list_groups(states=["empty"]), 5)
    play.call("admin", list_groups(states=["Stable"]), 5)
    play.call("admin", list_groups(states=["nonsense"]), 5)
    play.call("admin", list_groups(types=["classic"]), 5)
    play.call("admin", list_groups(types=["consumer"]), 5)
    play.call("admin", list_groups(types=["nonsense"]), 5)
    play.join("a")
    play.see("a")
    del play.member_ids["a"]
    play.join("a")
    play.see("a")


@script
def old_versions_join_at_once(play: Play) -> None:
    for version in (0, 1, 2, 3):
        play.group = f"{play.group}-{version}"
        play.member_ids.clear()
        play.join("a", version, session_timeout_ms=6_000)
        play.join("b", version, session_timeout_ms=6_000)
        play.see("a")
        play.see("b")
        play.sync("a", 0, a=b"left", b=b"right")
        play.sync("b", 0)
        play.see("a")
        play.see("b")


@script
def a_second_member_makes_the_first_rejoin(play: Play) -> None:
    play.stable("a")
    play.join("b")
    play.see_waiting("b")
    play.heartbeat("a")
    play.commit("a")
    play.sync("a", a=b"too late")
    play.see("a")
    play.describe()
    play.join("a")
    play.see("a")
    play.see("b")
    play.heartbeat("a")
    play.heartbeat("b")
    play.commit("b")
    play.sync("b")
    play.see_waiting("b")
    play.describe()
    play.sync("a", a=b"one")
    play.see("a")
    play.see("b")
    play.heartbeat("a", generation=1)
    play.commit("a", generation=1)
    play.call("a", sync(play.group, 1, play.id("a"), {}), 4)
    play.call("b", leave(play.group, play.id("b"), 5), 5)
    play.heartbeat("a")
    play.heartbeat("b")


@script
def those_who_wait_for_an_assignment_are_sent_back(play: Play) -> None:
    play.stable("a", "b")
    play.join("a")
    play.see_waiting("a")
    play.heartbeat("b")
    play.join("b")
    play.see("a")
    play.see("b")
    play.sync("b")
    play.see_waiting("b")
    play.join("c")
    play.see("b")
    play.see_waiting("c")
    play.describe()


@script
def protocols_have_to_fit(play: Play) -> None:
    two = protocols(range=b"r", roundrobin=b"o")
    play.stable("a", protocols=two)
    play.call("b", join(play.group, protocol_type="connect"), 9)
    play.call("b", join(play.group, protocols=protocols(sticky=b"s")), 9)
    play.call("b", join(play.group, protocols=[]), 9)
    play.join("b", protocols=protocols(roundrobin=b"o"))
    play.join("a", protocols=two)
    play.see("a")
    play.see("b")
    wrong_type = sync(play.group, play.generation, play.id("a"), {}, protocol_type="connect")
    wrong_name = sync(play.group, play.generation, play.id("a"), {}, protocol_name="range")
    right = sync(
        play.group, play.generation, play.id("a"), {}, protocol_type="consumer", protocol_name="roundrobin"
    )
    play.call("a", wrong_type, 5)
    play.call("a", wrong_name, 5)
    play.call("a", right, 5)


@script
def most_members_choose_the_protocol(play: Play) -> None:
    one, other = protocols(range=b"1", roundrobin=b"2"), protocols(roundrobin=b"3", range=b"4")
    play.join("a", protocols=one)
    play.join("b", protocols=other)
    play.join("c", protocols=other)
    for client in "abc":
        play.see(client)


@script
def rejoining_with_the_same_protocols(play: Play) -> None:
    play.stable("a", "b")
    play.join("b")
    play.see("b")
    play.sync("b")
    play.see("b")
    play.join("b", protocols=protocols(range=subscription(TOPIC)))
    play.see_waiting("b")
    play.join("a")
    play.see("a")
    play.see("b")
    play.join("a")
    play.see("a")
    play.join("b", protocols=protocols(range=subscription(TOPIC)))
    play.see("b")
    play.join("b", protocols=protocols(range=subscription("more")))
    play.see_waiting("b")


@script
def a_group_has_a_largest_size(play: Play) -> None:
    names = "abcd"
    play.stable(*names)
    play.call("e", join(play.group), 9)
    play.join("a")
    for client in "bcd":
        play.join(client)
    for client in names:
        play.see(client)
    play.call("e", join(play.group), 3)


@script
def pending_members_may_leave(play: Play) -> None:
    play.stable("a")
    play.call("b", join(play.group), 9)
    play.describe()
    play.join("a")
    play.see_waiting("a")
    play.call("b", leave(play.group, play.id("b"), 5), 5)
    play.see("a")
    play.call("b", join(play.group, member_id=play.id("b")), 9)


@script
def pending_members_are_dropped_after_their_session(play: Play) -> None:
    play.stable("a", session_timeout_ms=10_000)
    play.call("b", join(play.group, session_timeout_ms=MIN_SESSION_MS), 9)
    play.join("a", session_timeout_ms=10_000)
    play.see_waiting("a")
    play.see("a")
    play.call("b", join(play.group, member_id=play.id("b")), 9)


@script
def a_silent_member_is_dropped(play: Play) -> None:
    play.stable("a", "b", session_timeout_ms=2_000)
    play.sleep(1_200)
    play.heartbeat("a")
    play.sleep(1_200)
    play.heartbeat("a")
    play.heartbeat("b")
    play.describe()
    play.join("a")
    play.see("a")
    play.call("a", commit(play.group, TOPIC, {0: 7}, generation=play.generation, member_id=play.id("a")), 8)
    play.sleep(11_000)
    play.describe()
    play.call("a", fetch(play.group, {TOPIC: [0]}), 8)


@script
def late_members_are_dropped_at_the_rebalance_timeout(play: Play) -> None:
    play.stable("a", "b", rebalance_timeout_ms=1_500)
    play.join("b", protocols=protocols(range=subscription(TOPIC)), rebalance_timeout_ms=1_500)
    play.see_waiting("b")
    play.see("b")
    play.heartbeat("a")
    play.describe()


@script
def a_leader_that_does_not_sync_is_dropped(play: Play) -> None:
    play.stable("a", "b", rebalance_timeout_ms=1_500)
    play.join("a", rebalance_timeout_ms=1_500)
    play.join("b", rebalance_timeout_ms=1_500)
    play.see("a")
    play.see("b")
    play.sync("b")
    play.see_waiting("b")
    play.see("b")
    play.heartbeat("a")
    play.heartbeat("b")
    play.join("b", rebalance_timeout_ms=1_500)
    play.see("b")


@script
def newcomers_prolong_the_first_rebalance(play: Play) -> None:
    play.join("a")
    play.sleep(DELAY_MS - 120)
    play.join("b", version=3)
    play.sleep(200)
    play.see_waiting("a")
    play.see("a")
    play.see("b")


@script
def static_members_come_back_unnoticed(play: Play) -> None:
    play.stable("a", instance_id="i")
    play.join("b", instance_id="j")
    play.join("a", instance_id="i", member_id=play.id("a"))
    play.see("a")
    play.see("b")
    play.sync("a", a=b"first", b=b"second")
    play.sync("b")
    play.see("a")
    play.see("b")
    former = play.id("b")
    play.join("b", instance_id="j")
    play.see("b")
    play.sync("b")
    play.see("b")
    play.heartbeat("a", instance_id="i")
    play.heartbeat("b", instance_id="j")
    play.call("b", heartbeat(play.group, play.generation, former, instance_id="j"), 4)
    play.call("b", sync(play.group, play.generation, former, {}, instance_id="j"), 4)
    play.call("b", join(play.group, member_id=former, instance_id="j"), 9)
    play.call("b", leave_all(play.group, MemberIdentity(member_id=former, group_instance_id="j")), 5)
    play.commit("b", member_id=former, instance_id="j")
    play.call("b", heartbeat(play.group, play.generation, former), 4)
    play.heartbeat("b", instance_id="nobody")
    play.describe()
    play.join("a", instance_id="i")
    play.see("a")
    play.join("a", 8, instance_id="i")
    play.see("a")
    play.join("a", 5, instance_id="i")
    play.see("a")
    play.describe()
    play.join("b", instance_id="j", protocols=protocols(range=subscription(TOPIC)))
    play.see("b")
    play.describe()
    play.join("b", instance_id="j", protocols=protocols(range=subscription(TOPIC)), session_timeout_ms=7_000)
    play.see("b")


@script
def static_members_with_another_protocol_make_the_group_rebalance(play: Play) -> None:
    two, other = protocols(range=b"r", roundrobin=b"o"), protocols(roundrobin=b"o")
    play.stable("a", instance_id="i", protocols=two)
    play.join("a", instance_id="i", protocols=two)
    play.see("a")
    play.join("b", instance_id="j", protocols=two)
    play.join("a", instance_id="i", member_id=play.id("a"), protocols=two)
    play.see("a")
    play.see("b")
    play.sync("a")
    play.see("a")
    play.sync("b")
    play.see("b")
    play.join("b", instance_id="j", protocols=other)
    play.see_waiting("b")
    play.heartbeat("a")


@script
def static_members_while_the_group_rebalances(play: Play) -> None:
    play.stable("a", instance_id="i")
    play.join("b", instance_id="j")
    play.see_waiting("b")
    play.join("b2", instance_id="j")
    play.see("b")
    play.see_waiting("b2")
    play.join("a", instance_id="i", member_id=play.id("a"))
    play.see("a")
    play.see("b2")
    play.sync("b2")
    play.see_waiting("b2")
    play.join("b3", instance_id="j")
    play.see("b2")
    play.see_waiting("b3")
    play.join("a", instance_id="i", member_id=play.id("a"))
    play.see("a")
    play.see("b3")
    play.describe()


@script
def administrators_remove_static_members(play: Play) -> None:
    play.join("a", instance_id="i")
    play.join("b", instance_id="j")
    play.see("a")
    play.see("b")
    play.sync("a")
    play.see("a")
    removed = leave_all(
        play.group,
        MemberIdentity(member_id="", group_instance_id="j"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id="invented", group_instance_id="i"),
        MemberIdentity(member_id=""),
        MemberIdentity(member_id="", group_instance_id="j"),
    )
    play.call("admin", removed, 5)
    play.heartbeat("a", instance_id="i")
    play.heartbeat("b", instance_id="j")
    play.describe()


@script
def who_may_commit(play: Play) -> None:
    for version in (2, 5, 8, 9):
        unknown = f"{play.group}-unknown-{version}"
        play.call("a", commit(unknown, TOPIC, {0: 1}, generation=3, member_id="m"), version)
        play.call("a", commit(unknown, TOPIC, {0: 1}, generation=3), version)
        play.call("a", commit(unknown, TOPIC, {0: 1, 1: 2}), version)
        play.call("a", commit(unknown, TOPIC, {0: 3}, member_id="m"), version)
        play.call("a", commit(unknown, TOPIC, {0: 4}, generation=0), version)
        play.call("a", fetch(unknown, None), 8)
        play.call("admin", describe(unknown), 6)
    play.stable("a")
    for version in (2, 5, 8, 9):
        play.call("a", commit(play.group, TOPIC, {0: 5}), version)
        play.commit("a", version, generation=-1)
        play.commit("a", version, member_id="")
        play.commit("a", version, generation=play.generation + 1)
        play.commit("a", version, member_id="invented")
        play.commit("a", version)
    play.commit("a", 8, metadata="m" * 4096)
    play.commit("a", 8, metadata="m" * 4097)
    play.commit("a", 8, metadata=None, leader_epoch=3)
    play.call("a", fetch(play.group, {TOPIC: [0, 1]}), 8)
    play.call("a", fetch(play.group, {TOPIC: [0, 1]}, require_stable=True), 8)


@script
def deleting(play: Play) -> None:
    reading = protocols(range=subscription(TOPIC))
    play.call("admin", delete_offsets(play.group, TOPIC, [0]), 0)
    play.call("admin", delete_offsets("", TOPIC, [0]), 0)
    play.call("a", commit(play.group, TOPIC, {0: 1, 1: 2}), 8)
    play.call("admin", delete_offsets(play.group, TOPIC, [0]), 0)
    play.call("a", fetch(play.group, None), 8)
    play.stable("a", protocols=reading)
    play.call("admin", delete_offsets(play.group, TOPIC, [1]), 0)
    play.call("admin", DeleteGroupsRequest(groups_names=[play.group, "nobody"]), 2)
    play.join("a", protocols=protocols(range=subscription("elsewhere")))
    play.see("a")
    play.call("admin", delete_offsets(play.group, TOPIC, [1]), 0)
    play.call("a", fetch(play.group, None), 8)
    play.commit("a")
    play.sync("a")
    play.see("a")
    play.commit("a")
    play.call("a", leave(play.group, play.id("a"), 5), 5)
    play.call("admin", DeleteGroupsRequest(groups_names=[play.group, play.group]), 2)
    play.call("a", fetch(play.group, None), 8)
    play.describe()
    play.describe(6)


@script
def deleting_offsets_of_others_than_consumers(play: Play) -> None:
    play.stable("a", protocol_type="connect")
    play.call("admin", delete_offsets(play.group, TOPIC, [1]), 0)


@script
def unreadable_subscriptions_are_taken_for_any(play: Play) -> None:
    play.stable("a", protocols=protocols(range=b"x"))
    play.call("admin", delete_offsets(play.group, TOPIC, [1]), 0)


@script
def offsets_of_a_transaction_count_once_it_is_committed(play: Play) -> None:
    play.call("a", commit(play.group, TOPIC, {0: 1}), 8)
    for is_commit in (False, True):
        transaction = play.begin_transaction("a")
        in_transaction = commit_in_transaction(play.group, TOPIC, {0: 5, 1: 6}, **transaction)
        play.call("a", in_transaction, 3)
        play.call("a", fetch(play.group, {TOPIC: [0, 1, 2]}), 8)
        play.call("a", fetch(play.group, {TOPIC: [0, 1, 2]}, require_stable=True), 8)
        play.call("a", fetch(play.group, None, require_stable=True), 8)
        play.end_transaction("a", is_commit=is_commit)
        play.call("a", fetch(play.group, None, require_stable=True), 8)


@script
def a_later_plain_commit_survives_the_marker(play: Play) -> None:
    transaction = play.begin_transaction("a")
    play.call("a", commit_in_transaction(play.group, TOPIC, {0: 5, 1: 6}, **transaction), 3)
    play.call("a", commit(play.group, TOPIC, {0: 9}), 8)
    play.call("a", fetch(play.group, None), 8)
    play.end_transaction("a", is_commit=True)
    play.call("a", fetch(play.group, None), 8)


@script
def deleting_offsets_that_are_pending(play: Play) -> None:
    transaction = play.begin_transaction("a")
    play.call("a", commit_in_transaction(play.group, TOPIC, {0: 5, 1: 6}, **transaction), 3)
    play.call("admin", delete_offsets(play.group, TOPIC, [0]), 0)
    play.end_transaction("a", is_commit=True)
    play.call("a", fetch(play.group, None), 8)
    transaction = play.begin_transaction("a")
    play.call("a", commit_in_transaction(play.group, TOPIC, {0: 7}, **transaction), 3)
    play.call("admin", DeleteGroupsRequest(groups_names=[play.group]), 2)
    play.end_transaction("a", is_commit=True)
    play.call("a", fetch(play.group, None), 8)
    play.describe()


@script
def who_may_commit_in_a_transaction(play: Play) -> None:
    transaction = play.begin_transaction("t")
    unknown = f"{play.group}-unknown"
    play.call(
        "t", commit_in_transaction(unknown, TOPIC, {0: 1}, generation=1, member_id="m", **transaction), 3
    )
    play.stable("a", instance_id="i")
    former = play.id("a")
    play.join("a", instance_id="i")
    play.see("a")
    right = {"generation": play.generation, "member_id": play.id("a"), "instance_id": "i", **transaction}
    for wrong in (
        {"generation": play.generation + 1},
        {"member_id": former},
        {"member_id": "invented"},
        {"member_id": former, "instance_id": None},
        {"instance_id": "nobody"},
        {"generation": -1},
        {"metadata": "m" * 4097},
        {},
    ):
        play.call("t", commit_in_transaction(play.group, TOPIC, {0: 1}, **{**right, **wrong}), 3)
    play.call("t", commit_in_transaction(play.group, TOPIC, {0: 1}, **transaction), 2)
    play.end_transaction("t", is_commit=False)


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(VERSION, properties=PROPERTIES) as kafka:
        world = Kafka(kafka.bootstrap)
        prepare(world)
        # A cold Kafka is too slow for its replies to come in the order in which it is asked.
        one_member_from_join_to_leave(Play(world, "warm-up"))
        world.close()
        yield kafka


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_answer_the_same(kafka: ApacheKafka, script: Script) -> None:
    group_id = f"group-{script.__name__}"
    ours = Play(Machines(), group_id)
    script(ours)
    world = Kafka(kafka.bootstrap)
    theirs = Play(world, group_id)
    try:
        script(theirs)
    finally:
        world.close()
    for one, other in zip(ours.comparable(), theirs.comparable(), strict=True):
        assert one == other, f"ours:   {one}\ntheirs: {other}"


def test_what_kafka_wrote_is_loaded_as_kafka_holds_it(kafka: ApacheKafka) -> None:
    """Conformance 84: no offset of a group, and no group, is lost when another coordinator loads the log."""
    world = Kafka(kafka.bootstrap)
    play = Play(world, "loaded")
    play.stable("a", "b", instance_id=None, session_timeout_ms=60_000)
    play.commit("a")
    other = Play(world, "loaded-static")
    other.stable("c", instance_id="i", session_timeout_ms=60_000)
    other.call("d", commit("loaded-simple", TOPIC, {0: 3, 1: 4}, metadata="here", leader_epoch=2), 8)
    driver = Driver(log=read_group_log(world))
    ours = Play(Machines(driver), "loaded")
    for each in (play, ours):
        each.seen.clear()
        each.names = {}
        for group_id in ("loaded", "loaded-static", "loaded-simple"):
            each.call("admin", describe(group_id), 5)
            each.call("admin", fetch(group_id, None), 8)
    world.close()
    assert ours.comparable() == play.comparable()
