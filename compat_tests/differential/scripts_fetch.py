"""Fetch: in every version, limits, waiting, sessions, what is out of range, divergence."""

from __future__ import annotations

import time
from typing import Any

from compat_tests.differential.conversation import Conversation, script, stored
from compat_tests.differential.scripts_produce import NOBODY, batch
from wire.compression import Codec

LARGE = 1 << 24


def wanted(
    talk: Conversation,
    version: int,
    name: str,
    *partitions: int,
    offset: int = 0,
    limit: int = LARGE,
    topic_id: bytes | None = None,
    **more: Any,
) -> dict[str, Any]:
    rows = [
        {"partition": one, "fetch_offset": offset, "partition_max_bytes": limit, **more}
        for one in partitions or (0,)
    ]
    if version < 13:
        return {"topic": talk.name(name), "partitions": rows}
    return {"topic_id": topic_id, "partitions": rows}


def fetch(talk: Conversation, version: int, label: str, *topics: dict[str, Any], **more: Any) -> Any:
    values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": LARGE, **more}
    return talk.ask("Fetch", version, label, topics=list(topics), **values)


@script
def fetch_in_every_version(talk: Conversation) -> None:
    """conformance 14, 53, 54, 62"""
    topic_id = talk.create("t", 2)
    talk.produce("t", batch(b"a", b"b", b"c"), batch(b"d", b"e", codec=Codec.ZSTD))
    for version in talk.versions("Fetch"):
        if version > 17:
            continue

        def want(*partitions: int, version: int = version, **more: Any) -> dict[str, Any]:
            return wanted(talk, version, "t", *partitions, topic_id=topic_id, **more)

        fetch(talk, version, "everything", want(0, 1))
        for offset in (1, 3, 5, 6, -1, -2, 1 << 40):
            fetch(talk, version, f"from {offset}", want(offset=offset))
        fetch(talk, version, "unknown partition", want(0, 2, -1))
        fetch(talk, version, "unknown topic", wanted(talk, version, "no", topic_id=NOBODY), want())
        fetch(talk, version, "nothing")
        fetch(talk, version, "committed", want(), isolation_level=1)
        fetch(talk, version, "isolation 5", want(), isolation_level=5)
        if version >= 9:
            for epoch in (0, 1, -2):
                fetch(talk, version, f"epoch {epoch}", want(current_leader_epoch=epoch))
        if version >= 12:
            for epoch, offset in ((0, 0), (0, 5), (0, 6), (1, 3), (7, 5)):
                fetch(
                    talk,
                    version,
                    f"last epoch {epoch} at {offset}",
                    want(offset=offset, last_fetched_epoch=epoch),
                )
            fetch(talk, version, "of another cluster", want(), cluster_id="another")
        if version >= 13:
            zero = wanted(talk, version, "t", topic_id=bytes(16))
            fetch(talk, version, "id of zeros", zero)
        if version >= 11:
            fetch(talk, version, "from a rack", want(), rack_id="r1")


@script
def limits_of_a_fetch(talk: Conversation) -> None:
    """conformance 56"""
    talk.create("t", 3)
    for partition in range(3):
        talk.produce("t", *[batch(b"x" * 1000) for _ in range(3)], partition=partition)
    for version in (4, 11):
        for max_bytes in (0, 1, 10, 1071, 1100, 2142, 3300, 10_000):
            for limit in (0, 700, 1071, 2500, LARGE):
                reply = talk.quietly(
                    "Fetch",
                    version,
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=max_bytes,
                    topics=[wanted(talk, version, "t", 0, 1, 2, limit=limit)],
                )
                whole = [len(list(stored(bytes(one.records)))) for one in reply.responses[0].partitions]
                talk.note(f"v{version} {max_bytes} in all, {limit} each", {"batches": str(whole)})


