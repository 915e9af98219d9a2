"""Transactions: their producers, their partitions and offsets, how they end, and what others see of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compat_tests.differential.conversation import Conversation, script
from compat_tests.differential.scripts_groups import prepare
from compat_tests.differential.scripts_produce import batch

GROUP, TRANSACTION = 0, 1
CONCURRENT_TRANSACTIONS = 51
READ_COMMITTED = 1
TIMEOUT_MS = 60_000


class Producer:
    """A transactional producer: who it is, and what it does."""

    def __init__(self, talk: Conversation, name: str) -> None:
        self.talk = talk
        self.name = name
        self.transactional_id = talk.name(name)
        self.producer_id = self.epoch = -1
        self.sequence = 0

    def start(self, label: str = "", version: int = 4, **more: Any) -> Any:
        """Notes who it becomes."""
        talk = self.talk
        talk.until(
            lambda reply: reply.error_code == 0,
            "FindCoordinator",
            3,
            key=self.transactional_id,
            key_type=TRANSACTION,
        )
        asked = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": TIMEOUT_MS,
            **more,
        }
        reply = talk.until(
            lambda reply: reply.error_code not in (14, 15, 16, CONCURRENT_TRANSACTIONS),
            "InitProducerId",
            version,
            **asked,
        )
        if reply.producer_id >= 0:
            self.producer_id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
            talk.learn(self.producer_id, f"<producer {self.name}>", "producer_id")
        talk.note(f"InitProducerId v{version} {self.name} {label}".strip(), reply)
        return reply

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def add(self, label: str, topics: dict[str, list[int]], version: int = 3, **more: Any) -> None:
        """Once the transaction before is over, so that only the answer to this one is noted."""
        identity = {f"v3_and_below_{key}": value for key, value in {**self.identity, **more}.items()}
        rows = [{"name": self.talk.name(name), "partitions": indexes} for name, indexes in topics.items()]
        reply = self.talk.until(
            lambda reply: all(
                one.partition_error_code != CONCURRENT_TRANSACTIONS
                for topic in reply.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ),
            "AddPartitionsToTxn",
            version,
            **identity,
            v3_and_below_topics=rows,
        )
        self.talk.note(f"AddPartitionsToTxn v{version} {label}", reply)

    def produce(
        self, label: str, topic: str, version: int = 11, partition: int = 0, epoch: int | None = None
    ) -> None:
        data = batch(
            b"value",
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        rows = [{"index": partition, "records": data}]
        reply = self.talk.ask(
            "Produce",
            version,
            label,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[{"name": self.talk.name(topic), "partition_data": rows}],
        )
        if reply.responses[0].partition_responses[0].error_code == 0:
            self.sequence += 1

    def end(self, label: str, committed: bool, version: int = 3, **more: Any) -> None:
        reply = self.talk.until(
            lambda reply: reply.error_code != CONCURRENT_TRANSACTIONS,
            "EndTxn",
            version,
            **{**self.identity, "committed": committed, **more},
        )
        if version >= 5 and reply.error_code == 0:
            self.producer_id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
        self.talk.note(f"EndTxn v{version} {label}", reply)

    def ended(self) -> None:
        """Waits until the markers are written."""
        self.talk.until(
            lambda reply: reply.transaction_states[0].transaction_state.startswith(("Complete", "Empty")),
            "DescribeTransactions",
            0,
            transactional_ids=[self.transactional_id],
        )


def look(talk: Conversation, label: str, topic: str) -> None:
    """What a reader of committed data gets, and one of everything."""
    for isolation in (0, READ_COMMITTED):
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        talk.ask(
            "Fetch",
            11,
            f"{label}, isolation {isolation}",
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=isolation,
            topics=[{"topic": talk.name(topic), "partitions": [row]}],
        )
        talk.ask(
            "ListOffsets",
            5,
            f"{label}, isolation {isolation}",
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": talk.name(topic), "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )


def started(talk: Conversation, name: str) -> Producer:
    producer = Producer(talk, name)
    producer.start()
    return producer


@script
def transactional_ids(talk: Conversation) -> None:
    """conformance 40, 47, 49"""
    for version in talk.versions("InitProducerId"):
        producer = Producer(talk, f"v{version}")
        producer.start("first", version)
        producer.start("again", version)
        for timeout_ms in (0, -1, 900_001, 900_000):
            producer.start(f"timeout {timeout_ms}", version, transaction_timeout_ms=timeout_ms)
        if version >= 3:
            current = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            producer.start("as itself", version, **current)
            producer.start("as before", version, **current)
            current = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            producer.start("too new", version, **{**current, "producer_epoch": producer.epoch + 5})
            producer.start("too old", version, **{**current, "producer_epoch": 0})
            producer.start("another", version, **{**current, "producer_id": 987_654})
    for version in talk.versions("FindCoordinator"):
        keys: dict[str, Any] = {"key": "x"} if version < 4 else {"coordinator_keys": ["x"]}
        if version:
            talk.ask("FindCoordinator", version, "of a transaction", key_type=TRANSACTION, **keys)
        if version >= 4:
            talk.ask("FindCoordinator", version, "of nobody", key_type=TRANSACTION, coordinator_keys=[""])


@script
def partitions_of_transactions(talk: Conversation) -> None:
    """conformance 42, 45, 49"""
    talk.create("t", 2)
    for version in talk.versions("AddPartitionsToTxn"):
        if version > 3:
            continue
        producer = started(talk, f"adds-{version}")
        producer.add("one", {"t": [0]}, version)
        producer.add("again", {"t": [0, 1]}, version)
        producer.add("unknown beside known", {"t": [0, 5], "no": [0]}, version)
        producer.add("nothing", {}, version)
        producer.add("another id", {"t": [0]}, version, producer_id=987_654)
        producer.add("newer epoch", {"t": [0]}, version, producer_epoch=9)
        producer.add("unknown", {"t": [0]}, version, transactional_id=talk.name("stranger"))
        producer.add("nobody", {"t": [0]}, version, transactional_id="")
        producer.end("aborted", False, min(version, 3))
        producer.ended()
    producer = started(talk, "writes")
    producer.produce("not added", "t")
    producer.add("one", {"t": [0]})
    producer.produce("added", "t")
    producer.produce("not added, too", "t", partition=1)
    producer.produce("older epoch", "t", epoch=-1)
    plain = batch(producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=1)
    rows = [{"index": 0, "records": plain}]
    talk.ask(
        "Produce",
        11,
        "without the transaction",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[{"name": talk.name("t"), "partition_data": rows}],
    )
    producer.end("committed", True)
    producer.ended()
    producer.produce("after the end", "t")
    look(talk, "in the end", "t")


@script
def ends_of_transactions(talk: Conversation) -> None:
    """conformance 43, 44, 46"""
    talk.create("t")
    for version in talk.versions("EndTxn"):
        if version > 4:
            continue
        producer = started(talk, f"ends-{version}")
        producer.end("nothing to commit", True, version)
        producer.end("nothing to abort", False, version)
        for committed in (True, False):
            producer.add(f"before the end, {committed}", {"t": [0]})
            producer.produce(f"before the end, {committed}", "t")
            look(talk, f"v{version} open, {committed}", "t")
            producer.end(f"{committed}", committed, version)
            producer.ended()
            producer.end(f"{committed} again", committed, version)
            producer.end(f"{committed}, and the other", not committed, version)
            look(talk, f"v{version} ended, {committed}", "t")
        producer.end("newer epoch", True, version, producer_epoch=9)
        producer.end("another id", True, version, producer_id=987_654)
        producer.end("unknown", True, version, transactional_id=talk.name("stranger"))
        producer.end("nobody", True, version, transactional_id="")


@script
def transactions_of_version_2(talk: Conversation) -> None:
    """conformance 42, 46: joined by writing, and the epoch rises at each end."""
    if 12 not in talk.versions("Produce") or 5 not in talk.versions("EndTxn"):
        return
    talk.create("t", 2)
    producer = started(talk, "new")
    for committed in (True, False):
        producer.produce(f"joins, {committed}", "t", 12)
        producer.produce(f"goes on, {committed}", "t", 12)
        look(talk, f"open, {committed}", "t")
        before = producer.epoch
        producer.end(f"{committed}", committed, 5)
        producer.ended()
        producer.end(f"{committed} again", committed, 5, producer_epoch=before)
        look(talk, f"ended, {committed}", "t")
    producer.produce("older epoch", "t", 12, epoch=producer.epoch - 1)
    producer.end("nothing to commit", True, 5)
    producer.ended()
    producer.end("nothing to abort", False, 5)


@script
def a_producer_that_is_replaced(talk: Conversation) -> None:
    """conformance 47"""
    talk.create("t")
    old, new = started(talk, "one"), Producer(talk, "one")
    old.add("by the old one", {"t": [0]})
    old.produce("by the old one", "t")
    new.start("the new one")
    look(talk, "after it was replaced", "t")
    old.produce("by the old one, late", "t")
    old.add("by the old one, late", {"t": [0]})
    for version in (1, 3):
        old.end("by the old one, late", True, version)
    new.add("by the new one", {"t": [0]})
    new.produce("by the new one", "t")
    new.end("by the new one", True)
    new.ended()
    look(talk, "in the end", "t")


@script
def offsets_in_transactions(talk: Conversation) -> None:
    """conformance 51, 52"""
    prepare(talk)
    group = talk.name("g")

    def read(label: str) -> None:
        for version in (7, 8):
            rows = [{"name": talk.name("t"), "partition_indexes": [0, 1]}]
            asked: dict[str, Any] = {"group_id": group, "topics": rows}
            if version >= 8:
                asked = {"groups": [asked]}
            for stable in (False, True):
                talk.ask("OffsetFetch", version, f"{label}, stable {stable}", require_stable=stable, **asked)

    for version in talk.versions("TxnOffsetCommit"):
        producer = started(talk, f"commits-{version}")

        def commit(
            label: str,
            offset: int,
            *,
            version: int = version,
            producer: Producer = producer,
            partition: int = 0,
            name: str = "t",
            **more: Any,
        ) -> None:
            row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": "m"}
            topics = [{"name": talk.name(name), "partitions": [row]}]
            fields = {**producer.identity, "group_id": group, "topics": topics, **more}
            talk.ask("TxnOffsetCommit", version, label, **fields)

        if version < 5:
            add = {**producer.identity, "group_id": group}
            talk.ask("AddOffsetsToTxn", min(version, 3), **add)
            talk.ask("AddOffsetsToTxn", min(version, 3), "newer epoch", **{**add, "producer_epoch": 9})
            talk.ask("AddOffsetsToTxn", min(version, 3), "another id", **{**add, "producer_id": 987_654})
        commit("one", 10 + version)
        read(f"v{version} pending")
        commit("unknown partition", 5, partition=7)
        commit("unknown topic", 5, name="no")
        if version >= 3:
            commit("a generation", 5, generation_id_or_member_epoch=3)
            commit("a member", 5, member_id="somebody")
        producer.end(f"after v{version}", version % 2 == 0, 5 if version >= 5 else 3)
        producer.ended()
        talk.until(
            lambda reply: reply.groups[0].topics[0].partitions[0].error_code == 0,
            "OffsetFetch",
            8,
            require_stable=True,
            groups=[{"group_id": group, "topics": [{"name": talk.name("t"), "partition_indexes": [0]}]}],
        )
        read(f"v{version} ended")


@script
def descriptions_of_transactions(talk: Conversation) -> None:
    talk.create("t", 2)
    producer, idle = started(talk, "busy"), started(talk, "idle")
    producer.add("two", {"t": [0, 1]})
    producer.produce("one", "t")

    def describe(label: str) -> None:
        ids = [producer.transactional_id, idle.transactional_id, talk.name("stranger"), ""]
        talk.ask("DescribeTransactions", 0, label, transactional_ids=ids)
        for version in talk.versions("ListTransactions"):
            questions: dict[str, dict[str, Any]] = {
                "all": {},
                "ongoing": {"state_filters": ["Ongoing"]},
                "two states": {"state_filters": ["Empty", "CompleteCommit"]},
                "nonsense": {"state_filters": ["Nonsense", "Ongoing"]},
                "one producer": {"producer_id_filters": [producer.producer_id]},
                "no producer": {"producer_id_filters": [987_654]},
                "long ones": {"duration_filter": 10_000_000} if version else {},
                "short ones": {"duration_filter": 0} if version else {},
            }
            for name, filters in questions.items():
                asked: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], **filters}
                reply = talk.quietly("ListTransactions", version, **asked)
                reply.transaction_states = talk.own(reply.transaction_states, "transactional_id")
                talk.note(f"ListTransactions v{version} {name}, {label}", reply)
        talk.ask(
            "DescribeProducers",
            0,
            label,
            topics=[{"name": talk.name("t"), "partition_indexes": [0, 1]}],
        )

    describe("open")
    producer.end("committed", True)
    producer.ended()
    describe("ended")


@script
def what_brokers_ask_each_other(talk: Conversation) -> None:
    """conformance 42, 49: AddPartitionsToTxn 4 and 5, which a client may send just as well."""
    talk.create("t", 2)
    for version in talk.versions("AddPartitionsToTxn")[4:]:
        first, second = started(talk, f"first-{version}"), started(talk, f"second-{version}")

        def add(label: str, *wanted: Mapping[str, Any], version: int = version) -> None:
            reply = talk.quietly("AddPartitionsToTxn", version, transactions=list(wanted))
            reply.results_by_transaction.sort(key=lambda one: one.transactional_id)
            talk.note(f"AddPartitionsToTxn v{version} {label}", reply)

        def by(producer: Producer, topics: dict[str, list[int]], **more: Any) -> dict[str, Any]:
            rows = [{"name": talk.name(name), "partitions": indexes} for name, indexes in topics.items()]
            return {**producer.identity, "verify_only": False, "topics": rows, **more}

        add("to be verified, where nothing is open", by(first, {"t": [0]}, verify_only=True))
        add("of two", by(first, {"t": [0]}), by(second, {"t": [0, 1]}))
        add("verified", by(first, {"t": [0, 1]}, verify_only=True), by(second, {"t": [1]}, verify_only=True))
        add("again", by(first, {"t": [0, 1]}))
        add("verified again", by(first, {"t": [0, 1]}, verify_only=True))
        for verify_only in (False, True):
            how = "verified" if verify_only else "added"
            add(f"unknown beside known, {how}", by(first, {"t": [0, 5], "no": [0]}, verify_only=verify_only))
            add(f"another id, {how}", by(first, {"t": [0]}, verify_only=verify_only, producer_id=987_654))
            for epoch in (-1, 1):
                other: dict[str, Any] = {"verify_only": verify_only, "producer_epoch": first.epoch + epoch}
                add(f"epoch {epoch}, {how}", by(first, {"t": [0]}, **other))
            for name in ("", talk.name("stranger")):
                other = {"verify_only": verify_only, "transactional_id": name}
                add(f"unknown {name!r}, {how}", by(first, {"t": [0]}, **other))
        look(talk, f"after v{version}", "t")
        for producer in (first, second):
            producer.end("aborted", False)
            producer.ended()
        add("to be verified when it is over", by(first, {"t": [0]}, verify_only=True))


@script
def markers_by_hand(talk: Conversation) -> None:
    """conformance 50: what tools send to abort a transaction that hangs."""
    for version in talk.versions("WriteTxnMarkers"):
        name = f"t{version}"
        talk.create(name, 2)
        producer = started(talk, f"hangs-{version}")
        producer.start("again")
        places = [{"name": talk.name(name), "partition_indexes": [0]}]
        abort = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "topics": places,
            "coordinator_epoch": 0,
        }
        others: dict[str, dict[str, Any]] = {
            "older epoch": {"producer_epoch": producer.epoch - 1},
            "partitions that are not there": {
                "topics": [{**places[0], "partition_indexes": [5]}, {**places[0], "name": "no"}]
            },
            "older coordinator": {"coordinator_epoch": -1},
            "abort": {},
        }
        producer.add("both", {name: [0, 1]})
        producer.produce("one", name)
        for label, other in others.items():
            talk.ask("WriteTxnMarkers", version, label, markers=[{**abort, **other}])
            look(talk, f"v{version} {label}", name)
        producer.end("committed", True)
        producer.ended()
        look(talk, f"v{version} and ended", name)
