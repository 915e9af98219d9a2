"""Members of a group that copy what they read, exactly once: consume, transform, produce.

Each copies a few records in a transaction, with the offsets that it has read up to. If the transaction is
lost it reads on from what is committed; if its producer is fenced off, as another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.sim.clients import World
from tests.sim.coordinated import GROUP
from tests.sim.groups import Member, topics_of
from tests.sim.history import Place
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transactions import NOBODY, Fenced, MustAbort, Transactional
from wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from wire.errors import ErrorCode

MOST_COPIED = 20
ADD_OFFSETS_VERSION = 3
COMMIT_VERSION, COMMIT_VERSION_THAT_JOINS = 3, 5


class Listener(Member):
    """Whose group commits in transactions: whatever offset it is told must be of one that may be visible."""

    transactions: TransactionHistory

    async def fetch_offsets(
        self, places: Sequence[Place], *, require_stable: bool = True
    ) -> Mapping[Place, int]:
        told = await super().fetch_offsets(places, require_stable=require_stable)
        for place, offset in told.items():
            self.transactions.told_offset(self.group, place, offset)
        return told


class Onlooker(Listener):
    """Joins nothing, and looks at what is committed, pending or not."""

    async def run(self) -> None:
        while not self.is_stopping:
            await self.pause(0.2)
            await self.fetch_offsets(self._places, require_stable=False)


class Copier(Listener):
    def __init__(
        self,
        world: World,
        transactions: TransactionHistory,
        name: str,
        group: str,
        places: Sequence[Place],
        targets: Sequence[Place],
        *,
        is_new: bool,
    ) -> None:
        super().__init__(world, name, group, places)
        self.transactions = transactions
        self._targets = targets
        self._producer = Transactional(world, transactions, name, name, is_new=is_new, process=self.process)

    async def turn(self) -> None:
        for place in list(self.positions):
            position = self.positions.get(place, 0)
            found = (await self.consume(place))[:MOST_COPIED]
            if found and place in self.positions:
                await self._copy(place, found)
            elif self.positions.get(place, position) == position:
                await self.pause(0.4)

    async def finish(self) -> None:
        """Everything is committed as it goes."""

    async def _copy(self, place: Place, found: list[tuple[int, bytes]]) -> None:
        producer, end = self._producer, found[-1][0] + 1
        try:
            if producer.identity == NOBODY:
                await producer.init()
            producer.begin()
            try:
                await self._write(place, found)
                await self._send_offsets({place: end})
                await producer.end(commit=True)
            except MustAbort:
                await producer.abort()
            else:
                self.history.committed(self.group, place, end)
                if place in self.positions:
                    self.positions[place] = end
                return
        except Fenced:
            self.history.note("fenced", self.name)
            producer.identity = NOBODY
        except MustAbort:
            producer.identity = NOBODY
        if not self.must_join:
            await self.find_positions(list(self.positions))

    async def _write(self, place: Place, found: list[tuple[int, bytes]]) -> None:
        target = self.chance.choice(self._targets)
        values = []
        for offset, _ in found:
            values.append(self._producer.next_value(target))
            self._producer.transaction.copied[values[-1]] = place, offset
        cut = self.chance.randint(1, len(values))
        await self._producer.send_values(target, values[:cut])
        if values[cut:]:
            await self._producer.send_values(target, values[cut:])

    async def _send_offsets(self, offsets: Mapping[Place, int]) -> None:
        producer = self._producer
        if not producer.is_new:
            await self._add_offsets()
        for place, offset in offsets.items():
            self.transactions.writes_offset(producer.transaction, self.group, place, offset)
        request = TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=self.group,
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.producer_epoch,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=topics_of(offsets, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition),
        )
        version = COMMIT_VERSION_THAT_JOINS if producer.is_new else COMMIT_VERSION
        while True:
            latest = self.history.latest_generation(self.group)
            answer = await self.ask_coordinator(GROUP, self.group, request, version)
            if answer is None:
                producer.may_be_late = True
                continue
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if code == ErrorCode.NONE:
                self.history.late_commit(self.group, request.generation_id_or_member_epoch, latest)
                return
            self.history.note("offsets refused", self.name, code.name)
            if not code.retriable and code != ErrorCode.CONCURRENT_TRANSACTIONS:
                if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
                    await self._refused(code)
                raise MustAbort
            await self.moved(code)

    async def _add_offsets(self) -> None:
        producer = self._producer
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.producer_epoch,
            group_id=self.group,
        )
        while True:
            answer = await producer.order(request, ADD_OFFSETS_VERSION)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                return
            await producer.rest(answer and answer.error_code)
