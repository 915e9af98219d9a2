"""What the transaction coordinator answers, decides and remembers."""

from __future__ import annotations

import pytest

from kbroker.coordinators.refusals import refused
from kbroker.coordinators.step import TimerKey
from kbroker.coordinators.transaction import Identity, Transaction
from kbroker.coordinators.transactions import COMPLETION, TransactionConfig
from tests.kbroker.coordinators.transaction_driver import START_MS, Driver, places
from wire.errors import ErrorCode
from wire.internal import TRANSACTION_STATE, decode_record

NONE = ErrorCode.NONE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
STATE = ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def driver() -> Driver:
    return Driver()


def begun(driver: Driver, *names: str, version: int = 0) -> Identity:
    """A producer with a transaction over some partitions."""
    error, identity = driver.init("x")
    assert error == NONE
    assert driver.add("x", identity, *(names or ("t-0",)), version=version) == NONE
    return identity


def put(driver: Driver, producer_epoch: int) -> None:
    driver.find(Transaction("x", 7, producer_epoch, timeout_ms=60_000, last_update_ms=START_MS))


# InitProducerId


def test_ids_are_fresh_and_epochs_begin_at_zero(driver: Driver) -> None:
    """Conformance 41."""
    assert driver.init("x") == (NONE, (1000, 0))
    assert driver.init("y") == (NONE, (1001, 0))
    assert driver.init("x") == (NONE, (1000, 1))


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "claimed", "error"),
    [
        ("", 60_000, (-1, -1), ErrorCode.INVALID_REQUEST),
        ("x", 0, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 900_001, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 60_000, (5, -1), ErrorCode.INVALID_REQUEST),
        ("x", 60_000, (-1, 5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_initialized(
    driver: Driver, transactional_id: str, timeout_ms: int, claimed: tuple[int, int], error: ErrorCode
) -> None:
    """Conformance 40."""
    assert driver.init(transactional_id, claimed, timeout_ms) == (error, (-1, -1))
    assert not driver.log


def test_a_producer_that_says_who_it_is_keeps_its_id(driver: Driver) -> None:
    """KIP-360: it gets the next epoch, and the same one again when it asks again."""
    _, first = driver.init("x")
    assert driver.init("x", first) == (NONE, (1000, 1))
    assert driver.init("x", first) == (NONE, (1000, 1))
    assert driver.init("x", (1000, 1)) == (NONE, (1000, 2))
    assert driver.init("x", first)[0] == FENCED


def test_somebody_new_fences_off_who_asks_again(driver: Driver) -> None:
    _, first = driver.init("x")
    driver.init("x", first)
    driver.init("x")
    assert driver.init("x", first)[0] == FENCED
    assert driver.init("x", (1000, 1))[0] == FENCED
    assert driver.init("x", (999, 2))[0] == FENCED


def test_an_id_that_was_forgotten_begins_anew_whatever_the_producer_says(driver: Driver) -> None:
    assert driver.init("x", (12, 34)) == (NONE, (1000, 0))


def test_a_repetition_is_fenced_after_the_coordinator_moved(driver: Driver) -> None:
    """What a record does not say is lost, as in Kafka; it never gives an epoch to two producers."""
    _, first = driver.init("x")
    driver.init("x", first)
    driver.restart()
    assert driver.init("x", first)[0] == FENCED


def test_epochs_end_and_a_new_producer_id_follows(driver: Driver) -> None:
    put(driver, producer_epoch=32765)
    assert driver.init("x") == (NONE, (7, 32766))
    assert driver.init("x", (7, 32766)) == (NONE, (1000, 0))
    assert driver.init("x", (7, 32766)) == (NONE, (1000, 0)), "asked again"
    assert driver.init("x", (7, 32765))[0] == FENCED
    assert driver.init("x") == (NONE, (1000, 1))


def test_a_producer_with_the_last_epoch_can_still_be_fenced(driver: Driver) -> None:
    put(driver, producer_epoch=32766)
    assert driver.add("x", (7, 32766), "t-0") == NONE
    assert driver.init("x")[0] == BUSY
    driver.write_all_markers()
    assert driver.markers == {("t", 0): [(7, 32767, False)]}
    error, (producer_id, producer_epoch) = driver.init("x")
    assert (error, producer_epoch) == (NONE, 0)
    assert producer_id != 7


def test_initializing_aborts_what_is_open_and_raises_the_epoch_twice(driver: Driver) -> None:
    """Conformance 47: 51 until that is done, then epoch 0 -> 2."""
    old = begun(driver)
    assert driver.init("x") == (BUSY, (-1, -1))
    assert driver.state("x") == "PrepareAbort"
    assert driver.init("x") == (BUSY, (-1, -1))
    driver.write_all_markers()
    assert driver.markers == {("t", 0): [(old.producer_id, 1, False)]}
    assert driver.init("x") == (NONE, (old.producer_id, 2))
    assert driver.add("x", old, "t-0") == FENCED
    assert driver.end("x", old, is_commit=True)[0] == FENCED
    assert driver.end("x", old, is_commit=True, version=2)[0] == FENCED


# Joining


def test_who_may_add_partitions(driver: Driver) -> None:
    """Conformance 49: 49 for an unknown id or another producer's, 90 for another epoch."""
    assert driver.add("x", (1000, 0), "t-0") == MAPPING
    _, identity = driver.init("x")
    assert driver.add("", identity, "t-0") == ErrorCode.INVALID_REQUEST
    assert driver.add("x", (1, 0), "t-0") == MAPPING
    assert driver.add("x", (1000, 1), "t-0") == FENCED
    assert driver.add("x", identity, "t-0", "t-1", "u-0") == NONE
    described = driver.transactions.describe("x")
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0, 1]), ("u", [0])]
    assert described.transaction_state == "Ongoing"


