"""LeaveGroup on a classic group: several members at once, by member id, instance id, or both.

An administrator removes a static member by its instance id alone. The others are told to join again once,
however many have left.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.coordinators.classic_group import ClassicGroup
from kbroker.coordinators.classic_join import readable
from kbroker.coordinators.classic_rebalance import (
    complete_join_if_possible,
    drop_member,
    drop_pending_join,
    rebalance_or_complete,
)
from kbroker.coordinators.step import RequestContext, Step
from wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from wire.errors import ErrorCode
from wire.words import count

SEVERAL_SINCE = 3


def leave(
    group: ClassicGroup | None, request: LeaveGroupRequest, context: RequestContext, step: Step
) -> LeaveGroupResponse:
    """From a group that does not exist nobody can leave."""
    identities = leaving(request, context.api_version)
    if group is None:
        errors = [ErrorCode.UNKNOWN_MEMBER_ID for _ in identities]
    else:
        errors = _leave_all(group, identities, step)
    if context.api_version < SEVERAL_SINCE:
        return LeaveGroupResponse(error_code=errors[0])
    answers = [
        MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
        )
        for identity, error in zip(identities, errors, strict=True)
    ]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers)


def leaving(request: LeaveGroupRequest, api_version: int) -> list[MemberIdentity]:
    if api_version < SEVERAL_SINCE:
        return [MemberIdentity(member_id=request.member_id)]
    return request.members


def _leave_all(group: ClassicGroup, identities: Iterable[MemberIdentity], step: Step) -> list[ErrorCode]:
    members_before = len(group.members)
    errors = [_leave_one(group, identity, step) for identity in identities]
    if left := members_before - len(group.members):
        rebalance_or_complete(group, step, f"{count(left, 'member')} left")
    else:
        complete_join_if_possible(group, step)
    return errors


def _leave_one(group: ClassicGroup, identity: MemberIdentity, step: Step) -> ErrorCode:
    member_id = identity.member_id
    if member_id in group.pending_joins:
        drop_pending_join(group, member_id, step)
        return ErrorCode.NONE
    if member_id == "" and identity.group_instance_id is not None:
        member_id = group.static_members.get(identity.group_instance_id, "")
    error = group.check_member(member_id, identity.group_instance_id)
    if error == ErrorCode.NONE:
        reason = f"it has left (its reason: {readable(identity.reason)})"
        drop_member(group, group.members[member_id], step, reason)
    return error
