"""Metrics of a broker, as Prometheus scrapes them: Kafka's meanings, a bound on series, and no harm done."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kbroker.config import ConfigError
from kbroker.configuration.layers import Configuration
from kbroker.error_replies import leads_to_error
from kbroker.handlers import HANDLERS
from kbroker.measures import BOUNDS_S, Histogram, TrafficByTopic, error_places
from kbroker.metrics import DESCRIPTIONS, OTHER, Kind
from kbroker.metrics_server import MOST_CONNECTIONS, MOST_HEAD_BYTES, address_in
from kbroker.partition import Leadership
from kbroker.replica_manager import Durability
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.hosting import Hosting
from wire.api import ApiKey, api
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.leader_and_isr import LeaderAndIsrPartitionState
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.internal import CONSUMER_OFFSETS
from wire.records import BatchBuilder

ROOT = Path(__file__).parents[2]
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    texts = {"kbroker.metrics.listener": "127.0.0.1:0", "kbroker.metrics.max.partitions": "3"}
    texts["offsets.topic.num.partitions"] = "1"
    with Hosting(tmp_path / "data", Durability.ALWAYS, configuration=Configuration(texts)) as hosting:
        yield hosting


def port(hosting: Hosting) -> int:
    assert hosting.broker.metrics is not None
    return hosting.broker.metrics.address[1]


def get(hosting: Hosting, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port(hosting), timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def scrape(hosting: Hosting) -> Series:
    """A new reading, whenever the last one was made."""
    assert hosting.broker.metrics is not None
    hosting.broker.metrics._read_s = float("-inf")
    status, text = get(hosting)
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def at(series: Series, name: str, **labels: str) -> float:
    return series[name, frozenset(labels.items())]


def batch(*values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=1)
    return builder.build()


def produce(hosting: Hosting, topic: str, records: bytes) -> int:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=1, timeout_ms=30_000, transactional_id=None, topic_data=[data])
    code: int = hosting.ask(request, ApiKey.PRODUCE, 9).responses[0].partition_responses[0].error_code
    return code


def fetch_request(topic: str, offset: int, max_wait_ms: int, replica_id: int = -1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
    )


def test_a_scrape_has_every_metric_with_its_type(hosting: Hosting) -> None:
    status, text = get(hosting)
    assert status == 200
    types = {family.name: family.type for family in text_string_to_metric_families(text)}
    expected = {
        name.removesuffix("_total") if one.kind is Kind.COUNTER else name: one.kind.value
        for name, one in DESCRIPTIONS.items()
    }
    assert types.items() >= expected.items()


def test_messages_and_bytes_of_a_topic_are_counted_in_and_out(hosting: Hosting) -> None:
    hosting.order("t")
    records = batch(b"one", b"two")
    assert produce(hosting, "t", records) == 0
    assert produce(hosting, "t", records) == 0
    hosting.ask(fetch_request("t", 0, 0), ApiKey.FETCH, 11)
    series = scrape(hosting)
    assert at(series, "kbroker_messages_in_total", topic="t") == 4
    assert at(series, "kbroker_bytes_in_total", topic="t") == 2 * len(records)
    assert at(series, "kbroker_bytes_out_total", topic="t") == 2 * len(records)
    assert at(series, "kbroker_replication_bytes_out_total", topic="t") == 0
    assert at(series, "kbroker_partition_records", topic="t", partition="0") == 4
    assert at(series, "kbroker_partition_bytes", topic="t", partition="0") == 2 * len(records)
    assert at(series, "kbroker_leaders") == at(series, "kbroker_partitions") == 1


def test_the_name_of_a_label_cannot_break_out_of_its_quotes(hosting: Hosting) -> None:
    """Topics cannot be called so, but groups can."""
    hosting.order("t")
    hosting.order(CONSUMER_OFFSETS)
    commit(hosting, 'g"} 1\nkbroker_fake{x="', 0)
    series = scrape(hosting)
    assert ("kbroker_fake", frozenset({("x", "")})) not in series
    assert at(series, "kbroker_group_members", group='g"} 1\nkbroker_fake{x="') == 0


def commit(hosting: Hosting, group: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = hosting.ask(OffsetCommitRequest(group_id=group, topics=[topic]), ApiKey.OFFSET_COMMIT, 8)
    assert answer.topics[0].partitions[0].error_code == 0


def produce_everything(hosting: Hosting) -> None:
    """Some of all that has labels: traffic, errors, a group, a follower, a request that waits."""
    hosting.order("t")
    hosting.order(CONSUMER_OFFSETS)
    produce(hosting, "t", batch(b"one"))
    produce(hosting, "nowhere", batch(b"one"))
    commit(hosting, "g", 1)
    partition = hosting.do(lambda: hosting.broker.replicas.leader_of("t", 0))

    def be_followed() -> None:
        partition.leadership = Leadership(1, lambda broker_id: True)
        partition.leadership.ordered([1, 2], [1], 0, 0, is_new=True)

    hosting.do(be_followed)
    client = hosting.connect()
    client.send(client.request(fetch_request("t", 1, 30_000), ApiKey.FETCH, 11))
    while not hosting.do(lambda: bool(partition.fetches)):
        pass


def test_lag_of_a_group_is_what_it_has_not_committed(hosting: Hosting) -> None:
    hosting.order("t")
    hosting.order(CONSUMER_OFFSETS)
    produce(hosting, "t", batch(b"one", b"two", b"three"))
    commit(hosting, "g", 1)
    series = scrape(hosting)
    place = {"group": "g", "topic": "t", "partition": "0"}
    assert at(series, "kbroker_group_offset", **place) == 1
    assert at(series, "kbroker_group_lag_records", **place) == 2
    assert at(series, "kbroker_groups", state="Empty") == 1


def test_requests_are_timed_and_their_errors_counted_by_api(hosting: Hosting) -> None:
    hosting.order("t")
    assert produce(hosting, "t", batch(b"one")) == 0
    assert produce(hosting, "nowhere", batch(b"one")) == 3
    series = scrape(hosting)
    assert at(series, "kbroker_request_duration_seconds_count", api="Produce") == 2
    assert at(series, "kbroker_request_duration_seconds_sum", api="Produce") > 0
    errors = at(series, "kbroker_request_errors_total", api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION")
    assert errors == 1


def test_a_repeated_produce_is_timed_and_its_refusal_counted(hosting: Hosting) -> None:
    """What `kbroker.produce_stream` does by itself counts like everything else."""
    hosting.order("t")
    client = hosting.connect()
    data = [PartitionProduceData(index=0, records=batch(b"one"))]
    topics = [TopicProduceData(name="t", partition_data=data)]
    request = ProduceRequest(acks=1, timeout_ms=30_000, transactional_id=None, topic_data=topics)
    for _ in range(5):
        client.ask(request, ApiKey.PRODUCE, 9)
    small = hosting.do(lambda: hosting.broker.replicas.leader_of("t", 0))
    hosting.do(lambda: setattr(small.log, "config", small.log.config.__class__(max_message_bytes=1)))
    assert client.ask(request, ApiKey.PRODUCE, 9).responses[0].partition_responses[0].error_code == 10
    series = scrape(hosting)
    assert at(series, "kbroker_request_duration_seconds_count", api="Produce") == 6
    assert at(series, "kbroker_request_errors_total", api="Produce", error="MESSAGE_TOO_LARGE") == 1
    assert at(series, "kbroker_active_producers") == 1
    assert at(series, "kbroker_active_consumers") == 0


def test_what_followers_fetch_is_timed_apart(hosting: Hosting) -> None:
    """They wait most of the time, and would hide how long consumers do. Kafka's FetchFollower."""
    hosting.order("t")
    lead(hosting, 1, [1, 2], [1, 2], adding=[])
    for replica_id in (-1, 2, 2):
        hosting.ask(fetch_request("t", 0, 0, replica_id), ApiKey.FETCH, 11)
    series = scrape(hosting)
    assert at(series, "kbroker_request_duration_seconds_count", api="Fetch") == 1
    assert at(series, "kbroker_request_duration_seconds_count", api="FetchFollower") == 2


