"""Any history of clients, time, restarts and refused appends: what always holds, and that it ends well.

Members join, sync, commit, vanish and come back, in any order, while time passes in steps of any size; some
of them break off in the middle and start again. After every step the groups keep their rules, every request
that waits is held exactly once, and a fresh instance that replays the log knows all that is durable. In the
end the clients behave as clients should, and every group has to settle.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker.coordinators.classic_group import ClassicGroup, GroupConfig
from kbroker.coordinators.classic_rebalance import JOIN, SESSION, SYNC
from kbroker.coordinators.classic_states import State
from kbroker.coordinators.step import TimerKey
from tests.kbroker.coordinators.clients import Client, state
from tests.kbroker.coordinators.driver import Asked, Driver
from tests.kbroker.coordinators.requests import (
    commit,
    commit_in_transaction,
    delete_offsets,
    heartbeat,
    leave_all,
    protocols,
    subscription,
    sync,
)
from wire.api.delete_groups import DeleteGroupsRequest
from wire.api.leave_group import MemberIdentity
from wire.errors import ErrorCode

pytestmark = pytest.mark.slow

GROUPS = ["g", "h"]
WORK = frozenset(range(6))
SUBSCRIPTIONS = [
    protocols(range=subscription("t"), sticky=b""),
    protocols(range=subscription("t", "s"), sticky=b"", own=b"x"),
    protocols(sticky=b"?", range=b"?"),
]
"""All know two protocols, and nobody prefers a third: a loaded group knows only of the one in use."""
SETTLED_AFTER_S = 400

any_client = st.integers(0, 100)
any_version = st.sampled_from([0, 3, 4, 8, 9])


class Worker(Client):
    """A client that takes the work it is assigned, and knows how to behave."""

    def __init__(self, driver: Driver, name: str, group_id: str, instance_id: str | None) -> None:
        super().__init__(driver, name, group_id=group_id, instance_id=instance_id)
        self.asked: Asked | None = None
        self.work: frozenset[int] = frozenset()
        self.works_as = ("", -1)
        """The member id and the generation that the work is for."""

    def begin_join(self, version: int) -> None:
        if self.instance_id is not None:
            version = max(version, 5)
        self.asked = self.join(version)

    def begin_sync(self) -> None:
        members = self.driver.groups._groups[self.group_id].members if self.leads else {}
        shares = {
            member_id: bytes(sorted(WORK)[number :: len(members)]) for number, member_id in enumerate(members)
        }
        self.asked = self.driver.ask(sync(self.group_id, self.generation, self.member_id, shares), 4)

    @property
    def is_now(self) -> tuple[str, int]:
        return self.member_id, self.generation

    @property
    def leads(self) -> bool:
        group = self.driver.groups._groups.get(self.group_id)
        return group is not None and group.leader == self.member_id != ""

    @property
    def waits(self) -> bool:
        return self.asked is not None and self.asked.is_parked

    def take_work(self) -> None:
        """Look at the reply to SyncGroup, if that is what came."""
        if self.asked is None or self.asked.is_parked or not hasattr(self.asked.reply, "assignment"):
            return
        if self.asked.reply.error_code == ErrorCode.NONE:
            self.work = frozenset(self.asked.reply.assignment)
            self.works_as = self.is_now
        self.asked = None

    def behave(self) -> None:
        """One turn of a client that does as it is told."""
        if self.waits:
            return
        self.take_work()
        if self.asked is not None:
            error, self.asked = ErrorCode(self.asked.reply.error_code), None
            if error == ErrorCode.NONE:
                self.begin_sync()
                return
            self.obey(error)
        elif self.member_id == "":
            self.begin_join(9)
        else:
            self.obey(self.heartbeat())

    def obey(self, error: ErrorCode) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.forget()
        if error != ErrorCode.NONE or self.works_as != self.is_now:
            self.begin_join(9)


class AnyHistory(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3_000]))
    def begin(self, delay_ms: int) -> None:
        self.driver = Driver(GroupConfig(group_initial_rebalance_delay_ms=delay_ms))
        self.workers: list[Worker] = []
        self.all_asked: list[Asked] = []

    def worker(self, number: int) -> Worker:
        return self.workers[number % len(self.workers)]

    def remember(self, worker: Worker) -> None:
        if worker.waits and worker.asked is not None:
            self.all_asked.append(worker.asked)

    # Clients

    @precondition(lambda self: len(self.workers) < 5)
    @rule(
        group_id=st.sampled_from(GROUPS),
        is_static=st.booleans(),
        subscription=st.sampled_from(SUBSCRIPTIONS),
        session_timeout_ms=st.sampled_from([6_000, 30_000]),
        rebalance_timeout_ms=st.sampled_from([5_000, 10_000, 60_000]),
        version=any_version,
    )
    def somebody_comes(self, group_id, is_static, subscription, version, **timeouts) -> None:  # type: ignore[no-untyped-def]
        name = f"w{len(self.workers)}"
        worker = Worker(self.driver, name, group_id, name if is_static else None)
        worker.protocols = subscription
        worker.session_timeout_ms = timeouts["session_timeout_ms"]
        worker.rebalance_timeout_ms = timeouts["rebalance_timeout_ms"]
        self.workers.append(worker)
        worker.begin_join(version)
        self.remember(worker)

    @precondition(lambda self: self.workers)
    @rule(number=any_client, version=any_version, subscription=st.sampled_from(SUBSCRIPTIONS))
    def somebody_joins(self, number, version, subscription) -> None:  # type: ignore[no-untyped-def]
        worker = self.worker(number)
        worker.protocols = subscription
        worker.begin_join(version)
        self.remember(worker)

    @precondition(lambda self: self.workers)
    @rule(number=any_client)
    def somebody_asks_for_an_id_and_breaks_off(self, number: int) -> None:
        worker = self.worker(number)
        if worker.instance_id is None:
            worker.forget()
            worker.ask_for_id()
            worker.asked = None

    @precondition(lambda self: self.workers)
    @rule(number=any_client)
    def somebody_syncs(self, number: int) -> None:
        worker = self.worker(number)
        worker.begin_sync()
        self.remember(worker)

    @precondition(lambda self: self.workers)
    @rule(number=any_client)
    def somebody_does_the_right_thing(self, number: int) -> None:
        worker = self.worker(number)
        worker.behave()
        self.remember(worker)

    @rule()
    def everybody_does_the_right_thing(self) -> None:
        for worker in self.workers:
            worker.behave()
            self.remember(worker)

    @precondition(lambda self: self.workers)
    @rule(number=any_client)
    def somebody_commits(self, number: int) -> None:
        self.worker(number).commit()

    @precondition(lambda self: self.workers)
    @rule(number=any_client)
    def somebody_leaves(self, number: int) -> None:
        worker = self.worker(number)
        worker.leave()

    @precondition(lambda self: self.workers)
    @rule(number=any_client)
    def somebody_starts_again(self, number: int) -> None:
        worker = self.worker(number)
        worker.forget()
        worker.asked = None

    # Administrators, simple consumers, transactions

    @rule(group_id=st.sampled_from(GROUPS), instance=st.integers(0, 4))
    def an_administrator_removes_an_instance(self, group_id: str, instance: int) -> None:
        identity = MemberIdentity(member_id="", group_instance_id=f"w{instance}")
        self.driver.ask(leave_all(group_id, identity), 5)

    @rule(group_id=st.sampled_from(GROUPS))
    def an_administrator_deletes_a_group(self, group_id: str) -> None:
        self.driver.ask(DeleteGroupsRequest(groups_names=[group_id]), 2)

    @rule(group_id=st.sampled_from(GROUPS), partition=st.integers(0, 2))
    def an_administrator_deletes_an_offset(self, group_id: str, partition: int) -> None:
        self.driver.ask(delete_offsets(group_id, "t", [partition]), 0)

    @rule(group_id=st.sampled_from(GROUPS), partition=st.integers(0, 2), offset=st.integers(0, 9))
    def a_simple_consumer_commits(self, group_id: str, partition: int, offset: int) -> None:
        self.driver.ask(commit(group_id, "t", {partition: offset}), 8)

    @rule(
        group_id=st.sampled_from(GROUPS),
        partition=st.integers(0, 2),
        offset=st.integers(0, 9),
        producer_id=st.integers(0, 2),
    )
    def a_transaction_commits_an_offset(
        self, group_id: str, partition: int, offset: int, producer_id: int
    ) -> None:
        request = commit_in_transaction(group_id, "t", {partition: offset}, producer_id=producer_id)
        self.driver.ask(request, 3)

    @rule(producer_id=st.integers(0, 2), is_commit=st.booleans())
    def a_transaction_ends(self, producer_id: int, is_commit: bool) -> None:
        self.driver.end_transaction(producer_id, is_commit=is_commit)

    # The world

    @rule(delay_ms=st.sampled_from([1, 900, 3_000, 6_000, 10_000, 40_000, 600_000]))
    def time_passes(self, delay_ms: int) -> None:
        self.driver.advance(delay_ms)

    @rule()
    def the_coordinator_moves(self) -> None:
        self.driver.restart()

    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, None]))
    def appends_are_refused_from_now_on(self, error: ErrorCode | None) -> None:
        self.driver.refuse_with = error

    # What always holds

    @invariant()
    def groups_keep_their_rules(self) -> None:
        for group in self.driver.groups._groups.values():
            check_members(group)
            check_state(group)
            check_timers(group, self.driver.timers)

    @invariant()
    def stable_and_empty_groups_are_what_their_record_says(self) -> None:
        for group_id, group in self.driver.groups._groups.items():
            stored = self.driver.groups._metadata.get(group_id)
            if group.state == State.STABLE or (group.state == State.EMPTY and stored is not None):
                assert group.metadata() == stored

    @invariant()
    def every_request_that_waits_is_held_once(self) -> None:
        held = [
            token
            for group in self.driver.groups._groups.values()
            for member in group.members.values()
            for token in (member.join_token, member.sync_token)
            if token is not None
        ]
        waiting = [asked for asked in self.all_asked if asked.is_parked]
        assert len(held) == len(set(map(id, held)))
        assert set(map(id, held)) == set(map(id, waiting))

    @invariant()
    def no_work_is_done_twice(self) -> None:
        for worker in self.workers:
            worker.take_work()
        for group_id, group in self.driver.groups._groups.items():
            working = [
                worker.work
                for worker in self.workers
                if worker.group_id == group_id
                and worker.member_id in group.members
                and worker.works_as == worker.is_now
                and worker.generation == group.generation
            ]
            assert sum(map(len, working)) == len(frozenset().union(*working))

    @invariant()
    def replaying_the_log_gives_what_is_durable(self) -> None:
        assert Driver(self.driver.config, list(self.driver.log)).durable() == self.driver.durable()

    def teardown(self) -> None:
        """Everybody behaves, nothing is refused: soon each group is stable with all its members, or empty."""
        if not hasattr(self, "driver"):
            return
        self.driver.refuse_with = None
        for _ in range(SETTLED_AFTER_S):
            self.driver.advance(1_000)
            for worker in self.workers:
                worker.behave()
                self.remember(worker)
        self.every_request_that_waits_is_held_once()
        self.no_work_is_done_twice()
        for group_id in GROUPS:
            members = [worker for worker in self.workers if worker.group_id == group_id]
            if members:
                assert state(self.driver, group_id) == "Stable"
                assert {worker.heartbeat() for worker in members} == {ErrorCode.NONE}
                assert frozenset().union(*(worker.work for worker in members)) == WORK
            else:
                assert state(self.driver, group_id) in ("Empty", "Dead")


def check_members(group: ClassicGroup) -> None:
    members = list(group.members.values())
    assert group.static_members == {
        member.instance_id: member.member_id for member in members if member.instance_id is not None
    }
    assert group.members.keys() == {member.member_id for member in members}
    assert not group.pending_joins & group.members.keys()
    assert group.pending_syncs <= group.members.keys()
    assert group._members_that_joined == sum(member.join_token is not None for member in members)
    assert (group.leader in group.members) if members else (group.leader is None)
    for name, number in group._protocol_counts.items():
        assert number == sum(name in member.protocols for member in members)
    if members:
        assert group.select_protocol() is not None


def check_state(group: ClassicGroup) -> None:
    joins = [member for member in group.members.values() if member.join_token is not None]
    syncs = [member for member in group.members.values() if member.sync_token is not None]
    assert group.state != State.DEAD
    assert group.state == State.EMPTY or group.state == State.PREPARING_REBALANCE or group.members
    assert not (group.state == State.EMPTY and group.members)
    assert not joins or group.state == State.PREPARING_REBALANCE
    assert not syncs or group.state == State.COMPLETING_REBALANCE
    assert group.leader not in {member.member_id for member in syncs}


def check_timers(group: ClassicGroup, timers: dict[TimerKey, int]) -> None:
    """Whatever a group waits for, there is an end to it."""
    for member in group.members.values():
        is_timed = TimerKey(SESSION, group.group_id, member.member_id) in timers
        assert is_timed or member.is_waiting_for_the_group
    for member_id in group.pending_joins:
        assert TimerKey(SESSION, group.group_id, member_id) in timers
    is_joining = group.state == State.PREPARING_REBALANCE
    assert (TimerKey(JOIN, group.group_id) in timers) == is_joining
    assert (TimerKey(SYNC, group.group_id) in timers) == bool(group.pending_syncs)


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_worker_alone_settles(driver: Driver) -> None:
    """The well-behaved client of this file works: otherwise the rest would prove little."""
    worker = Worker(driver, "w", "g", None)
    for _ in range(10):
        worker.behave()
        driver.advance(1_000)
    assert worker.work == WORK
    assert driver.ask(heartbeat("g", worker.generation, worker.member_id), 4).reply.error_code == 0
