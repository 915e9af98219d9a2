"""Produce: append batches of records.

- v3+: record batches of format 2 only; v7+: zstd; v8+: errors of single records; v13: topics by id.
- Appending is the first phase and happens in this turn of the loop, acknowledging is the second: the reply is
  parked until what acks and the durability mode promise is true, and does not hold back the next Produce.
- acks=0 gets no reply; if anything failed, the connection is closed, which is the only signal (7).
- Each partition has its own outcome. Internal topics are not for clients (20); acks must be -1, 0 or 1 (27);
  too few in-sync replicas refuse before the append (33), and after it if they become too few while it waits.
  Replicas are waited for as long as the request allows.
- Transactional records without a transactional id are refused with everything else of the request, before
  anything is looked at.
- A batch whose records take long to look at is copied, and looked at in a thread; meanwhile the connection's
  next Produce waits.
- A batch that begins a transaction in its partition waits until the transaction's coordinator has been asked:
  up to v11 whether the partition was added, from v12 on to add it (conformance 42, KIP-890). Until then the
  connection's next Produce waits, too: batches keep their order.
- Very many partitions are staged, and appended, some at a time, while other connections are served.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker.bugs import answering
from kbroker.context import NO_REPLY, Context, HangUp, InSlices, Parked
from kbroker.hosted_partition import OutcomeUnknown
from kbroker.produced_batches import Allowance, ProduceRules, TooMuch, accept, examined
from kbroker.replica_manager import ALL, AppendOutcome, HostedPartition
from kbroker.transaction_verification import produce_error
from storage.producer_state import VerificationGuard
from wire.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from wire.errors import ErrorCode, KafkaError
from wire.primitives import Buffer
from wire.record_batch import HEADER_SIZE, MAGIC, TRANSACTIONAL_FLAG, BatchHeader
from wire.record_validation import InvalidBatch, NotOneBatch
from wire.steps import Steps

if TYPE_CHECKING:
    from kbroker.broker import Broker

MOST_AT_ONCE = 500
"""Partitions: several milliseconds."""
STAGED_TOGETHER = 20
FIRST_VERSION_WITH_TRANSACTION_ABORTABLE = 11
FIRST_VERSION_THAT_JOINS = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13
FLAGS_AT = 22
"""In a batch: the byte of its attributes that is looked at before anything else is read."""
UNREACHED = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    )
)
"""Errors beside which Kafka does not tell where the log begins."""


class Timer(Protocol):
    def cancel(self) -> object: ...


def produce(broker: Broker, context: Context, request: ProduceRequest) -> Parked | InSlices[Parked]:
    in_flight = _InFlight(broker, context, request)
    if sum(len(topic.partition_data) for topic in request.topic_data) > MOST_AT_ONCE:
        return in_slices(broker, in_flight, request)
    for _ in in_flight.stage(request):
        pass
    return in_flight.parked


def in_slices(broker: Broker, in_flight: _InFlight, request: ProduceRequest) -> InSlices[Parked]:
    """What is not staged at once needs records of its own: what the request was read into is used again."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None if data.records is None else bytes(data.records)
    for number, _ in enumerate(in_flight.stage(request)):
        if number % STAGED_TOGETHER == 0:
            broker.end_turn()
            yield
    broker.end_turn()
    return in_flight.parked


def refuse(
    answer: PartitionProduceResponse, error: KafkaError, partition: HostedPartition | None = None
) -> None:
    """Make an answer say that its batch was not appended.

    As in Kafka it tells where the log of `partition` begins if that was reached, and refused the batch.
    """
    answer.error_code = error.code
    answer.error_message = str(error)
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    if partition is not None and error.code not in UNREACHED and not isinstance(error, NotOneBatch):
        answer.log_start_offset = partition.log.log_start_offset
    if isinstance(error, InvalidBatch):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]


def lacks_transactional_id(request: ProduceRequest) -> KafkaError | None:
    """Why a request that names no transactional id may not write transactional batches, if it has one."""
    if request.transactional_id is None and any(
        is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data
    ):
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return None


def is_transactional(records: Buffer | None) -> bool:
    """What the first batch says, if it is whole."""
    if records is None or len(records) < HEADER_SIZE or not records[FLAGS_AT] & TRANSACTIONAL_FLAG:
        return False
    header = BatchHeader.parse(records)
    return header.magic == MAGIC and header.size <= len(records)


class _Late(NamedTuple):
    """A batch whose records are looked at in a thread."""

    partition: HostedPartition
    batch: bytes
    rules: ProduceRules
    answer: PartitionProduceResponse


Accepted = tuple[Buffer, BatchHeader] | KafkaError


def examine(late: list[_Late], now_ms: int) -> Steps[list[Accepted]]:
    """In a thread: what is to be appended of each."""
    found: list[Accepted] = []
    for one in late:
        try:
            found.append((yield from examined(one.batch, one.rules, now_ms)))
        except KafkaError as error:
            found.append(error)
    return found


