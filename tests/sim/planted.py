"""Bugs on purpose, one at a time: what the checkers of the simulation are to find.

Each replaces a function of the source while a run lasts. `PLANTED` and others have those that some seeds
find. What takes a certain fault is met too seldom for that; `SELDOM` names those that are then the only ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

from controller import brokers, election
from controller.metadata_store import ANY_VERSION, Check
from controller.office import Mandate
from controller.state import LeaderAndIsr
from controller.znodes import ControllerEpoch
from kbroker import replica_fetcher
from kbroker.broker import Broker
from kbroker.coordinator_runtime import Shard
from kbroker.coordinators import transaction_end
from kbroker.coordinators.classic_group import ClassicGroup
from kbroker.coordinators.groups import Groups
from kbroker.coordinators.offsets import Offsets
from kbroker.coordinators.step import Step
from kbroker.coordinators.transaction import State
from kbroker.coordinators.transactions import Transactions
from kbroker.isr_changes import IsrChanges
from kbroker.partition import Leadership
from kbroker.replica_manager import HostedPartition, ReplicaManager
from storage import reading
from storage.log import UnifiedLog
from storage.producer_state import ProducerState
from storage.reading import Isolation
from wire.errors import ErrorCode

Bug = Callable[[], Any]


def acknowledge_before_the_replicas_have_it() -> Any:
    def when_promised(self: Any, partition: Any, acks: int, told: Any) -> None:
        told(partition.log.offline)

    return patch.object(ReplicaManager, "when_promised", when_promised)


def advance_the_high_watermark_without_the_isr() -> Any:
    def high_watermark(self: Any, high_watermark: int, log_end_offset: int, *rest: Any) -> int:
        return log_end_offset

    return patch.object(Leadership, "high_watermark", high_watermark)


def ignore_leader_epochs() -> Any:
    """Neither the one that a fetch is for, nor the one that the follower has written last."""

    def divergence(log: UnifiedLog, last_fetched_epoch: int, fetch_offset: int) -> None:
        return None

    return patch.object(import_module("kbroker.handlers.fetch"), "divergence", divergence)


def skip_truncation() -> Any:
    return patch.object(replica_fetcher, "truncation_offset", lambda log, leaders: log.log_end_offset)


def serve_above_the_high_watermark() -> Any:
    def visible_end(log: UnifiedLog, isolation: Isolation) -> int:
        return log.log_end_offset

    return patch.object(reading, "visible_end", visible_end)


def change_the_isr_without_asking() -> Any:
    def propose(self: IsrChanges, partition: HostedPartition, isr: tuple[int, ...]) -> None:
        if partition.leadership is not None:
            partition.leadership.settled(isr)
            self._settled(partition)

    return patch.object(IsrChanges, "propose", propose)


def append_retries_again() -> Any:
    return patch.object(ProducerState, "check_append", lambda self, *arguments, **named: None)


def forget_producers_at_a_restart() -> Any:
    def replay(self: Any, *arguments: Any, **named: Any) -> None:
        """Nothing is learnt from the log."""

    return patch.multiple(ProducerState, replay=replay, _load_latest_snapshot=replay)


def elect_anybody() -> Any:
    after_failures = election.after_failures

    def any_of_them(replicas: Any, leadership: Any, **named: Any) -> Any:
        everybody = leadership._replace(isr=list(replicas))
        return after_failures(replicas, everybody, **named)

    return patch.object(election, "after_failures", any_of_them)


def write_without_the_fence() -> Any:
    anything = property(lambda self: Check(ControllerEpoch.path(), ANY_VERSION))
    return patch.object(Mandate, "fence", anything)


def take_orders_to_an_earlier_life() -> Any:
    return patch.object(Broker, "check_controller", lambda self, *of_the_order: None)


def trust_who_restarted() -> Any:
    """Although their registration is newer than what was written about them."""
    return patch.object(brokers, "restarted", lambda plan, last_writes: {})


def elect_without_a_new_leader_epoch() -> Any:

    def next_epoch(self: Any, leader: int, isr: Any, *rest: Any) -> Any:
        return self._replace(leader=leader, isr=tuple(isr))

    return patch.object(LeaderAndIsr, "next", next_epoch)


# -- of transactions


def skip_an_aborted_entry() -> Any:
    aborted_transactions = reading.aborted_transactions

    def all_but_the_first(*arguments: Any) -> Any:
        return aborted_transactions(*arguments)[1:]

    return patch.object(reading, "aborted_transactions", all_but_the_first)


def serve_one_beyond_the_last_stable_offset() -> Any:
    def visible_end(log: UnifiedLog, isolation: Isolation) -> int:
        if isolation is Isolation.COMMITTED:
            return min(log.last_stable_offset + 1, log.high_watermark)
        return log.high_watermark if isolation is Isolation.HIGH_WATERMARK else log.log_end_offset

    return patch.object(reading, "visible_end", visible_end)


def call_everything_stable() -> Any:
    return patch.object(UnifiedLog, "last_stable_offset", property(lambda log: log.high_watermark))


def write_markers_twice() -> Any:
    module = import_module("kbroker.handlers.write_txn_markers")
    write = module.write

    def twice(broker: Any, marker: Any, partition: Any, told: Any) -> None:
        write(broker, marker, partition, lambda error: None)
        write(broker, marker, partition, told)

    return patch.multiple(module, write=twice, has_marker=lambda partition, marker: False)


def end_the_next_transaction() -> Any:
    """By an EndTxn that comes late."""
    is_to_be_decided = transaction_end.is_to_be_decided

    def whatever_its_epoch(transaction: Any, request: Any, client_version: int) -> bool:
        if transaction.state is State.ONGOING:
            return True
        return is_to_be_decided(transaction, request, client_version)

    return patch.object(transaction_end, "is_to_be_decided", whatever_its_epoch)


def show_pending_offsets() -> Any:
    replay = Offsets.replay

    def at_once(self: Any, key: Any, value: Any, record_offset: int, producer_id: int = -1) -> None:
        replay(self, key, value, record_offset)

    return patch.object(Offsets, "replay", at_once)


def answer_before_it_is_safe() -> Any:
    """Whatever a coordinator has decided."""

    def reply(self: Any, replies: Any) -> None:
        for parked, response in replies:
            parked.complete(response)

    return patch.object(Shard, "_reply", reply)


def forget_what_was_decided() -> Any:
    """When another broker takes over."""

    def loaded(self: Any, now_ms: int) -> Step:
        return Step(now_ms)

    return patch.object(Transactions, "loaded", loaded)


def forget_what_is_open() -> Any:
    """When another broker takes over."""
    loaded = Transactions.loaded

    def without_open_ones(self: Any, now_ms: int) -> Step:
        for transactional_id, transaction in self._ongoing.items():
            self._transactions[transactional_id] = replace(
                transaction, state=State.COMPLETE_ABORT, partitions=frozenset()
            )
        self._ongoing.clear()
        return loaded(self, now_ms)

    return patch.object(Transactions, "loaded", without_open_ones)


def give_an_epoch_twice() -> Any:
    """To two producers with one transactional id."""

    def next_identity(self: Any, transaction: Any, *arguments: Any) -> Any:
        return transaction.identity

    return patch.object(Transactions, "_next_identity", next_identity)


# -- of groups


def keep_the_generation() -> Any:
    begin_generation = ClassicGroup.begin_generation

    def begin_it_again(self: Any, now_ms: int) -> None:
        self.generation = max(self.generation - 1, 0)
        begin_generation(self, now_ms)

    return patch.object(ClassicGroup, "begin_generation", begin_it_again)


def take_commits_from_every_generation() -> Any:
    def check_commit(self: Any, *arguments: Any, **named: Any) -> ErrorCode:
        return ErrorCode.NONE

    return patch.object(ClassicGroup, "check_commit", check_commit)


def forget_generations() -> Any:
    """When another broker takes over."""
    loaded = Groups.loaded

    def without_metadata(self: Any, now_ms: int) -> Step:
        self._metadata.clear()
        return loaded(self, now_ms)

    return patch.object(Groups, "loaded", without_metadata)


def forget_offsets() -> Any:
    """When another broker takes over: those of the groups that it knows members of."""
    loaded = Groups.loaded

    def without_offsets(self: Any, now_ms: int) -> Step:
        for group_id in self._metadata:
            self.offsets._committed.pop(group_id, None)
        return loaded(self, now_ms)

    return patch.object(Groups, "loaded", without_offsets)


PLANTED: tuple[Bug, ...] = (
    acknowledge_before_the_replicas_have_it,
    advance_the_high_watermark_without_the_isr,
    ignore_leader_epochs,
    skip_truncation,
    serve_above_the_high_watermark,
    change_the_isr_without_asking,
    append_retries_again,
    forget_producers_at_a_restart,
    elect_anybody,
    elect_without_a_new_leader_epoch,
)

SELDOM: Mapping[Bug, tuple[str, ...]] = {
    write_without_the_fence: ("depose", "slow_store", "kill"),
    take_orders_to_an_earlier_life: ("cut_power",),
    trust_who_restarted: ("cut_power",),
}

PLANTED_IN_GROUPS: Mapping[Bug, tuple[str, int]] = {
    keep_the_generation: ("double ownership", 4),
    forget_generations: ("double ownership", 1),
    take_commits_from_every_generation: ("late commit", 7),
    forget_offsets: ("stale group read", 1),
}
"""With the anomaly that tells of it, and a seed that found it."""

PLANTED_IN_TRANSACTIONS: Mapping[Bug, tuple[str, int]] = {
    skip_an_aborted_entry: ("pre-committed read", 2),
    serve_one_beyond_the_last_stable_offset: ("pre-committed read", 2),
    call_everything_stable: ("pre-committed read", 2),
    write_markers_twice: ("wrong marker", 2),
    end_the_next_transaction: ("late end", 2),
    show_pending_offsets: ("leaked offset", 2),
    give_an_epoch_twice: ("inconsistent offset", 2),
    forget_what_was_decided: ("stuck", 2),
    forget_what_is_open: ("stuck", 2),
    answer_before_it_is_safe: ("lost commit", 17),
}
