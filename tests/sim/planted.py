"""Bugs on purpose, one at a time: what the checkers of the simulation are to find.

Each replaces a function of the source while a run lasts. `PLANTED` names the anomaly that it causes, which is
the one it must be found by. A run that is stuck tells of bugs that block something, and of no others: any
exception in the wrong place gets a run stuck. For the same reason nothing counts as found once a stand-in has
failed by itself, see `plant`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from controller import brokers, controller, election, office
from controller.metadata_store import ANY_VERSION, Check, MetadataStore, Watch
from controller.office import Mandate
from controller.plan import Plan
from controller.state import LeaderAndIsr, TopicPartition
from controller.znodes import ControllerEpoch
from kbroker import replica_fetcher
from kbroker.broker import Broker
from kbroker.coordinator_runtime import Shard
from kbroker.coordinators import transaction_end
from kbroker.coordinators.classic_group import ClassicGroup
from kbroker.coordinators.groups import Groups
from kbroker.coordinators.offsets import Offsets
from kbroker.coordinators.step import Reply, Step
from kbroker.coordinators.transaction import Identity, State, Transaction
from kbroker.coordinators.transactions import Transactions
from kbroker.isr_changes import IsrChanges
from kbroker.leader_lease import LeaderLease
from kbroker.partition import Leadership
from kbroker.replica_manager import HostedPartition, ReplicaManager
from storage import reading
from storage.errors import StorageError
from storage.indexes import AbortedTransaction
from storage.log import UnifiedLog
from storage.producer_state import CompletedTransaction, ProducerState
from storage.reading import Isolation
from wire.api.end_txn import EndTxnRequest
from wire.api.write_txn_markers import WritableTxnMarker
from wire.errors import ErrorCode, KafkaError

Bug = Callable[[], AbstractContextManager[object]]
Call = TypeVar("Call", bound=Callable[..., Any])

EXPECTED = (KafkaError, OSError, StorageError)
"""What a function of the source may raise while it works as it should."""

_failures: list[str] = []
"""Of stand-ins, since a bug was planted."""


class StandInFailed(Exception):
    """A bug was not what it was meant to be. Whatever has been found then, it is not the bug."""


@contextmanager
def plant(bug: Bug) -> Iterator[None]:
    """While this lasts, the bug is there. StandInFailed if its own code has failed, or what it calls."""
    _failures.clear()
    with bug():
        yield
    if _failures:
        raise StandInFailed("; ".join(_failures))


def stand_in(owner: object, name: str, function: Callable[..., Any]) -> AbstractContextManager[object]:
    """`function` in place of the one of this name."""
    return patch.object(owner, name, watched(function))


def watched(function: Call) -> Call:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except EXPECTED:
            raise
        except Exception as error:
            _failures.append(f"{function.__qualname__}: {error!r}")
            raise

    return call  # type: ignore[return-value]


def acknowledge_before_the_replicas_have_it() -> AbstractContextManager[object]:
    def when_promised(
        self: ReplicaManager,
        partition: HostedPartition,
        acks: int,
        told: Callable[[KafkaError | None], object],
    ) -> None:
        told(partition.log.offline)

    return stand_in(ReplicaManager, "when_promised", when_promised)


def advance_the_high_watermark_without_the_isr() -> AbstractContextManager[object]:
    def high_watermark(self: Leadership, high_watermark: int, log_end_offset: int, *rest: int) -> int:
        return log_end_offset

    return stand_in(Leadership, "high_watermark", high_watermark)


def ignore_leader_epochs() -> AbstractContextManager[object]:
    """Neither the one that a fetch is for, nor the one that the follower has written last."""

    def divergence(log: UnifiedLog, last_fetched_epoch: int, fetch_offset: int) -> None:
        return None

    return stand_in(import_module("kbroker.handlers.fetch"), "divergence", divergence)


def skip_truncation() -> AbstractContextManager[object]:
    def truncation_offset(log: UnifiedLog, leaders: object) -> int:
        return log.log_end_offset

    return stand_in(replica_fetcher, "truncation_offset", truncation_offset)


def serve_above_the_high_watermark() -> AbstractContextManager[object]:
    def visible_end(log: UnifiedLog, isolation: Isolation) -> int:
        return log.log_end_offset

    return stand_in(reading, "visible_end", visible_end)


def change_the_isr_without_asking() -> AbstractContextManager[object]:
    def propose(self: IsrChanges, partition: HostedPartition, isr: tuple[int, ...]) -> None:
        if partition.leadership is not None:
            partition.leadership.settled(isr)
            self._settled(partition)

    return stand_in(IsrChanges, "propose", propose)


def append_retries_again() -> AbstractContextManager[object]:
    return stand_in(ProducerState, "check_append", lambda self, *arguments, **named: None)


def forget_producers_at_a_restart() -> AbstractContextManager[object]:
    def replay(self: ProducerState, *arguments: object, **named: object) -> None:
        """Nothing is learnt from the log."""

    return patch.multiple(ProducerState, replay=replay, _load_latest_snapshot=replay)


def elect_anybody() -> AbstractContextManager[object]:
    after_failures = election.after_failures

    def any_of_them(replicas: Iterable[int], state: LeaderAndIsr, **named: Any) -> LeaderAndIsr | None:
        replicas = tuple(replicas)
        return after_failures(replicas, replace(state, isr=replicas), **named)

    return stand_in(election, "after_failures", any_of_them)


def write_without_the_fence() -> AbstractContextManager[object]:
    def fence(self: Mandate) -> Check:
        return Check(ControllerEpoch.path(), ANY_VERSION)

    return patch.object(Mandate, "fence", property(watched(fence)))


def stay_in_office() -> AbstractContextManager[object]:
    """In the epoch of the successor."""
    elect = office.campaign
    elected: set[int] = set()

    async def campaign(
        store: MetadataStore, broker_id: int, now_ms: Callable[[], int], changed: Watch
    ) -> Mandate | int:
        outcome = await elect(store, broker_id, now_ms, changed)
        if isinstance(outcome, Mandate):
            elected.add(store.session_id)
        elif store.session_id in elected:
            return await office._current(store)
        return outcome

    return stand_in(controller, "campaign", campaign)


def take_orders_to_an_earlier_life() -> AbstractContextManager[object]:
    return stand_in(Broker, "check_controller", lambda self, *of_the_order: None)


def trust_who_restarted() -> AbstractContextManager[object]:
    """Although their registration is newer than what was written about them."""

    def restarted(plan: Plan, last_writes: object) -> dict[TopicPartition, list[int]]:
        return {}

    return stand_in(brokers, "restarted", restarted)


def elect_without_a_new_leader_epoch() -> AbstractContextManager[object]:
    def next_state(self: LeaderAndIsr, leader: int, isr: Iterable[int], *rest: object) -> LeaderAndIsr:
        return replace(self, leader=leader, isr=tuple(isr))

    return stand_in(LeaderAndIsr, "next", next_state)


def keep_a_lease_for_two_sessions() -> AbstractContextManager[object]:
    keep = LeaderLease._renew

    async def renew(self: LeaderLease, sent_s: float) -> None:
        await keep(self, sent_s)
        if self._answered_s is not None:
            self._ends_s = self._answered_s + 2 * self._store.session_timeout_ms / 1000

    return stand_in(LeaderLease, "_renew", renew)


# -- of transactions


def skip_an_aborted_entry() -> AbstractContextManager[object]:
    aborted_transactions = reading.aborted_transactions

    def all_but_the_first(log: UnifiedLog, offset: int, upper_bound: int) -> list[AbortedTransaction]:
        return aborted_transactions(log, offset, upper_bound)[1:]

    return stand_in(reading, "aborted_transactions", all_but_the_first)


def serve_one_beyond_the_last_stable_offset() -> AbstractContextManager[object]:
    def visible_end(log: UnifiedLog, isolation: Isolation) -> int:
        if isolation is Isolation.COMMITTED:
            return min(log.last_stable_offset + 1, log.high_watermark)
        return log.high_watermark if isolation is Isolation.HIGH_WATERMARK else log.log_end_offset

    return stand_in(reading, "visible_end", visible_end)


def call_everything_stable() -> AbstractContextManager[object]:
    def last_stable_offset(self: UnifiedLog) -> int:
        return self.high_watermark

    return patch.object(UnifiedLog, "last_stable_offset", property(watched(last_stable_offset)))


def count_markers_that_are_not_replicated() -> AbstractContextManager[object]:
    def complete(self: ProducerState, completed: CompletedTransaction) -> None:
        self._open.pop(completed.first_offset, None)
        self._find_first_unstable()

    return stand_in(ProducerState, "complete", complete)


def write_markers_twice() -> AbstractContextManager[object]:
    module = import_module("kbroker.handlers.write_txn_markers")
    write = module.write

    def twice(
        broker: Broker,
        marker: WritableTxnMarker,
        partition: HostedPartition,
        told: Callable[[KafkaError | None], object],
    ) -> None:
        write(broker, marker, partition, lambda error: None)
        write(broker, marker, partition, told)

    return patch.multiple(module, write=watched(twice), has_marker=lambda partition, marker: False)


def end_the_next_transaction() -> AbstractContextManager[object]:
    """By an EndTxn that comes late."""
    is_to_be_decided = transaction_end.is_to_be_decided

    def whatever_its_epoch(transaction: Transaction, request: EndTxnRequest, client_version: int) -> bool:
        if transaction.state is State.ONGOING:
            return True
        return is_to_be_decided(transaction, request, client_version)

    return stand_in(transaction_end, "is_to_be_decided", whatever_its_epoch)


def show_pending_offsets() -> AbstractContextManager[object]:
    replay = Offsets.replay

    def at_once(self: Offsets, key: Any, value: Any, record_offset: int, producer_id: int = -1) -> None:
        replay(self, key, value, record_offset)

    return stand_in(Offsets, "replay", at_once)


def answer_before_it_is_safe() -> AbstractContextManager[object]:
    """Whatever a coordinator has decided."""

    def reply(self: Shard[Any], replies: Sequence[Reply]) -> None:
        for token, response in replies:
            parked: Any = token
            parked.complete(response)

    return stand_in(Shard, "_reply", reply)


def forget_what_was_decided() -> AbstractContextManager[object]:
    """When another broker takes over."""

    def loaded(self: Transactions, now_ms: int) -> Step:
        return Step(now_ms)

    return stand_in(Transactions, "loaded", loaded)


def forget_what_is_open() -> AbstractContextManager[object]:
    """When another broker takes over."""
    loaded = Transactions.loaded

    def without_open_ones(self: Transactions, now_ms: int) -> Step:
        for transactional_id, transaction in self._ongoing.items():
            self._transactions[transactional_id] = replace(
                transaction, state=State.COMPLETE_ABORT, partitions=frozenset()
            )
        self._ongoing.clear()
        return loaded(self, now_ms)

    return stand_in(Transactions, "loaded", without_open_ones)


def give_an_epoch_twice() -> AbstractContextManager[object]:
    """To two producers with one transactional id."""

    def next_identity(self: Transactions, transaction: Transaction, *rest: object) -> Identity:
        return transaction.identity

    return stand_in(Transactions, "_next_identity", next_identity)


# -- of groups


def keep_the_generation() -> AbstractContextManager[object]:
    begin_generation = ClassicGroup.begin_generation

    def begin_it_again(self: ClassicGroup, now_ms: int) -> None:
        self.generation = max(self.generation - 1, 0)
        begin_generation(self, now_ms)

    return stand_in(ClassicGroup, "begin_generation", begin_it_again)


def take_commits_from_every_generation() -> AbstractContextManager[object]:
    def check_commit(self: ClassicGroup, *arguments: object, **named: object) -> ErrorCode:
        return ErrorCode.NONE

    return stand_in(ClassicGroup, "check_commit", check_commit)


def forget_generations() -> AbstractContextManager[object]:
    """When another broker takes over."""
    loaded = Groups.loaded

    def without_metadata(self: Groups, now_ms: int) -> Step:
        self._metadata.clear()
        return loaded(self, now_ms)

    return stand_in(Groups, "loaded", without_metadata)


def forget_offsets() -> AbstractContextManager[object]:
    """When another broker takes over: those of the groups that it knows members of."""
    loaded = Groups.loaded

    def without_offsets(self: Groups, now_ms: int) -> Step:
        for group_id in self._metadata:
            self.offsets._committed.pop(group_id, None)
        return loaded(self, now_ms)

    return stand_in(Groups, "loaded", without_offsets)


class Planted(NamedTuple):
    bug: Bug
    anomaly: str
    """How the violation begins that tells of it."""
    seed: int
    """One that found it. The workload is this seed's, see `tests.sim.workloads`."""
    faults: tuple[str, ...] = ()
    """The only ones, where it takes a certain fault that is met too seldom."""