class _InFlight:
    """One Produce from its arrival to its reply."""

    __slots__ = (
        "_acks",
        "_allowance",
        "_broker",
        "_client_host",
        "_failed",
        "_is_asking",
        "_late",
        "_late_places",
        "_now_ms",
        "_pending",
        "_responses",
        "_timeout_ms",
        "_timer",
        "_transactional_id",
        "_version",
        "_waiting",
        "parked",
    )

    def __init__(self, broker: Broker, context: Context, request: ProduceRequest) -> None:
        self.parked = Parked(pipelined=True)
        self._broker = broker
        self._client_host = context.client_host
        self._version = context.api_version
        self._acks = request.acks
        self._transactional_id = request.transactional_id or ""
        self._now_ms = broker.now_ms()
        self._responses: dict[tuple[str, bytes], TopicProduceResponse] = {}
        self._pending = 1
        """Partitions without an outcome, and one for the request itself until all is staged."""
        self._failed: str | None = None
        self._allowance = Allowance()
        self._late: list[_Late] = []
        self._late_places: set[tuple[str, int]] = set()
        self._is_asking = False
        """Whether a transaction's coordinator was asked."""
        self._timeout_ms = request.timeout_ms
        self._timer: Timer | None = None
        self._waiting: dict[int, PartitionProduceResponse] = {}
        """The answers that wait for other replicas, each by its own number."""

    def stage(self, request: ProduceRequest) -> Iterator[None]:
        """The first phase, but for the write itself; a partition a step."""
        replicas = self._broker.replicas
        refusal = lacks_transactional_id(request)
        for topic in request.topic_data:
            if not topic.partition_data:
                continue
            name, unknown = topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if self._version >= FIRST_VERSION_WITH_TOPIC_IDS:
                name, unknown = replicas.topic_name(topic.topic_id) or "", ErrorCode.UNKNOWN_TOPIC_ID
            answers = self._answers_for(topic)
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)
                answers.append(answer)
                self._pending += 1
                try:
                    if refusal is not None:
                        raise refusal
                    if not name:
                        raise KafkaError(unknown)
                    self._stage_partition(name, data, answer)
                except KafkaError as error:
                    self._refuse(answer, error, None if refusal else replicas.find(name, data.index))
                yield
        if self._late:
            self.parked.pipelined = False
            steps = examine(self._late, self._now_ms)
            self._broker.off_loop.run(steps, self._examined, self._client_host)
        self._one_done()

    def _answers_for(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        """A topic that is named more than once is answered once."""
        key = topic.name, topic.topic_id
        if key not in self._responses:
            self._responses[key] = TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[]
            )
        return self._responses[key].partition_responses

    def _stage_partition(
        self, topic: str, data: PartitionProduceData, answer: PartitionProduceResponse
    ) -> None:
        partition = self._broker.replicas.writable(topic, data.index, self._acks)
        if data.records is None:
            raise NotOneBatch("no records at all")
        place = topic, data.index
        try:
            batch, header = accept(
                data.records, partition.rules, self._version, self._now_ms, self._allowance
            )
            takes_long = place in self._late_places  # twice in one request: in order
        except TooMuch:
            takes_long = True
        if takes_long:
            self._late_places.add(place)
            self._late.append(_Late(partition, bytes(data.records), partition.rules, answer))
        else:
            self._stage_accepted(partition, batch, header, answer)

    @answering
    def _examined(self, found: list[Accepted] | Exception) -> None:
        """What took long was looked at."""
        self._broker.slices.take(self._stage_late(found), self._staged_late, is_end=True)

    def _stage_late(self, found: list[Accepted] | Exception) -> InSlices[None]:
        """Meanwhile partitions may not be what they were."""
        if isinstance(found, Exception):
            raise found
        late, self._late = self._late, []
        for number, (one, accepted) in enumerate(zip(late, found, strict=True), 1):
            try:
                if isinstance(accepted, KafkaError):
                    raise accepted
                self._check_writable(one.partition)
                self._stage_accepted(one.partition, *accepted, one.answer)
            except KafkaError as error:
                self._refuse(one.answer, error, one.partition)
            if number % STAGED_TOGETHER == 0:
                self._broker.end_turn()
                yield
        self._broker.end_turn()

    def _check_writable(self, partition: HostedPartition) -> None:
        """KafkaError where this broker does not lead it any more, or its topic was deleted and made anew."""
        if self._broker.replicas.writable(partition.topic, partition.index, self._acks) is not partition:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @answering
    def _staged_late(self, outcome: object) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        if not self._is_asking:
            self.parked.become_pipelined()

    def failed(self, error: Exception) -> None:
        """Nobody knows what was appended."""
        if not isinstance(error, OutcomeUnknown):
            self._broker.bugs.met("a Produce", error)
        if self._timer is not None:
            self._timer.cancel()
        if not self.parked.is_done:
            self.parked.complete(HangUp("the outcome of a Produce is unknown"))

    def _stage_accepted(
        self, partition: HostedPartition, batch: Buffer, header: BatchHeader, answer: PartitionProduceResponse
    ) -> None:
        if not header.is_transactional or not self._must_ask(partition, batch, header, answer):
            self._broker.replicas.stage(partition, batch, header, partial(self._appended, partition, answer))

    def _must_ask(
        self, partition: HostedPartition, batch: Buffer, header: BatchHeader, answer: PartitionProduceResponse
    ) -> bool:
        """Whether it is appended by `_verified`, once the coordinator was asked, or is refused before."""
        broker, joins = self._broker, self._version >= FIRST_VERSION_THAT_JOINS
        producers = partition.log.producers
        if not joins and not producers.verify_transactions:
            return False
        try:
            guard = producers.start_verification(header, self._now_ms, supports_epoch_bump=joins)
        except KafkaError as error:
            self._refuse(answer, error)
            return True
        if guard is None:
            return False
        self.parked.pipelined, self._is_asking = False, True
        broker.transactions.verifier.verify(
            self._transactional_id,
            (header.producer_id, header.producer_epoch),
            [(partition.topic, partition.index)],
            joins=joins,
            told=partial(self._verified, partition, bytes(batch), {header.producer_id: guard}, answer),
        )
        return True

    @answering
    def _verified(
        self,
        partition: HostedPartition,
        batch: bytes,
        guards: dict[int, VerificationGuard],
        answer: PartitionProduceResponse,
        error: ErrorCode,
    ) -> None:
        """The coordinator has answered. Meanwhile the partition may not be what it was."""
        replicas = self._broker.replicas
        if error != ErrorCode.NONE:
            if not error.retriable:
                for producer_id, guard in guards.items():
                    partition.log.producers.give_up_verification(producer_id, guard)
            joins = self._version >= FIRST_VERSION_THAT_JOINS
            knows = self._version >= FIRST_VERSION_WITH_TRANSACTION_ABORTABLE
            self._refuse(answer, KafkaError(produce_error(error, joins=joins, knows_abortable=knows)))
            return
        try:
            replicas.append_staged()
            self._check_writable(partition)
            outcome = replicas.append(partition, batch, guards=guards)
        except KafkaError as refusal:
            outcome = refusal
        self._appended(partition, answer, outcome)

    @answering
    def _appended(
        self, partition: HostedPartition, answer: PartitionProduceResponse, outcome: AppendOutcome
    ) -> None:
        """Between the phases: the batch is in the log, or was refused by it."""
        if isinstance(outcome, OutcomeUnknown):
            raise outcome
        if isinstance(outcome, KafkaError):
            self._refuse(answer, outcome, partition)
            return
        answer.base_offset = outcome.first_offset
        answer.log_append_time_ms = outcome.log_append_time_ms
        answer.log_start_offset = outcome.log_start_offset
        if self._acks == 0:
            self._one_done()
        elif partition.leadership is not None and self._waits_for_replicas(partition):
            self._wait_for_replicas(partition, answer)
        else:
            self._broker.replicas.when_promised(partition, self._acks, partial(self._promised, answer))

    def _waits_for_replicas(self, partition: HostedPartition) -> bool:
        """Or else this broker's own word is enough."""
        return self._acks == ALL or not self._broker.replicas.lease.is_certain(partition)

    def _wait_for_replicas(self, partition: HostedPartition, answer: PartitionProduceResponse) -> None:
        number = id(answer)
        self._waiting[number] = answer
        self._broker.replicas.when_promised(partition, ALL, partial(self._replicated, number))
        if self._waiting and self._timer is None:
            self._timer = self._broker.call_later_ms(max(self._timeout_ms, 0), self._time_out)

    @answering
    def _replicated(self, number: int, error: KafkaError | None) -> None:
        answer = self._waiting.pop(number, None)
        if answer is not None:  # otherwise it was given up before
            self._promised(answer, error)

    @answering
    def _time_out(self) -> None:
        late, self._waiting = self._waiting, {}
        for answer in late.values():
            self._promised(answer, KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    @answering
    def _promised(self, answer: PartitionProduceResponse, error: KafkaError | None) -> None:
        """The second phase: what acks promise is true, or never will be.

        What was appended stays where the answer says, and may be committed later.
        """
        if error is not None:
            answer.error_code = error.code
        self._one_done()

    def _refuse(
        self, answer: PartitionProduceResponse, error: KafkaError, partition: HostedPartition | None = None
    ) -> None:
        refuse(answer, error, partition)
        self._failed = self._failed or f"{error.code.name}: {error}"
        self._one_done()

    def _one_done(self) -> None:
        self._pending -= 1
        if self._pending or self.parked.is_done:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._acks != 0:
            self.parked.complete(ProduceResponse(responses=list(self._responses.values())))
        elif self._failed:
            self.parked.complete(HangUp(f"a Produce with acks=0 failed: {self._failed}"))
        else:
            self.parked.complete(NO_REPLY)
