"""Decisions that are larger than a batch of the coordinator's partition: they are appended in several.

Apache Kafka appends in several batches what it decides on its own: the tombstones of deleted topics and of
expired groups, each transaction that has timed out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.configuration.layers import Configuration
from kbroker.context import Context, Parked
from kbroker.coordinators.groups import Groups
from kbroker.coordinators.offsets import Place
from kbroker.coordinators.transactions import Transactions
from kbroker.replica_manager import HostedPartition
from tests.kbroker.coordinators.requests import commit, fetch
from tests.kbroker.hosting import Hosting
from wire.api import ApiKey
from wire.api.init_producer_id import InitProducerIdRequest
from wire.api.list_groups import ListGroupsRequest
from wire.api.offset_fetch import OffsetFetchRequest
from wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from wire.record_batch import batch_headers

WAIT_S = 20
HOUR_MS = 3_600_000
LONG = "x" * 230
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.retention.check.interval.ms": "20",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
}


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    with Hosting(tmp_path / "data", configuration=Configuration(SETTINGS)) as running:
        yield running


def told(hosting: Hosting, ask: Callable[[], Parked]) -> Any:
    """What a coordinator answers."""
    return hosting.obeyed(ask)


def committed(hosting: Hosting, group: str, topic: str, partitions: int, **more: Any) -> None:
    request = commit(group, topic, dict.fromkeys(range(partitions), 7), **more)
    groups = hosting.broker.groups

    def decide(machine: Groups, token: Parked, now_ms: int) -> Any:
        return machine.commit_offsets(request, Context(4, None), token, now_ms)

    reply = told(hosting, lambda: groups.ask(group, decide))
    assert {one.error_code for one in reply.topics[0].partitions} == {0}


def fetched(hosting: Hosting, group: str) -> dict[str, int]:
    """How many partitions the group has offsets in, by topic."""
    request = fetch(group, None)
    assert isinstance(request, OffsetFetchRequest)
    [found] = hosting.ask(request, ApiKey.OFFSET_FETCH, 8).groups
    assert found.error_code == 0
    return {topic.name: len(topic.partitions) for topic in found.topics}


def listed(hosting: Hosting) -> set[str]:
    return {one.group_id for one in hosting.ask(ListGroupsRequest(), ApiKey.LIST_GROUPS, 4).groups}


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def pass_an_hour(hosting: Hosting) -> None:
    """On the broker's clock."""
    broker, now_ms = hosting.broker, hosting.broker.now_ms
    hosting.do(lambda: setattr(broker, "now_ms", lambda: now_ms() + HOUR_MS + 1))


def batches(partition: HostedPartition) -> list[int]:
    """The sizes of those in the log."""
    result = partition.log.read(0, 64 << 20)
    return [header.size for _, header in batch_headers(bytes(result.records))]


def reloaded(hosting: Hosting) -> HostedPartition:
    """The coordinator's partition, whose log has been read again from the start."""
    partition = hosting.broker.replicas.leader_of(CONSUMER_OFFSETS, 0)

    def reload() -> None:
        hosting.broker.groups.resigned(0)
        hosting.broker.groups.elected(partition)

    hosting.do(reload)
    wait_until(lambda: hosting.do(lambda: len(hosting.broker.groups.served()) == 1))
    return partition


def test_a_large_commit_is_stored(hosting: Hosting) -> None:
    hosting.order(CONSUMER_OFFSETS)
    committed(hosting, "g", LONG, 5_000)
    assert fetched(hosting, "g") == {LONG: 5_000}
    partition = reloaded(hosting)
    assert fetched(hosting, "g") == {LONG: 5_000}
    assert max(hosting.do(lambda: batches(partition))) <= partition.log.config.max_message_bytes


def test_all_offsets_in_a_deleted_topic_go(hosting: Hosting) -> None:
    """5,000 tombstones, of more bytes than a batch may have."""
    hosting.order(CONSUMER_OFFSETS)
    for group in ("g", "other"):
        for _ in range(2):
            committed(hosting, group, LONG, 2_500)
            committed(hosting, group, "stays", 1)
    hosting.do(lambda: hosting.broker.groups.delete_topics(frozenset([LONG])))
    committed(hosting, "new", LONG, 1)
    wait_until(lambda: fetched(hosting, "other") == {"stays": 1})
    assert fetched(hosting, "g") == {"stays": 1}
    assert fetched(hosting, "new") == {LONG: 1}, "it was committed in the next topic of that name"
    reloaded(hosting)
    assert (fetched(hosting, "g"), fetched(hosting, "other")) == ({"stays": 1}, {"stays": 1})
    committed(hosting, "g", LONG, 1)
    hosting.do(lambda: hosting.broker.groups.delete_topics(frozenset([LONG])))
    wait_until(lambda: fetched(hosting, "g") == {"stays": 1})


