"""Conformance H: classic groups, by raw frames.

Timers are proven where time is passed in, in `tests/kbroker/coordinators`; here are the answers on the wire.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kbroker.speaker import DEADLINE_S, Speaker
from wire.api import ApiKey
from wire.api.delete_groups import DeleteGroupsRequest
from wire.api.describe_groups import DescribeGroupsRequest
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.heartbeat import HeartbeatRequest
from wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from wire.api.list_groups import ListGroupsRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from wire.errors import ErrorCode

SESSION_MS = 30_000


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline


@pytest.fixture(autouse=True)
def coordinator(speaker: Speaker) -> None:
    """Somebody coordinates groups."""

    def is_found() -> bool:
        request = FindCoordinatorRequest(key="g", key_type=0)
        code: int = speaker.ask(request, ApiKey.FIND_COORDINATOR, 2).error_code
        return code == 0

    def is_ready() -> bool:
        request = HeartbeatRequest(group_id="g", generation_id=0, member_id="")
        code: int = speaker.ask(request, ApiKey.HEARTBEAT, 3).error_code
        return code == ErrorCode.UNKNOWN_MEMBER_ID

    until(is_found)
    until(is_ready)


class Member:
    """One member on a connection of its own."""

    def __init__(self, speaker: Speaker, group: str, instance_id: str | None = None) -> None:
        self.speaker, self.group, self.instance_id = speaker, group, instance_id
        self.member_id, self.generation = "", -1

    def ask_to_join(
        self,
        version: int = 5,
        *,
        protocols: tuple[str, ...] = ("range",),
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
    ) -> None:
        """Send it; `joined` has the answer, which may wait for others."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=b"\xff?") for name in protocols],
        )
        self.speaker.send(self.speaker.request(request, ApiKey.JOIN_GROUP, version))
        self._version = version

    def joined(self) -> Any:
        reply = self.speaker.reply(ApiKey.JOIN_GROUP, self._version)
        if reply.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = reply.member_id, reply.generation_id
        return reply

    def join(self, version: int = 5, **values: Any) -> Any:
        self.ask_to_join(version, **values)
        return self.joined()

    def ask_to_sync(self, assignments: dict[str, bytes] | None = None, **values: Any) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
            **{"protocol_type": "consumer", "protocol_name": "range", **values},
        )
        self.speaker.send(self.speaker.request(request, ApiKey.SYNC_GROUP, 5))

    def synced(self) -> Any:
        return self.speaker.reply(ApiKey.SYNC_GROUP, 5)

    def sync(self, assignments: dict[str, bytes] | None = None, **values: Any) -> Any:
        self.ask_to_sync(assignments, **values)
        return self.synced()

    def heartbeat(self, *, generation: int | None = None, member_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=self.instance_id,
        )
        code: int = self.speaker.ask(request, ApiKey.HEARTBEAT, 4).error_code
        return code

    def commit(self, topic: str, offset: int = 5, *, metadata: str = "", version: int = 8, **of: Any) -> int:
        one = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
        )
        values: dict[str, Any] = {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **of,
        }
        request = OffsetCommitRequest(
            group_id=self.group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])], **values
        )
        reply = self.speaker.ask(request, ApiKey.OFFSET_COMMIT, version)
        code: int = reply.topics[0].partitions[0].error_code
        return code

    def leave(self, *identities: tuple[str, str | None]) -> list[int]:
        members = [
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in identities or [(self.member_id, self.instance_id)]
        ]
        request = LeaveGroupRequest(group_id=self.group, members=members)
        reply = self.speaker.ask(request, ApiKey.LEAVE_GROUP, 5)
        assert reply.error_code == 0
        return [member.error_code for member in reply.members]


@pytest.fixture
def member(speaker: Speaker, topic: str) -> Member:
    speaker.create(topic)
    return Member(speaker, topic)


def stable(member: Member) -> Member:
    """The only member, with an assignment."""
    assert member.join().error_code in (0, ErrorCode.MEMBER_ID_REQUIRED)
    if member.generation < 1:
        assert member.join().error_code == 0
    assert member.sync({member.member_id: b"all"}).assignment == b"all"
    return member


def two_stable(first: Member, connect: Any, instance_id: str | None = None) -> Member:
    """The second member, after both have their assignments."""
    stable(first)
    second = Member(connect(), first.group, instance_id)
    if instance_id is None:
        assert second.join().error_code == ErrorCode.MEMBER_ID_REQUIRED
    second.ask_to_join()
    until(lambda: first.heartbeat() != 0)
    assert first.join().error_code == 0
    assert second.joined().error_code == 0
    second.ask_to_sync()
    assert first.sync({first.member_id: b"1", second.member_id: b"2"}).assignment == b"1"
    assert second.synced().assignment == b"2"
    return second


def state(speaker: Speaker, group: str, version: int = 5) -> tuple[int, str]:
    request = DescribeGroupsRequest(groups=[group])
    [described] = speaker.ask(request, ApiKey.DESCRIBE_GROUPS, version).groups
    return described.error_code, described.group_state


def test_a_new_member_is_given_an_id_first_from_v4_on(member: Member, connect: Any) -> None:
    """conformance 71"""
    asked = member.join(4)
    assert (asked.error_code, bool(asked.member_id)) == (ErrorCode.MEMBER_ID_REQUIRED, True)
    assert member.join(4).generation_id == 1
    old = Member(connect(), f"{member.group}-old")
    assert old.join(3).error_code == 0
    static = Member(connect(), f"{member.group}-static", "one")
    assert static.join(5).error_code == 0


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_cannot_be_say_why(member: Member, values: dict[str, Any], code: ErrorCode) -> None:
    """conformance 72"""
    assert member.join(3, **values).error_code == code


