"""What tests see of a broker. Values, but for `Group`, which asks the broker each time.

Imports nothing of the protocol: these cross from the broker's process into that of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

TopicPartition = tuple[str, int]


class Member(NamedTuple):
    """One member of a group, and the partitions it is to read."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupState(NamedTuple):
    """A group at one moment; one that nobody has heard of has no state and no lag."""

    state: str | None = None
    members: tuple[Member, ...] = ()
    offsets: dict[TopicPartition, int] = {}  # noqa: RUF012 -- of a NamedTuple, and nobody changes it
    lag: int | None = None


class Group:
    """A consumer group, as it is whenever one of its properties is read."""

    def __init__(self, name: str, ask: Callable[[str], GroupState]) -> None:
        self.name = name
        self._ask = ask

    @property
    def state(self) -> str | None:
        """Kafka's word, such as Stable or Empty; None if there is no such group."""
        return self._ask("state").state

    @property
    def members(self) -> tuple[Member, ...]:
        return self._ask("members").members

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """What the group has committed, by topic and partition."""
        return self._ask("offsets").offsets

    @property
    def lag(self) -> int | None:
        """How many records are still to be read, over all partitions that the group has committed to or that
        its members are assigned; None while there are none of either, so that it is never 0 too early."""
        return self._ask("lag").lag
