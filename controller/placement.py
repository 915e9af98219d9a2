"""Which brokers hold a new partition: Kafka's placement, with chance passed in.

- Without racks: the first replica goes round the brokers from a starting point, the others follow at a shift
  that grows with each round, so that the followers of one broker's leaders spread over all the others.
- With racks: the same on a list that alternates between racks, and a partition takes a rack a second time
  only when it has been to all of them. Racks count only if every broker has one.
- Bad requests are KafkaErrors: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from controller.state import LiveBroker
from wire.errors import ErrorCode, KafkaError


class Start(NamedTuple):
    """Where placement begins: at which broker of the ring, and with which shift of the followers."""

    broker: int
    shift: int


def place(
    brokers: Sequence[LiveBroker],
    partitions: int,
    replication_factor: int,
    start: Start,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """The replicas of partitions `first_partition` and up, by partition."""
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "a topic needs at least one partition")
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "a partition needs at least one replica")
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas do not fit on {len(brokers)} live brokers",
        )
    racks = {broker.broker_id: broker.rack for broker in brokers}
    known = {broker_id: rack for broker_id, rack in racks.items() if rack is not None}
    if len(known) < len(racks):
        known = dict.fromkeys(racks, "")
    ring = alternate(known)
    placed: dict[int, tuple[int, ...]] = {}
    shift = start.shift
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        first = (partition + start.broker) % len(ring)
        placed[partition] = _replicas(ring, known, first, shift, replication_factor)
    return placed


def alternate(racks: Mapping[int, str]) -> list[int]:
    """The brokers in an order that goes from rack to rack."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker_id for one_round in rounds for broker_id in one_round if broker_id is not None]


def _replicas(
    ring: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """The replicas of one partition: `first`, and then round the ring, a new rack as long as there is one."""
    rack_count = len(set(racks.values()))
    chosen = [ring[first]]
    step = 0
    while len(chosen) < replication_factor:
        distance = 1 + (shift * rack_count + step) % (len(ring) - 1)
        candidate = ring[(first + distance) % len(ring)]
        step += 1
        used_racks = {racks[broker_id] for broker_id in chosen}
        if candidate not in chosen and (racks[candidate] not in used_racks or len(used_racks) == rack_count):
            chosen.append(candidate)
    return tuple(chosen)


def grow(
    brokers: Sequence[LiveBroker], existing: Mapping[int, Sequence[int]], count: int
) -> dict[int, tuple[int, ...]]:
    """The replicas of the partitions that bring a topic to `count`; its leaders go on round the brokers."""
    first_replicas = existing[min(existing)]
    ids = [broker.broker_id for broker in brokers]
    at_or_after = [index for index, broker_id in enumerate(ids) if broker_id >= first_replicas[0]]
    index = at_or_after[0] if at_or_after else 0
    added = count - len(existing)
    return place(brokers, added, len(first_replicas), Start(index, index), first_partition=len(existing))


def check_manual(
    assignments: Iterable[Sequence[int]], brokers: Collection[int], replication_factor: int | None = None
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless these replicas can be, and are all equally many."""
    for replicas in assignments:
        _check_replicas(replicas, brokers)
        replication_factor = len(replicas) if replication_factor is None else replication_factor
        if len(replicas) != replication_factor:
            raise _invalid(f"{len(replicas)} replicas in one partition, {replication_factor} in another")


def _check_replicas(replicas: Sequence[int], brokers: Collection[int]) -> None:
    if not replicas:
        raise _invalid("a partition needs at least one replica")
    if len(set(replicas)) < len(replicas):
        raise _invalid(f"a broker occurs twice: {list(replicas)}")
    if unknown := [replica for replica in replicas if replica not in brokers]:
        raise _invalid(f"no such brokers: {unknown}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
