"""Every key that is said to be alterable while a broker runs does something, at once and after a restart.

What a key is for is looked at where it acts: in connections that are refused, in the log, the cleaner, the
rules for produced batches, the controller, of a whole broker in this process. A key that is new to the table
has to be looked at here, too.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from kbroker.broker import Broker
from kbroker.commands.start import join
from kbroker.config import READ_ONLY
from kbroker.configuration.broker_keys import BROKER_KEYS
from kbroker.configuration.layers import Configuration
from kbroker.configuration.topic_keys import TOPIC_KEYS
from kbroker.listeners import Listeners
from kbroker.machine import Machine
from kbroker.membership import Membership
from tests.kbroker.harness import RawClient
from tests.kbroker.speaker import BROKER, SET, Speaker, batch, now_ms
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.compression import Codec
from wire.errors import ErrorCode

T = TypeVar("T")

TESTED_ELSEWHERE = {"num.replica.fetchers": "cluster/test_fetchers.py"}
"""It takes more than one broker."""
ALTERABLE = {
    name
    for name, note in BROKER_KEYS.items()
    if note.update != READ_ONLY and not note.no_effect and name not in TESTED_ELSEWHERE
}
MANY_CONNECTIONS = 40
HOUR_MS = 3_600_000
LATER_MS = count(HOUR_MS, HOUR_MS)


class Sleepless(Machine):
    """Notes for how long somebody wants to sleep, and for how long anything was paid for in full."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:  # type: ignore[override]
        self.slept.append(seconds)
        time.sleep(seconds)


class Running:
    """A broker in a thread of this process, with its own metadata; what touches it runs through `do`."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._started: Future[None] = Future()
        self._topics: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._started.result(30)
        self.speaker = Speaker(*self.broker.address)
        return self

    def __exit__(self, *_: object) -> None:
        self.speaker.socket.close()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        configuration = Configuration({"log.dirs": str(self._data), "log.cleaner.enable": "false"})
        self.machine = Sleepless()
        self.broker = Broker(
            Listeners.on("127.0.0.1", 0),
            configuration=configuration,
            data=[str(self._data)],
            machine=self.machine,
        )
        try:
            await self.broker.start(lambda broker: join(broker, configuration))
        except BaseException as error:
            self._started.set_exception(error)
            raise
        self._started.set_result(None)
        await self._stopping.wait()
        await self.broker.stop()

    def do(self, action: Callable[[], T]) -> T:
        """Run on the broker's loop; its outcome."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return future.result(30)

    @property
    def membership(self) -> Membership:
        assert self.broker.membership is not None
        return self.broker.membership

    def topic(self, name: str = "plain", **configs: object) -> Any:
        """The one partition of a topic, which is made where there is none."""
        if self.speaker.metadata(name).error_code:
            self.speaker.create(name, 1, **configs)
        return self.broker.replicas.find(name, 0)

    def log(self, name: str = "plain", **configs: object) -> Any:
        return self.topic(name, **configs).log


Observe = Callable[[Running], object]


def of_the_log(field: str) -> Observe:
    """What the log goes by."""
    return lambda running: getattr(running.log().config, field)


def of_produced_batches(field: str) -> Observe:
    return lambda running: getattr(running.topic().rules, field)


def compression_level(codec: str) -> Observe:
    return lambda running: running.topic(codec, compression_type=codec).rules.compression_level


def connections_from(*addresses: str) -> Observe:
    """How many the broker lets in, of many; those that are there already are ours as well."""

    def let_in(running: Running) -> int:
        with ExitStack() as open_connections:
            for number in range(MANY_CONNECTIONS):
                client = RawClient.__new__(RawClient)
                source = addresses[number % len(addresses)]
                client.socket = socket.create_connection(running.broker.address, 30, (source, 0))
                open_connections.callback(client.socket.close)
                client.send(client.request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0))
                try:
                    is_in = bool(client.receive())
                except ConnectionError:
                    is_in = False
                if not is_in:
                    break
        while running.do(lambda: len(running.broker.connections)) > 1:
            time.sleep(0.01)  # until they have gone
        return number

    return let_in


def cleaner_s(running: Running) -> float | None:
    """How long the cleaner first rests after 10,000 bytes."""
    running.machine.slept.clear()
    running.broker.compaction._cleaner._throttle(10_000)
    return round(running.machine.slept[0], 2) if running.machine.slept else None


