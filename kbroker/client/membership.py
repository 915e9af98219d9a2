"""Being a member of a consumer group: the classic protocol, the range assignor, heartbeats, commits.

    member = GroupMember(cluster, "g", ["t"])
    while ...:
        if member.must_join:
            partitions = member.join()
        ...
        member.commit({("t", 0): 17})
    member.leave()

Rules:
- `join` gives all partitions up and returns with those of the new generation; commit before it. In between, a
  thread with a connection of its own sends the heartbeats, so that a slow reader of our output does not cost
  us the membership. It decides nothing: it sets `must_join`.
- A commit that comes too late for its generation is refused; the records go to somebody once more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection, check
from kbroker.client.errors import ClientError, ConnectionLost, Refused
from kbroker.client.groups import assigned_partitions
from kbroker.client.offsets import TopicPartition, by_topic
from wire.api.heartbeat import HeartbeatRequest
from wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from wire.codec import decode, encode
from wire.errors import ErrorCode, WireError
from wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from wire.internal.consumer_protocol import (
    TopicPartition as AssignedTopic,
)

CONSUMER = "consumer"
RANGE = "range"
PROTOCOL_VERSION = 1
LAST_PROTOCOL_VERSION = 3
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_S = 3.0

JOIN_AGAIN = frozenset(
    code.name
    for code in (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    )
)
UNKNOWN_AS_SUCH = {ErrorCode.UNKNOWN_MEMBER_ID.name, ErrorCode.ILLEGAL_GENERATION.name}


class GroupMember:
    """One member, until it leaves."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Iterable[str],
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.group = group
        self.topics = sorted(topics)
        self.member_id = ""
        self.generation = -1
        self._cluster = cluster
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_s = heartbeat_s
        self._must_join = threading.Event()
        self._must_join.set()
        self._heartbeats: _Heartbeats | None = None
        self._shared_out: dict[str, int] = {}
        """What this member, as the leader, has shared out: topics, and how many partitions they had."""

    @property
    def must_join(self) -> bool:
        return self._must_join.is_set()

    def join(self) -> list[TopicPartition]:
        """The partitions of this member in the group's next generation."""
        self._stop_heartbeats()
        while True:
            try:
                partitions = self._cluster.patiently(self._joined)
                break
            except Refused as error:
                if error.code not in JOIN_AGAIN:
                    raise
                if error.code in UNKNOWN_AS_SUCH:
                    self.member_id = ""
        self._must_join.clear()
        self._heartbeats = _Heartbeats(
            self._cluster.new_connection(self._cluster.coordinator_address(self.group)),
            HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id),
            self._heartbeat_s,
            self._must_join,
        )
        return partitions

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the group has taken them; if not, this member has to join again."""
        if not offsets:
            return True
        try:
            self._cluster.patiently(lambda: self._commit(offsets))
        except Refused as error:
            if error.code not in JOIN_AGAIN:
                raise
            self._must_join.set()
            return False
        return True

    def look_at_topics(self) -> None:
        """The leader joins again if there are other partitions now than those that it has shared out."""
        if self._shared_out and self._sizes(self._shared_out) != self._shared_out:
            self._cluster.forget()
            self._must_join.set()

    def leave(self) -> None:
        """Tell the group, if it can be told; otherwise it finds out by itself."""
        self._stop_heartbeats()
        if not self.member_id:
            return
        member = MemberIdentity(member_id=self.member_id, reason="it was told to stop")
        with suppress(ClientError):
            self._cluster.coordinator(self.group).ask(
                LeaveGroupRequest(group_id=self.group, members=[member])
            )
        self.member_id = ""

    def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.stop()
            self._heartbeats = None

    def _joined(self) -> list[TopicPartition]:
        joined = self._ask_to_join()
        self.generation = joined.generation_id
        self._shared_out = {}
        mine, everyones = self.member_id, []
        if joined.leader == mine:
            subscriptions = {one.member_id: subscribed_topics(one.metadata) for one in joined.members}
            self._shared_out = self._sizes(name for names in subscriptions.values() for name in names)
            assignment = range_assignment(subscriptions, self._shared_out)
            everyones = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
                for member_id, partitions in assignment.items()
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=mine,
            protocol_type=CONSUMER,
            protocol_name=joined.protocol_name,
            assignments=everyones,
        )
        response = self._cluster.coordinator(self.group).ask(request, self._patience_s())
        check(response.error_code, f"cannot get an assignment in group {self.group}")
        return sorted(assigned_partitions(response.assignment))

    def _ask_to_join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=self.topics)
        metadata = PROTOCOL_VERSION.to_bytes(2, "big") + encode(subscription, PROTOCOL_VERSION)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=metadata)],
        )
        response: JoinGroupResponse = self._cluster.coordinator(self.group).ask(request, self._patience_s())
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
        message = None
        if response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            message = f"its members do not all know the assignor {RANGE!r}"
        check(response.error_code, f"cannot join group {self.group}", message)
        return response

    def _patience_s(self) -> float:
        """The others may take as long to join."""
        return REBALANCE_TIMEOUT_MS / 1000 + self._cluster.timeout_s

    def _sizes(self, topics: Iterable[str]) -> dict[str, int]:
        """The numbers of partitions of those that are there."""
        wanted = set(topics)
        return {topic.name: len(topic.partitions) for topic in self._cluster.topics() if topic.name in wanted}

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
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
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=topics,
        )
        for topic in self._cluster.coordinator(self.group).ask(request).topics:
            for answer in topic.partitions:
                check(answer.error_code, f"cannot commit for group {self.group}")


class _Heartbeats:
    """Says from time to time that a member is there, until it is stopped or the group wants something."""

    def __init__(
        self, connection: Connection, request: HeartbeatRequest, interval_s: float, must_join: threading.Event
    ) -> None:
        self._connection = connection
        self._request = request
        self._interval_s = interval_s
        self._must_join = must_join
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                if self._connection.ask(self._request).error_code == ErrorCode.NONE:
                    continue
            except ConnectionLost:
                pass
            # Whatever it is (a rebalance, another coordinator, our time was up): joining finds out.
            self._must_join.set()
            return


def range_assignment(
    subscriptions: Mapping[str, Sequence[str]], sizes: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Kafka's range assignor: of each topic, neighbouring partitions for each member, the first get more."""
    assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
    for topic in sorted(sizes):
        members = sorted(member_id for member_id, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        each, more = divmod(sizes[topic], len(members))
        begin = 0
        for position, member_id in enumerate(members):
            end = begin + each + (position < more)
            assignment[member_id] += [(topic, number) for number in range(begin, end)]
            begin = end
    return assignment


def subscribed_topics(metadata: bytes) -> list[str]:
    version = min(int.from_bytes(metadata[:2], "big"), LAST_PROTOCOL_VERSION)
    try:
        return decode(ConsumerProtocolSubscription, metadata[2:], version).topics
    except WireError:
        return []


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    topics = [AssignedTopic(topic=name, partitions=numbers) for name, numbers in by_topic(partitions).items()]
    assignment = ConsumerProtocolAssignment(assigned_partitions=topics)
    return PROTOCOL_VERSION.to_bytes(2, "big") + encode(assignment, PROTOCOL_VERSION)