def test_strangers_and_other_protocols_do_not_join(member: Member, connect: Any) -> None:
    """conformance 72"""
    stable(member)
    other = Member(connect(), member.group)
    assert other.join(3, protocols=("roundrobin",)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert other.join(3, protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other.member_id = "invented"
    assert other.join(3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    nameless = Member(connect(), "")
    assert nameless.join(3).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_rebalance_waits_for_the_members_it_knows(member: Member, connect: Any) -> None:
    """conformance 73, 74: heartbeats say so meanwhile, and commits of the current generation succeed."""
    stable(member)
    second = Member(connect(), member.group)
    second.join()
    second.ask_to_join()
    until(lambda: member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.commit(member.group) == 0
    assert member.join().generation_id == second.joined().generation_id == 2
    assert member.heartbeat() == second.heartbeat() == 0  # the rebalance is being completed
    assert member.commit(member.group) == ErrorCode.REBALANCE_IN_PROGRESS


def test_generations_and_members_are_checked(member: Member) -> None:
    """conformance 75"""
    stable(member)
    assert member.heartbeat(generation=9) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat(member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    simple: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""}
    assert member.commit(member.group, generation_id_or_member_epoch=9) == ErrorCode.ILLEGAL_GENERATION
    assert member.commit(member.group, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(member.group, **simple) == ErrorCode.UNKNOWN_MEMBER_ID
    member.leave()
    assert member.commit(member.group, **simple) == 0
    nobody = Member(member.speaker, f"{member.group}-unknown")
    assert nobody.heartbeat(generation=1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_the_leader_knows_the_members_and_followers_wait_for_it(member: Member, connect: Any) -> None:
    """conformance 76, 83: bytes go through untouched, and come again in a stable group."""
    stable(member)
    second = Member(connect(), member.group)
    second.join()
    second.ask_to_join()
    until(lambda: member.heartbeat() != 0)
    first_joined, second_joined = member.join(), second.joined()
    assert first_joined.leader == second_joined.leader == member.member_id
    assert {one.member_id for one in first_joined.members} == {member.member_id, second.member_id}
    assert {one.metadata for one in first_joined.members} == {b"\xff?"}
    assert second_joined.members == []
    second.ask_to_sync()
    assert member.sync({second.member_id: b"\0\xff"}).assignment == b""  # empty, and there
    assert second.synced().assignment == b"\0\xff"
    assert second.sync().assignment == b"\0\xff"
    wrong = second.sync(protocol_type="connect", protocol_name="range")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong = second.sync(protocol_type="consumer", protocol_name="roundrobin")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong = second.sync(protocol_type=None, protocol_name=None)
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_comes_back_without_a_rebalance(member: Member, connect: Any) -> None:
    """conformance 78: its old id is fenced everywhere."""
    before = two_stable(member, connect, "one")
    again = Member(connect(), member.group, "one")
    rejoined = again.join()
    assert (rejoined.error_code, rejoined.generation_id) == (0, before.generation)
    assert again.member_id != before.member_id
    assert member.heartbeat() == 0
    assert again.sync().assignment == b"2"
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert before.heartbeat() == before.commit(member.group) == before.sync().error_code == fenced
    assert before.join().error_code == fenced


def test_who_leaves_is_missed_at_once(member: Member, connect: Any) -> None:
    """conformance 79: also by instance id; each identity has its answer."""
    second = two_stable(member, connect, "one")
    assert member.leave(("", "nobody"), ("", "one"), ("stranger", None)) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.heartbeat() != 0


def test_groups_are_deleted_when_they_are_empty(member: Member) -> None:
    """conformance 80"""
    stable(member)
    assert member.commit(member.group) == 0

    def delete(group: str) -> int:
        request = DeleteGroupsRequest(groups_names=[group])
        code: int = member.speaker.ask(request, ApiKey.DELETE_GROUPS, 3).results[0].error_code
        return code

    assert delete(member.group) == ErrorCode.NON_EMPTY_GROUP
    assert delete("no-such-group") == ErrorCode.GROUP_ID_NOT_FOUND
    member.leave()
    assert committed(member)[0] == 5
    assert delete(member.group) == 0
    assert committed(member) == (-1, -1, "", 0)


def test_states_are_described_and_listed(member: Member) -> None:
    """conformance 81: an unknown group is Dead, which is an error from v6 on only."""
    assert state(member.speaker, "no-such-group") == (0, "Dead")
    assert state(member.speaker, "no-such-group", 6) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    stable(member)
    assert state(member.speaker, member.group) == (0, "Stable")
    request = ListGroupsRequest(states_filter=["Stable"], types_filter=[])
    listed = member.speaker.ask(request, ApiKey.LIST_GROUPS, 4).groups
    assert member.group in {group.group_id for group in listed}
    member.leave()
    assert state(member.speaker, member.group) == (0, "Empty")


def committed(member: Member, topic: str | None = None) -> tuple[int, int, str, int]:
    """Offset, leader epoch, metadata, error."""
    topics = [OffsetFetchRequestTopic(name=topic or member.group, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=member.group, topics=topics)
    [one] = member.speaker.ask(request, ApiKey.OFFSET_FETCH, 5).topics[0].partitions
    return one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code


def test_what_was_committed_comes_back_and_what_was_not_is_no_error(member: Member) -> None:
    """conformance 82"""
    assert committed(member) == committed(member, "no-such-topic") == (-1, -1, "", 0)
    assert member.commit(member.group, metadata="mine") == 0
    assert committed(member) == (5, 3, "mine", 0)
    assert member.commit("no-such-topic") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert member.commit(member.group, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert member.commit(member.group, metadata="x" * 4096) == 0
