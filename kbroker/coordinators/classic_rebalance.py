"""How a classic group gets from one generation to the next, and how it loses members.

The way round: `prepare_rebalance` has everybody join; when all have, or their time is up, `complete_join`
begins a generation; `sync` hands out what its leader assigned. Decisions go into the Step.

Timers, all keyed by the group: one per member (its session, or for a member that waits for its first
generation five minutes), one for the end of the join phase, one for the end of the sync phase.

- A member's silence does not count while a request of it is parked; its session begins anew when that is
  answered. The first join is the exception: whoever gives up on it comes back as somebody else.
- The first rebalance after Empty is held back, for as long as newcomers keep coming, at most for the
  rebalance timeout. Members cannot cut it short, neither by leaving nor by dying.
- Static members that did not rejoin in time keep their place; it is their session that ends it.
- A request parked twice for one member (the client gave up on the first and sent it again) is answered once
  from each side: the older one gets REBALANCE_IN_PROGRESS. Kafka never answers it.
- An id that was handed out and is given back before it was used changes nothing for a stable group. Kafka
  rebalances.
"""

from __future__ import annotations

from kbroker.coordinators.classic_group import ClassicGroup
from kbroker.coordinators.classic_member import Member
from kbroker.coordinators.classic_states import State
from kbroker.coordinators.refusals import join_refused, sync_refused
from kbroker.coordinators.step import Step, TimerKey, Token
from wire.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from wire.errors import ErrorCode
from wire.internal.offsets_and_groups import GroupMetadataKey
from wire.words import count

SESSION = "session"
JOIN = "join"
SYNC = "sync"

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
METADATA_VERSION = 3


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return TimerKey(SESSION, group.group_id, member_id)


def join_key(group: ClassicGroup) -> TimerKey:
    return TimerKey(JOIN, group.group_id)


def sync_key(group: ClassicGroup) -> TimerKey:
    return TimerKey(SYNC, group.group_id)


def begin_session(group: ClassicGroup, member: Member, step: Step) -> None:
    """The member was heard from."""
    step.schedule(session_key(group, member.member_id), member.session_timeout_ms)


# The join phase


def rebalance_or_complete(group: ClassicGroup, step: Step, reason: str) -> None:
    """Something about the members has changed: start over, or go on if the join phase is under way."""
    if group.state == State.PREPARING_REBALANCE:
        complete_join_if_possible(group, step)
    else:
        prepare_rebalance(group, step, reason)


def prepare_rebalance(group: ClassicGroup, step: Step, reason: str) -> None:
    """From any state but PreparingRebalance."""
    step.note(f"group {group.group_id!r} at generation {group.generation} rebalances: {reason}")
    _end_sync_phase(group, step)
    was_empty = group.state == State.EMPTY
    group.move_to(State.PREPARING_REBALANCE, step.now_ms)
    if was_empty:
        _hold_back(group, step)
    elif group.has_everybody_joined:
        complete_join(group, step)
    else:
        step.schedule(join_key(group), group.rebalance_timeout_ms)


def complete_join_if_possible(group: ClassicGroup, step: Step) -> None:
    if (
        group.state == State.PREPARING_REBALANCE
        and group.initial_rebalance_until_ms is None
        and group.has_everybody_joined
    ):
        complete_join(group, step)


def complete_join(group: ClassicGroup, step: Step) -> None:
    """Begin a generation with those who have joined."""
    step.cancel(join_key(group))
    for member in [member for member in group.members.values() if member.join_token is None]:
        if member.instance_id is None:
            drop_member(group, member, step, "it did not rejoin in time")
    if group.members and not group.ensure_leader_has_joined():
        step.schedule(join_key(group), group.rebalance_timeout_ms)
        return
    group.begin_generation(step.now_ms)
    if group.state == State.EMPTY:
        store(group, step)
        step.note(f"group {group.group_id!r} at generation {group.generation} is empty")
    else:
        _announce_generation(group, step)


def on_join_deadline(group: ClassicGroup, step: Step) -> None:
    if group.state != State.PREPARING_REBALANCE:
        return
    until_ms = group.initial_rebalance_until_ms
    if until_ms is not None and group.has_newcomers and step.now_ms < until_ms:
        group.has_newcomers = False
        delay_ms = min(group.config.group_initial_rebalance_delay_ms, until_ms - step.now_ms)
        step.schedule(join_key(group), delay_ms)
    else:
        complete_join(group, step)


def _hold_back(group: ClassicGroup, step: Step) -> None:
    delay_ms = group.config.group_initial_rebalance_delay_ms
    if delay_ms == 0:
        complete_join(group, step)
    else:
        group.initial_rebalance_until_ms = step.now_ms + group.rebalance_timeout_ms
        step.schedule(join_key(group), delay_ms)


