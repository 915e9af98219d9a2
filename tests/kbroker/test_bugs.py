"""Exceptions that nobody expects, planted in everything that waits or is called back.

Each hurts the request that met it and no other: what was staged is appended, other connections are answered,
its own is closed, the log has one traceback, and the metric counts one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.bugs import Bugs
from kbroker.configuration.layers import Configuration
from kbroker.connection_limits import Connections
from kbroker.context import Parked
from kbroker.coordinators.groups import Groups
from kbroker.handlers.fetch import _Fetching
from kbroker.handlers.produce import _InFlight
from kbroker.hosted_partition import HostedPartition
from kbroker.isr_changes import IsrChanges
from kbroker.metrics import snapshot
from kbroker.orders import NewLogs, Orders
from kbroker.outlet import Outlet
from kbroker.partition import Leadership
from kbroker.produce_stream import Head
from kbroker.produced_batches import MOST_ON_LOOP
from kbroker.replica_manager import Durability
from kbroker.waking import MOST_IN_A_TURN
from storage.flusher import Flusher
from storage.log import UnifiedLog
from storage.log_manager import LogManager
from tests.kbroker.harness import RawClient
from tests.kbroker.hosting import Hosting
from tests.kbroker.planting import Bug, Planted
from tests.kbroker.speaker import batch
from tests.kbroker.test_unreadable_coordinators import commit
from wire.api import ApiKey
from wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from wire.api.list_groups import ListGroupsRequest
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.errors import ErrorCode
from wire.internal import CONSUMER_OFFSETS

WAIT_S = 20
WAITING = 500
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "50"}


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    configuration = Configuration(SETTINGS)
    with Hosting(tmp_path / "data", Durability.AUTO, configuration=configuration) as running:
        for topic in ("t", "u"):
            running.order(topic)
        yield running


def produce_request(*topics: str, acks: int = -1, value: bytes = b"v") -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch(value))])
            for topic in topics
        ],
    )


def fetch_request(topic: str, *, offset: int = 0, max_wait_ms: int = 60_000) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def produced(client: RawClient, topic: str, *, version: int = 9) -> int:
    """The offset."""
    reply = client.ask(produce_request(topic), ApiKey.PRODUCE, version)
    [answer] = reply.responses[0].partition_responses
    assert answer.error_code == 0
    return int(answer.base_offset)


def waiting_fetch(hosting: Hosting, topic: str, offset: int = 0) -> RawClient:
    """A client whose Fetch waits."""
    partition = hosting.broker.replicas.leader_of(topic, 0)
    before = len(partition.fetches)
    client = hosting.connect()
    client.send(client.request(fetch_request(topic, offset=offset), ApiKey.FETCH, 12))
    until(lambda: len(partition.fetches) > before)
    return client


def has_records(client: RawClient) -> bool:
    return bool(client.reply(ApiKey.FETCH, 12).responses[0].partitions[0].records)


def met_once(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> bool:
    """One bug in the metric, and one traceback of it."""
    [count] = hosting.do(
        lambda: [
            one.values[0][1]
            for one in snapshot(hosting.broker)
            if one.name == "kbroker_internal_errors_total"
        ]
    )
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    tracebacks = [record.exc_info[0] for record in said if record.exc_info]
    return (count, len(said), tracebacks) == (1, 1, [Planted])


# -- what waits for records


def test_a_fetch_that_fails_when_it_is_woken(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another Fetch waits for the same records, two Produces bring some to two partitions in one turn."""
    producer = hosting.connect()
    assert produced(producer, "t") == 0
    broken, whole = waiting_fetch(hosting, "t", 1), waiting_fetch(hosting, "t", 1)
    bug = Bug(monkeypatch, _Fetching, "_read_again")
    producer.send(
        producer.request(produce_request("t"), ApiKey.PRODUCE, 9, 1),
        producer.request(produce_request("u"), ApiKey.PRODUCE, 9, 2),
    )
    for number in (1, 2):
        answer = producer.reply(ApiKey.PRODUCE, 9, number).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 2 - number)
    assert has_records(whole)
    assert broken.receive() == b""
    assert bug.times == 1
    assert met_once(hosting, caplog)
    assert not hosting.broker.replicas.leader_of("t", 0).fetches


