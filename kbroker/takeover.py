"""Takes over what earlier kbrokers kept in the wrong partition of a coordinator's topic.

Which keys these are, and why the partitions come in pairs, is told in `kbroker.coordinators.key_partition`. A
pair is put right once this broker leads and has loaded both of its partitions; a broker that is alone does:

1. what the right partition does not have is appended to it, key by key; what it has is newer, and stays;
2. when that is as safe as the partition promises, tombstones remove the keys from the wrong one.

So a crash in between leaves both, and the next load begins again with 1. Until 2 is done clients that ask for
one of these keys are told to wait (`is_awaited`). What is in a transaction that has not ended stays for
that long in the wrong partition, whose coordinator ends it as any other.

Nothing is moved unless the topic is known to have as many partitions as keys are spread over. In a cluster
the other partition may be led elsewhere; the log then says so, and it happens when one broker leads both.

Where the wrong partition has such keys, and cannot be loaded, its pair answers for none that may be among
them: that nothing is known of them would make their clients begin anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from kbroker.coordinator_topic import CoordinatorTopic
from kbroker.coordinators.key_partition import old_partition_of, old_place, partition_of
from kbroker.coordinators.step import Step
from wire import words
from wire.errors import KafkaError

if TYPE_CHECKING:
    from kbroker.coordinator_runtime import Clock, Machine, Shard

logger = logging.getLogger(__name__)

KEYS_PER_TURN = 50
RECORDS_PER_TURN = 2_000
AGAIN_MS = 200

M = TypeVar("M", bound="Machine")


class Takeover(Generic[M]):
    """Of the keys of one topic, on this broker."""

    def __init__(
        self,
        shards: Mapping[int, Shard[M]],
        clock: Clock,
        topic: CoordinatorTopic,
    ) -> None:
        self._shards = shards
        self._clock = clock
        self._topic = topic
        self._misplaced: dict[int, dict[str, None]] = {}
        """By the partition that has them: keys that belong to its pair."""
        self._unreadable: set[int] = set()
        """Partitions that have such keys and cannot be loaded."""

    def is_awaited(self, key: str, index: int) -> bool:
        """Whether the wrong partition may have something of a key that belongs to this one."""
        if old_partition_of(key, self._topic.partitions) == index:
            return False
        wrong = self._shards.get(old_place(index, self._topic.partitions))
        return wrong is not None and (wrong.is_loading or wrong.machine.knows(key))

    def is_unreadable(self, key: str) -> bool:
        """Whether something of a key may be where it cannot be read."""
        return bool(self._unreadable) and old_partition_of(key, self._topic.partitions) in self._unreadable

    def loaded(self, index: int) -> None:
        """A partition has been loaded: look for keys that do not belong to it, and for those that do."""
        right, found = old_place(index, self._topic.partitions), self._found(index)
        if found:
            self._misplaced[index] = found
            if right not in self._shards:
                logger.warning(
                    "%s has %s that an earlier kbroker put there; their place is partition %d, and they will "
                    "be moved when this broker leads both; until then their coordinator does not know them",
                    self._shards[index].partition,
                    words.count(len(found), "id"),
                    right,
                )
        for each in (index, right):
            self._move(each)

    def _found(self, index: int) -> dict[str, None]:
        """The keys in a partition that belong to its pair."""
        count, right = self._topic.partitions, old_place(index, self._topic.partitions)
        return dict.fromkeys(
            key
            for key in self._shards[index].machine.ids()
            if partition_of(key, count) == right != index and old_partition_of(key, count) == index
        )

    def failed(self, index: int) -> None:
        """A partition cannot be loaded, but for its beginning."""
        if self._found(index):
            self._unreadable.add(index)
            logger.error(
                "%s has ids that belong to partition %d and cannot be read: they are not served",
                self._shards[index].partition,
                old_place(index, self._topic.partitions),
            )

    def elected(self, index: int) -> None:
        self._unreadable.discard(index)

    def resigned(self, index: int) -> None:
        """What cannot be read is as it was, until it is loaded by somebody else."""
        self._misplaced.pop(index, None)

    def _move(self, index: int) -> None:
        """Some of the keys that a partition has and that do not belong to it."""
        keys = self._misplaced.get(index)
        wrong, right = self._shards.get(index), self._shards.get(old_place(index, self._topic.partitions))
        if not keys or wrong is None or right is None or wrong.is_loading or right.is_loading:
            return
        if not self._topic.is_known or self._topic.has_grown:
            self._again(wrong, AGAIN_MS)
            return
        end = right.partition.log.log_end_offset
        some, taken = [], []
        for key in list(islice(keys, KEYS_PER_TURN)):
            some.append(key)
            if self._take(key, wrong, right):
                taken.append(key)
            if right.partition.log.log_end_offset - end >= RECORDS_PER_TURN:
                break
        has_grown = right.partition.log.log_end_offset > end

        def told(error: KafkaError | None) -> None:
            if self._shards.get(index) is not wrong or self._misplaced.get(index) is not keys:
                return  # it is led elsewhere now, and will be loaded there
            gone = set() if error is not None else {key for key in taken if self._remove(key, wrong)}
            for key in some:  # those that have to wait let others go first
                keys.pop(key, None)
            keys.update(dict.fromkeys(key for key in some if key not in gone))
            if keys:
                self._again(wrong, 0 if gone or has_grown else AGAIN_MS)
            else:
                del self._misplaced[index]
                logger.info("%s has its ids back from %s", right.partition, wrong.partition)

        right.when_safe(told)

    def _again(self, wrong: Shard[M], delay_ms: int) -> None:
        def again() -> None:
            if self._shards.get(wrong.partition.index) is wrong:
                self._move(wrong.partition.index)

        self._clock.call_later_ms(delay_ms, again)

    def _take(self, key: str, wrong: Shard[M], right: Shard[M]) -> bool:
        """Whether the right partition has everything of a key now."""
        for _ in range(2):
            step = right.machine.take_over(key, wrong.machine, self._clock.now_ms())
            if step is None:
                return False
            right.decide(partial(decided, step))
            if not step.records:
                return True
        return False  # there is more of it, or it was refused

    @staticmethod
    def _remove(key: str, wrong: Shard[M]) -> bool:
        wrong.decide(lambda machine, now_ms: machine.give_up(key, now_ms))
        return not wrong.machine.knows(key)


def decided(step: Step, machine: object, now_ms: int) -> Step:
    return step
