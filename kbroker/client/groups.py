"""Groups, from outside: which there are, who is in them, how far they have read; and changes to that.

A group of the classic protocol and one of the new (KIP-848) look the same here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kbroker.client.cluster import Cluster, near
from kbroker.client.connection import check
from kbroker.client.errors import UnknownGroup
from kbroker.client.offsets import EARLIEST, LATEST, TopicPartition, by_topic, list_offsets
from wire.api import ApiKey
from wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.api.delete_groups import DeleteGroupsRequest
from wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest
from wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from wire.api.list_groups import ListGroupsRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from wire.codec import decode
from wire.errors import ErrorCode, WireError
from wire.internal.consumer_protocol import ConsumerProtocolAssignment

CONSUMER = "consumer"
DEAD = "Dead"
NO_OFFSET = -1
LAST_CONSUMER_PROTOCOL = 3


class ListedGroup(NamedTuple):
    group: str
    state: str
    type: str
    protocol_type: str


class Member(NamedTuple):
    """One member of a group, and what it is to read."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...]


class Group(NamedTuple):
    """A group as its coordinator describes it."""

    group: str
    state: str
    protocol: str
    members: tuple[Member, ...]


class Progress(NamedTuple):
    """How far a group has read one partition."""

    topic: str
    partition: int
    committed: int | None
    log_start_offset: int
    log_end_offset: int
    member_id: str | None

    @property
    def lag(self) -> int:
        """What is still to be read: from the committed offset on, or all of it."""
        begin = self.log_start_offset if self.committed is None else self.committed
        return max(0, self.log_end_offset - begin)


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups of the cluster, by name."""

    def ask() -> list[ListedGroup]:
        found = []
        for node_id in cluster.node_ids():
            response = cluster.broker(node_id).ask(ListGroupsRequest())
            check(response.error_code, "cannot list the groups")
            found += [
                ListedGroup(one.group_id, one.group_state, one.group_type, one.protocol_type)
                for one in response.groups
            ]
        return sorted(found)

    return cluster.patiently(ask)


def describe_group(cluster: Cluster, group: str) -> Group:
    """UnknownGroup with suggestions if it is not there."""
    found = cluster.patiently(lambda: _of_new_protocol(cluster, group) or _classic(cluster, group))
    if found is None:
        raise UnknownGroup(group, near(group, (one.group for one in list_groups(cluster))))
    return found


def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """All that the group has committed and not forgotten."""

    def ask() -> dict[TopicPartition, int]:
        asked = OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(groups=[asked], require_stable=False)
        (answer,) = cluster.coordinator(group).ask(request).groups
        check(answer.error_code, f"cannot read the offsets of group {group}")
        return {
            (topic.name, one.partition_index): one.committed_offset
            for topic in answer.topics
            for one in topic.partitions
            if one.committed_offset != NO_OFFSET
        }

    return cluster.patiently(ask)


def progress(cluster: Cluster, group: Group) -> list[Progress]:
    """Every partition that the group has committed to, or that one of its members is assigned."""
    committed = committed_offsets(cluster, group.group)
    readers = {partition: one.member_id for one in group.members for partition in one.assignment}
    existing = {(topic.name, one.number) for topic in cluster.topics() for one in topic.partitions}
    partitions = sorted(existing & (committed.keys() | readers.keys()))
    ends = list_offsets(cluster, partitions, LATEST)
    starts = list_offsets(cluster, partitions, EARLIEST)
    return [
        Progress(*one, committed.get(one), starts[one], ends[one], readers.get(one)) for one in partitions
    ]


def reset_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit in the group's name, which it allows while it has no members."""

    def ask() -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offsets[name, number], committed_metadata=""
                    )
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(group_id=group, topics=topics)
        for topic in cluster.coordinator(group).ask(request).topics:
            for answer in topic.partitions:
                refused = answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
                message = "the group has members; stop them first" if refused else None
                check(answer.error_code, f"cannot reset the offsets of group {group}", message)

    cluster.patiently(ask)


def remove_members(cluster: Cluster, group: str) -> None:
    """Have all members leave, as Kafka's admin client does; those that run on join again when they notice."""

    def ask() -> None:
        members = [
            MemberIdentity(member_id=one.member_id, group_instance_id=one.instance_id)
            for one in describe_group(cluster, group).members
        ]
        answer = cluster.coordinator(group).ask(LeaveGroupRequest(group_id=group, members=members))
        check(answer.error_code, f"cannot remove the members of group {group}")

    cluster.patiently(ask)


def delete_group(cluster: Cluster, group: str) -> None:
    def ask() -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        (result,) = cluster.coordinator(group).ask(request).results
        check(result.error_code, f"cannot delete group {group}", result.error_message)

    describe_group(cluster, group)
    cluster.patiently(ask)


def _classic(cluster: Cluster, group: str) -> Group | None:
    """None if it is not there: earlier versions call it dead, later ones have an error."""
    (answer,) = cluster.coordinator(group).ask(DescribeGroupsRequest(groups=[group])).groups
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND or answer.group_state == DEAD:
        return None
    check(answer.error_code, f"cannot describe group {group}", answer.error_message)
    members = (
        Member(
            one.member_id,
            one.client_id,
            one.client_host,
            one.group_instance_id,
            assigned_partitions(one.member_assignment) if is_of_consumers(answer) else (),
        )
        for one in answer.members
    )
    return Group(group, answer.group_state, answer.protocol_data, tuple(sorted(members)))


def is_of_consumers(group: DescribedGroup) -> bool:
    return group.protocol_type == CONSUMER


def _of_new_protocol(cluster: Cluster, group: str) -> Group | None:
    coordinator = cluster.coordinator(group)
    if not coordinator.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
        return None
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (answer,) = coordinator.ask(request).groups
    if answer.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(answer.error_code, f"cannot describe group {group}", answer.error_message)
    members = (
        Member(one.member_id, one.client_id, one.client_host, one.instance_id, _partitions(one.assignment))
        for one in answer.members
    )
    return Group(group, answer.group_state, answer.assignor_name, tuple(sorted(members)))


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        (topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    )


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """What a consumer's assignment says; nothing where there is none, or none that can be read."""
    version = min(int.from_bytes(data[:2], "big"), LAST_CONSUMER_PROTOCOL)
    try:
        assignment = decode(ConsumerProtocolAssignment, data[2:], version)
    except WireError:
        return ()
    return tuple(flattened((one.topic, one.partitions) for one in assignment.assigned_partitions))


def flattened(topics: Iterable[tuple[str, Iterable[int]]]) -> Iterable[TopicPartition]:
    for topic, numbers in topics:
        for number in numbers:
            yield topic, number