def test_partitions_that_belong_already_cost_no_record(driver: Driver) -> None:
    identity = begun(driver, "t-0", "t-1")
    before = len(driver.log)
    assert driver.add("x", identity, "t-1") == NONE
    assert len(driver.log) == before
    assert driver.add("x", identity, "t-2") == NONE
    assert driver.verify("x", identity, "t-0") == NONE


def test_a_partition_is_verified(driver: Driver) -> None:
    """Conformance 42: a partition that was not added does not belong, nor one of the last transaction."""
    identity = begun(driver)
    assert driver.verify("x", identity, "t-0") == NONE
    assert driver.verify("x", identity, "t-1") == ErrorCode.TRANSACTION_ABORTABLE
    assert driver.verify("x", (identity.producer_id, 1), "t-0") == FENCED
    assert driver.verify("y", identity, "t-0") == MAPPING
    driver.end("x", identity, is_commit=True)
    assert driver.verify("x", identity, "t-0") == BUSY
    driver.write_all_markers()
    assert driver.verify("x", identity, "t-0") == ErrorCode.TRANSACTION_ABORTABLE


# Ending


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_of_a_classic_client(driver: Driver, is_commit: bool) -> None:
    """The epoch stays; an outcome repeated is fine, the other one is not."""
    identity = begun(driver, "t-0", "t-1")
    assert driver.end("x", identity, is_commit=is_commit)[0] == NONE
    assert not driver.markers
    assert driver.end("x", identity, is_commit=is_commit)[0] == BUSY
    assert driver.end("x", identity, is_commit=not is_commit)[0] == STATE
    assert driver.add("x", identity, "t-2") == BUSY
    driver.write_markers(most=1)
    assert driver.state("x") == ("PrepareCommit" if is_commit else "PrepareAbort")
    driver.write_all_markers()
    assert driver.state("x") == ("CompleteCommit" if is_commit else "CompleteAbort")
    assert driver.markers == {place: [(*identity, is_commit)] for place in places("t-0", "t-1")}
    assert driver.end("x", identity, is_commit=is_commit)[0] == NONE
    assert driver.end("x", identity, is_commit=not is_commit)[0] == STATE
    assert driver.add("x", identity, "t-2") == NONE


