"""`kbroker.testing.Broker`, as people's tests use it, in a process and in a thread."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer

from kbroker import namesakes
from kbroker.client.errors import ClientError, Refused, UnknownTopic
from kbroker.namesakes import NameTaken
from kbroker.testing import Broker, BrokerFailed, Record, WaitFailed
from tests.kbroker.harness import RawClient
from wire.api import ApiKey
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.heartbeat import HeartbeatRequest
from wire.errors import ErrorCode


@pytest.fixture(scope="module", params=[False, True], ids=["process", "thread"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(in_thread=request.param) as broker:
        yield broker
    assert "Traceback" not in broker.log


@pytest.fixture(scope="module")
def in_thread() -> Iterator[Broker]:
    with Broker(in_thread=True) as broker:
        yield broker


def test_a_stock_client_connects_to_bootstrap(broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send("greetings", b"hello", key=b"k", headers=[("h", b"1")]).get(10)
    producer.close()
    [record] = broker.records("greetings")
    assert record == Record("greetings", 0, 0, record.timestamp, b"k", b"hello", (("h", b"1"),))


def test_records_come_by_partition_and_offset(broker: Broker) -> None:
    broker.create_topic("parts", partitions=3)
    written = broker.produce("parts", "a", "b", "c", "d", headers=[("h", None)], timestamp=5)
    assert [(one.partition, one.offset, one.value) for one in written] == [
        (0, 0, b"a"),
        (0, 1, b"d"),
        (1, 0, b"b"),
        (2, 0, b"c"),
    ]
    assert broker.records("parts") == written
    assert broker.records("parts", partition=2) == [Record("parts", 2, 0, 5, None, b"c", (("h", None),))]
    assert "parts" in broker.topics()


def test_a_partition_that_is_not_there_is_no_empty_one(broker: Broker) -> None:
    """A test that looks in the wrong place must not find that nothing was written."""
    broker.create_topic("two", partitions=2)
    for ask in (broker.records, broker.produce):
        with pytest.raises(ClientError, match="topic two has no partition 2, only 0 to 1"):
            ask("two", *(["v"] if ask == broker.produce else []), partition=2)
    assert broker.records("two", partition=1) == []


def test_records_with_one_key_share_a_partition_and_tombstones_are_null(broker: Broker) -> None:
    broker.create_topic("keyed", partitions=4)
    written = broker.produce("keyed", "1", None, "2", key="k")
    assert len({one.partition for one in written}) == 1
    assert [one.value for one in written] == [b"1", None, b"2"]


def test_values_are_bytes_text_or_none_and_json_where_asked_for(broker: Broker) -> None:
    written = broker.produce("kinds", b"1", "zwölf", None, bytearray(b"2"), headers={"h": "text"})
    assert [one.value for one in written] == [b"1", "zwölf".encode(), None, b"2"]
    assert written[0].headers == (("h", b"text"),)
    [as_json, tombstone] = broker.produce("kinds", {"id": [1, None]}, None, key="k", as_json=True)
    assert (json.loads(as_json.value or b""), tombstone.value) == ({"id": [1, None]}, None)
    with pytest.raises(TypeError, match="a value is bytes, str or None, not dict; as_json=True encodes it"):
        broker.produce("kinds", {"id": 1})
    with pytest.raises(TypeError, match=r"a key is bytes, str or None, not int$"):
        broker.produce("kinds", "1", key=7)  # type: ignore[arg-type]
    assert len(broker.records("kinds")) == 6


def test_clear_leaves_neither_topics_nor_groups(broker: Broker) -> None:
    broker.produce("left", "1", "2")
    consumer = KafkaConsumer(
        "left", bootstrap_servers=broker.bootstrap, group_id="left", auto_offset_reset="earliest"
    )
    assert next(consumer).value == b"1"
    consumer.commit()
    broker.clear()
    consumer.close(autocommit=False)
    broker.clear()  # it may have come back once more before it was closed
    assert broker.topics() == []
    assert broker.group("left").state is None
    [first] = broker.produce("left", "again")
    assert first.offset == 0
    assert broker.group("left").offsets == {}


def test_a_group_is_coordinated_from_the_first_request_on() -> None:
    """Otherwise clients log an error: kafka-python's is "Group Coordinator Request failed"."""
    with Broker(in_thread=True) as fresh:
        client = RawClient(fresh.host, fresh.port)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["first"])
        found = client.ask(request, ApiKey.FIND_COORDINATOR, 4)
        assert found.coordinators[0].error_code == 0
        beat = HeartbeatRequest(group_id="first", generation_id=0, member_id="m")
        assert client.ask(beat, ApiKey.HEARTBEAT, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        client.socket.close()


@pytest.mark.parametrize("in_thread", [False, True])
def test_one_that_cannot_be_asked_does_not_stay(in_thread: bool) -> None:
    broker = Broker({"socket.request.max.bytes": 20}, in_thread=in_thread)
    with pytest.raises(BrokerFailed, match="the broker does not answer: "):
        broker.start()
    assert not broker.is_running
    with pytest.raises(BrokerFailed, match="does not run"):
        broker.topics()


def test_a_topic_has_the_configuration_that_was_asked_for(broker: Broker) -> None:
    broker.create_topic("small", configs={"max.message.bytes": 100})
    with pytest.raises(Refused) as refused:
        broker.produce("small", "x" * 200)
    assert refused.value.code == "MESSAGE_TOO_LARGE"
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
        broker.create_topic("small")


def test_a_topic_that_is_not_there_is_named_with_those_that_look_like_it(broker: Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(UnknownTopic, match="there is no topic order; did you mean orders"):
        broker.records("order")
    broker.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        broker.records("orders")


def test_a_group_shows_its_lag_its_offsets_and_its_members(broker: Broker) -> None:
    broker.produce("jobs", "1", "2", "3")
    group = broker.group("workers")
    assert (group.state, group.members, group.offsets, group.lag) == (None, (), {}, None)
    consumer = KafkaConsumer(
        "jobs",
        bootstrap_servers=broker.bootstrap,
        group_id="workers",
        client_id="worker-1",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=2,
    )
    assert len(next(iter(consumer.poll(10_000).values()))) == 2
    assert group.state == "Stable"
    [member] = group.members
    assert (member.client_id, member.partitions) == ("worker-1", (("jobs", 0),))
    assert group.lag == 3  # nothing is committed yet
    consumer.commit()
    assert (group.lag, group.offsets) == (1, {("jobs", 0): 2})
    consumer.close()
    broker.wait_until(lambda: group.state == "Empty")
    assert group.lag == 1


def test_configuration_goes_over_the_test_profile() -> None:
    config = {"num.partitions": 2, "group.min.session.timeout.ms": 200, "auto.create.topics.enable": False}
    with Broker(config, in_thread=True) as broker:
        broker.create_topic("t")
        assert len({one.partition for one in broker.produce("t", "a", "b")}) == 2
    with pytest.raises(ValueError, match=r"Broker\(port=\.\.\., data=\.\.\.\)"):
        Broker({"listeners": "PLAINTEXT://:9092"})


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("num.partition", "a broker has no key num.partition; is num.partitions meant?"),
        (
            "retention.ms",
            "a broker has no key retention.ms; it belongs to a topic, the broker's key for all topics is "
            "log.retention.ms",
        ),
        ("no.such.key", "a broker has no key no.such.key"),
    ],
)
def test_a_key_that_nobody_knows_is_an_error(key: str, words: str) -> None:
    """Else a test goes on with what it wanted to change."""
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        Broker({key: 1})


