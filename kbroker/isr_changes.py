"""Asks the controller for other in-sync replicas (AlterPartition), for the partitions that this broker leads.

- One request is on its way at a time, with everything that was proposed while the last one was.
- A proposal is pending in its partition (`kbroker.partition`) until it is settled: granted, refused for good,
  or overtaken by an order of the controller. Meanwhile the partition proposes nothing else.
- Where the controller says that the leader does not know the latest, the proposal stays pending, since nobody
  knows what became of it: an order of the controller will come and say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.peer import PeerLost
from kbroker.replica_manager import HostedPartition
from wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResponse,
    TopicData,
)
from wire.errors import ErrorCode

logger = logging.getLogger(__name__)

VERSION = 3
RETRY_S = 0.05

OUTDATED = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    )
)
"""An order that says what holds is on its way."""
REFUSED = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))

Ask = Callable[[AlterPartitionRequest, int], Awaitable[AlterPartitionResponse]]
Settled = Callable[[HostedPartition], object]


class _Proposal(NamedTuple):
    partition: HostedPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]

    @property
    def is_current(self) -> bool:
        """Whether the partition still waits for just this."""
        partition = self.partition
        return (
            partition.leadership is not None
            and partition.leadership.proposed == self.isr
            and (partition.leader_epoch, partition.partition_epoch)
            == (self.leader_epoch, self.partition_epoch)
        )


class IsrChanges:
    """The proposals of a broker."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        ask: Ask,
        settled: Settled,
        spawn: Callable[[Coroutine[object, object, None]], object],
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        """`settled` is told of a partition whose in-sync replicas are others now."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ask = ask
        self._settled = settled
        self._spawn = spawn
        self._bugs = bugs
        self._waiting: dict[tuple[str, int], _Proposal] = {}
        self._is_asking = False

    def propose(self, partition: HostedPartition, isr: tuple[int, ...]) -> None:
        if partition.leadership is None:
            return
        partition.leadership.propose(isr)
        self._waiting[partition.topic, partition.index] = _Proposal(
            partition, partition.leader_epoch, partition.partition_epoch, isr
        )
        if not self._is_asking:
            self._is_asking = True
            self._spawn(self._ask_for_all())

    async def _ask_for_all(self) -> None:
        while self._waiting:
            proposals = [one for one in self._waiting.values() if one.is_current]
            self._waiting.clear()
            if proposals and not await self._ask_for(proposals):
                await asyncio.sleep(RETRY_S)
        self._is_asking = False

    async def _ask_for(self, proposals: list[_Proposal]) -> bool:
        """Whether all were granted. Whatever happens, what is not settled is asked for again."""
        try:
            response = await self._ask(self._request(proposals), VERSION)
            if response.error_code == ErrorCode.NONE:
                return not self._take(proposals, response)
            # The controller does not know this life of the broker yet, or any more.
        except PeerLost as error:
            logger.warning("the in-sync replicas stay as they are for now: %s", error)
        except Exception as error:
            self._bugs.met("a question for in-sync replicas", error)
        self._again(proposals)
        return False

    def _again(self, proposals: list[_Proposal]) -> None:
        for one in proposals:
            self._waiting.setdefault((one.partition.topic, one.partition.index), one)

    def _request(self, proposals: list[_Proposal]) -> AlterPartitionRequest:
        topics: dict[bytes, list[PartitionData]] = {}
        for one in proposals:
            leadership = one.partition.leadership
            epochs = {} if leadership is None else leadership.broker_epochs(one.isr)
            epochs = {**epochs, self._broker_id: self._broker_epoch()}
            topics.setdefault(one.partition.topic_id, []).append(
                PartitionData(
                    partition_index=one.partition.index,
                    leader_epoch=one.leader_epoch,
                    partition_epoch=one.partition_epoch,
                    new_isr=list(one.isr),  # for controllers that do not know broker epochs
                    new_isr_with_epochs=[
                        BrokerState(broker_id=replica, broker_epoch=epochs.get(replica, -1))
                        for replica in one.isr
                    ],
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[TopicData(topic_id=topic_id, partitions=data) for topic_id, data in topics.items()],
        )

    def _take(self, proposals: list[_Proposal], response: AlterPartitionResponse) -> bool:
        """Whether some were not granted, and may be proposed again: not at once."""
        answers: dict[tuple[bytes, int], PartitionDataResponse] = {
            (topic.topic_id, data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        some_refused = False
        for one in proposals:
            answer = answers.get((one.partition.topic_id, one.partition.index))
            if not one.is_current:
                continue  # an order has said what holds
            if answer is None or answer.error_code not in (ErrorCode.NONE, *OUTDATED, *REFUSED):
                some_refused = True
                self._again([one])
            else:
                some_refused |= answer.error_code != ErrorCode.NONE
                self._bugs.tell(self._settle, one, answer)
        return some_refused

    def _settle(self, proposal: _Proposal, answer: PartitionDataResponse) -> None:
        partition, leadership = proposal.partition, proposal.partition.leadership
        if leadership is None:
            return
        if answer.error_code == ErrorCode.NONE:
            logger.info("%s: the in-sync replicas are %s", partition, list(answer.isr))
            partition.partition_epoch = answer.partition_epoch
            leadership.settled(answer.isr)
            self._settled(partition)
            return
        code: Any = answer.error_code
        logger.info("%s: %s in sync was not granted, error %s", partition, list(proposal.isr), code)
        if answer.error_code in REFUSED:
            leadership.refused()
            self._settled(partition)