def test_offsets_in_a_topic_that_is_deleted_during_loading_go(hosting: Hosting) -> None:
    hosting.order(CONSUMER_OFFSETS)
    committed(hosting, "g", LONG, 5_000)
    committed(hosting, "g", "stays", 1)
    groups = hosting.broker.groups
    partition = hosting.broker.replicas.leader_of(CONSUMER_OFFSETS, 0)

    def load() -> None:
        groups.resigned(0)
        groups.elected(partition)
        assert not groups.served(), "it was loaded at once"
        groups.delete_topics(frozenset([LONG]))

    hosting.do(load)
    wait_until(lambda: hosting.do(lambda: len(groups.served()) == 1))
    wait_until(lambda: fetched(hosting, "g") == {"stays": 1})


def test_offsets_in_a_deleted_topic_go_when_the_partition_takes_records_again(hosting: Hosting) -> None:
    """The partition refuses everything for a while."""
    hosting.order(CONSUMER_OFFSETS)
    committed(hosting, "g", LONG, 3_000)
    partition = hosting.broker.replicas.leader_of(CONSUMER_OFFSETS, 0)

    def refuse() -> None:
        partition.in_sync_replicas = []
        hosting.broker.groups.delete_topics(frozenset([LONG]))

    hosting.do(refuse)
    assert fetched(hosting, "g") == {LONG: 3_000}
    hosting.do(lambda: setattr(partition, "in_sync_replicas", partition.replicas))
    wait_until(lambda: fetched(hosting, "g") == {})


def test_groups_that_expire_together_go(hosting: Hosting) -> None:
    """500 of them, with ten offsets each, and a small one beside them."""
    hosting.order(CONSUMER_OFFSETS)
    committed(hosting, "stays", "t", 1)
    for number in range(500):
        committed(hosting, f"{number}-{LONG}", LONG, 10, retention_time_ms=HOUR_MS)
    committed(hosting, "small", "t", 1, retention_time_ms=HOUR_MS)
    assert len(listed(hosting)) == 502
    pass_an_hour(hosting)
    wait_until(lambda: listed(hosting) == {"stays"})
    reloaded(hosting)
    assert listed(hosting) == {"stays"}


def transact(hosting: Hosting, transactional_id: str, partitions: int) -> None:
    """Open a transaction."""
    transactions = hosting.broker.transactions
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    new_id = 4_000 + hash(transactional_id) % 1_000_000

    def init(machine: Transactions, token: Parked, now_ms: int) -> Any:
        return machine.init_producer_id(request, new_id, token, now_ms)

    def add(machine: Transactions, token: Parked, now_ms: int) -> Any:
        places = frozenset(Place(LONG, index) for index in range(partitions))
        (mine,) = [one for one in machine if one.transactional_id == transactional_id]
        return machine.add_partitions(transactional_id, mine.identity, places, 0, token, now_ms)

    assert told(hosting, lambda: transactions.ask(transactional_id, init)).error_code == 0
    reply = told(hosting, lambda: transactions.ask(transactional_id, add))
    assert reply.topic_results[0].results_by_partition[0].partition_error_code == 0


def states(hosting: Hosting) -> list[str]:
    [machine] = hosting.broker.transactions.served()
    return hosting.do(lambda: [one.state.shown for one in machine])


@pytest.mark.slow
def test_transactions_that_time_out_together_are_all_aborted(hosting: Hosting) -> None:
    """60 of them, whose records have 20 KB each."""
    hosting.order(TRANSACTION_STATE)
    for number in range(60):
        transact(hosting, f"id-{number}", 5_000)
    assert states(hosting) == ["Ongoing"] * 60
    pass_an_hour(hosting)
    wait_until(lambda: states(hosting) == ["PrepareAbort"] * 60)


def test_a_decision_that_no_batch_can_hold_does_not_hold_up_others(hosting: Hosting) -> None:
    """It was taken in when batches might be larger."""
    hosting.order(TRANSACTION_STATE)
    partition = hosting.broker.replicas.leader_of(TRANSACTION_STATE, 0)
    for transactional_id, partitions in (("a", 10), ("large", 1_000), ("z", 10)):
        transact(hosting, transactional_id, partitions)
    small = replace(partition.log.config, max_message_bytes=2_000)
    hosting.do(lambda: setattr(partition.log, "config", small))
    pass_an_hour(hosting)
    wait_until(lambda: states(hosting) == ["PrepareAbort", "Ongoing", "PrepareAbort"])
