"""Partitions move until every broker has its share of replicas and of preferred leaders.

- Pure: the same assignments and brokers give the same moves, and the fewest: a replica goes from a broker
  with two more than another one to that other one, as long as there is such a pair; then preferred leaders
  the same way, by putting another replica first, which copies nothing.
- Nothing else changes: not the number of replicas, nor their order, nor what is on brokers that are away.
- No partition is in fewer racks afterwards; where racks stand in the way, shares stay unequal.
- The partitions of each topic spread as well: the topic that crowds the fuller broker most moves first.
- By itself (`check`), the controller moves few partitions at a time, through ordinary reassignments; none
  while a broker that holds replicas is away. Only partitions move that are whole and that nobody moves yet.
  Whoever cancels one has it started again; an operator who does not want that sets `auto_balance` to false.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping

from controller.plan import Plan
from controller.reassignment import start
from controller.state import ClusterState, TopicPartition

Replicas = tuple[int, ...]
Racks = Mapping[int, str | None]
WITHOUT_END = 1 << 62


def check(plan: Plan) -> None:
    """Have some more partitions moved, if that is wanted and needed."""
    state, rules = plan.state, plan.rules
    room = rules.balance_max_moves - len(state.reassigning)
    if not rules.auto_balance or room <= 0 or state.away_since_ms:
        return
    racks = {broker.broker_id: broker.rack for broker in state.staying_brokers()}
    partitions = [partition for partition in state.partitions() if partition.topic not in state.deletions]
    assignments = {partition: state.assignment(partition).target for partition in partitions}
    fixed = {partition for partition in partitions if not _is_whole(state, partition)}
    moves = balanced(assignments, racks, fixed, room)
    start(plan, {partition: state.assignment(partition).reassign_to(moves[partition]) for partition in moves})


def _is_whole(state: ClusterState, partition: TopicPartition) -> bool:
    leadership = state.leadership(partition)
    return (
        partition not in state.reassigning
        and leadership is not None
        and set(state.assignment(partition).replicas) <= set(leadership.isr)
    )


def balanced(
    assignments: Mapping[TopicPartition, Replicas],
    racks: Racks,
    fixed: Collection[TopicPartition] = (),
    most: int = WITHOUT_END,
) -> dict[TopicPartition, Replicas]:
    """The partitions that are to change, at most so many, with their new replicas.

    `racks` names the brokers that take part; partitions in `fixed` stay as they are, and count.
    """
    if _are_equal(assignments.values(), racks):
        return {}
    shares = _Shares(assignments, racks, fixed)
    while len(shares.changed) < most and (shares.move_replica() or shares.move_leader(most)):
        pass
    return {p: shares.replicas[p] for p in shares.changed if shares.replicas[p] != assignments[p]}


def _are_equal(assigned: Collection[Replicas], racks: Racks) -> bool:
    """Usually they are, and the controller looks often."""
    loads = Counter(replica for replicas in assigned for replica in replicas)
    leads = Counter(replicas[0] for replicas in assigned)
    counts = [[found[one] for one in racks] for found in (loads, leads)]
    return all(max(one, default=0) - min(one, default=0) <= 1 for one in counts)


class _Shares:
    """Who has what, while it is being balanced."""

    def __init__(
        self, assignments: Mapping[TopicPartition, Replicas], racks: Racks, fixed: Collection[TopicPartition]
    ) -> None:
        self.replicas = dict(assignments)
        self.changed: dict[TopicPartition, None] = {}
        self._racks = racks
        self._fixed = frozenset(fixed)
        self._loads = Counter(dict.fromkeys(racks, 0))
        self._leads = Counter(dict.fromkeys(racks, 0))
        self._topic_loads: Counter[tuple[str, int]] = Counter()
        self._topic_leads: Counter[tuple[str, int]] = Counter()
        self._on: dict[int, dict[TopicPartition, None]] = {broker_id: {} for broker_id in racks}
        for partition in sorted(assignments):
            self._count(partition, 1)

    def _count(self, partition: TopicPartition, sign: int) -> None:
        """Take a partition into account, or (-1) out of it."""
        replicas = self.replicas[partition]
        for broker_id in replicas:
            if broker_id in self._racks:
                self._loads[broker_id] += sign
                self._topic_loads[partition.topic, broker_id] += sign
                if sign > 0:
                    self._on[broker_id][partition] = None
                else:
                    del self._on[broker_id][partition]
        if replicas[0] in self._racks:
            self._leads[replicas[0]] += sign
            self._topic_leads[partition.topic, replicas[0]] += sign

    def _change(self, partition: TopicPartition, replicas: Replicas) -> None:
        self._count(partition, -1)
        self.replicas[partition] = replicas
        self._count(partition, 1)
        self.changed[partition] = None

    # -- replicas

    def move_replica(self) -> bool:
        """One, from a broker to one that has at least two fewer; False where that is not possible."""
        for source, target in _pairs(self._loads):
            wants_leader = self._leads[source] - self._leads[target] > 1
            partition = min(
                (p for p in self._on[source] if self._may_move(p, source, target)),
                key=lambda p: (
                    self._topic_loads[p.topic, target] - self._topic_loads[p.topic, source],
                    (self.replicas[p][0] == source) != wants_leader,
                    p,
                ),
                default=None,
            )
            if partition is not None:
                self._change(partition, _replaced(self.replicas[partition], source, target))
                return True
        return False

    def _may_move(self, partition: TopicPartition, source: int, target: int) -> bool:
        replicas = self.replicas[partition]
        if target in replicas or partition in self._fixed:
            return False
        after = self._racks_of(_replaced(replicas, source, target))
        return len(after) >= len(self._racks_of(replicas))

    def _racks_of(self, replicas: Replicas) -> set[str | None]:
        return {self._racks.get(broker_id) for broker_id in replicas} - {None}

    # -- leaders

    def move_leader(self, most: int) -> bool:
        """From a broker to one with at least two fewer, if need be by way of others that have replicas."""
        for source in sorted(self._leads, key=lambda one: (-self._leads[one], one)):
            path = self._path_of_leaders(source)
            if path and len(self.changed.keys() | {partition for partition, _ in path}) <= most:
                for partition, leader in path:
                    others = [one for one in self.replicas[partition] if one != leader]
                    self._change(partition, (leader, *others))
                return True
        return False

    def _path_of_leaders(self, source: int) -> list[tuple[TopicPartition, int]]:
        """Partitions and their new leaders, each led so far by the new leader of the one before."""
        paths: dict[int, list[tuple[TopicPartition, int]]] = {source: []}
        queue = deque([source])
        while queue:
            broker_id = queue.popleft()
            if self._leads[source] - self._leads[broker_id] > 1:
                return paths[broker_id]
            for leader, partition in self._to_hand_over(broker_id).items():
                if leader not in paths:
                    paths[leader] = [*paths[broker_id], (partition, leader)]
                    queue.append(leader)
        return []

    def _to_hand_over(self, broker_id: int) -> dict[int, TopicPartition]:
        """By each broker that can take one, the partition that it takes best."""
        best: dict[int, tuple[int, TopicPartition]] = {}
        for partition in self._on[broker_id]:
            leader, *others = self.replicas[partition]
            if leader != broker_id or partition in self._fixed:
                continue
            for other in others:
                if other in self._racks:
                    topic = partition.topic
                    crowd = self._topic_leads[topic, other] - self._topic_leads[topic, broker_id]
                    best[other] = min(best.get(other, (crowd, partition)), (crowd, partition))
        fewest_first = sorted(best, key=lambda one: (self._leads[one], one))
        return {other: best[other][1] for other in fewest_first}


def _pairs(shares: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Who has at least two more than whom; the fullest first, each with the emptiest first."""
    rising = sorted(shares, key=lambda one: (shares[one], one))
    for source in sorted(shares, key=lambda one: (-shares[one], one)):
        for target in rising:
            if shares[source] - shares[target] < 2:
                break
            yield source, target


def _replaced(replicas: Replicas, old: int, new: int) -> Replicas:
    return tuple(new if one == old else one for one in replicas)