@script
def waiting_for_records(talk: Conversation) -> None:
    """conformance 54, 55"""
    talk.create("t", 2)
    size = len(batch())

    def waits(label: str, *topics: dict[str, Any], **more: Any) -> None:
        """Whether it takes its time."""
        values: dict[str, Any] = {"max_wait_ms": 600, "min_bytes": 1, "max_bytes": LARGE, **more}
        began = time.monotonic()
        fetch(talk, 11, label, *topics, **values)
        talk.note(f"{label}, slow", {"is_slow": time.monotonic() - began > 0.4})

    waits("nothing there", wanted(talk, 11, "t"))
    waits("out of range", wanted(talk, 11, "t", offset=9))
    waits("one out of range", wanted(talk, 11, "t", 0), wanted(talk, 11, "t", 1, offset=9))
    waits("unknown", wanted(talk, 11, "no"))
    waits("one unknown", wanted(talk, 11, "t"), wanted(talk, 11, "no"))
    waits("fenced", wanted(talk, 11, "t", current_leader_epoch=9))
    waits("no topics")
    waits("no minimum", wanted(talk, 11, "t"), min_bytes=0)
    waits("negative minimum", wanted(talk, 11, "t"), min_bytes=-1)
    waits("negative wait", wanted(talk, 11, "t"), max_wait_ms=-1)
    talk.produce("t", batch())
    waits("enough", wanted(talk, 11, "t"), min_bytes=size)
    waits("not enough", wanted(talk, 11, "t"), min_bytes=size + 1)
    waits("never enough", wanted(talk, 11, "t"), min_bytes=size + 1, max_bytes=10)
    waits("never enough for a partition", wanted(talk, 11, "t", limit=10), min_bytes=size + 1)
    values: dict[str, Any] = {"max_wait_ms": 10_000, "min_bytes": 1, "max_bytes": LARGE}
    talk.send("Fetch", 11, topics=[wanted(talk, 11, "t", offset=1)], **values)
    talk.see_silence("while there is nothing")
    talk.produce("t", batch(b"news"))
    talk.note("woken", talk.reply("Fetch", 11))


class Session:
    """A fetcher with a session."""

    def __init__(self, talk: Conversation, version: int, topic_ids: dict[str, bytes]) -> None:
        self.talk = talk
        self.version = version
        self.ids = topic_ids
        self.session_id = 0

    def want(self, name: str, *partitions: int, **more: Any) -> dict[str, Any]:
        return wanted(self.talk, self.version, name, *partitions, topic_id=self.ids.get(name, NOBODY), **more)

    def fetch(
        self, label: str, epoch: int, *topics: dict[str, Any], session_id: int | None = None, **more: Any
    ) -> None:
        reply = self.talk.quietly(
            "Fetch",
            self.version,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=LARGE,
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=epoch,
            topics=list(topics),
            **more,
        )
        if reply.session_id:
            self.session_id = reply.session_id
            self.talk.learn(reply.session_id, "<session>", "session_id")
        self.talk.note(f"v{self.version} {label}", reply)

    def forget(self, name: str, *partitions: int) -> list[dict[str, Any]]:
        if self.version < 13:
            return [{"topic": self.talk.name(name), "partitions": list(partitions)}]
        return [{"topic_id": self.ids.get(name, NOBODY), "partitions": list(partitions)}]