def test_a_request_that_waits_is_seen_waiting(hosting: Hosting) -> None:
    hosting.order("t")
    client = hosting.connect()
    client.send(client.request(fetch_request("t", 0, 30_000), ApiKey.FETCH, 11))
    partition = hosting.do(lambda: hosting.broker.replicas.leader_of("t", 0))
    while not hosting.do(lambda: bool(partition.fetches)):
        pass
    series = scrape(hosting)
    assert at(series, "kbroker_requests_waiting", api="Fetch") == 1
    assert at(series, "kbroker_active_consumers") == 1
    produce(hosting, "t", batch(b"one"))
    assert client.reply(ApiKey.FETCH, 11).responses[0].partitions[0].records
    assert ("kbroker_requests_waiting", frozenset({("api", "Fetch")})) not in scrape(hosting)


def test_syncs_of_the_disk_are_timed(hosting: Hosting) -> None:
    hosting.order("t")
    before = at(scrape(hosting), "kbroker_fsync_duration_seconds_count")
    produce(hosting, "t", batch(b"one"))
    assert at(scrape(hosting), "kbroker_fsync_duration_seconds_count") > before


def test_replicas_in_sync_are_watched(hosting: Hosting) -> None:
    partition = hosting.host("t")

    def lose_and_regain() -> None:
        replicas = hosting.broker.replicas
        partition.replicas, partition.in_sync_replicas = [1, 2, 3], [1, 2, 3]
        leadership = partition.leadership = Leadership(1, lambda broker_id: True)
        leadership.ordered([1, 2, 3], [1, 2, 3], 0, 0, is_new=True)
        for isr in ((1,), (1, 2)):
            leadership.settled(isr)
            replicas.in_sync_changed(partition)
        leadership.fetched(2, 0, 0, 0)

    hosting.do(lose_and_regain)
    produce(hosting, "t", batch(b"one", b"two"))
    series = scrape(hosting)
    assert at(series, "kbroker_isr_shrinks_total") == at(series, "kbroker_isr_expands_total") == 1
    assert at(series, "kbroker_under_replicated_partitions") == 1
    assert at(series, "kbroker_under_min_isr_partitions") == 0
    assert at(series, "kbroker_at_min_isr_partitions") == 0
    assert at(series, "kbroker_follower_lag_records", follower="2") == 2
    assert at(series, "kbroker_unclean_leader_elections_total") == 0
    hosting.do(lambda: setattr(partition, "min_in_sync_replicas", 2))
    assert at(scrape(hosting), "kbroker_at_min_isr_partitions") == 1
    hosting.do(lambda: setattr(partition, "leadership", None))