def test_who_may_end_a_transaction(driver: Driver) -> None:
    """Conformance 49."""
    assert driver.end("x", (1, 0), is_commit=True)[0] == MAPPING
    assert driver.end("", (1, 0), is_commit=True)[0] == ErrorCode.INVALID_REQUEST
    identity = begun(driver)
    for version in (0, 2):
        assert driver.end("x", (1, 0), is_commit=True, version=version)[0] == MAPPING
        assert driver.end("x", (identity.producer_id, 1), is_commit=True, version=version)[0] == FENCED
    assert driver.state("x") == "Ongoing"


def test_nothing_to_end(driver: Driver) -> None:
    _, identity = driver.init("x")
    assert driver.end("x", identity, is_commit=True)[0] == STATE
    assert driver.end("x", identity, is_commit=False)[0] == STATE
    assert driver.end("x", identity, is_commit=True, version=2)[0] == STATE


def test_every_end_raises_the_epoch_in_version_two(driver: Driver) -> None:
    """Conformance 46."""
    identity = begun(driver, version=2)
    raised = (identity.producer_id, 1)
    assert driver.end("x", identity, is_commit=True, version=2) == (NONE, raised)
    assert driver.end("x", identity, is_commit=True, version=2)[0] == BUSY
    assert driver.end("x", identity, is_commit=False, version=2)[0] == STATE
    assert driver.end("x", raised, is_commit=False, version=2)[0] == BUSY
    assert driver.add("x", raised, "t-1", version=2) == BUSY
    driver.write_all_markers()
    assert driver.markers == {("t", 0): [(*raised, True)]}
    assert driver.end("x", identity, is_commit=True, version=2) == (NONE, raised)
    assert driver.end("x", identity, is_commit=False, version=2)[0] == STATE


def test_a_late_end_does_not_end_the_next_transaction_in_version_two(driver: Driver) -> None:
    """Conformance 46: what Jepsen found in Kafka, and KIP-890 repairs."""
    identity = begun(driver, version=2)
    _, raised = driver.end("x", identity, is_commit=True, version=2)
    driver.write_all_markers()
    assert driver.add("x", raised, "t-1", version=2) == NONE
    for is_commit in (True, False):
        assert driver.end("x", identity, is_commit=is_commit, version=2)[0] == FENCED
    assert driver.state("x") == "Ongoing"


def test_an_abort_of_nothing_raises_the_epoch_in_version_two(driver: Driver) -> None:
    """A client that does not know whether it began can be sure afterwards."""
    _, identity = driver.init("x")
    assert driver.end("x", identity, is_commit=False, version=2) == (NONE, (1000, 1))
    assert driver.state("x") == "CompleteAbort"
    assert driver.end("x", identity, is_commit=False, version=2) == (NONE, (1000, 1)), "repeated"
    assert driver.end("x", (1000, 1), is_commit=False, version=2) == (NONE, (1000, 2))
    assert driver.end("x", (1000, 2), is_commit=True, version=2)[0] == STATE
    assert not driver.markers


def test_an_end_that_uses_up_the_epochs_gives_a_new_producer_id(driver: Driver) -> None:
    """The markers still carry the old one, with an epoch that nobody gets."""
    put(driver, producer_epoch=32766)
    assert driver.add("x", (7, 32766), "t-0", version=2) == NONE
    assert driver.end("x", (7, 32766), is_commit=True, version=2) == (NONE, (1000, 0))
    assert driver.add("x", (1000, 0), "t-0", version=2) == BUSY
    assert driver.init("x", (1000, 0))[0] == BUSY
    driver.restart()
    driver.write_all_markers()
    assert driver.markers == {("t", 0): [(7, 32767, True)]}
    assert driver.end("x", (7, 32766), is_commit=True, version=2) == (NONE, (1000, 0)), "repeated"
    assert driver.add("x", (1000, 0), "t-0", version=2) == NONE


