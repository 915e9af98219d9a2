"""The groups of one partition of `__consumer_offsets`: every request about them, loading, and giving them up.

What is durable, and who writes it:
- Durable are the last GroupMetadata record of each group and the committed and pending offsets. `replay`
  and `replay_marker` write them and nothing else does, in a running broker as in one that loads.
- A group as it lives (who has joined, which requests are parked) is built from that by `loaded`, and from
  then on moved by the steps. In the states Stable and Empty it says what its record says; in between,
  clients can afford to lose it. There is a live group for every group with a record, an offset, a member, or
  a member to be; one that was only asked to join leaves no record. (Kafka writes one for it.)
- A simple group has no record: it is there for its offsets. When they are gone it stays, empty, until the
  next round of expiration writes its tombstone, as in Kafka 4. Kafka 3 drops it at once, without a tombstone;
  so what `loaded` finds without offsets is no group.

How a Step is undone: appending, replaying and applying are one turn (see `step`), so a refused append is
known before anything else is decided. `refused` then answers with the error all that the Step had answered,
and builds the groups whose record was refused from their last record, as a load would: for clients it looks
as if the coordinator had moved at that moment. Offsets need no undoing, since only `replay` stores them.

Loading: `replay` for every record, `replay_marker` for every transaction marker, then `loaded`, once. Giving
up: `unloaded`, and nothing after it. The handlers' part is: which partition a group belongs to, whether that
is loaded (COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR), permissions, topic ids, unknown topics.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from typing import Self

from kbroker.coordinators import classic_rebalance as rebalance
from kbroker.coordinators.classic_group import ClassicGroup, GroupConfig
from kbroker.coordinators.classic_join import Joiner, NewMemberId, join
from kbroker.coordinators.classic_leave import leave
from kbroker.coordinators.classic_states import State
from kbroker.coordinators.offsets import NO_PRODUCER_ID, Offsets
from kbroker.coordinators.refusals import APPEND_ERRORS, join_refused, refused, sync_refused
from kbroker.coordinators.step import RequestContext, Step, TimerKey, Token
from wire.api.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from wire.api.describe_groups import DescribedGroup, DescribedGroupMember
from wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from wire.api.join_group import JoinGroupRequest
from wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from wire.api.list_groups import ListedGroup
from wire.api.offset_commit import OffsetCommitRequest
from wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from wire.api.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from wire.api.sync_group import SyncGroupRequest
from wire.api.txn_offset_commit import TxnOffsetCommitRequest
from wire.errors import ErrorCode
from wire.internal.offsets_and_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

EXPIRATION = TimerKey("expiration")
DELETION = TimerKey("deletion")
AT_ONCE = 2000
"""Offsets that are looked at before other requests are."""
DELETE_AGAIN_MS = 1000
CLASSIC = "classic"
PROTOCOL_NAMED_SINCE = 5
GROUP_ID_NOT_FOUND_SINCE_COMMIT = 9
GROUP_ID_NOT_FOUND_SINCE_DESCRIBE = 6


class Groups:
    """All groups of one partition."""

    def __init__(self, config: GroupConfig, new_member_id: NewMemberId) -> None:
        self.offsets = Offsets()
        self._metadata: dict[str, GroupMetadataValue] = {}
        self._groups: dict[str, ClassicGroup] = {}
        self._config = config
        self._new_member_id = new_member_id
        self._to_expire: list[str] = []
        """Groups that the present round of expiration has not come to yet."""
        self._deleted_topics: dict[str, int] = {}
        """Below which offset of the coordinator's partition their commits go."""
        self._to_clear: dict[str, None] = {}
        """Groups that may have committed in deleted topics."""

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(self._groups.values())

    # Durable state

    def replay(
        self, key: object, value: object | None, record_offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """One record; the producer id is that of a transactional batch. Other types are passed over."""
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue | None):
            self.offsets.replay(key, value, record_offset, producer_id)
            if value is not None and key.group not in self._groups:
                self._groups[key.group] = ClassicGroup(key.group, self._config)
        elif isinstance(key, GroupMetadataKey) and isinstance(value, GroupMetadataValue):
            self._metadata[key.group] = value
        elif isinstance(key, GroupMetadataKey):
            self._metadata.pop(key.group, None)
            group = self._groups.pop(key.group, None)
            if group is not None:
                group.move_to(State.DEAD, None)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """The end of a transaction, from WriteTxnMarkers or from a control batch."""
        self.offsets.end_transaction(producer_id, is_commit=is_commit)

    def loaded(self, now_ms: int) -> Step:
        """Everything there is has been replayed: the groups come to life, those that something is left of."""
        step = Step(now_ms)
        self._groups.clear()
        for group_id in self.ids():
            self._revive(group_id, step)
        step.schedule(EXPIRATION, self._config.offsets_retention_check_interval_ms)
        return step

    def unloaded(self, now_ms: int) -> Step:
        """The partition is somebody else's now: nobody is left waiting. All timers are to be forgotten."""
        step = Step(now_ms)
        for group in self._groups.values():
            for member in group.members.values():
                rebalance.answer_parked(group, member, step, ErrorCode.NOT_COORDINATOR)
            group.move_to(State.DEAD, now_ms)
        self._groups.clear()
        return step

    def refused(self, step: Step, error: ErrorCode, now_ms: int) -> Step:
        """The records of `step` were not appended: what is to be done instead of it."""
        instead = Step(now_ms)
        instead.timers.extend(step.timers)
        for token, response in step.replies:
            instead.reply(token, refused(response, APPEND_ERRORS.get(error, error)))
        for key, value, _ in step.records:
            if isinstance(key, GroupMetadataKey) and value is not None:
                if key.group in self._groups:  # not while it is taken over
                    self._abandon(self._groups.pop(key.group), instead)
                self._revive(key.group, instead)
            elif isinstance(key, OffsetCommitKey) and key.topic in self._deleted_topics:
                self._to_clear[key.group] = None
                instead.schedule(DELETION, DELETE_AGAIN_MS)
        return instead

    def reconfigure(self, config: GroupConfig) -> None:
        """For what is decided from now on."""
        self._config = config
        for group in self._groups.values():
            group.config = config

    def _revive(self, group_id: str, step: Step) -> None:
        """Out of what is durable of it. Its members have a whole session to be heard from."""
        value = self._metadata.get(group_id)
        if value is not None:
            group = ClassicGroup.stored(group_id, self._config, value)
        elif self.offsets.knows(group_id):
            group = ClassicGroup(group_id, self._config)
        else:
            return
        self._groups[group_id] = group
        for member in group.members.values():
            rebalance.begin_session(group, member, step)
        if len(group.members) > self._config.group_max_size:
            rebalance.prepare_rebalance(group, step, "it is larger than allowed")

    # What another partition has, see kbroker.takeover

    def ids(self) -> Iterable[str]:
        return dict.fromkeys([*self._metadata, *self.offsets.group_ids()])

    def knows(self, group_id: str) -> bool:
        return group_id in self._metadata or self.offsets.knows(group_id)

    def take_over(self, group_id: str, other: Self, now_ms: int) -> Step | None:
        """Some of what is missing here; at the end the group comes to life. What is pending is waited for.

        A group with members here has begun anew: only the offsets of the old one count.
        """
        if other.offsets.has_pending(group_id):
            return None
        step = Step(now_ms)
        group, theirs = self._groups.get(group_id), other._metadata.get(group_id)
        has_members = group is not None and bool(group.members or group.pending_joins)
        if theirs is not None and group_id not in self._metadata and not has_members:
            step.append(GroupMetadataKey(group=group_id), theirs, rebalance.METADATA_VERSION)
        self.offsets.take_over(group_id, other.offsets, AT_ONCE, step)
        if not step.records and not has_members:
            self._revive(group_id, step)
        return step

    def give_up(self, group_id: str, now_ms: int) -> Step:
        step = Step(now_ms)
        self.offsets.delete_group(group_id, step)
        step.append(GroupMetadataKey(group=group_id), None)
        return step

    def _abandon(self, group: ClassicGroup, step: Step) -> None:
        for member_id in [*group.members, *group.pending_joins]:
            step.cancel(rebalance.session_key(group, member_id))
        step.cancel(rebalance.sync_key(group))
        step.note(f"group {group.group_id!r} goes back to its last durable state")

    # Membership

    def join_group(
        self, request: JoinGroupRequest, context: RequestContext, token: Token, now_ms: int
    ) -> Step:
        step = Step(now_ms)
        group = self._groups.get(request.group_id)
        error = self._check_join(request, group)
        if error != ErrorCode.NONE:
            step.reply(token, join_refused(error, request.member_id))
            return step
        group = group or ClassicGroup(request.group_id, self._config)
        join(group, Joiner.of(request, context, token), self._new_member_id, step)
        if group.members or group.pending_joins:
            self._groups[request.group_id] = group
        return step

    def _check_join(self, request: JoinGroupRequest, group: ClassicGroup | None) -> ErrorCode:
        config = self._config
        timeout_ms = request.session_timeout_ms
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if len({protocol.name for protocol in request.protocols}) < len(request.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group is None and request.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def sync_group(
        self, request: SyncGroupRequest, context: RequestContext, token: Token, now_ms: int
    ) -> Step:
        step = Step(now_ms)
        group = self._groups.get(request.group_id)
        if context.api_version >= PROTOCOL_NAMED_SINCE and not names_protocol(request):
            step.reply(token, sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif not request.group_id:
            step.reply(token, sync_refused(ErrorCode.INVALID_GROUP_ID))
        elif group is None:
            step.reply(token, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            rebalance.sync(group, request, token, step)
        return step

    def heartbeat(self, request: HeartbeatRequest, token: Token, now_ms: int) -> Step:
        step = Step(now_ms)
        step.reply(token, HeartbeatResponse(error_code=self._heartbeat(request, step)))
        return step

    def _heartbeat(self, request: HeartbeatRequest, step: Step) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member_of(request.generation_id, request.member_id, request.group_instance_id)
        if error != ErrorCode.NONE:
            return error
        rebalance.begin_session(group, group.members[request.member_id], step)
        return group.answers.heartbeat

    def leave_group(
        self, request: LeaveGroupRequest, context: RequestContext, token: Token, now_ms: int
    ) -> Step:
        step = Step(now_ms)
        if request.group_id:
            response = leave(self._groups.get(request.group_id), request, context, step)
        else:
            response = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        step.reply(token, response)
        return step

    def on_timer(self, key: TimerKey, now_ms: int) -> Step:
        """A deadline that a Step set has passed. Of a group that is gone, nothing comes of it."""
        step = Step(now_ms)
        group = self._groups.get(key.group_id)
        if key == EXPIRATION:
            self._expire(step)
        elif key == DELETION:
            self._clear(step)
        elif group is None:
            pass
        elif key.kind == rebalance.SESSION:
            rebalance.on_session_end(group, key.member_id, step)
        elif key.kind == rebalance.JOIN:
            rebalance.on_join_deadline(group, step)
        else:
            rebalance.on_sync_deadline(group, step)
        return step

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, context: RequestContext, token: Token, now_ms: int
    ) -> Step:
        """The handler has resolved topic ids, and keeps topics that do not exist for itself."""
        step = Step(now_ms)
        error = self._check_commit(request, context.api_version, step)
        max_bytes = self._config.offset_metadata_max_bytes
        step.reply(token, self.offsets.commit(request, error, max_bytes, step))
        return step

    def _check_commit(self, request: OffsetCommitRequest, api_version: int, step: Step) -> ErrorCode:
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                return ErrorCode.NONE
            is_known_error = api_version >= GROUP_ID_NOT_FOUND_SINCE_COMMIT
            return ErrorCode.GROUP_ID_NOT_FOUND if is_known_error else ErrorCode.ILLEGAL_GENERATION
        error = group.check_commit(
            generation, request.member_id, request.group_instance_id, in_transaction=False
        )
        member = group.members.get(request.member_id)
        if error == ErrorCode.NONE and member is not None:
            rebalance.begin_session(group, member, step)
        return error

    def commit_offsets_in_transaction(
        self, request: TxnOffsetCommitRequest, token: Token, now_ms: int
    ) -> Step:
        """The records go into a transactional batch of the request's producer; the log checks its epoch."""
        step = Step(now_ms)
        error = self._check_commit_in_transaction(request)
        max_bytes = self._config.offset_metadata_max_bytes
        step.reply(token, self.offsets.commit_in_transaction(request, error, max_bytes, step))
        return step

    def _check_commit_in_transaction(self, request: TxnOffsetCommitRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        return group.check_commit(
            generation, request.member_id, request.group_instance_id, in_transaction=True
        )

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        """To be held back like the reply of a Step."""
        return self.offsets.fetch(request, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, token: Token, now_ms: int) -> Step:
        step = Step(now_ms)
        group = self._groups.get(request.group_id)
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            error = group.check_delete_offsets()
        if group is not None and error == ErrorCode.NONE:
            step.reply(token, self.offsets.delete(request, group.is_subscribed_to, step))
        else:
            step.reply(token, OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=[]))
        return step

    def delete_topics(self, topics: Collection[str], now_ms: int) -> Step:
        """These topics are gone, and so are all offsets in them, some at a time.

        What is committed from now on belongs to another topic of the same name.
        """
        self._deleted_topics |= dict.fromkeys(topics, self.offsets.end_offset)
        self._to_clear |= dict.fromkeys(self.offsets.group_ids())
        step = Step(now_ms)
        self._clear(step)
        return step

    def _clear(self, step: Step) -> None:
        """The last round finds nothing to do: what was refused in one before it is back by then."""
        if not self._to_clear:
            self._deleted_topics.clear()
            return
        seen = 0
        while self._to_clear and seen < AT_ONCE:
            group_id = next(iter(self._to_clear))
            del self._to_clear[group_id]
            seen += self.offsets.delete_topics(group_id, self._deleted_topics, step)
        step.schedule(DELETION, 0)

    def _expire(self, step: Step) -> None:
        """Drop what is out of date, and then empty groups that have nothing left; some groups at a time."""
        if not self._to_expire:
            self._to_expire = list(self._groups)
        seen = 0
        while self._to_expire and seen < AT_ONCE:
            group = self._groups.get(self._to_expire.pop())
            if group is not None:
                seen += 1 + self.offsets.count(group.group_id)
                self._expire_group(group, step)
        interval_ms = self._config.offsets_retention_check_interval_ms
        step.schedule(EXPIRATION, 0 if self._to_expire else interval_ms)

    def _expire_group(self, group: ClassicGroup, step: Step) -> None:
        retention_ms = self._config.offsets_retention_ms
        nothing_left = self.offsets.expire(group.group_id, group.retention_begins, retention_ms, step)
        if nothing_left and group.state == State.EMPTY:
            step.append(GroupMetadataKey(group=group.group_id), None)

    # Administration

    def delete_groups(self, group_ids: Iterable[str], token: Token, now_ms: int) -> Step:
        step = Step(now_ms)
        results = [
            DeletableGroupResult(group_id=group_id, error_code=self._delete_group(group_id, step))
            for group_id in dict.fromkeys(group_ids)
        ]
        step.reply(token, DeleteGroupsResponse(throttle_time_ms=0, results=results))
        return step

    def _delete_group(self, group_id: str, step: Step) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        error = group.answers.delete_group
        if error == ErrorCode.NONE:
            self.offsets.delete_group(group_id, step)
            step.append(GroupMetadataKey(group=group_id), None)
        return error

    def describe_group(self, group_id: str, context: RequestContext) -> DescribedGroup:
        """To be held back like the reply of a Step. Subscriptions are shown once they count."""
        group = self._groups.get(group_id)
        if group is None:
            return _describe_nothing(group_id, context)
        protocol_name = group.protocol_name if group.state == State.STABLE else None
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.subscription(protocol_name) if protocol_name else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def list_groups(self, states_filter: Iterable[str], types_filter: Iterable[str]) -> list[ListedGroup]:
        """To be held back like the reply of a Step. No filter is no restriction."""
        states = {state.strip().lower() for state in states_filter}
        types = {group_type.lower() for group_type in types_filter}
        if types and CLASSIC not in types:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state,
                group_type=CLASSIC,
            )
            for group in self._groups.values()
            if not states or group.state.lower() in states
        ]


def names_protocol(request: SyncGroupRequest) -> bool:
    return request.protocol_type is not None and request.protocol_name is not None


def _describe_nothing(group_id: str, context: RequestContext) -> DescribedGroup:
    is_error = context.api_version >= GROUP_ID_NOT_FOUND_SINCE_DESCRIBE
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
        error_message=f"Group {group_id:.1000} not found." if is_error else None,
        group_id=group_id,
        group_state=State.DEAD,
        protocol_type="",
        protocol_data="",
        members=[],
    )
