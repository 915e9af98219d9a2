"""Transactional producers, of both versions of the protocol, and readers of committed data.

`Transactional` does what Kafka's clients do. An old one (transaction version 0 or 1) announces partitions
and keeps its epoch; it takes a new one after an abort in which a batch may still be on its way. A new one
(version 2) just writes, and gets another epoch with every end. Errors end in two ways: `MustAbort`, the
transaction is lost, or `Fenced`, this producer is.

`RandomTransactions` commits, aborts, dies in the middle, and sleeps for longer than a transaction may take.
A new one sometimes repeats the end of the transaction before, on another connection, within the next.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from kbroker.peer import PeerLost
from tests.sim.clients import Consumer, World
from tests.sim.coordinated import TRANSACTION, Coordinated
from tests.sim.history import Place, Sent
from tests.sim.loop import Process
from tests.sim.transaction_history import EndAnswer, Transaction, TransactionHistory
from wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from wire.api.end_txn import EndTxnRequest
from wire.api.fetch import PartitionData
from wire.api.init_producer_id import InitProducerIdRequest
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.errors import ErrorCode
from wire.records import BatchBuilder, ControlType, batch_headers, control_type, records

TIMEOUT_MS = 4000
MOST_ATTEMPTS = 6
READ_COMMITTED = 1
FENCED = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
WAITS = frozenset((ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
"""Errors that pass, beside those that are called so."""


class MustAbort(Exception):
    """Nothing but an abort can follow."""


class Fenced(Exception):
    """This producer is over; another one may begin under its transactional id."""


class Died(Exception):
    """As if its process had ended."""


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


NOBODY = Identity(-1, -1)


class Ended(NamedTuple):
    """What an EndTxn asked for."""

    identity: Identity
    is_commit: bool


class Transactional(Coordinated):
    """One producer under a transactional id, one transaction after the other."""

    def __init__(
        self,
        world: World,
        transactions: TransactionHistory,
        name: str,
        transactional_id: str,
        *,
        is_new: bool,
        process: Process | None = None,
    ) -> None:
        super().__init__(world, name, process)
        self.transactions = transactions
        self.transactional_id = transactional_id
        self.is_new = is_new
        self.identity = NOBODY
        self.is_begun = False
        """Whether there is something to end."""
        self.transaction = Transaction(name, -1)
        self._produce_version = 12 if is_new else self.chance.choice((9, 11))
        self._joined: set[Place] = set()
        self._sequences: dict[Place, int] = {}
        self.may_be_late = False
        """Something was sent, and nobody knows what became of it."""
        self._number = self._sent = 0

    # -- what clients call

    async def init(self) -> None:
        """Begin, or go on with another epoch."""
        while True:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
            )
            answer = await self.order(request, 4)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._go_on_as(Identity(answer.producer_id, answer.producer_epoch))
                self.history.note("is", self.name, *self.identity)
                return
            await self.rest(answer and answer.error_code)

    def begin(self) -> None:
        self.transaction = self.transactions.begins(self.name)
        self.is_begun = False
        self._joined.clear()
        self.may_be_late = False

    async def send(self, place: Place, count: int) -> None:
        """Some new values, as one batch."""
        values = [self.next_value(place) for _ in range(count)]
        await self.send_values(place, values)

    def next_value(self, place: Place) -> bytes:
        self._number += 1
        value = f"{self.name}:{self.transaction.number}:{self._number}".encode()
        self.transactions.writes(self.transaction, place, value)
        return value

    async def send_values(self, place: Place, values: list[bytes]) -> None:
        if not self.is_new and place not in self._joined:
            await self._add_partition(place)
        self.is_begun = True
        sequence = self._sequences.get(place, 0)
        builder = BatchBuilder(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        sent = []
        for value in values:
            builder.append(b"k", value, timestamp_ms=1_700_000_000_000)
            self._sent += 1
            sent.append(Sent(value, place, self.name, -1, True, self._sent))
            self.history.sending(sent[-1])
        base_offset = await self._produce(place, builder.build())
        self._joined.add(place)
        self._sequences[place] = sequence + len(values)
        for number, one in enumerate(sent):
            self.history.acknowledged(one, -1 if base_offset < 0 else base_offset + number)

    async def end(self, *, commit: bool) -> None:
        """Returns when it is known; Fenced where it cannot be, or was not."""
        if not self.is_begun:
            return
        transaction, has_sent_before = self.transaction, False
        self.transactions.asks(transaction, commit=commit)
        request = self._end_request(self.identity, commit=commit)
        while True:
            answer = await self.order(request, 5 if self.is_new else 3)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                break
            try:
                await self.rest(answer and answer.error_code)
            except (Fenced, MustAbort):
                self.transactions.refused(transaction, is_certain=not has_sent_before)
                raise Fenced from None
            has_sent_before = True
        self.is_begun = False
        self.transactions.ended(transaction)
        if self.is_new:
            self._go_on_as(Identity(answer.producer_id, answer.producer_epoch))

    async def abort(self) -> None:
        """And make sure that nothing of it can come later."""
        await self.end(commit=False)
        if not self.is_new and self.may_be_late:
            await self.init()

    async def end_again(self, before: Ended, *, commit: bool) -> None:
        """That of the transaction before, within the next one."""
        request = self._end_request(before.identity, commit=commit)
        answer = await self.order(request, 5, purpose="late")
        if answer is None:
            return
        self.history.note("late end", self.name, ErrorCode(answer.error_code).name)
        if answer.error_code == ErrorCode.NONE:
            first = EndAnswer(before.is_commit, *self.identity)
            again = EndAnswer(commit, answer.producer_id, answer.producer_epoch)
            self.transactions.late_end_answered(self.name, first, again)

    # -- how, also for what else belongs to a transaction

    def _end_request(self, identity: Identity, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=commit,
        )

    async def order(self, message: object, version: int, purpose: str = "coordinator") -> Any:
        return await self.ask_coordinator(
            TRANSACTION, self.transactional_id, message, version, purpose=purpose
        )

    def _go_on_as(self, identity: Identity) -> None:
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity

    async def rest(self, code: int | None) -> None:
        """Before it is tried again; Fenced or MustAbort where that is of no use."""
        if code is None:
            return
        error = ErrorCode(code)
        self.history.note("refused", self.name, error.name)
        if error in FENCED:
            raise Fenced
        if not error.retriable and error not in WAITS:
            raise MustAbort
        await self.moved(error)

    async def _add_partition(self, place: Place) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        self.is_begun = True
        while True:
            answer = await self.order(request, 3)
            code = None
            if answer is not None:
                code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code == ErrorCode.NONE:
                return
            await self.rest(code)

    async def _produce(self, place: Place, batch: bytes) -> int:
        """The base offset, or -1 where the broker only says that it has it already."""
        piece = PartitionProduceData(index=place[1], records=batch)
        topic = TopicProduceData(name=place[0], partition_data=[piece])
        request = ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=2000, topic_data=[topic]
        )
        for _ in range(MOST_ATTEMPTS):
            broker_id, _ = await self.leader(place)
            try:
                response = await self.ask(broker_id, request, self._produce_version)
            except PeerLost:
                self.may_be_late = True
                self.forget(place)
                continue
            answer = response.responses[0].partition_responses[0]
            code = ErrorCode(answer.error_code)
            if code == ErrorCode.NONE:
                return int(answer.base_offset)
            if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return -1
            self.history.note("not written", self.name, code.name)
            self.may_be_late = True
            if not code.retriable and code not in WAITS:
                raise MustAbort
            self.forget(place)
            await self.pause(0.2)
        raise MustAbort


class RandomTransactions(Transactional):
    """Into some of the partitions, with some outcome."""

    places: tuple[Place, ...] = ()
    is_done = False

    async def run(self) -> None:
        while not self.is_stopping:
            self.identity = NOBODY
            try:
                await self.init()
                await self._transactions()
            except (Fenced, MustAbort):
                self.history.note("fenced", self.name)
                await self.pause(2.0)
            except Died:
                self.history.note("dead", self.name)
                await self.pause(self.chance.choice((0.2, 2.5 * TIMEOUT_MS / 1000)))
        self.is_done = True

    async def _transactions(self) -> None:
        before: Ended | None = None
        while not self.is_stopping:
            self.begin()
            identity, commit = self.identity, self.chance.random() < 0.65
            try:
                await self._write(before)
                await self.end(commit=commit)
            except MustAbort:
                commit = False
                await self.abort()
            before = Ended(identity, commit)
            await self.pause(0.5)

    async def _write(self, before: Ended | None) -> None:
        places = self.chance.sample(self.places, self.chance.randint(1, len(self.places)))
        results = await asyncio.gather(
            *(self.send(place, self.chance.randint(1, 3)) for place in places), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        fate = self.chance.random()
        if fate < 0.04:
            raise Died
        if fate < 0.07:
            self.history.note("sleeps", self.name)
            await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        if fate > 0.8 and self.is_new and before is not None:
            await self.end_again(before, commit=self.chance.choice((before.is_commit, not before.is_commit)))
        if fate > 0.5:
            await self.send(self.chance.choice(self.places), 1)


class CommittedReader(Consumer):
    """Reads one partition with isolation level read_committed, and leaves out what was aborted."""

    transactions: TransactionHistory

    def __init__(self, world: World, name: str, place: Place) -> None:
        super().__init__(world, name, place)
        self._aborted: set[int] = set()
        """Producers with a transaction here that was aborted, and whose marker is still to come."""

    async def poll(self) -> bool:
        before = self.offset
        answer = await self.fetch(self.place, self.offset, isolation_level=READ_COMMITTED)
        if answer is not None:
            self.take(answer)
        return self.offset > before

    def take(self, answer: PartitionData) -> None:
        data = bytes(answer.records or b"")
        begun = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
        for position, header in batch_headers(data):
            if header.last_offset >= answer.last_stable_offset:
                self.transactions.beyond(self.name, self.place, header.last_offset, answer.last_stable_offset)
            while begun and begun[0][0] <= header.last_offset:
                self._aborted.add(begun.pop(0)[1])
            is_left_out = header.is_transactional and header.producer_id in self._aborted
            for record in records(data, position, header):
                if record.offset < self.offset:
                    continue
                self.offset = record.offset + 1
                if header.is_control:
                    if control_type(record) is ControlType.ABORT:
                        self._aborted.discard(header.producer_id)
                elif not is_left_out:
                    value = self.seen[record.offset] = bytes(record.value or b"")
                    self.history.read(self.name, self.place, record.offset, value)
                    self.transactions.read(self.name, self.place, record.offset, value)
