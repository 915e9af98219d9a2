"""kbroker's commands against Apache Kafka: they speak plain Kafka, so all of them work there, too."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from compat_tests.apache_kafka import ApacheKafka, reason_to_skip
from kbroker.cli import main
from kbroker.client.cluster import Cluster
from kbroker.client.offsets import log_ends
from kbroker.client.producing import murmur2
from kbroker.commands.arguments import BOOTSTRAP

VERSION = "4.3.1"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("command line"),
    pytest.mark.skipif(reason_to_skip(VERSION) is not None, reason=str(reason_to_skip(VERSION))),
]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(VERSION) as kafka:
        yield kafka


@pytest.fixture
def kbroker(
    kafka: ApacheKafka,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Run:
    """Run a command in this process, which is what the console script does."""
    monkeypatch.setenv(BOOTSTRAP, kafka.bootstrap)

    def run(*arguments: str, status: int = 0, stdin: str = "") -> str:
        text = tmp_path / "stdin"
        text.write_text(stdin)
        with text.open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            found = main(arguments)
        out, err = (text.decode() for text in capsysbinary.readouterr())
        assert found == status, err
        return err if status else out

    return run


def as_json(kbroker: Run, *arguments: str) -> Any:
    return json.loads(kbroker(*arguments, "--json"))


def test_topics_and_settings(kbroker: Run) -> None:
    kbroker("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=60000")
    assert {"name": "life", "partitions": 2} in as_json(kbroker, "topics", "list")
    assert "TOPIC_ALREADY_EXISTS" in kbroker("topics", "create", "life", status=1)
    kbroker("topics", "alter", "life", "--partitions", "3")
    kbroker("configs", "set", "topic", "life", "segment.bytes=1048576")
    kbroker("configs", "unset", "topic", "life", "retention.ms")
    [topic] = as_json(kbroker, "topics", "describe", "life")
    assert topic["configs"] == {"segment.bytes": "1048576"}
    assert [one["leader"] for one in topic["partitions"]] == [1, 1, 1]
    kbroker("configs", "set", "broker", "default", "log.retention.ms=70000")
    settings = as_json(kbroker, "configs", "describe", "broker", "default")
    assert ("log.retention.ms", "70000", "all brokers") in [
        (one["name"], one["value"], one["source"]) for one in settings
    ]
    assert "INVALID_CONFIG" in kbroker("configs", "set", "topic", "life", "no.such.key=1", status=1)
    assert "did you mean life?" in kbroker("topics", "delete", "live", status=1)
    kbroker("topics", "delete", "life")
    assert "life" not in kbroker("topics", "list").splitlines()


def test_the_cluster(kbroker: Run, kafka: ApacheKafka) -> None:
    cluster = as_json(kbroker, "cluster", "describe")
    assert [f"{one['host']}:{one['port']}" for one in cluster["brokers"]] in (
        [kafka.bootstrap],
        [kafka.bootstrap.replace("127.0.0.1", "localhost")],
    )
    assert cluster["without_leader"] == 0
    assert cluster["reassignments"] == as_json(kbroker, "cluster", "balance") == []


def test_any_replica_says_where_its_log_ends(kbroker: Run, kafka: ApacheKafka) -> None:
    kbroker("produce", "ends", "a", "b", "c", "--create")
    with Cluster(kafka.bootstrap) as cluster:
        (node_id,) = cluster.node_ids()
        assert log_ends(cluster, node_id, [("ends", 0), ("nowhere", 0)]) == {("ends", 0): 3}


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_records(codec: str, kbroker: Run) -> None:
    topic = f"records-{codec}"
    kbroker("topics", "create", topic, "--partitions", "2")
    lines = "".join(f"{number % 7}:{number}\n" for number in range(20_000))
    kbroker("produce", topic, "--key-separator", ":", "--compression", codec, stdin=lines)
    shown = kbroker("consume", topic, "--from-beginning", "--until-end", "--format", "{key}:{value}")
    assert sorted(shown.splitlines()) == sorted(lines.splitlines())
    for key in map(str, range(7)):  # in the order in which they were written
        values = [int(line.partition(":")[2]) for line in shown.splitlines() if line.startswith(f"{key}:")]
        assert values == sorted(values)
    assert len(kbroker("consume", topic, "--offset", "-5", "--until-end").splitlines()) == 10
    assert len(kbroker("consume", topic, "--since", "1h", "--max", "3").splitlines()) == 3


def test_keys_choose_the_partitions_that_other_clients_choose(kafka: ApacheKafka, kbroker: Run) -> None:
    kbroker("topics", "create", "keys", "--partitions", "50")
    keys = [b"k%d" % number * (1 + number % 5) for number in range(60)]
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    chosen = [producer.send("keys", b"", key=key).get(30).partition for key in keys]
    producer.close()
    assert [(murmur2(key) & 0x7FFFFFFF) % 50 for key in keys] == chosen


def test_groups(kbroker: Run) -> None:
    kbroker("topics", "create", "jobs", "--partitions", "2")
    kbroker("produce", "jobs", "a", "b", "c", "--key", "k")
    arguments = ("consume", "jobs", "--group", "g", "--until-end")
    assert kbroker(*arguments, "--from-beginning").splitlines() == ["a", "b", "c"]
    assert kbroker(*arguments) == ""
    [group] = as_json(kbroker, "groups", "describe", "g")
    assert (group["state"], [one["lag"] for one in group["partitions"]]) == ("Empty", [0, 0])
    kbroker("groups", "reset-offsets", "g", "--to", "-1", "--topic", "jobs")
    assert kbroker(*arguments).splitlines() == ["c"]
    assert kbroker("groups", "list").splitlines() == ["g"]
    kbroker("groups", "delete", "g")
    assert kbroker("groups", "describe", "g", status=1) == "kbroker: there is no group g\n"


def test_groups_of_kafkas_own_consumers(kafka: ApacheKafka, kbroker: Run) -> None:
    """A group of the new protocol (KIP-848), which other requests describe, looks like any other."""
    kbroker("topics", "create", "theirs")
    kbroker("produce", "theirs", "a", "b")
    consume = ("--topic", "theirs", "--group", "new", "--from-beginning", "--max-messages", "2")
    output = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        kafka.bootstrap,
        "--command-property",
        "group.protocol=consumer",
        *consume,
    )
    assert output.splitlines()[:2] == ["a", "b"]
    [group] = as_json(kbroker, "groups", "describe", "new")
    assert (group["state"], group["partitions"][0]["committed"]) == ("Empty", 2)
    assert {"group": "new", "state": "Empty", "type": "consumer"} in [
        {**one, "type": one["type"].lower()} for one in as_json(kbroker, "groups", "list")
    ]
    kbroker("groups", "reset-offsets", "new", "--to", "earliest")
    kbroker("groups", "delete", "new")