def cleaner_buffer(running: Running) -> int:
    """The memory of a cleaning that begins now."""
    speaker = running.speaker
    running.topic(
        "dirty",
        compression_type="producer",
        cleanup_policy="compact",
        segment_bytes=1 << 20,
        min_cleanable_dirty_ratio=0,
    )
    for _ in range(3):
        assert speaker.produce("dirty", batch(b"x" * (600 << 10))).error_code == 0

    def begin() -> int:
        cleaner = running.broker.compaction._cleaner
        cleaning = cleaner.choose(now_ms() + 10_000)
        assert cleaning is not None
        cleaning.cancel()
        size = cleaning._max_map_bytes
        cleaner.advance(cleaning)
        return size

    size = running.do(begin)
    assert speaker.delete_topic("dirty") == 0
    return size


def cleaner_looks_again(running: Running) -> bool:
    """Whether the cleaner looks again for something to do, two seconds after it has found nothing."""
    compaction, looked = running.broker.compaction, []
    choose = compaction._cleaner.choose

    def looks(at_ms: int) -> None:
        looked.append(at_ms)
        choose(at_ms)

    def look() -> bool:
        backoff_ms = running.broker.settings.configuration.broker.log_cleaner_backoff_ms
        begin_ms = now_ms() + next(LATER_MS)
        compaction._cleaner.choose = looks  # type: ignore[method-assign, assignment]
        for at_ms in (begin_ms, begin_ms + 2000):
            compaction.tick(at_ms, backoff_ms)
        compaction._cleaner.choose = choose  # type: ignore[method-assign]
        return looked == [begin_ms, begin_ms + 2000]

    return running.do(look)