def test_async_with_leaves_the_loop_free() -> None:
    async def use() -> tuple[int, list[bytes | None]]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        async with Broker(in_thread=True) as broker:
            writing = asyncio.create_task(asyncio.to_thread(broker.produce, "t", "a"))
            found = await broker.wait_until_async(lambda: broker.records("t"))
            await writing

            async def found_later() -> list[Record]:
                return broker.records("t")

            assert await broker.wait_until_async(found_later) == found
        ticking.cancel()
        return ticks, [one.value for one in found]

    ticks, values = asyncio.run(use())
    assert values == [b"a"]
    assert ticks > 0


# -- waiting


def test_wait_until_returns_what_became_true(in_thread: Broker) -> None:
    answers: Iterator[object] = iter([0, [], None, 7])
    assert in_thread.wait_until(lambda: next(answers)) == 7


def test_wait_until_tells_what_was_asked_and_what_was_seen(in_thread: Broker) -> None:
    in_thread.produce("waiting", "a", "b")
    with pytest.raises(WaitFailed) as failed:
        in_thread.wait_until(
            lambda: len(in_thread.records("waiting")) == 3 or in_thread.group("g").lag, timeout=0.05
        )
    text = str(failed.value)
    assert "not true within 0.05 s" in text
    assert "lambda: len(in_thread.records" in text
    assert "it returned None" in text
    assert "broker.records('waiting') -> 2 of them, the last is Record(topic='waiting'" in text
    assert "broker.group('g').lag -> None" in text


def test_wait_until_waits_for_topics_and_assertions(in_thread: Broker) -> None:
    def written() -> bool:
        assert len(in_thread.records("later")) == 2
        return True

    with pytest.raises(WaitFailed, match="it raised UnknownTopic: there is no topic later"):
        in_thread.wait_until(written, timeout=0.05)
    in_thread.produce("later", "a")
    with pytest.raises(WaitFailed, match="it raised AssertionError"):
        in_thread.wait_until(written, timeout=0.05)
    in_thread.produce("later", "b")
    assert in_thread.wait_until(written)


def test_wait_until_lets_bugs_through(in_thread: Broker) -> None:
    with pytest.raises(ZeroDivisionError):
        in_thread.wait_until(lambda: 1 // 0)


# -- life and death


def test_a_stopped_broker_answers_no_questions_and_leaves_no_files() -> None:
    broker = Broker(in_thread=True)
    with pytest.raises(BrokerFailed, match="does not run"):
        _ = broker.bootstrap
    broker.start()
    data = broker.data
    assert data.is_dir()
    broker.start()  # once more does nothing
    broker.stop()
    assert not data.parent.exists()
    assert not broker.is_running
    with pytest.raises(BrokerFailed, match="does not run"):
        broker.topics()
    broker.stop()


def test_a_broker_in_a_thread_restarts_on_its_port_and_data_and_cannot_be_killed() -> None:
    with Broker(in_thread=True) as broker:
        bootstrap, written = broker.bootstrap, broker.produce("t", "a")
        broker.restart()
        assert (broker.bootstrap, broker.records("t")) == (bootstrap, written)
        with pytest.raises(RuntimeError, match="only one in a process"):
            broker.kill()
        assert broker.pid == os.getpid()


def test_a_name_that_is_taken_in_this_process_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namesakes, "OURS", ("wire", "json"))
    broker = Broker(in_thread=True)
    with pytest.raises(NameTaken, match=r"'json' is .*json in this process, and not the package"):
        broker.start()
    assert not broker.is_running