def _announce_generation(group: ClassicGroup, step: Step) -> None:
    for member in group.members.values():
        member.is_new = False
        begin_session(group, member, step)
        token = group.take_join_token(member)
        if token is not None:
            step.reply(token, generation_for(group, member))
    step.schedule(sync_key(group), group.rebalance_timeout_ms)
    step.note(
        f"group {group.group_id!r} begins generation {group.generation} with"
        f" {count(len(group.members), 'member')},"
        f" led by {group.leader!r}"
    )


def generation_for(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """What a member learns of the generation: the leader, who is in it; the others, that they are."""
    members: list[JoinGroupResponseMember] = []
    if member.member_id == group.leader:
        members = [
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.instance_id,
                metadata=other.subscription(group.protocol_name),
            )
            for other in group.members.values()
        ]
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.member_id,
        members=members,
    )


def park_join(group: ClassicGroup, member: Member, token: Token, step: Step) -> None:
    older = group.take_join_token(member)
    if older is not None:
        step.reply(older, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.park_join(member, token)


# The sync phase


def sync(group: ClassicGroup, request: SyncGroupRequest, token: Token, step: Step) -> None:
    error = _check_sync(group, request)
    if error != ErrorCode.NONE:
        step.reply(token, sync_refused(error))
        return
    member = group.members[request.member_id]
    _note_sync(group, member, step)
    if group.state == State.STABLE:
        step.reply(token, assignment_for(group, member))
        return
    if member.sync_token is not None:
        step.reply(member.sync_token, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_token = token
    if member.member_id == group.leader:
        _assign(group, request, step)


def assignment_for(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def on_sync_deadline(group: ClassicGroup, step: Step) -> None:
    if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_syncs:
        return
    late = [member for member in group.members.values() if member.member_id in group.pending_syncs]
    for member in late:
        drop_member(group, member, step, "it did not sync in time")
    prepare_rebalance(group, step, f"{count(len(late), 'member')} did not sync in time")


def store(group: ClassicGroup, step: Step) -> None:
    step.append(GroupMetadataKey(group=group.group_id), group.metadata(), METADATA_VERSION)


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    error = group.check_member_of(request.generation_id, request.member_id, request.group_instance_id)
    if error != ErrorCode.NONE:
        return error
    for said, known in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and known is not None and said != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return group.answers.sync


def _note_sync(group: ClassicGroup, member: Member, step: Step) -> None:
    if member.member_id in group.pending_syncs:
        group.pending_syncs.remove(member.member_id)
        if not group.pending_syncs:
            step.cancel(sync_key(group))


def _assign(group: ClassicGroup, request: SyncGroupRequest, step: Step) -> None:
    """The leader has spoken. Members that it gave nothing get an empty assignment."""
    assignments = {given.member_id: given.assignment for given in request.assignments}
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    group.move_to(State.STABLE, step.now_ms)
    store(group, step)
    for member in group.members.values():
        if member.sync_token is not None:
            step.reply(member.sync_token, assignment_for(group, member))
            member.sync_token = None
            begin_session(group, member, step)


def _end_sync_phase(group: ClassicGroup, step: Step) -> None:
    """Whoever waits for an assignment has to join again; what was assigned before is void by now."""
    for member in group.members.values():
        if group.state == State.COMPLETING_REBALANCE:
            member.assignment = b""
        if member.sync_token is not None:
            step.reply(member.sync_token, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_token = None
            begin_session(group, member, step)
    group.pending_syncs.clear()
    step.cancel(sync_key(group))


# Losing members


def drop_member(group: ClassicGroup, member: Member, step: Step, why: str) -> None:
    """Without what has to follow. If it still waits for us, it learns that it has to begin anew."""
    step.note(f"group {group.group_id!r} loses {member.member_id!r}: {why}")
    step.cancel(session_key(group, member.member_id))
    answer_parked(group, member, step, ErrorCode.UNKNOWN_MEMBER_ID, tell_member_id=False)
    group.remove(member)


def drop_pending_join(group: ClassicGroup, member_id: str, step: Step) -> None:
    """Without what has to follow."""
    step.cancel(session_key(group, member_id))
    group.pending_joins.discard(member_id)


def answer_parked(
    group: ClassicGroup, member: Member, step: Step, error: ErrorCode, *, tell_member_id: bool = True
) -> None:
    """Answer what is parked of this member with an error."""
    token = group.take_join_token(member)
    if token is not None:
        step.reply(token, join_refused(error, member.member_id if tell_member_id else ""))
    if member.sync_token is not None:
        step.reply(member.sync_token, sync_refused(error))
        member.sync_token = None


def on_session_end(group: ClassicGroup, member_id: str, step: Step) -> None:
    if member_id in group.pending_joins:
        drop_pending_join(group, member_id, step)
        complete_join_if_possible(group, step)
        return
    member = group.members.get(member_id)
    if member is None or member.is_waiting_for_the_group:
        return
    drop_member(group, member, step, "its session has ended")
    rebalance_or_complete(group, step, f"the session of {member_id!r} has ended")
