"""Members of a group as tests use them: each remembers what it was told, as a real client does."""

from __future__ import annotations

from typing import Any

from tests.kbroker.coordinators.driver import Asked, Driver
from tests.kbroker.coordinators.requests import RANGE, commit, heartbeat, join, leave, sync
from wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest
from wire.api.join_group import JoinGroupRequestProtocol
from wire.errors import ErrorCode

GROUP = "readers"


class Client:
    """One member, dynamic unless it has an instance id."""

    def __init__(
        self,
        driver: Driver,
        name: str = "client",
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: list[JoinGroupRequestProtocol] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 20_000,
    ) -> None:
        self.driver = driver
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self._member_id = ""
        self._generation = -1
        self._joining: Asked | None = None

    def _learn(self) -> None:
        if self._joining is not None and not self._joining.is_parked:
            reply, self._joining = self._joining.reply, None
            self._member_id = reply.member_id
            if reply.error_code == ErrorCode.NONE:
                self._generation = reply.generation_id

    @property
    def member_id(self) -> str:
        self._learn()
        return self._member_id

    @property
    def generation(self) -> int:
        self._learn()
        return self._generation

    def forget(self) -> None:
        """The client is started anew."""
        self._member_id, self._generation, self._joining = "", -1, None

    def join(self, version: int = 9, reason: str | None = None) -> Asked:
        """With an id if it has one; where an id is asked for first, with that."""
        asked = self._ask_to_join(version, reason)
        if not asked.is_parked and asked.reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            asked = self._ask_to_join(version, reason)
        return asked

    def ask_for_id(self, version: int = 9) -> str:
        """The first half of joining."""
        reply = self._ask_to_join(version, None).reply
        assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.member_id

    def _ask_to_join(self, version: int, reason: str | None) -> Asked:
        request = join(
            self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=self.protocols,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            reason=reason,
        )
        self._joining = asked = self.driver.ask(request, version, self.name)
        self._learn()
        return asked

    def sync(self, assignments: dict[Client, bytes] | None = None, version: int = 4) -> Asked:
        given = {client.member_id: assignment for client, assignment in (assignments or {}).items()}
        request = sync(self.group_id, self.generation, self.member_id, given, instance_id=self.instance_id)
        return self.driver.ask(request, version)

    def heartbeat(self) -> ErrorCode:
        request = heartbeat(self.group_id, self.generation, self.member_id, self.instance_id)
        return ErrorCode(self.driver.ask(request, 4).reply.error_code)

    def commit(self, offset: int = 5, version: int = 8) -> ErrorCode:
        request = commit(
            self.group_id,
            "topic",
            {0: offset},
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
        )
        return partition_error(self.driver.ask(request, version).reply)

    def leave(self, version: int = 5) -> Any:
        return self.driver.ask(leave(self.group_id, self.member_id, version), version).reply


def partition_error(reply: Any) -> ErrorCode:
    """Of a reply about one partition."""
    return ErrorCode(reply.topics[0].partitions[0].error_code)


def joined(*clients: Client) -> None:
    """A new group of them, in its first generation; the first leads it."""
    asked = [client.join() for client in clients]
    driver = clients[0].driver
    while any(answer.is_parked for answer in asked):
        driver.advance(driver.config.group_initial_rebalance_delay_ms)
    assert [answer.reply.error_code for answer in asked] == [ErrorCode.NONE] * len(asked)


def stable(*clients: Client) -> None:
    """A new group of them, each with an assignment of its own; the first leads it."""
    joined(*clients)
    synced(*clients)


def synced(*clients: Client) -> None:
    """The leader, which is the first, assigns; everybody gets it."""
    assignments = {client: f"for {client.name}".encode() for client in clients}
    asked = [client.sync(assignments if client is clients[0] else None) for client in clients]
    for client, answer in zip(clients, asked, strict=True):
        assert answer.reply.error_code == ErrorCode.NONE
        assert answer.reply.assignment == assignments[client]


def described(driver: Driver, group_id: str = GROUP, version: int = 5) -> DescribedGroup:
    group: DescribedGroup = driver.ask(DescribeGroupsRequest(groups=[group_id]), version).reply.groups[0]
    return group


def state(driver: Driver, group_id: str = GROUP) -> str:
    return described(driver, group_id).group_state
