"""One classic group: its members, its generation, and the protocol they agreed on. No requests, no timers.

Rules:
- `members` is empty in the state Empty, and in no other but PreparingRebalance. All members have one protocol
  type, and at least one protocol that all of them know.
- A group with members has a leader, which is one of them. A generation begins with a leader that has joined.
- A static member is known by its instance id; `static_members` says which member id that is at present.
- Member ids that were handed out but not used yet (`pending_joins`) are no members.
- In the state Stable, `metadata()` is what the last GroupMetadata record of the group says. Everything else
  here is lost with the process, and that is harmless: clients rejoin.

The counts over protocols and waiting members are there so that a join does not look at every member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from kbroker.coordinators.classic_member import Member
from kbroker.coordinators.classic_states import ANSWERS, TRANSITIONS, Answers, State
from kbroker.coordinators.step import Token
from wire.codec import decode
from wire.errors import ErrorCode, WireError
from wire.internal.consumer_protocol import ConsumerProtocolSubscription
from wire.internal.offsets_and_groups import GroupMetadataValue

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupConfig(NamedTuple):
    """What groups take from the broker's configuration, under Kafka's names and with its defaults."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000


class ClassicGroup:
    """The state that decisions are made on."""

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = State.EMPTY
        self.state_since_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: set[str] = set()
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self.initial_rebalance_until_ms: int | None = None
        """Set while the first rebalance after Empty is held back, so that more members can come."""
        self.has_newcomers = False
        """Somebody has joined since that delay was last set."""
        self.subscribed_topics: frozenset[str] | None = None
        self._members_that_joined = 0
        self._protocol_counts: Counter[str] = Counter()

    @classmethod
    def stored(cls, group_id: str, config: GroupConfig, value: GroupMetadataValue) -> ClassicGroup:
        """The group that a GroupMetadata record describes."""
        group = cls(group_id, config)
        group.generation = value.generation
        group.protocol_name = value.protocol
        group.leader = value.leader
        for metadata in value.members:
            group.add(Member.stored(metadata, value.protocol), value.protocol_type)
        group.protocol_type = value.protocol_type or None
        group.state = State.STABLE if group.members else State.EMPTY
        group.state_since_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        group.subscribed_topics = group._find_subscribed_topics()
        return group

    @property
    def answers(self) -> Answers:
        """What requests are told in this state."""
        return ANSWERS[self.state]

    def move_to(self, state: State, now_ms: int | None) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"group {self.group_id!r} cannot go from {self.state} to {state}")
        self.state = state
        self.state_since_ms = now_ms

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._protocol_counts.update(member.protocols.keys())
        self.pending_joins.discard(member.member_id)

    def remove(self, member: Member) -> None:
        """Its tokens must have been taken."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self._protocol_counts.subtract(member.protocols.keys())
        self.pending_syncs.discard(member.member_id)

    def update(
        self, member: Member, protocols: dict[str, bytes], session_timeout_ms: int, rebalance_timeout_ms: int
    ) -> None:
        self._protocol_counts.subtract(member.protocols.keys())
        self._protocol_counts.update(protocols.keys())
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def rename(self, member: Member, new_member_id: str) -> None:
        """A static member has come back and has got a new id. All else about it stays."""
        old_member_id = member.member_id
        del self.members[old_member_id]
        member.member_id = new_member_id
        self.members[new_member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        if old_member_id in self.pending_syncs:
            self.pending_syncs.remove(old_member_id)
            self.pending_syncs.add(new_member_id)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is who it says it is; NONE if so."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_member_of(self, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        error = self.check_member(member_id, instance_id)
        if error == ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def check_commit(
        self, generation: int, member_id: str, instance_id: str | None, *, in_transaction: bool
    ) -> ErrorCode:
        """Whoever names no generation may commit while there are no members.

        Within a transaction the member need not be named (before version 3 it could not be), and the state of
        the group does not matter.
        """
        if generation < 0 and self.state == State.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            error = self.check_member_of(generation, member_id, instance_id)
            if error != ErrorCode.NONE:
                return error
        elif not in_transaction:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if in_transaction else self.answers.commit

    def check_delete_offsets(self) -> ErrorCode:
        """Of groups with members, only consumers tell which topics they do not read."""
        return ErrorCode.NONE if self.uses_consumer_protocol else self.answers.delete_group

    def has_room_for(self, member_id: str) -> bool:
        """Nobody is turned away from an empty group; in a full one, who is in stays in.

        While a rebalance is prepared only those who have joined count. That way a group that is larger than
        allowed (the limit was lowered) loses those who come last.
        """
        if self.state == State.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state == State.PREPARING_REBALANCE:
            has_joined = member is not None and member.join_token is not None
            return has_joined or self._members_that_joined < self.config.group_max_size
        return member is not None or len(self.members) < self.config.group_max_size

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member's."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Who has joined

    def park_join(self, member: Member, token: Token) -> None:
        """The member must not have one parked."""
        member.join_token = token
        self._members_that_joined += 1

    def take_join_token(self, member: Member) -> Token | None:
        token, member.join_token = member.join_token, None
        if token is not None:
            self._members_that_joined -= 1
        return token

    @property
    def has_everybody_joined(self) -> bool:
        return self._members_that_joined == len(self.members) and not self.pending_joins

    def ensure_leader_has_joined(self) -> bool:
        """Choose another leader if need be. False if no member has joined."""
        joined = [member.member_id for member in self.members.values() if member.join_token is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    # Protocols

    def supports(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """Whether somebody with these protocols fits in."""
        if self.state == State.EMPTY:
            return bool(protocol_type) and any(True for _ in protocol_names)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts[name] == len(self.members) for name in protocol_names
        )

    def select_protocol(self) -> str | None:
        """Of those that every member knows, the one that most members like best."""
        candidates = {name for name, count in self._protocol_counts.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0] if votes else None

    def begin_generation(self, now_ms: int) -> None:
        """With the members that there are; without any, the group is empty from here on."""
        self.generation += 1
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self._find_subscribed_topics()
        self.pending_syncs = set(self.members)
        self.initial_rebalance_until_ms = None
        self.has_newcomers = False
        self.move_to(State.COMPLETING_REBALANCE if self.members else State.EMPTY, now_ms)

    # Topics: the only place that looks into a subscription

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """A group of consumers whose subscriptions cannot be read may be subscribed to anything."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def retention_begins(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """From when on a committed offset's retention counts; None if it is not to be dropped now."""
        if self.is_subscribed_to(topic):
            return None
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state == State.EMPTY:
            return commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        if self.state == State.STABLE and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        """None if that cannot be known. Every version of a subscription begins as version 0 does."""
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                subscription = member.subscription(self.protocol_name)
                topics.update(decode(ConsumerProtocolSubscription, subscription[2:], 0).topics)
        except WireError:
            return None
        return frozenset(topics)

    def metadata(self) -> GroupMetadataValue:
        """As it is stored."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[member.metadata(self.protocol_name) for member in self.members.values()],
        )