@script
def fetch_sessions(talk: Conversation) -> None:
    """conformance 57, 58"""
    for version in talk.versions("Fetch"):
        if not 7 <= version <= 17:
            continue
        name = f"t{version}"
        ids = {name: talk.create(name, 3)}
        session = Session(talk, version, ids)
        talk.produce(name, batch())
        session.fetch("without a session", -1, session.want(name, 0, 1))
        session.fetch("a new one", 0, session.want(name, 0, 1))
        session.fetch("nothing new", 1, session.want(name, 0, offset=1))
        session.fetch("nothing new again", 2)
        talk.produce(name, batch(b"news"), partition=1)
        session.fetch("news", 3)
        session.fetch("read", 4, session.want(name, 1, offset=1))
        session.fetch("the epoch before", 4)
        session.fetch("an epoch too far", 9)
        session.fetch("one more", 5, session.want(name, 2))
        session.fetch("one less", 6, forgotten_topics_data=session.forget(name, 0))
        talk.produce(name, batch(b"unseen"), partition=0)
        session.fetch("of the one less, nothing", 7)
        session.fetch("out of range", 8, session.want(name, 1, offset=99))
        session.fetch("still out of range", 9)
        session.fetch("in range again", 10, session.want(name, 1, offset=1))
        session.fetch("unknown ones", 11, session.want("no", 0), session.want(name, 7))
        session.fetch("still unknown", 12)
        session.fetch("forget what is not there", 13, forgotten_topics_data=session.forget("no", 0, 5))
        session.fetch("no such session", 1, session_id=session.session_id ^ 0x5555)
        session.fetch("closed", -1)
        session.fetch("after it was closed", 14)
        session.fetch("an epoch without a session", 5, session.want(name, 0), session_id=0)
        session.fetch("a session for nothing", 0, session_id=0)
        session.session_id = 0
        session.fetch("another", 0, session.want(name, 0))
        session.fetch("forget all", 1, forgotten_topics_data=session.forget(name, 0))
        session.fetch("after forgetting all", 2)
        session.fetch("in place of it", 0, session.want(name, 1))


@script
def sessions_by_name_and_by_id(talk: Conversation) -> None:
    topic_id = talk.create("t")
    ids = {"t": topic_id}
    by_name, by_id = Session(talk, 12, ids), Session(talk, 13, ids)
    by_name.fetch("by name", 0, by_name.want("t"))
    by_id.session_id = by_name.session_id
    by_id.fetch("a session by name, by id", 1, by_id.want("t"))
    by_id.session_id = 0
    by_id.fetch("by id", 0, by_id.want("t"))
    by_name.session_id = by_id.session_id
    by_name.fetch("a session by id, by name", 1, by_name.want("t"))


@script
def a_topic_that_goes_while_it_is_read(talk: Conversation) -> None:
    """conformance 15"""
    old_id = talk.create("t")
    by_name, by_id = Session(talk, 12, {"t": old_id}), Session(talk, 17, {"t": old_id})
    talk.produce("t", batch())
    by_name.fetch("before", 0, by_name.want("t"))
    by_id.fetch("before", 0, by_id.want("t"))
    talk.quietly("DeleteTopics", 5, topic_names=[talk.name("t")], timeout_ms=10_000)
    talk.until_gone("t")
    talk.until(
        lambda reply: reply.responses[0].partitions[0].error_code == 3,
        "Fetch",
        12,
        max_wait_ms=0,
        min_bytes=0,
        topics=[wanted(talk, 12, "t")],
    )
    by_name.fetch("while it is away", 1, by_name.want("t"))
    by_id.fetch("while it is away", 1, by_id.want("t"))
    talk.create("t")
    talk.produce("t", *[batch() for _ in range(3)])
    by_name.fetch("after it came again", 2)
    by_id.fetch("after it came again", 2)
    fetch(talk, 13, "by the old id", wanted(talk, 13, "t", topic_id=old_id))