# Markers and moves


def test_a_decision_is_carried_out_by_who_loads_it(driver: Driver) -> None:
    """Conformance 50."""
    identity = begun(driver, "t-0", "t-1")
    driver.end("x", identity, is_commit=True)
    driver.restart()
    assert len(driver.unsent) == 1
    driver.write_all_markers()
    assert driver.markers == {place: [(*identity, True)] for place in places("t-0", "t-1")}
    assert driver.state("x") == "CompleteCommit"
    driver.restart()
    assert not driver.unsent


def test_an_open_transaction_survives_a_move(driver: Driver) -> None:
    identity = begun(driver)
    driver.restart()
    assert driver.verify("x", identity, "t-0") == NONE
    assert driver.end("x", identity, is_commit=True)[0] == NONE


def test_news_of_older_markers_complete_nothing(driver: Driver) -> None:
    identity = begun(driver)
    driver.end("x", identity, is_commit=True)
    (asked,) = driver.unsent
    driver.write_all_markers()
    driver.init("x", identity)
    driver.add("x", (identity.producer_id, 1), "t-0")
    driver.end("x", (identity.producer_id, 1), is_commit=False)
    driver.run(driver.transactions.markers_written(asked, asked.partitions, driver.now_ms))
    assert driver.state("x") == "PrepareAbort"


def test_what_cannot_be_appended_has_not_happened(driver: Driver) -> None:
    driver.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.init("x") == (unavailable, (-1, -1))
    driver.refuse_with = None
    identity = begun(driver)
    driver.refuse_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert driver.add("x", identity, "t-1") == ErrorCode.NOT_COORDINATOR
    assert driver.end("x", identity, is_commit=True, version=2) == (ErrorCode.NOT_COORDINATOR, (-1, -1))
    assert driver.init("x")[0] == BUSY
    assert driver.state("x") == "Ongoing"


def test_completion_is_tried_again(driver: Driver) -> None:
    identity = begun(driver)
    driver.end("x", identity, is_commit=True)
    driver.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.write_all_markers()
    assert driver.state("x") == "PrepareCommit"
    assert TimerKey(COMPLETION, "x") in driver.timers
    driver.advance(2_000)
    assert driver.state("x") == "PrepareCommit"
    driver.refuse_with = None
    driver.advance(1_000)
    assert driver.state("x") == "CompleteCommit"


# Time


@pytest.mark.parametrize("level", [0, 2])
def test_a_transaction_past_its_timeout_is_aborted(level: int) -> None:
    """Conformance 48: within ten seconds; its producer is fenced, or told 48."""
    driver = Driver(TransactionConfig(transaction_version=level))
    identity = begun(driver, version=level)
    driver.advance(60_000)
    assert driver.state("x") == "Ongoing"
    driver.advance(10_000)
    assert driver.state("x") == "PrepareAbort"
    driver.write_all_markers()
    assert driver.markers == {("t", 0): [(identity.producer_id, 1, False)]}
    assert driver.state("x") == "CompleteAbort"
    expected = STATE if level == 2 else FENCED
    assert driver.end("x", identity, is_commit=True, version=level)[0] == expected
    assert driver.add("x", identity, "t-0", version=level) == FENCED


def test_a_producer_of_version_two_goes_on_after_a_timeout(driver: Driver) -> None:
    """It aborts, and gets an epoch that the markers have not fenced off."""
    identity = begun(driver, version=2)
    driver.advance(80_000)
    driver.write_all_markers()
    error, raised = driver.end("x", identity, is_commit=False, version=2)
    assert (error, raised.producer_epoch) == (NONE, 1)
    assert driver.add("x", raised, "t-0", version=2) == NONE