def lead(hosting: Hosting, epoch: int, replicas: list[int], isr: list[int], adding: list[int]) -> None:
    """What a controller would say of t-0."""
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=1,
        leader_epoch=0,
        partition_epoch=epoch,
        replicas=replicas,
        isr=isr,
        adding_replicas=adding,
        removing_replicas=[],
    )
    topic_id = b"t".ljust(16, b"-")
    hosting.do(lambda: hosting.broker.replicas.become("t", topic_id, state))


def test_a_replica_that_is_being_added_does_not_make_a_partition_under_replicated(hosting: Hosting) -> None:
    """Kafka's `Partition.isUnderReplicated`: who adds brokers and balances is not to be alarmed."""
    hosting.order("t")
    lead(hosting, 1, [1, 2], [1], adding=[2])
    assert at(scrape(hosting), "kbroker_under_replicated_partitions") == 0
    lead(hosting, 2, [1, 2], [1], adding=[])
    assert at(scrape(hosting), "kbroker_under_replicated_partitions") == 1
    lead(hosting, 3, [1, 2, 3], [1], adding=[3])
    assert at(scrape(hosting), "kbroker_under_replicated_partitions") == 1


def test_what_no_consumer_can_read_yet_is_no_lag(hosting: Hosting) -> None:
    """Kafka's tools take the high watermark for the end."""
    hosting.order("t")
    hosting.order(CONSUMER_OFFSETS)
    lead(hosting, 1, [1, 2], [1, 2], adding=[])
    assert produce(hosting, "t", batch(b"one", b"two")) == 0
    commit(hosting, "g", 0)
    place = {"topic": "t", "partition": "0"}
    series = scrape(hosting)
    assert at(series, "kbroker_partition_log_end_offset", **place) == 2
    assert at(series, "kbroker_group_lag_records", group="g", **place) == 0


def test_series_are_bounded_and_nothing_is_lost(hosting: Hosting) -> None:
    """Three at most: what is beyond is added up."""
    for topic in ("a", "b", "c", "d", "e"):
        hosting.order(topic)
        produce(hosting, topic, batch(b"one"))
    series = scrape(hosting)
    for name in ("kbroker_messages_in_total", "kbroker_partition_records"):
        values = {dict(labels)["topic"]: value for (found, labels), value in series.items() if found == name}
        assert values == {"a": 1, "b": 1, "c": 1, OTHER: 2}


