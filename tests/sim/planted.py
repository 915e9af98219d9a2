"""Bugs on purpose, one at a time: what the checkers of the simulation are to find.

Each replaces a function of the source while a run lasts. `PLANTED` has those that a few seeds find; the fence
of a controller's writes, and orders to a broker's earlier life, are met too seldom for that (`SELDOM`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest.mock import patch

from controller import election
from controller.metadata_store import ANY_VERSION, Check
from controller.office import Mandate
from controller.state import LeaderAndIsr
from controller.znodes import ControllerEpoch
from kbroker import replica_fetcher
from kbroker.broker import Broker
from kbroker.isr_changes import IsrChanges
from kbroker.partition import Leadership
from kbroker.replica_manager import HostedPartition, ReplicaManager
from storage import reading
from storage.log import UnifiedLog
from storage.producer_state import ProducerState
from storage.reading import Isolation

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
    return patch.object(Broker, "check_controller", lambda self, controller_epoch, broker_epoch: None)


def elect_without_a_new_leader_epoch() -> Any:

    def next_epoch(self: Any, leader: int, isr: Any, *rest: Any) -> Any:
        return self._replace(leader=leader, isr=tuple(isr))

    return patch.object(LeaderAndIsr, "next", next_epoch)


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

SELDOM: tuple[Bug, ...] = (write_without_the_fence, take_orders_to_an_earlier_life)