def forgets_producers(running: Running) -> bool:
    """Whether a producer that was here is forgotten ten seconds later."""
    log = running.log()
    outcome = running.speaker.produce("plain", batch(producer_id=7, producer_epoch=0, base_sequence=0))
    assert outcome.error_code in (
        0,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
    running.do(lambda: log.producers.expire(now_ms() + 10_000))
    return 7 not in log.producers.producers


def keeps_deleted_topics(running: Running) -> bool:
    """Whether the files of a topic are there half a minute after its deletion."""
    running.topic("short-lived")
    assert running.speaker.delete_topic("short-lived") == 0
    logs = running.broker.logs

    def look() -> bool:
        logs._remove_deleted(now_ms())
        assert logs._removals
        logs._remove_deleted(now_ms() + 30_000)
        return bool(logs._removals)

    return running.do(look)


def throttles_leaders(running: Running) -> bool:
    """Whether a second at a megabyte is too much."""
    return throttles(running, running.broker.replicas.leader_quota)


def throttles_followers(running: Running) -> bool:
    return throttles(running, running.membership._follower_quotas().listed)


def throttles_balancing(running: Running) -> bool:
    return throttles(running, running.membership._follower_quotas().added, 1 << 30)


def throttles(running: Running, quota: Any, size: int = 10 << 20) -> bool:
    def spend() -> bool:
        quota.record(size)
        waits = bool(quota.wait_ms())
        quota._windows.clear()
        quota._bytes = 0
        return waits

    return running.do(spend)


def of_the_controller(name: str) -> Observe:
    return lambda running: getattr(running.membership.controller._rules, name)


def unclean_elections(running: Running) -> bool:
    return bool(running.membership.controller._rules.unclean_leader_election({}))


WATCHED: Mapping[str, tuple[object, Observe, object]] = {
    "max.connections": (21, connections_from("127.0.0.1", "127.0.0.2", "127.0.0.4", "127.0.0.5"), 20),
    "max.connections.per.ip": (9, connections_from("127.0.0.1"), 8),
    "max.connections.per.ip.overrides": ("127.0.0.3:3", connections_from("127.0.0.3"), 3),
    "kbroker.validate.records": ("header", of_produced_batches("validate_records"), False),
    "log.cleaner.backoff.ms": (1000, cleaner_looks_again, True),
    "log.cleaner.dedupe.buffer.size": (3 << 20, cleaner_buffer, 3 << 20),
    "log.cleaner.io.max.bytes.per.second": (200_000, cleaner_s, 0.05),
    "producer.id.expiration.ms": (5000, forgets_producers, True),
    "transaction.partition.verification.enable": (
        "false",
        lambda running: running.log().producers.verify_transactions,
        False,
    ),
    "leader.replication.throttled.rate": (1000, throttles_leaders, True),
    "follower.replication.throttled.rate": (1000, throttles_followers, True),
    "kbroker.balance.max.bytes.per.second": (1 << 40, throttles_balancing, False),
    "kbroker.replica.recovery.delay.ms": (7, of_the_controller("replica_recovery_delay_ms"), 7),
    "kbroker.auto.balance": ("true", of_the_controller("auto_balance"), True),
    "kbroker.balance.max.moves": (7, of_the_controller("balance_max_moves"), 7),
    "unclean.leader.election.enable": ("true", unclean_elections, True),
    "compression.type": ("zstd", of_produced_batches("codec"), Codec.ZSTD),
    "compression.gzip.level": (2, compression_level("gzip"), 2),
    "compression.lz4.level": (2, compression_level("lz4"), 2),
    "compression.zstd.level": (2, compression_level("zstd"), 2),
    "log.segment.delete.delay.ms": (20_000, keeps_deleted_topics, False),
    "log.message.timestamp.before.max.ms": (
        HOUR_MS // 2,
        of_produced_batches("timestamp_before_max_ms"),
        HOUR_MS // 2,
    ),
    "log.message.timestamp.after.max.ms": (
        HOUR_MS // 2,
        of_produced_batches("timestamp_after_max_ms"),
        HOUR_MS // 2,
    ),
    "log.message.timestamp.type": ("LogAppendTime", of_produced_batches("log_append_time"), True),
    "message.max.bytes": (2_000_000, of_produced_batches("max_message_bytes"), 2_000_000),
    "min.insync.replicas": (2, lambda running: running.topic().min_in_sync_replicas, 2),
    "log.cleanup.policy": ("compact", of_the_log("cleanup_policy"), frozenset({"compact"})),
    **{
        TOPIC_KEYS[name].broker or "": (value, of_the_log(name.replace(".", "_")), value)
        for name, value in {
            "delete.retention.ms": 7,
            "flush.messages": 7,
            "flush.ms": 7,
            "index.interval.bytes": 7,
            "max.compaction.lag.ms": 7,
            "min.compaction.lag.ms": 7,
            "min.cleanable.dirty.ratio": 0.25,
            "retention.bytes": 7,
            "retention.ms": 7_000_000,
            "segment.bytes": 2_000_000,
            "segment.index.bytes": 7_000,
            "segment.jitter.ms": 7,
            "segment.ms": 7_000_000,
        }.items()
    },
}
"""What a key is altered to, where that is seen, and what is seen then."""


class Seen:
    """What was seen before, at once and after a restart; of each key for itself, at its turn."""

    def __init__(self, data: Path) -> None:
        self.before, self.at_once, self.after_restart = {}, {}, {}
        with Running(data) as running:
            self.before = self._all(running)
            for name, (value, _, _) in WATCHED.items():
                altered = running.speaker.alter(BROKER, "", (name, SET, str(value)))
                assert altered.error_code == 0, (name, altered)
            self.at_once = self._all(running)
        with Running(data) as running:
            self.after_restart = self._all(running)

    @staticmethod
    def _all(running: Running) -> dict[str, object]:
        return {name: outcome(observe, running) for name, (_, observe, _) in WATCHED.items()}


def outcome(observe: Observe, running: Running) -> object:
    """What is seen, or why nothing can be: that concerns one key."""
    try:
        return observe(running)
    except Exception as error:
        return error


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(tmp_path_factory.mktemp("broker"))


def test_every_alterable_key_is_looked_at() -> None:
    assert WATCHED.keys() == ALTERABLE
    for name, file in TESTED_ELSEWHERE.items():
        assert name in Path(__file__).parent.joinpath(file).read_text()


@pytest.mark.parametrize("name", sorted(WATCHED))
def test_an_altered_key_acts_at_once_and_after_a_restart(name: str, seen: Seen) -> None:
    expected = WATCHED[name][2]
    assert seen.before[name] != expected
    assert (seen.at_once[name], seen.after_restart[name]) == (expected, expected)


def test_what_is_altered_holds_for_logs_that_are_opened(tmp_path: Path) -> None:
    """A producer that was last heard of two days ago is still known, where that is less than is allowed."""
    key, two_days_ago_ms = "producer.id.expiration.ms", now_ms() - 48 * HOUR_MS
    with Running(tmp_path) as running:
        assert running.speaker.alter(BROKER, "", (key, SET, str(7 * 24 * HOUR_MS))).error_code == 0
        running.topic()
        old = batch(producer_id=7, producer_epoch=0, base_sequence=0, timestamp_ms=two_days_ago_ms)
        assert running.speaker.produce("plain", old).error_code == 0
    with Running(tmp_path) as running:
        assert 7 in running.log().producers.producers
