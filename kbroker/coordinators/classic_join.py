"""JoinGroup on a classic group: who may come in, as whom, and whether that disturbs the others.

- Without a member id: before version 4 in at once; since then the id comes with MEMBER_ID_REQUIRED, and the
  client joins again with it. With an instance id in at once, and if a member of that instance is there, in
  its place: the older one is fenced.
- A static member that comes back to a stable group gets the current generation, and nobody else notices,
  unless another protocol would be chosen now. It learns who leads only as far as its version knows what to do
  with that: since 9 a leader gets the members and is told to skip the assignment; before that it is given the
  id it had as the leader's, so that it takes itself for a follower.
- A follower that joins a stable group again with the same protocols gets the current generation; a leader, or
  one with other protocols, makes the group rebalance.
- A protocol named twice is INCONSISTENT_GROUP_PROTOCOL. Kafka never answers that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kbroker.coordinators.classic_group import ClassicGroup
from kbroker.coordinators.classic_member import Member
from kbroker.coordinators.classic_rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    answer_parked,
    begin_session,
    complete_join_if_possible,
    drop_member,
    drop_pending_join,
    generation_for,
    park_join,
    rebalance_or_complete,
    session_key,
    store,
)
from kbroker.coordinators.classic_states import State
from kbroker.coordinators.refusals import join_refused
from kbroker.coordinators.step import RequestContext, Step, Token
from wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from wire.errors import ErrorCode

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
REASON_CHARACTERS = 255

NewMemberId = Callable[[str], str]
"""Makes a member id that was never used before, out of a client id or an instance id."""


class Joiner(NamedTuple):
    """A JoinGroup request, with what its version left open filled in."""

    token: Token
    api_version: int
    client_id: str
    client_host: str
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: dict[str, bytes]
    reason: str

    @classmethod
    def of(cls, request: JoinGroupRequest, context: RequestContext, token: Token) -> Joiner:
        """The protocols must be told apart by name."""
        version = context.api_version
        return cls(
            token=token,
            api_version=version,
            client_id=context.client_id or "",
            client_host=context.client_host,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols={protocol.name: protocol.metadata for protocol in request.protocols},
            reason=readable(request.reason),
        )


def readable(reason: str | None) -> str:
    """A client's reason as it may stand in a log."""
    return repr(reason[:REASON_CHARACTERS]) if reason else "not given"


def join(group: ClassicGroup, joiner: Joiner, new_member_id: NewMemberId, step: Step) -> None:
    """The member id is empty, or the group exists already."""
    if not group.has_room_for(joiner.member_id):
        _turn_away(group, joiner, step)
    elif not group.supports(joiner.protocol_type, joiner.protocols):
        step.reply(joiner.token, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, joiner.member_id))
    elif joiner.member_id == "":
        prefix = joiner.client_id if joiner.instance_id is None else joiner.instance_id
        _join_anew(group, joiner, new_member_id(prefix), step)
    elif joiner.member_id in group.pending_joins and joiner.instance_id is None:
        _admit(group, joiner, joiner.member_id, step)
    else:
        _rejoin(group, joiner, step)


def _turn_away(group: ClassicGroup, joiner: Joiner, step: Step) -> None:
    """A member that was in loses its place; that may be what the others wait for."""
    step.reply(joiner.token, join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED))
    member = group.members.get(joiner.member_id)
    if member is not None:
        drop_member(group, member, step, "the group is full")
    elif joiner.member_id in group.pending_joins:
        drop_pending_join(group, joiner.member_id, step)
    complete_join_if_possible(group, step)


def _join_anew(group: ClassicGroup, joiner: Joiner, member_id: str, step: Step) -> None:
    if joiner.instance_id is not None:
        current = group.static_members.get(joiner.instance_id)
        if current is not None:
            _take_over(group, joiner, group.members[current], member_id, step)
        else:
            _admit(group, joiner, member_id, step)
    elif joiner.api_version >= MEMBER_ID_REQUIRED_SINCE:
        group.pending_joins.add(member_id)
        step.schedule(session_key(group, member_id), joiner.session_timeout_ms)
        step.reply(joiner.token, join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _admit(group, joiner, member_id, step)


def _admit(group: ClassicGroup, joiner: Joiner, member_id: str, step: Step) -> None:
    """A member that was not in the group before."""
    member = Member(
        member_id=member_id,
        instance_id=joiner.instance_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        session_timeout_ms=joiner.session_timeout_ms,
        protocols=joiner.protocols,
        is_new=True,
    )
    group.add(member, joiner.protocol_type)
    group.has_newcomers = group.initial_rebalance_until_ms is not None
    park_join(group, member, joiner.token, step)
    step.schedule(session_key(group, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete(group, step, f"{member_id!r} joins (its reason: {joiner.reason})")


def _rejoin(group: ClassicGroup, joiner: Joiner, step: Step) -> None:
    error = group.check_member(joiner.member_id, joiner.instance_id)
    if error != ErrorCode.NONE:
        step.reply(joiner.token, join_refused(error, joiner.member_id))
        return
    member = group.members[joiner.member_id]
    if _changes_nothing(group, member, joiner):
        step.reply(joiner.token, generation_for(group, member))
        return
    group.update(member, joiner.protocols, joiner.session_timeout_ms, joiner.rebalance_timeout_ms)
    park_join(group, member, joiner.token, step)
    rebalance_or_complete(group, step, f"{member.member_id!r} rejoins (its reason: {joiner.reason})")


def _changes_nothing(group: ClassicGroup, member: Member, joiner: Joiner) -> bool:
    """Then it may have missed the last answer. A leader of a stable group knows why it comes."""
    if group.state == State.STABLE and member.member_id == group.leader:
        return False
    settled = group.state in (State.COMPLETING_REBALANCE, State.STABLE)
    return settled and member.says_the_same(joiner.protocols)


def _take_over(group: ClassicGroup, joiner: Joiner, member: Member, new_member_id: str, step: Step) -> None:
    """A static member is back, under a new id."""
    former_leader = group.leader
    answer_parked(group, member, step, ErrorCode.FENCED_INSTANCE_ID)
    step.cancel(session_key(group, member.member_id))
    step.note(f"group {group.group_id!r}: {new_member_id!r} takes the place of {member.member_id!r}")
    group.rename(member, new_member_id)
    member.is_new = False
    group.update(member, joiner.protocols, joiner.session_timeout_ms, joiner.rebalance_timeout_ms)
    begin_session(group, member, step)
    if group.state == State.STABLE and group.select_protocol() == group.protocol_name:
        store(group, step)
        step.reply(joiner.token, _current_generation(group, member, joiner, former_leader))
        return
    park_join(group, member, joiner.token, step)
    rebalance_or_complete(group, step, f"{new_member_id!r} is back (its reason: {joiner.reason})")


def _current_generation(
    group: ClassicGroup, member: Member, joiner: Joiner, former_leader: str | None
) -> JoinGroupResponse:
    response = generation_for(group, member)
    if member.member_id == group.leader and joiner.api_version >= SKIP_ASSIGNMENT_SINCE:
        response.skip_assignment = True
    elif member.member_id == group.leader:
        response.leader = former_leader or ""
        response.members = []
    return response