@script
def fetches_that_are_odd(talk: Conversation) -> None:
    """A partition more than once, negative limits, followers that are none."""
    topic_id = talk.create("t", 3)
    talk.produce("t", batch(b"a" * 100), batch(b"b" * 100))
    talk.produce("t", batch(b"c" * 100), partition=1)
    for version in talk.versions("Fetch"):
        if version > 17:
            continue

        def want(*partitions: int, version: int = version, **more: Any) -> dict[str, Any]:
            return wanted(talk, version, "t", *partitions, topic_id=topic_id, **more)

        def order(label: str, *topics: dict[str, Any], version: int = version, **more: Any) -> None:
            """Which partitions, and in which order."""
            reply = fetch(talk, version, label, *topics, **more)
            rows = [
                (one.partition_index, one.error_code, len(list(stored(bytes(one.records or b"")))))
                for topic in reply.responses
                for one in topic.partitions
            ]
            talk.note(f"v{version} {label}, order", {"rows": str(rows)})

        order("twice", want(0, 0))
        order("twice, apart", want(0), want(1), want(0, offset=1))
        order("twice, first out of range", want(0, offset=9), want(0))
        order("twice, last out of range", want(0), want(0, offset=9))
        order("twice, unknown", want(9, 9))
        order("no limit below zero", want(0, 1, limit=-1))
        order("no limit below zero, second", want(0), want(1, limit=-1))
        order("least limit", want(0, limit=-(2**31)))
        order("least limit at the end", want(0, limit=-1, offset=2))
        order("least limit out of range", want(0, limit=-1, offset=9))
        order("in all -1", want(0, 1), max_bytes=-1)
        order("in all -1, first is empty", want(2, 0, 1), max_bytes=-1)
        order("in all -1, limit -1", want(0, 1, limit=-1), max_bytes=-1)
        order("everything negative", want(0, limit=-5), max_bytes=-5, min_bytes=-5, max_wait_ms=-5)
        follower = {"replica_id": 7} if version < 15 else {"replica_state": {"replica_id": 7}}
        order("a follower that is none", want(0), **follower)
        order("a follower that is none, unknown partition", want(9), **follower)
        order("a follower that is none, out of range", want(0, offset=9), **follower)
        order("a follower that is none, twice", want(0, 0), **follower)
        if version >= 9:
            order("a follower that is none, epoch", want(0, current_leader_epoch=9), **follower)


@script
def one_partition_twice_in_a_session(talk: Conversation) -> None:
    talk.create("t", 2)
    talk.produce("t", batch(b"a"), batch(b"b"))
    for version in (7, 12):
        session = Session(talk, version, {})
        session.fetch("twice", 0, session.want("t", 0), session.want("t", 1), session.want("t", 0, offset=1))
        session.fetch("twice again", 1, session.want("t", 0, 0))
        session.fetch("nothing", 2)


@script
def committed_data_below_the_log_start(talk: Conversation) -> None:
    """A transaction that is open, and whose first records are deleted."""
    topic_id = talk.create("t")
    transactional_id = talk.name("id")
    talk.until(lambda reply: reply.error_code == 0, "FindCoordinator", 3, key=transactional_id, key_type=1)
    producer = talk.until(
        lambda reply: reply.error_code == 0,
        "InitProducerId",
        1,
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
    )
    whose = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    talk.until(
        lambda reply: all(
            one.partition_error_code == 0
            for one in reply.results_by_topic_v3_and_below[0].results_by_partition
        ),
        "AddPartitionsToTxn",
        1,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": talk.name("t"), "partitions": [0]}],
    )
    for number, values in enumerate(((b"1", b"2"), (b"3",))):
        records = batch(*values, transactional=True, base_sequence=2 * number, **whose)
        talk.quietly(
            "Produce",
            9,
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[{"name": talk.name("t"), "partition_data": [{"index": 0, "records": records}]}],
        )
    talk.produce("t", batch(b"plain"))
    for upto in (1, 3, 4):
        rows = [{"partition_index": 0, "offset": upto}]
        topics = [{"name": talk.name("t"), "partitions": rows}]
        talk.ask("DeleteRecords", 2, f"to {upto}", topics=topics, timeout_ms=10_000)
        for isolation in (0, 1):
            row = {"partition_index": 0, "timestamp": -1}
            topics = [{"name": talk.name("t"), "partitions": [row]}]
            talk.ask(
                "ListOffsets",
                5,
                f"isolation {isolation} after {upto}",
                replica_id=-1,
                isolation_level=isolation,
                topics=topics,
            )
            for offset in (0, upto, 4):
                label = f"isolation {isolation} after {upto} from {offset}"
                reply = talk.quietly(
                    "Fetch",
                    13,
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=LARGE,
                    isolation_level=isolation,
                    topics=[wanted(talk, 13, "t", offset=offset, topic_id=topic_id)],
                )
                [found] = reply.responses[0].partitions
                shown = {
                    name: getattr(found, name)
                    for name in ("error_code", "high_watermark", "last_stable_offset", "log_start_offset")
                }
                aborted = found.aborted_transactions
                talk.note(f"Fetch {label}", {**shown, "aborted": None if aborted is None else len(aborted)})
    talk.ask("EndTxn", 1, "", transactional_id=transactional_id, committed=False, **whose)


