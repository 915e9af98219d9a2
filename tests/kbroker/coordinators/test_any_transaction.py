"""Whatever producers do and whatever fails: no transaction is torn, and none hangs.

Several producers share transactional ids, as a crashed instance and its successor do, in both versions of the
protocol. They repeat requests, send them late, forget who they are; appends are refused, the coordinator
moves, markers come one by one. What is checked is what the partitions got to see.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbroker.coordinators.transaction import Identity, State, Transaction
from kbroker.coordinators.transactions import TransactionConfig
from tests.kbroker.coordinators.transaction_driver import START_MS, Driver, places
from wire.errors import ErrorCode

pytestmark = pytest.mark.slow

IDS = ["x", "y"]
PARTITIONS = ["t-0", "t-1", "u-0"]
NOBODY = Identity(-1, -1)

any_producer = st.integers(0, 3)
any_partitions = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True)


class Producer:
    """A client that remembers what it was told, and what it has asked for before."""

    def __init__(self, driver: Driver, transactional_id: str, version: int) -> None:
        self.driver = driver
        self.transactional_id = transactional_id
        self.version = version
        self.identity = NOBODY
        self.earlier: list[tuple[Identity, bool, int]] = []
        """Every EndTxn that was sent, and how many transactions of the id had begun by then."""

    def init(self, *, claims: bool) -> Identity | None:
        """The identity, if it is a new one."""
        claimed = self.identity if claims else NOBODY
        error, identity = self.driver.init(self.transactional_id, claimed)
        if error != ErrorCode.NONE:
            return None
        is_new = identity != self.identity
        self.identity = identity
        return identity if is_new else None

    def add(self, names: list[str]) -> ErrorCode:
        return self.driver.add(self.transactional_id, self.identity, *names, version=self.version)

    def end(self, identity: Identity, *, is_commit: bool) -> ErrorCode:
        error, raised = self.driver.end(
            self.transactional_id, identity, is_commit=is_commit, version=self.version
        )
        if error == ErrorCode.NONE and self.version >= 2 and identity == self.identity:
            self.identity = raised
        return error


class AnyTransaction(RuleBasedStateMachine):
    @initialize(level=st.sampled_from([0, 2]), near_the_end=st.booleans())
    def begin(self, level: int, near_the_end: bool) -> None:
        self.driver = Driver(TransactionConfig(transaction_version=level))
        if near_the_end:
            self.driver.find(Transaction("x", 7, 32764, timeout_ms=60_000, last_update_ms=START_MS))
        self.producers = [Producer(self.driver, IDS[n % 2], level if n < 3 else 0) for n in range(4)]
        self.given_out: set[tuple[int, int]] = set()
        self.begun = dict.fromkeys(IDS, 0)
        self.classic: set[int] = set()
        """Producer ids under which an epoch may end several transactions."""

    # Producers

    @rule(number=any_producer, claims=st.booleans())
    def somebody_initializes(self, number: int, claims: bool) -> None:
        identity = self.producers[number].init(claims=claims)
        if identity is not None:
            self.given_out_once(identity)

    def given_out_once(self, identity: Identity) -> None:
        """An epoch belongs to one producer (a producer of version 2 also gets epochs from EndTxn)."""
        holders = [producer for producer in self.producers if producer.identity == identity]
        assert len(holders) == 1
        assert identity not in self.given_out
        self.given_out.add(identity)

    @rule(number=any_producer, names=any_partitions)
    def somebody_adds_partitions(self, number: int, names: list[str]) -> None:
        producer = self.producers[number]
        was_open = self.driver.state(producer.transactional_id) == "Ongoing"
        if producer.add(names) == ErrorCode.NONE:
            self.begun[producer.transactional_id] += not was_open
            for name in names:
                verified = self.driver.verify(producer.transactional_id, producer.identity, name)
                assert verified == ErrorCode.NONE

    @rule(number=any_producer, is_commit=st.booleans())
    def somebody_ends_it(self, number: int, is_commit: bool) -> None:
        producer = self.producers[number]
        if producer.version < 2:
            self.classic.add(producer.identity.producer_id)
        sent = producer.identity, is_commit, self.begun[producer.transactional_id]
        if not is_commit or self.driver.state(producer.transactional_id) == "Ongoing":
            producer.earlier.append(sent)  # else it is refused, and the epoch stays
        producer.end(producer.identity, is_commit=is_commit)

    @rule(number=any_producer, names=any_partitions, is_commit=st.booleans())
    def somebody_does_it_all(self, number: int, names: list[str], is_commit: bool) -> None:
        producer = self.producers[number]
        if producer.identity == NOBODY:
            self.somebody_initializes(number, claims=False)
        self.somebody_adds_partitions(number, names)
        self.somebody_ends_it(number, is_commit)
        self.driver.write_all_markers()

    @rule(number=any_producer, which=st.integers(0, 100))
    def an_earlier_end_arrives_once_more(self, number: int, which: int) -> None:
        producer = self.producers[number]
        if producer.earlier and producer.version >= 2:
            identity, is_commit, begun = producer.earlier[which % len(producer.earlier)]
            transactional_id = producer.transactional_id
            before = self.driver.transactions._transactions.get(transactional_id)
            producer.end(identity, is_commit=is_commit)
            if before is not None and before.state is State.ONGOING and begun < self.begun[transactional_id]:
                after = self.driver.transactions._transactions[transactional_id]
                assert after == before, "a late EndTxn has ended the next transaction (conformance 46)"

    # The world

    @rule(number=st.integers(0, 3), most=st.integers(1, 3))
    def markers_arrive(self, number: int, most: int) -> None:
        self.driver.write_markers(number, most)

    @rule()
    def the_coordinator_moves(self) -> None:
        self.driver.restart()

    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, None, None]))
    def appends_are_refused_from_now_on(self, error: ErrorCode | None) -> None:
        self.driver.refuse_with = error

    @rule(delay_ms=st.sampled_from([1, 600, 5_000, 30_000, 61_000, 700_000]))
    def time_passes(self, delay_ms: int) -> None:
        self.driver.advance(delay_ms)

    # What always holds

    @invariant()
    def replaying_the_log_gives_what_is_known(self) -> None:
        again = Driver(self.driver.config, list(self.driver.log)).transactions
        assert again._transactions == self.driver.transactions._transactions
        assert again._ongoing == self.driver.transactions._ongoing

    @invariant()
    def every_decision_is_on_its_way(self) -> None:
        """Markers are asked for, or written and only the record of that is missing."""
        asked = {markers.transactional_id: markers for markers in self.driver.unsent}
        for transactional_id, unwritten in self.driver.transactions._unwritten.items():
            if unwritten:
                assert asked[transactional_id].partitions >= unwritten

    @invariant()
    def markers_say_what_was_decided(self) -> None:
        """Conformance 50: of one transaction (its place in the log tells which) there is one outcome."""
        for markers in self.driver.unsent:
            transaction = self.driver.transactions._transactions[markers.transactional_id]
            assert transaction.state.is_decided
            assert transaction.identity == (markers.producer_id, markers.producer_epoch)
            assert transaction.state.is_commit == markers.is_commit
            assert markers.partitions <= transaction.partitions

    @invariant()
    def no_transaction_is_torn_in_version_two(self) -> None:
        """There an epoch ends one transaction, so all markers with it say the same, and once."""
        outcomes: dict[tuple[int, int], set[bool]] = {}
        for marks in self.driver.markers.values():
            for producer_id, producer_epoch, is_commit in marks:
                if producer_id not in self.classic:
                    outcomes.setdefault((producer_id, producer_epoch), set()).add(is_commit)
        assert all(len(seen) == 1 for seen in outcomes.values())

    def teardown(self) -> None:
        """Nothing is refused, markers arrive, time passes: nothing stays open (no transaction hangs)."""
        if not hasattr(self, "driver"):
            return
        self.driver.refuse_with = None
        for _ in range(3):
            self.driver.advance(70_000)
            self.driver.write_all_markers()
        for transaction in self.driver.transactions._transactions.values():
            assert transaction.state in (State.EMPTY, State.COMPLETE_ABORT, State.COMPLETE_COMMIT)
            assert not transaction.partitions
        for transactional_id in IDS:
            error, identity = self.driver.init(transactional_id)
            assert error == ErrorCode.NONE
            assert self.driver.add(transactional_id, identity, "t-0") == ErrorCode.NONE
            assert self.driver.end(transactional_id, identity, is_commit=True)[0] == ErrorCode.NONE
            self.driver.write_all_markers()
            assert self.driver.markers[next(iter(places("t-0")))][-1] == (*identity, True)


TestAnyTransaction = AnyTransaction.TestCase
TestAnyTransaction.settings = settings(max_examples=300, stateful_step_count=40)