@pytest.mark.parametrize(("level", "expected"), [(2, (NONE, (1000, 1))), (0, (FENCED, (-1, -1)))])
def test_a_producer_whose_transaction_was_aborted_may_claim_its_id(level: int, expected: object) -> None:
    """As measured on Apache Kafka: by its own InitProducerId, or by time."""
    for late in (True, False):
        driver = Driver(TransactionConfig(transaction_version=level))
        identity = begun(driver)
        if late:
            driver.advance(80_000)
        else:
            assert driver.init("x", identity)[0] == BUSY
        driver.write_all_markers()
        assert driver.init("x", identity) == expected


def test_a_producer_that_has_not_heard_of_its_new_epoch_may_claim_its_id(driver: Driver) -> None:
    identity = begun(driver, version=2)
    driver.end("x", identity, is_commit=True, version=2)
    driver.write_all_markers()
    assert driver.init("x", identity) == (NONE, (1000, 1))
    assert driver.init("x") == (NONE, (1000, 2))
    assert driver.init("x", identity)[0] == FENCED


def test_ids_are_forgotten_when_they_are_not_used(driver: Driver) -> None:
    identity = begun(driver)
    driver.init("y")
    driver.config = TransactionConfig(transactional_id_expiration_ms=3 * 3_600_000)
    driver.transactions.reconfigure(driver.config)
    driver.add("x", identity, "t-0")
    driver.advance(2 * 3_600_000)
    assert driver.state("y") == "Empty"
    driver.advance(2 * 3_600_000)
    assert driver.transactions.describe("y").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert driver.state("x") == "PrepareAbort", "markers are missing: it stays"
    driver.write_all_markers()
    driver.advance(4 * 3_600_000)
    assert driver.transactions.describe("x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert driver.init("y") == (NONE, (1002, 0))


# Questions


def test_transactions_are_listed_by_what_they_are(driver: Driver) -> None:
    begun(driver)
    driver.advance(5_000)
    driver.init("y")

    def listed(states: list[str], ids: list[int], longer_than_ms: int = -1) -> list[str]:
        found = driver.transactions.list_transactions(states, ids, longer_than_ms, driver.now_ms)
        return [one.transactional_id for one in found]

    assert listed([], []) == ["x", "y"]
    assert listed(["Ongoing"], []) == ["x"]
    assert listed([], [1001]) == ["y"]
    assert listed(["Ongoing"], [], 4_999) == ["x"]
    assert listed(["Ongoing"], [], 5_000) == []


def test_an_unknown_id_cannot_be_described(driver: Driver) -> None:
    assert driver.transactions.describe("x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert driver.transactions.describe("").error_code == ErrorCode.INVALID_REQUEST


# Records


@pytest.mark.parametrize("version", [0, 1])
def test_records_are_kafkas(version: int) -> None:
    """An Empty transaction has null partitions, any other a list."""
    driver = Driver(TransactionConfig(transaction_version=version))
    begun(driver, "t-1", "t-0", "u-3")
    values = []
    for key, value in driver.log:
        assert value is not None
        assert value[:2] == bytes([0, version])
        decoded = decode_record(TRANSACTION_STATE, key, value)
        assert decoded is not None
        values.append(decoded[1])
    empty, ongoing = values
    assert empty.transaction_partitions is None  # type: ignore[attr-defined]
    partitions = ongoing.transaction_partitions  # type: ignore[attr-defined]
    assert [(one.topic, one.partition_ids) for one in partitions] == [("t", [0, 1]), ("u", [3])]


def test_every_reply_can_be_refused(driver: Driver) -> None:
    """While a reply is held back the coordinator may move: 16, of the same kind."""
    replies: list[object] = []
    driver.replied = replies.append
    begun(driver)
    driver.end("x", (1000, 0), is_commit=True)
    assert len(replies) == 3
    for reply in replies:
        refusal = refused(reply, ErrorCode.NOT_COORDINATOR)
        assert type(refusal) is type(reply)
        assert f"error_code={ErrorCode.NOT_COORDINATOR!r}" in repr(refusal)
        assert f"error_code={ErrorCode.NONE!r}" not in repr(refusal)