def test_who_shares_numbers_goes_on_sharing_them() -> None:
    """A counter must not begin anew because another topic has gone."""
    traffic = TrafficByTopic()
    traffic.most = 1
    assert traffic.of("a") is not traffic.others
    assert traffic.of("b") is traffic.others
    traffic.forget("a")
    assert traffic.of("b") is traffic.others
    assert traffic.of("c") is not traffic.others


@pytest.mark.parametrize("key", list(HANDLERS))
def test_errors_are_looked_for_wherever_a_response_has_them(key: int) -> None:
    response, served = api(key).response, HANDLERS[key].versions
    has_some = any(leads_to_error(response, version) for version in range(served.first, served.last + 1))
    assert any(error_places(response)) == has_some


@pytest.mark.parametrize(("duration_s", "bucket"), [(0, 0), (0.0005, 0), (0.00051, 1), (99, len(BOUNDS_S))])
def test_a_bucket_has_what_is_not_above_its_bound(duration_s: float, bucket: int) -> None:
    histogram = Histogram()
    histogram.add(duration_s)
    assert histogram.counts.index(1) == bucket
    assert sum(histogram.counts) == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"HEAD /metrics?x HTTP/1.1\r\n\r\n", b"200"),
        (b"\x00\x01nonsense\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 2 * MOST_HEAD_BYTES, b""),
    ],
)
def test_odd_requests_are_refused_or_cut_off(hosting: Hosting, request_bytes: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port(hosting)), timeout=30) as client:
        client.sendall(request_bytes)
        answer = b""
        try:
            while piece := client.recv(1 << 16):
                answer += piece
        except ConnectionResetError:
            pass
    assert answer.partition(b"\r\n")[0].split(b" ")[1:2] == ([status] if status else [])
    if request_bytes.startswith(b"HEAD"):
        assert answer.endswith(b"\r\n\r\n")


def test_scrapers_that_say_nothing_take_no_more_than_their_places(hosting: Hosting) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port(hosting)), timeout=30))
        metrics = hosting.broker.metrics
        assert metrics is not None
        while hosting.do(lambda: len(metrics._handling)) < MOST_CONNECTIONS:
            pass
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            get(hosting)
        hosting.order("t")
        assert produce(hosting, "t", batch(b"one")) == 0
    while hosting.do(lambda: len(metrics._handling)):
        pass
    assert get(hosting)[0] == 200


def test_scrapes_in_a_row_are_one_reading(hosting: Hosting) -> None:
    _, first = get(hosting)
    _, second = get(hosting)
    assert first == second


def test_the_log_says_where_metrics_are(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "log", "--metrics", "127.0.0.1:0")
    try:
        said = re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", broker.log.read_text())
        assert said is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(said[1]), timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        assert 'kbroker_connections{listener="PLAINTEXT"}' in text
        assert "process_resident_memory_bytes" in text
    finally:
        assert broker.stop() == 0


@pytest.mark.parametrize(("where", "status"), [("nonsense", 2), ("127.0.0.1:TAKEN", 1)])
def test_metrics_that_cannot_be_served_are_one_line(tmp_path: Path, where: str, status: int) -> None:
    """And no broker that joins a cluster only to leave it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = where.replace("TAKEN", str(taken.getsockname()[1]))
        command = [sys.executable, "-m", "kbroker", "start", "--listener", "PLAINTEXT://127.0.0.1:0"]
        command += ["--data", str(tmp_path / "data"), "--metrics", where]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == status
    assert len(ended.stderr.splitlines()) == 1
    assert "listen" in ended.stderr


def test_without_metrics_their_library_is_not_imported() -> None:
    code = "import sys, kbroker.broker; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "h:70000", "a b:1", "http://h:1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kbroker\.metrics\.listener"):
        address_in(text)


@pytest.mark.parametrize(
    ("text", "address"), [("h:0", ("h", 0)), (":9100", ("", 9100)), ("[::1]:9100", ("::1", 9100))]
)
def test_an_address_has_a_port_and_maybe_a_host(text: str, address: tuple[str, int]) -> None:
    assert address_in(text) == address