@script
def what_ends_the_wait(talk: Conversation) -> None:
    """conformance 55: limits, ends of segments and deleted records, where min_bytes asks for more."""
    size = len(batch(b"x" * 1000))
    talk.create("t", 1, segment_bytes=1 << 20, retention_ms=-1)  # the records are from long ago
    talk.create("small", 1, segment_bytes=1 << 20, max_message_bytes=1 << 21, retention_ms=-1)
    for _ in range(4):
        talk.produce("t", batch(b"x" * 1000))
    for _ in range(3):
        talk.produce("small", batch(b"x" * 600_000))

    def waits(label: str, want: dict[str, Any], **more: Any) -> None:
        values: dict[str, Any] = {"max_wait_ms": 800, "max_bytes": LARGE, **more}
        began = time.monotonic()
        talk.quietly("Fetch", 11, topics=[want], **values)
        talk.note(f"{label}, slow", {"is_slow": time.monotonic() - began > 0.6})

    waits("the limit is the minimum", wanted(talk, 11, "t", limit=2 * size + 9), min_bytes=2 * size + 9)
    waits("the limit is below it", wanted(talk, 11, "t", limit=2 * size + 9), min_bytes=2 * size + 10)
    waits("all is just enough", wanted(talk, 11, "t"), min_bytes=4 * size)
    waits("all is just too little", wanted(talk, 11, "t"), min_bytes=4 * size + 1)
    waits("a segment before the last one", wanted(talk, 11, "small"), min_bytes=8_000_000)
    waits("the last segment", wanted(talk, 11, "small", offset=2), min_bytes=8_000_000)
    values: dict[str, Any] = {"max_wait_ms": 10_000, "min_bytes": 1, "max_bytes": LARGE}
    talk.send("Fetch", 11, topics=[wanted(talk, 11, "t", offset=4)], **values)
    talk.see_silence("at the end")
    partitions = [{"partition_index": 0, "offset": 2}]
    topics = [{"name": talk.name("t"), "partitions": partitions}]
    talk.quietly("DeleteRecords", 2, client="b", topics=topics, timeout_ms=5000)
    talk.see_silence("after records were deleted")
    talk.produce("t", batch(b"news"))
    talk.note("woken", talk.reply("Fetch", 11))


@script
def a_session_on_two_connections(talk: Conversation) -> None:
    """conformance 57: a Fetch waits while its session goes on elsewhere."""
    for name, forgotten in (("one", 1), ("all", 2)):
        talk.create(name, 2)
        session = Session(talk, 11, {})
        session.fetch(f"{name}: begin", 0, session.want(name, 0, 1))
        talk.send(
            "Fetch",
            11,
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=LARGE,
            session_id=session.session_id,
            session_epoch=1,
            topics=[],
        )
        talk.see_silence(f"{name}: waits")
        forget = session.forget(name, *range(forgotten))
        reply = talk.quietly(
            "Fetch",
            11,
            client="b",
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=LARGE,
            session_id=session.session_id,
            session_epoch=2,
            topics=[],
            forgotten_topics_data=forget,
        )
        talk.note(f"{name}: forgets", {"error": reply.error_code, "goes on": reply.session_id != 0})
        talk.produce(name, batch(b"a"), partition=0)
        talk.produce(name, batch(b"b"), partition=1)
        if forgotten == 1:
            talk.note(f"{name}: the one that waits", talk.reply("Fetch", 11))
        talk.hang_up()
        talk.produce(name, batch(b"c"))
