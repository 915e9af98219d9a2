"""Committed offsets: who may commit, what comes back, what is pending, and what time does to it."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinators.classic_group import GroupConfig
from kbroker.coordinators.groups import AT_ONCE
from tests.kbroker.coordinators.clients import (
    GROUP,
    Client,
    described,
    joined,
    partition_error,
    stable,
    state,
)
from tests.kbroker.coordinators.driver import START_MS, Driver
from tests.kbroker.coordinators.requests import (
    commit,
    commit_in_transaction,
    delete_offsets,
    fetch,
    protocols,
    subscription,
)
from wire.api.delete_groups import DeleteGroupsRequest
from wire.api.offset_fetch import OffsetFetchResponsePartitions
from wire.errors import ErrorCode
from wire.internal import CONSUMER_OFFSETS, decode_record
from wire.internal.offsets_and_groups import OffsetCommitValue

WEEK_MS = GroupConfig().offsets_retention_ms
ROUND_MS = GroupConfig().offsets_retention_check_interval_ms


def fetched(
    driver: Driver,
    partition: int = 0,
    *,
    topic: str = "t",
    group_id: str = GROUP,
    require_stable: bool = False,
) -> OffsetFetchResponsePartitions:
    request = fetch(group_id, {topic: [partition]}, require_stable=require_stable)
    answer: OffsetFetchResponsePartitions = driver.ask(request, 8).reply.groups[0].topics[0].partitions[0]
    return answer


def all_fetched(driver: Driver, group_id: str = GROUP, **how: bool) -> dict[tuple[str, int], tuple[int, int]]:
    """Topic and partition -> offset and error."""
    group = driver.ask(fetch(group_id, None, **how), 8).reply.groups[0]
    assert group.error_code == ErrorCode.NONE
    return {
        (topic.name, partition.partition_index): (partition.committed_offset, partition.error_code)
        for topic in group.topics
        for partition in topic.partitions
    }


def commits(driver: Driver, offsets: dict[int, int], **how: Any) -> ErrorCode:
    version = how.pop("version", 8)
    return partition_error(driver.ask(commit(GROUP, "t", offsets, **how), version).reply)


# Who may commit


@pytest.mark.parametrize("version", range(1, 10))
def test_a_simple_consumer_commits_to_a_group_that_does_not_exist(driver: Driver, version: int) -> None:
    """Conformance 75: generation -1 without a member id; the group comes to be, and has no protocol."""
    assert commits(driver, {0: 7}, version=version) == ErrorCode.NONE
    assert fetched(driver).committed_offset == 7
    assert (state(driver), described(driver).protocol_type) == ("Empty", "")
    assert commits(driver, {0: 8}, version=version) == ErrorCode.NONE


def test_a_simple_consumer_cannot_commit_to_a_group_with_members(driver: Driver) -> None:
    """Conformance 75: 25, in every state with members."""
    member = Client(driver)
    member.join()
    assert commits(driver, {0: 7}) == ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(3_000)
    assert commits(driver, {0: 7}) == ErrorCode.UNKNOWN_MEMBER_ID
    member.sync()
    assert commits(driver, {0: 7}) == ErrorCode.UNKNOWN_MEMBER_ID
    member.leave()
    assert commits(driver, {0: 7}) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_does_not_exist_cannot_commit(
    driver: Driver, version: int, error: ErrorCode
) -> None:
    """22 before v9, 69 since."""
    assert commits(driver, {0: 7}, generation=1, member_id="m", version=version) == error
    assert state(driver) == "Dead"


def test_members_are_checked(driver: Driver) -> None:
    """Conformance 75: 25 for a stranger, 22 for another generation."""
    member = Client(driver)
    stable(member)
    right: dict[str, Any] = {"generation": member.generation, "member_id": member.member_id}
    assert commits(driver, {0: 1}, **right) == ErrorCode.NONE
    assert commits(driver, {0: 1}, **{**right, "member_id": "m"}) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commits(driver, {0: 1}, **{**right, "member_id": ""}) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commits(driver, {0: 1}, **{**right, "generation": 2}) == ErrorCode.ILLEGAL_GENERATION
    assert commits(driver, {0: 1}, **{**right, "generation": -1}) == ErrorCode.ILLEGAL_GENERATION


# What comes back


def test_offset_metadata_and_leader_epoch_come_back(driver: Driver) -> None:
    """Conformance 82."""
    commits(driver, {0: 7}, metadata="here I was: ü", leader_epoch=3)
    answer = fetched(driver)
    assert (answer.committed_offset, answer.committed_leader_epoch) == (7, 3)
    assert (answer.metadata, answer.error_code) == ("here I was: ü", ErrorCode.NONE)


def test_no_metadata_comes_back_as_empty(driver: Driver) -> None:
    commits(driver, {0: 7}, metadata=None)
    assert fetched(driver).metadata == ""


def test_the_length_of_metadata_is_bounded_for_each_partition(driver: Driver) -> None:
    """Conformance 82: over 4096 is 12, and the other partitions of the request are committed."""
    request = commit(GROUP, "t", {0: 7, 1: 8}, metadata="m" * 4096)
    request.topics[0].partitions[0].committed_metadata = "m" * 4097
    reply = driver.ask(request, 8).reply
    errors = [partition.error_code for partition in reply.topics[0].partitions]
    assert errors == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert (fetched(driver, 0).committed_offset, fetched(driver, 1).committed_offset) == (-1, 8)


def test_what_was_never_committed_is_no_error(driver: Driver) -> None:
    """Conformance 82: of a group, a topic or a partition that is not known: -1, -1, "", 0."""
    commits(driver, {0: 7})
    for answer in (
        fetched(driver, group_id="nobody"),
        fetched(driver, topic="nowhere"),
        fetched(driver, 99),
    ):
        assert (answer.committed_offset, answer.committed_leader_epoch) == (-1, -1)
        assert (answer.metadata, answer.error_code) == ("", ErrorCode.NONE)


def test_null_topics_are_all_that_were_committed(driver: Driver) -> None:
    assert all_fetched(driver) == {}
    commits(driver, {1: 8, 0: 7})
    driver.ask(commit(GROUP, "s", {5: 9}), 8)
    driver.ask(commit("other", "t", {0: 1}), 8)
    assert all_fetched(driver) == {("s", 5): (9, 0), ("t", 0): (7, 0), ("t", 1): (8, 0)}


def test_topic_ids_are_handed_back(driver: Driver) -> None:
    """The handler has put the name beside it."""
    topic_id = bytes(range(16))
    request = commit(GROUP, "t", {0: 7})
    request.topics[0].topic_id = topic_id
    assert driver.ask(request, 10).reply.topics[0].topic_id == topic_id
    fetch_request = fetch(GROUP, {"t": [0]})
    [topic_asked] = fetch_request.groups[0].topics or []
    topic_asked.topic_id = topic_id
    topic = driver.ask(fetch_request, 10).reply.groups[0].topics[0]
    assert (topic.topic_id, topic.partitions[0].committed_offset) == (topic_id, 7)


def test_a_commit_survives_a_change_of_coordinators(driver: Driver) -> None:
    """Conformance 84."""
    commits(driver, {0: 7}, metadata="m", leader_epoch=3)
    before = fetched(driver)
    driver.restart()
    assert fetched(driver) == before
    assert state(driver) == "Empty"


# Transactions


def commits_in_transaction(driver: Driver, offsets: dict[int, int], **how: Any) -> ErrorCode:
    return partition_error(driver.ask(commit_in_transaction(GROUP, "t", offsets, **how), 3).reply)


def test_an_offset_of_an_open_transaction_is_invisible(driver: Driver) -> None:
    """Conformance 51."""
    commits(driver, {0: 1})
    assert commits_in_transaction(driver, {0: 5, 1: 6}) == ErrorCode.NONE
    assert all_fetched(driver) == {("t", 0): (1, 0)}
    driver.end_transaction(7, is_commit=True)
    assert all_fetched(driver) == {("t", 0): (5, 0), ("t", 1): (6, 0)}


def test_an_aborted_offset_is_gone(driver: Driver) -> None:
    """Conformance 51."""
    commits(driver, {0: 1})
    commits_in_transaction(driver, {0: 5})
    driver.end_transaction(7, is_commit=False)
    assert all_fetched(driver, require_stable=True) == {("t", 0): (1, 0)}


def test_only_partitions_with_something_pending_are_unstable(driver: Driver) -> None:
    """Conformance 51: 88 for those, and only when stable offsets are required."""
    commits(driver, {0: 1, 1: 2})
    commits_in_transaction(driver, {0: 5, 2: 6})
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert all_fetched(driver, require_stable=True) == {("t", 0): (-1, unstable), ("t", 1): (2, 0)}
    assert fetched(driver, 2, require_stable=True).error_code == unstable
    assert fetched(driver, 3, require_stable=True).error_code == ErrorCode.NONE
    assert fetched(driver, 0).committed_offset == 1
    driver.end_transaction(7, is_commit=False)
    assert fetched(driver, 0, require_stable=True).committed_offset == 1


def test_a_partition_is_unstable_until_all_its_transactions_have_ended(driver: Driver) -> None:
    """Conformance 51: nobody is stuck on 88."""
    commits_in_transaction(driver, {0: 5}, producer_id=7)
    commits_in_transaction(driver, {0: 6}, producer_id=8)
    driver.end_transaction(7, is_commit=True)
    assert fetched(driver, require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    driver.end_transaction(8, is_commit=True)
    assert fetched(driver, require_stable=True).committed_offset == 6


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_the_commit_whose_record_is_later_counts(driver: Driver, is_reloaded: bool) -> None:
    """Conformance 52: a plain commit in between survives the marker, live and after replay alike."""
    commits_in_transaction(driver, {0: 5, 1: 6})
    commits(driver, {0: 9})
    driver.end_transaction(7, is_commit=True)
    if is_reloaded:
        driver.restart()
    assert all_fetched(driver) == {("t", 0): (9, 0), ("t", 1): (6, 0)}


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_of_two_transactions_the_later_record_counts_not_the_later_marker(
    driver: Driver, is_reloaded: bool
) -> None:
    """Conformance 51, 52: replay order and live order agree."""
    commits_in_transaction(driver, {0: 5}, producer_id=7)
    commits_in_transaction(driver, {0: 6}, producer_id=8)
    driver.end_transaction(8, is_commit=True)
    driver.end_transaction(7, is_commit=True)
    if is_reloaded:
        driver.restart()
    assert fetched(driver).committed_offset == 6


def test_an_open_transaction_survives_a_change_of_coordinators(driver: Driver) -> None:
    """Conformance 51, 84: pending stays pending, and its marker still finds it."""
    commits_in_transaction(driver, {0: 5})
    driver.restart()
    assert fetched(driver, require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert state(driver) == "Empty"
    driver.end_transaction(7, is_commit=True)
    assert fetched(driver, require_stable=True).committed_offset == 5


def test_a_marker_without_anything_pending_does_nothing(driver: Driver) -> None:
    commits(driver, {0: 1})
    driver.end_transaction(7, is_commit=True)
    assert fetched(driver).committed_offset == 1


def test_members_are_fenced_in_transactions_too(driver: Driver) -> None:
    """Conformance 51: 22, 25, 82; without a member, as before v3, nobody is."""
    leader = Client(driver, "a", instance_id="i")
    stable(leader)
    right: dict[str, Any] = {"generation": 1, "member_id": leader.member_id, "instance_id": "i"}
    assert commits_in_transaction(driver, {0: 1}, **right) == ErrorCode.NONE
    for wrong, error in (
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m", "instance_id": None}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert commits_in_transaction(driver, {0: 1}, **{**right, **wrong}) == error
    assert commits_in_transaction(driver, {0: 1}) == ErrorCode.NONE


def test_a_transaction_may_commit_while_the_group_completes_a_rebalance(driver: Driver) -> None:
    """Unlike a plain commit (conformance 74)."""
    member = Client(driver)
    joined(member)
    right: dict[str, Any] = {"generation": member.generation, "member_id": member.member_id}
    assert commits(driver, {0: 1}, **right) == ErrorCode.REBALANCE_IN_PROGRESS
    assert commits_in_transaction(driver, {0: 1}, **right) == ErrorCode.NONE


def test_refused_transactional_commits(driver: Driver) -> None:
    request = commit_in_transaction("", "t", {0: 1})
    assert partition_error(driver.ask(request, 3).reply) == ErrorCode.INVALID_GROUP_ID
    unknown = commits_in_transaction(driver, {0: 1}, generation=1, member_id="m")
    assert unknown == ErrorCode.ILLEGAL_GENERATION
    too_long = commits_in_transaction(driver, {0: 1}, metadata="m" * 4097)
    assert too_long == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.log == []


# Deleting


def test_deleted_offsets_are_gone_with_what_is_pending(driver: Driver) -> None:
    commits(driver, {0: 1, 1: 2})
    commits_in_transaction(driver, {0: 5, 2: 6})
    reply = driver.ask(delete_offsets(GROUP, "t", [0, 2, 99]), 0).reply
    assert reply.error_code == ErrorCode.NONE
    assert [partition.error_code for partition in reply.topics[0].partitions] == [ErrorCode.NONE] * 3
    driver.end_transaction(7, is_commit=True)
    assert all_fetched(driver, require_stable=True) == {("t", 1): (2, 0)}


def test_offsets_of_a_topic_that_is_being_read_are_not_deleted(driver: Driver) -> None:
    """86; others of the same group are."""
    member = Client(driver, protocols=protocols(range=subscription("t")))
    stable(member)
    right: dict[str, Any] = {"generation": member.generation, "member_id": member.member_id}
    commits(driver, {0: 1}, **right)
    driver.ask(commit(GROUP, "s", {0: 2}, **right), 8)
    reply = driver.ask(delete_offsets(GROUP, "t", [0]), 0).reply
    assert partition_error(reply) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert partition_error(driver.ask(delete_offsets(GROUP, "s", [0]), 0).reply) == ErrorCode.NONE
    assert all_fetched(driver) == {("t", 0): (1, 0)}


@pytest.mark.parametrize(
    ("protocol_type", "data", "error"),
    [
        ("connect", subscription("s"), ErrorCode.NON_EMPTY_GROUP),
        ("consumer", b"?", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        ("consumer", subscription("s"), ErrorCode.NONE),
    ],
)
def test_only_consumers_whose_subscription_can_be_read_are_known_not_to_read_a_topic(
    driver: Driver, protocol_type: str, data: bytes, error: ErrorCode
) -> None:
    """Conformance 83."""
    stable(Client(driver, protocol_type=protocol_type, protocols=protocols(range=data)))
    reply = driver.ask(delete_offsets(GROUP, "t", [0]), 0).reply
    assert (reply.error_code or partition_error(reply)) == error


def test_a_simple_group_without_offsets_goes_in_the_next_round_or_is_not_found_when_loading(
    driver: Driver,
) -> None:
    """The one as in Kafka 4, and the other as in Kafka 3, which leaves no tombstone of such a group."""
    commits(driver, {0: 1})
    driver.ask(delete_offsets(GROUP, "t", [0]), 0)
    driver.ask(commit_in_transaction("other", "t", {0: 1}), 3)
    driver.end_transaction(7, is_commit=False)
    again = Driver(driver.config, list(driver.log))
    assert state(again) == state(again, "other") == "Dead"
    assert state(driver) == state(driver, "other") == "Empty"
    driver.advance(ROUND_MS)
    assert state(driver) == state(driver, "other") == "Dead"


def test_offsets_of_no_group_cannot_be_deleted(driver: Driver) -> None:
    """69, and 24 without a group id."""
    unknown = driver.ask(delete_offsets("nobody", "t", [0]), 0).reply
    assert (unknown.error_code, unknown.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert driver.ask(delete_offsets("", "t", [0]), 0).reply.error_code == ErrorCode.INVALID_GROUP_ID


def test_deleting_a_group_deletes_its_offsets_pending_ones_too(driver: Driver) -> None:
    commits(driver, {0: 1})
    commits_in_transaction(driver, {0: 5, 1: 6})
    driver.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    driver.end_transaction(7, is_commit=True)
    assert all_fetched(driver) == {}
    assert state(driver) == "Dead"
    driver.restart()
    assert state(driver) == "Dead"


def test_offsets_in_a_deleted_topic_go_in_pieces(driver: Driver) -> None:
    """What is committed meanwhile is of another topic with that name."""
    for number in range(AT_ONCE):
        driver.ask(commit(f"g{number}", "t", {0: 1}), 8)
    before = len(driver.log)
    driver.run(driver.groups.delete_topics(["t"], driver.now_ms))
    assert len(driver.log) - before == AT_ONCE // 2
    last = f"g{AT_ONCE - 1}"
    driver.ask(commit(last, "t", {0: 2}), 8)
    driver.advance(0)
    assert len(driver.log) - before == AT_ONCE, "all but the last, and the commit"
    assert all_fetched(driver, last) == {("t", 0): (2, 0)}
    driver.run(driver.groups.delete_topics(["t"], driver.now_ms))
    driver.advance(0)
    assert all_fetched(driver, last) == {}


def test_offsets_in_deleted_topics_go_with_them(driver: Driver) -> None:
    commits(driver, {0: 1})
    driver.ask(commit(GROUP, "s", {0: 2}), 8)
    driver.ask(commit("other", "t", {3: 2}), 8)
    commits_in_transaction(driver, {1: 5})
    driver.run(driver.groups.delete_topics(["t"], driver.now_ms))
    driver.end_transaction(7, is_commit=True)
    assert all_fetched(driver) == {("s", 0): (2, 0)}
    assert all_fetched(driver, "other") == {}


# Expiry


def test_offsets_expire_a_retention_after_the_group_became_empty_and_not_before(driver: Driver) -> None:
    """Conformance 80; the empty group goes with the last of them."""
    member = Client(driver, session_timeout_ms=6_000)
    stable(member)
    commits(driver, {0: 1}, generation=1, member_id=member.member_id)
    driver.advance(6_000)
    assert state(driver) == "Empty"
    driver.advance(WEEK_MS - 1)
    assert all_fetched(driver) == {("t", 0): (1, 0)}
    driver.advance(1 + ROUND_MS)
    assert all_fetched(driver) == {}
    assert state(driver) == "Dead"
    driver.restart()
    assert state(driver) == "Dead"


def test_a_group_that_becomes_empty_late_keeps_old_commits_for_the_whole_retention(driver: Driver) -> None:
    """Conformance 80: it is the group's time that counts, and that survives a restart."""
    member = Client(driver, protocols=protocols(range=subscription("t")), session_timeout_ms=1_800_000)
    stable(member)
    commits(driver, {0: 1}, generation=1, member_id=member.member_id)
    for _ in range(2 * WEEK_MS // 1_700_000):
        driver.advance(1_700_000)
        assert member.heartbeat() == ErrorCode.NONE
    member.leave()
    driver.advance(WEEK_MS - ROUND_MS)
    driver.restart()
    assert all_fetched(driver) == {("t", 0): (1, 0)}
    driver.advance(3 * ROUND_MS)
    assert all_fetched(driver) == {}


def test_simple_consumers_offsets_expire_each_by_itself(driver: Driver) -> None:
    """Conformance 80: without members the time of the commit counts."""
    commits(driver, {0: 1})
    driver.advance(WEEK_MS // 2)
    commits(driver, {1: 2})
    driver.advance(WEEK_MS // 2 + ROUND_MS)
    assert all_fetched(driver) == {("t", 1): (2, 0)}
    driver.advance(WEEK_MS // 2 + ROUND_MS)
    assert state(driver) == "Dead"


def test_a_stable_groups_offsets_expire_only_in_topics_that_it_does_not_read(driver: Driver) -> None:
    """Conformance 80, KIP-496: by the time of the commit."""
    config = GroupConfig(offsets_retention_ms=5_000, offsets_retention_check_interval_ms=1_000)
    driver = Driver(config)
    member = Client(driver, protocols=protocols(range=subscription("t")), session_timeout_ms=30_000)
    stable(member)
    right: dict[str, Any] = {"generation": 1, "member_id": member.member_id}
    commits(driver, {0: 1}, **right)
    driver.ask(commit(GROUP, "s", {0: 2}, **right), 8)
    driver.advance(6_000)
    assert all_fetched(driver) == {("t", 0): (1, 0)}


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_nothing_expires_while_a_group_rebalances_or_nobody_knows_what_it_reads(protocol_type: str) -> None:
    """Conformance 80."""
    config = GroupConfig(offsets_retention_ms=5_000, offsets_retention_check_interval_ms=1_000)
    driver = Driver(config)
    commits(driver, {0: 1})
    member = Client(driver, protocol_type=protocol_type, session_timeout_ms=60_000)
    joined(member)
    driver.advance(10_000)
    assert fetched(driver).committed_offset == 1
    if protocol_type == "connect":
        member.sync()
        driver.advance(10_000)
        assert fetched(driver).committed_offset == 1


def test_a_pending_offset_keeps_the_committed_one_and_the_group(driver: Driver) -> None:
    """Conformance 51: retention does not reach for what a transaction is about to replace."""
    commits(driver, {0: 1, 1: 2})
    commits_in_transaction(driver, {0: 5})
    driver.advance(WEEK_MS + ROUND_MS)
    assert all_fetched(driver) == {("t", 0): (1, 0)}
    driver.end_transaction(7, is_commit=True)
    assert all_fetched(driver) == {("t", 0): (5, 0)}
    driver.advance(ROUND_MS)
    assert state(driver) == "Dead"


def test_a_group_with_nothing_but_a_pending_offset_stays(driver: Driver) -> None:
    """Conformance 51."""
    commits_in_transaction(driver, {0: 5})
    driver.advance(WEEK_MS + ROUND_MS)
    assert state(driver) == "Empty"
    driver.end_transaction(7, is_commit=False)
    driver.advance(ROUND_MS)
    assert state(driver) == "Dead"


@pytest.mark.parametrize("version", [2, 3, 4])
def test_old_clients_may_name_a_retention_of_their_own(driver: Driver, version: int) -> None:
    """Conformance 80: v2 to v4; there is a version of the record that can say so."""
    commits(driver, {0: 1}, retention_time_ms=ROUND_MS, leader_epoch=3, version=version)
    decoded = decode_record(CONSUMER_OFFSETS, driver.log[0].key, driver.log[0].value)
    assert decoded is not None
    value = decoded[1]
    assert isinstance(value, OffsetCommitValue)
    assert value.expire_timestamp == START_MS + ROUND_MS
    assert fetched(driver).committed_offset == 1
    driver.advance(ROUND_MS)
    assert fetched(driver).committed_offset == -1


def test_the_oldest_clients_may_name_the_time_of_the_commit(driver: Driver) -> None:
    """v1: retention counts from there."""
    commits(driver, {0: 1}, commit_timestamp=START_MS - WEEK_MS + ROUND_MS, version=1)
    assert fetched(driver).committed_offset == 1
    driver.advance(ROUND_MS)
    assert fetched(driver).committed_offset == -1


def test_an_empty_group_without_offsets_is_removed_in_the_next_round(driver: Driver) -> None:
    """Conformance 73: also one that was only asked for a member id."""
    Client(driver).ask_for_id()
    member = Client(driver, group_id="other")
    joined(member)
    member.leave()
    assert state(driver) == state(driver, "other") == "Empty"
    driver.advance(ROUND_MS)
    assert state(driver) == state(driver, "other") == "Dead"


def test_a_round_of_expiration_goes_through_many_groups_in_pieces(driver: Driver) -> None:
    """The loop must not stand still for all of them at once. A group with many offsets counts for many."""
    for number in range(1_200):
        driver.ask(commit(f"g{number}", "t", {0: 1}), 8)
    driver.now_ms += WEEK_MS
    driver.timers = {key: driver.now_ms for key in driver.timers}
    before = len(driver.log)
    (key,) = driver.timers
    driver.fire(key)
    assert len(driver.log) - before == 2 * (AT_ONCE // 2)
    assert driver.timers[key] == driver.now_ms
    driver.advance(0)
    assert len(driver.log) - before == 2 * 1_200
    assert driver.timers[key] == driver.now_ms + ROUND_MS