PLANTED = (
    Planted(acknowledge_before_the_replicas_have_it, "inconsistent offset", 3),
    Planted(advance_the_high_watermark_without_the_isr, "incomplete leader", 3),
    Planted(ignore_leader_epochs, "divergence", 3),
    Planted(skip_truncation, "stuck: in sync", 7),  # the leader tells the follower to truncate, for ever
    Planted(serve_above_the_high_watermark, "inconsistent offset", 3),
    Planted(change_the_isr_without_asking, "incomplete leader", 4),
    Planted(append_retries_again, "duplicate", 1),
    Planted(forget_producers_at_a_restart, "duplicate", 1),
    Planted(elect_anybody, "incomplete leader", 1),
    Planted(elect_without_a_new_leader_epoch, "divergence", 3),
    Planted(write_without_the_fence, "stale controller", 2, ("depose", "slow_store", "kill")),
    Planted(stay_in_office, "two controllers", 1, ("depose",)),
    Planted(take_orders_to_an_earlier_life, "incomplete leader", 12, ("cut_power",)),
    Planted(trust_who_restarted, "incomplete leader", 2, ("cut_power",)),
    Planted(keep_a_lease_for_two_sessions, "false certainty", 1, ("lose_store",)),
    Planted(skip_an_aborted_entry, "pre-committed read", 2),
    Planted(serve_one_beyond_the_last_stable_offset, "pre-committed read", 2),
    Planted(call_everything_stable, "pre-committed read", 2),
    Planted(count_markers_that_are_not_replicated, "wrong stability", 2),
    Planted(write_markers_twice, "wrong marker", 2),
    Planted(end_the_next_transaction, "late end", 8),
    Planted(show_pending_offsets, "leaked offset", 2),
    Planted(give_an_epoch_twice, "inconsistent offset", 11),
    Planted(forget_what_was_decided, "stuck: producers", 2),  # CONCURRENT_TRANSACTIONS, for ever
    Planted(forget_what_is_open, "stuck: all transactions ended", 2),  # nobody is left to end it
    Planted(answer_before_it_is_safe, "lost commit", 14, ("isolate", "expire_session")),
    Planted(keep_the_generation, "double ownership", 4),
    Planted(forget_generations, "double ownership", 1),
    Planted(take_commits_from_every_generation, "late commit", 19),
    Planted(forget_offsets, "stale group read", 1),
)
