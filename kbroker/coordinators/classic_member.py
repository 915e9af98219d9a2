"""A member of a classic group: what it said of itself, what it was given, and which request of it is parked.

At most one JoinGroup and one SyncGroup of a member are parked at a time, and never both. Subscriptions and
assignments are bytes that nobody here looks into.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kbroker.coordinators.step import Token
from wire.internal.offsets_and_groups import MemberMetadata


@dataclass(slots=True, eq=False)
class Member:
    """Mutable; belongs to one ClassicGroup, which keeps counts over its members and so makes the changes."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """Protocol name -> subscription, the one it likes best first."""
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False
    """Waits for its first generation. It cannot send heartbeats: it does not know its generation yet."""

    @property
    def is_waiting_for_the_group(self) -> bool:
        """Then it is the group that it waits for, and not its silence that counts against it."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def says_the_same(self, protocols: dict[str, bytes]) -> bool:
        """In the same order, too, since that is a vote."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Collection[str]) -> str | None:
        return next((name for name in self.protocols if name in candidates), None)

    def subscription(self, protocol_name: str | None) -> bytes:
        return self.protocols.get(protocol_name or "", b"")

    def metadata(self, protocol_name: str | None) -> MemberMetadata:
        """As it is stored."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.subscription(protocol_name),
            assignment=self.assignment,
        )

    @classmethod
    def stored(cls, metadata: MemberMetadata, protocol_name: str | None) -> Member:
        """Of its protocols only the one in use was stored."""
        rebalance_timeout_ms = metadata.rebalance_timeout
        if rebalance_timeout_ms == -1:
            rebalance_timeout_ms = metadata.session_timeout
        return cls(
            member_id=metadata.member_id,
            instance_id=metadata.group_instance_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=metadata.session_timeout,
            protocols={protocol_name or "": metadata.subscription},
            assignment=metadata.assignment,
        )