def test_a_fetch_that_fails_when_its_time_is_over(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Bug(monkeypatch, _Fetching, "response")
    client = hosting.connect()
    client.send(client.request(fetch_request("t", max_wait_ms=50), ApiKey.FETCH, 12))
    assert client.receive() == b""
    assert met_once(hosting, caplog)
    assert not hosting.broker.replicas.leader_of("t", 0).fetches


def test_what_waits_for_records_and_is_no_request(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    def fail(visible_bytes: int) -> None:
        partition.fetches.pop(fail)
        raise Planted

    partition = hosting.broker.replicas.leader_of("t", 0)
    hosting.do(lambda: partition.fetches.setdefault(fail))
    whole = waiting_fetch(hosting, "t")
    assert produced(hosting.connect(), "t") == 0
    assert has_records(whole)
    assert met_once(hosting, caplog)


# -- what waits for an append, for replicas, or for the disk


@pytest.mark.parametrize("kind", ["streamed", "handled"])
def test_a_produce_that_fails_between_append_and_reply(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """conformance 25: its outcome is not known. The one behind it in the same turn is not answered."""
    clients = [hosting.connect() for _ in range(3)]
    for client in clients:
        produced(client, "t")
    version = 9 if kind == "streamed" else 8
    broken, waiting, other = clients
    if kind == "streamed":
        Bug(monkeypatch, Head, "reply_to_one")
    else:
        Bug(monkeypatch, _InFlight, "_one_done", of=lambda in_flight: in_flight._pending == 1)
    fetch = waiting_fetch(hosting, "t", 3)
    broken.send(
        broken.request(produce_request("t"), ApiKey.PRODUCE, version, 1),
        broken.request(produce_request("t"), ApiKey.PRODUCE, version, 2),
    )
    assert broken.receive() == b""
    assert has_records(fetch)
    assert produced(waiting, "t") == 5
    assert produced(other, "u") == 0
    assert met_once(hosting, caplog)


def test_a_log_that_fails_in_an_unexpected_way(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows what was appended: those who produced to it are hung up on. Other logs go on."""
    for topic in ("t", "u"):
        produced(hosting.connect(), topic)
    to_both, to_broken = hosting.connect(), hosting.connect()
    broken = hosting.broker.replicas.leader_of("t", 0).log
    Bug(monkeypatch, UnifiedLog, "append_as_leader", of=lambda log, *_: log is broken)
    to_both.send(to_both.request(produce_request("t", "u"), ApiKey.PRODUCE, 9))
    assert to_both.receive() == b""
    assert produced(to_broken, "u") == 2, "what was staged behind it was appended"
    assert produced(to_broken, "t") == 1
    assert met_once(hosting, caplog)


def test_what_the_flusher_tells_of(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a sync fails; the next one is right."""
    log = hosting.broker.replicas.leader_of("t", 0).log
    Bug(monkeypatch, Flusher, "_answer", of=lambda flusher, which: which is log)
    client = hosting.connect()
    reply = client.ask(produce_request("t"), ApiKey.PRODUCE, 9)
    assert reply.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produced(client, "t") == 1
    assert met_once(hosting, caplog)


def test_records_that_are_looked_at_in_a_thread(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Bug(monkeypatch, _InFlight, "_check_writable")
    client = hosting.connect()
    large = b"".join([bytes(900_000)])
    request = produce_request("t", value=large)
    request.topic_data.append(produce_request("t", value=large).topic_data[0])
    assert 2 * len(large) > MOST_ON_LOOP
    client.send(client.request(request, ApiKey.PRODUCE, 9))
    assert client.receive() == b""
    assert produced(hosting.connect(), "u") == 0
    assert met_once(hosting, caplog)


# -- replies, connections, timers, tasks


def test_a_connection_that_fails_in_the_middle_of_its_turn(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has staged is appended, once, and others are served."""
    client, other = hosting.connect(), hosting.connect()
    produced(client, "t")
    [connection] = [one for one in hosting.broker.connections if one.produces]
    Bug(monkeypatch, type(connection), "_end_turn", of=lambda one, *_: one is connection)
    client.send(client.request(produce_request("t"), ApiKey.PRODUCE, 9))
    assert client.receive() == b""
    assert produced(other, "t") == 2
    assert met_once(hosting, caplog)


def test_a_reply_that_waits_and_cannot_be_made(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is changed for its version: the change fails."""

    def ask_later() -> None:
        parked = Parked()
        parked.then(fail).when_done(outcomes.append)
        hosting.broker.call_later_ms(0, lambda: parked.complete("response"))

    def fail(response: object) -> object:
        raise error

    error, outcomes = Planted(), list[object]()
    hosting.do(ask_later)
    until(lambda: outcomes)
    assert outcomes == [error]
    assert not hosting.broker.bugs.count, "whoever sends it hears of it"


@pytest.mark.parametrize("what", ["timer", "slices", "off loop", "task", "call from a thread"])
def test_a_callback(hosting: Hosting, caplog: pytest.LogCaptureFixture, what: str) -> None:
    def fail(*_: object) -> Any:
        raise Planted

    def work() -> Iterator[Any]:
        yield 1

    async def task() -> None:
        fail()

    broker = hosting.broker
    begin: dict[str, Callable[[], object]] = {
        "timer": lambda: broker.call_later_ms(0, fail),
        "slices": lambda: broker.slices.take(work(), fail),  # type: ignore[arg-type]
        "off loop": lambda: broker.off_loop.run(work(), fail),  # type: ignore[arg-type]
        "task": lambda: broker.spawn(task()),
        "call from a thread": lambda: broker._call_from_thread(fail),
    }
    hosting.do(begin[what])
    until(lambda: broker.bugs.count)
    done: list[object] = []
    hosting.do(lambda: broker.slices.take(work(), done.append))  # type: ignore[arg-type]
    hosting.do(lambda: broker.off_loop.run(work(), done.append))  # type: ignore[arg-type]
    until(lambda: len(done) == 2)
    assert met_once(hosting, caplog)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name"), [(LogManager, "look_at_threads"), (Connections, "tick"), (UnifiedLog, "checkpoint")]
)
def test_what_is_due_every_second(
    hosting: Hosting,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    name: str,
) -> None:
    """Whatever else is due is done in the same second."""
    hosting.broker.logs._last_ms.clear()
    monkeypatch.setattr(hosting.broker.logs, "_started_ms", 0)
    bug, done = Bug(monkeypatch, owner, name), list[int]()
    tick = hosting.broker.log_limits.tick

    def last_of_all() -> None:
        tick()
        done.append(bug.times)

    monkeypatch.setattr(hosting.broker.log_limits, "tick", last_of_all)
    until(lambda: bug.times)
    hosting.do(lambda: None)
    assert 1 in done
    assert met_once(hosting, caplog)


def test_what_is_sent_when_the_client_reads(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The event loop calls for it, and would do so without end."""
    produced(hosting.connect(), "t")
    assert hosting.ask(produce_request("t", value=bytes(900_000)), ApiKey.PRODUCE, 9)
    client = hosting.connect()
    client.send(*[client.request(fetch_request("t", max_wait_ms=0), ApiKey.FETCH, 12)] * 40)
    until(lambda: [one for one in hosting.broker.connections if one.client_is_slow])
    Bug(monkeypatch, Outlet, "_send_waiting")
    while client.socket.recv(1 << 20):
        pass
    until(lambda: not [one for one in hosting.broker.connections if one.client_is_slow])
    assert produced(hosting.connect(), "u") == 0
    assert met_once(hosting, caplog)


# -- the cluster


@pytest.mark.parametrize("what", ["the making of logs", "an answer"])
def test_an_order(hosting: Hosting, what: str) -> None:
    """Those behind it, about the same topic and others, are carried out."""

    def make_logs(wanted: NewLogs, done: Callable[[], object]) -> None:
        if what == "the making of logs" and not bugs.count:
            raise Planted
        done()

    def order(name: str) -> Generator[NewLogs, None, str]:
        yield {("t", 0): bytes(16)}
        return name

    def fail(outcome: object) -> None:
        raise Planted

    bugs, outcomes = Bugs(), list[object]()
    later: list[Callable[[], object]] = []
    orders = Orders(make_logs, later.append, bugs)
    blocking = orders.take(pausing(), ["t"])
    first, second = orders.take(order("first"), ["t"]), orders.take(order("second"), ["t", "u"])
    assert isinstance(blocking, Parked)
    first.when_done(fail if what == "an answer" else outcomes.append)
    second.when_done(outcomes.append)
    for call in later:
        call()
    assert bugs.count == 1
    assert outcomes[-1] == "second"
    assert [str(one) for one in outcomes[:-1]] == ([] if what == "an answer" else [str(outcomes[0])])
    assert orders.take(order("third"), ["t"]) == "third"
    assert not orders.is_busy


def pausing() -> Generator[NewLogs, None, str]:
    yield {}
    return "paused"


async def asked_for_in_sync_replicas(bugs: Bugs) -> list[str]:
    """Two proposals are granted; what is told of the first one fails."""
    settled: list[str] = []

    def tell(partition: HostedPartition) -> None:
        settled.append(partition.topic)
        if len(settled) == 1:
            raise Planted

    async def grant(request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        one = PartitionDataResponse(
            partition_index=0, error_code=0, leader_id=1, leader_epoch=-1, isr=[1], partition_epoch=1
        )
        topics = [TopicDataResponse(topic_id=topic.topic_id, partitions=[one]) for topic in request.topics]
        return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics)

    tasks: list[asyncio.Task[Any]] = []
    changes = IsrChanges(
        1,
        lambda: 0,
        grant,
        tell,
        lambda work: tasks.append(asyncio.ensure_future(work)),
        bugs,
    )
    for name in ("t", "u"):
        log: Any = None
        partition = HostedPartition(name, name.encode() * 16, 0, log)
        partition.leadership = Leadership(1, lambda broker_id: True)
        partition.leadership.ordered([1, 2], [1, 2], 0, 0, is_new=True)
        changes.propose(partition, (1,))
    await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)
    return settled


def test_a_change_of_the_in_sync_replicas() -> None:
    bugs = Bugs()
    assert asyncio.run(asked_for_in_sync_replicas(bugs)) == ["t", "u"]
    assert bugs.count == 1


# -- coordinators


def join(hosting: Hosting, group: str) -> RawClient:
    client = hosting.connect()
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    client.send(client.request(request, ApiKey.JOIN_GROUP, 3))
    return client


def test_a_timer_of_a_group(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those who wait to join are told to look for their coordinator, which begins anew."""
    hosting.order(CONSUMER_OFFSETS)
    Bug(monkeypatch, Groups, "on_timer")
    members = [join(hosting, "g"), join(hosting, "other")]
    codes = Counter(client.reply(ApiKey.JOIN_GROUP, 3).error_code for client in members)
    assert codes == {ErrorCode.NOT_COORDINATOR: 2}
    until(lambda: hosting.do(lambda: hosting.broker.groups.served()))
    assert join(hosting, "g").reply(ApiKey.JOIN_GROUP, 3).error_code == 0
    assert met_once(hosting, caplog)


def test_a_decision_that_is_in_the_log_and_not_in_memory(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator is loaded from the log."""
    hosting.order(CONSUMER_OFFSETS)
    Bug(monkeypatch, Groups, "replay")
    assert commit(hosting, "g") == ErrorCode.NOT_COORDINATOR
    until(lambda: hosting.do(lambda: hosting.broker.groups.served()))
    listed = hosting.ask(ListGroupsRequest(), ApiKey.LIST_GROUPS, 4)
    assert (listed.error_code, [one.group_id for one in listed.groups]) == (0, ["g"])
    assert met_once(hosting, caplog)


def test_a_reply_of_a_group_that_cannot_be_sent(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Replies of one decision leave together: the others do."""
    hosting.order(CONSUMER_OFFSETS)
    members = [join(hosting, "g") for _ in range(2)]
    Bug(monkeypatch, Parked, "complete", of=lambda parked, outcome: isinstance(outcome, JoinGroupResponse))
    sizes = sorted(len(client.receive()) for client in members)
    assert sizes[0] == 0 < sizes[1]
    assert met_once(hosting, caplog)


# -- those who wait are told after those who append


def test_who_produces_is_answered_before_those_who_wait_are_told(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 wait for one partition: the event loop does other things between some and the next."""
    events: list[object] = []
    turn = 0

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        if len(events) <= WAITING:
            asyncio.get_running_loop().call_soon(count_turns)

    send = Outlet.send

    def sending(outlet: Outlet, parts: Any) -> None:
        events.append("reply")
        send(outlet, parts)

    producer, partition = hosting.connect(), hosting.broker.replicas.leader_of("t", 0)
    produced(producer, "t")
    waiting = [lambda visible, number=number: events.append((turn, visible)) for number in range(WAITING)]
    hosting.do(lambda: partition.fetches.update(dict.fromkeys(waiting)))
    monkeypatch.setattr(Outlet, "send", sending)
    hosting.do(count_turns)
    produced(producer, "t")
    until(lambda: len(events) > WAITING)
    assert events[0] == "reply"
    told = [event for event in events if isinstance(event, tuple)]
    assert len(told) == WAITING
    assert {visible for _, visible in told} == {told[0][1]} != {0}
    assert max(Counter(turn for turn, _ in told).values()) <= MOST_IN_A_TURN
