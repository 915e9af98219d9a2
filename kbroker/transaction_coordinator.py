"""Transactions on this broker: the coordinators of the ids it is responsible for, and what carries them out.

The pure part is `kbroker.coordinators.transactions`; it is run as groups are. Beside it stand the writer of
markers and, for the partitions that this broker leads, the verifier. Both speak to coordinators and leaders
by requests between brokers, be they other brokers or this one: there is one way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from kbroker.cluster_features import FIRST_EPOCH
from kbroker.context import Parked
from kbroker.coordinator_runtime import ClockAndLog, Coordinators, Shard
from kbroker.coordinator_topic import CoordinatorTopic
from kbroker.coordinators.step import Step
from kbroker.coordinators.transactions import TransactionConfig, Transactions
from kbroker.inter_broker import Send
from kbroker.metadata_cache import MetadataCache
from kbroker.replica_manager import ReplicaManager
from kbroker.stored_topics import Told
from kbroker.transaction_markers import MarkerWriter
from kbroker.transaction_verification import Verifier
from wire.api.add_partitions_to_txn import AddPartitionsToTxnResult
from wire.errors import ErrorCode, KafkaError
from wire.internal import TRANSACTION_STATE

AGAIN_MS = 2
PATIENCE_MS = 60
"""Who is too early is looked after again in 2 ms, then after twice as long each time, up to this."""

TransactionShard = Shard[Transactions]

Decide = Callable[[Transactions, int, Parked, int], Step]
"""Transactions, a new producer id or -1, the token, the time."""


class Surroundings(NamedTuple):
    """What transactions need of the broker."""

    topic: CoordinatorTopic
    replicas: ReplicaManager
    metadata: MetadataCache
    clock: ClockAndLog
    send: Send
    next_producer_id: Callable[[Callable[[int], object]], object]


class TransactionCoordinator(Coordinators[Transactions]):
    """The transactions of a broker."""

    def __init__(self, config: TransactionConfig, around: Surroundings) -> None:
        self.config = config
        self.features_epoch = FIRST_EPOCH
        self._next_producer_id = around.next_producer_id
        self._metadata = around.metadata
        self.stored_partitions: Callable[[str, Told], object] = lambda topic, told: told(None)
        """Asks the metadata store which partitions a topic has."""
        self._writer = MarkerWriter(
            around.send,
            self._leader_of,
            lambda topic, told: self.stored_partitions(topic, told),
            around.clock,
            around.clock.bugs,
        )
        super().__init__(
            around.topic,
            around.replicas,
            around.clock,
            lambda: Transactions(self.config),
            self._writer.write,
        )
        self.verifier = Verifier(around.send, self.coordinator_of, around.clock)

    def finalize(self, transaction_version: int, epoch: int) -> None:
        """This level of the feature holds in the cluster from now on."""
        self.config = self.config._replace(transaction_version=transaction_version)
        self.features_epoch = epoch
        for shard in self._shards.values():
            shard.machine.reconfigure(self.config)
        self._metadata.version += 1  # what clients are told rests on it

    def topics_ended(self, topics: Collection[str]) -> None:
        """They need no markers any more."""
        self._writer.topics_ended(topics)

    def coordinator_of(self, transactional_id: str) -> int:
        """The broker; -1 if there is none now."""
        return self._metadata.leader(TRANSACTION_STATE, self.partition_of(transactional_id))

    def _leader_of(self, topic: str, index: int) -> int | None:
        if self._metadata.partition(topic, index) is None:
            return None
        return self._metadata.leader(topic, index)

    def ask_to_join(
        self, transactional_id: str, decide: Callable[[Transactions, Parked, int], Step]
    ) -> Parked:
        """A request that is answered with an AddPartitionsToTxnResult; KafkaError as for `shard_of`.

        Markers of the transaction before are being written when a client begins the next one at once. Told to
        try again it would rest for 20 to 100 ms; so it is told only after such a time.
        """
        parked = Parked()

        def attempt(pause_ms: int) -> None:
            def answered(outcome: object) -> None:
                if is_too_early(outcome) and pause_ms <= PATIENCE_MS:
                    self._clock.call_later_ms(pause_ms, lambda: again(pause_ms, outcome))
                else:
                    parked.complete(outcome)

            self.ask(transactional_id, decide).when_done(answered, for_reply=parked)

        def again(pause_ms: int, outcome: object) -> None:
            try:
                attempt(2 * pause_ms)
            except KafkaError:  # the coordinator has moved meanwhile; the client will find it
                parked.complete(outcome)
            except Exception as error:
                parked.fail(error)

        attempt(AGAIN_MS)
        return parked

    def ask_with_id(self, transactional_id: str, decide: Decide) -> Parked:
        """A request that may need a new producer id; KafkaError as for `shard_of`."""
        parked = Parked()

        def go_on(producer_id: int) -> None:
            try:
                self.shard_of(transactional_id).decide(
                    lambda transactions, now_ms: decide(transactions, producer_id, parked, now_ms)
                )
            except Exception as error:
                parked.fail(error)

        if self.shard_of(transactional_id).machine.needs_producer_id(transactional_id):
            self._next_producer_id(go_on)
        else:
            go_on(-1)
        return parked


def is_too_early(outcome: object) -> bool:
    """The transaction before is decided and not complete."""
    return isinstance(outcome, AddPartitionsToTxnResult) and any(
        partition.partition_error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        for topic in outcome.topic_results
        for partition in topic.results_by_partition
    )
