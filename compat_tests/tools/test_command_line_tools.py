"""Kafka's own command-line tools, as they come, against one broker: what they print, and what they end with.

A test has a topic of its own; the tools run in one JVM, one after another.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache_kafka import reason_to_skip
from compat_tests.java import launch
from compat_tests.tools.command_line import VERSION, CommandLine
from tests.kbroker.harness import BrokerProcess, RawClient
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest

CLIENT = f"Kafka's tools {VERSION}"
MISSING = reason_to_skip(VERSION) or launch.reason_to_skip(launch.OLDEST)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.feature("command-line tools"),
    pytest.mark.xdist_group("command-line tools"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

FROM_THE_START = ("--from-beginning", "--timeout-ms", 20_000)


def create(run: CommandLine, topic: str, partitions: int = 1, *more: Any) -> None:
    run("kafka-topics", "--create", "--topic", topic, "--partitions", partitions, *more)


def write(run: CommandLine, topic: str, count: int, *more: Any) -> None:
    lines = "".join(f"k{number}:{number}\n" for number in range(count))
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    run("kafka-console-producer", "--topic", topic, *keyed, *more, input=lines)


def read_by(run: CommandLine, group: str, topic: str, count: int) -> list[str]:
    return run(
        "kafka-console-consumer",
        "--topic",
        topic,
        "--group",
        group,
        "--max-messages",
        count,
        *FROM_THE_START,
    )


def table(lines: list[str]) -> list[dict[str, str]]:
    """Rows by the names of their columns."""
    rows = [line.split() for line in lines if line.strip()]
    return [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]


def offsets(run: CommandLine, topic: str, time: Any = "latest") -> list[str]:
    return run("kafka-get-offsets", "--topic", topic, "--time", time)


class TestTopics:
    def test_topics_are_created_described_grown_and_deleted(self, run: CommandLine, topic: str) -> None:
        """conformance 15-17"""
        created = run(
            "kafka-topics", "--create", "--topic", topic, "--partitions", 2, "--config", "retention.ms=7"
        )
        assert created == [f"Created topic {topic}."]
        again = run.run("kafka-topics", "--create", "--topic", topic)
        assert again.status == 1
        assert "exists" in again.out
        run("kafka-topics", "--create", "--topic", topic, "--if-not-exists")
        run("kafka-topics", "--alter", "--topic", topic, "--partitions", 3)
        assert run.run("kafka-topics", "--alter", "--topic", topic, "--partitions", 2).status == 1
        head, *partitions = run("kafka-topics", "--describe", "--topic", topic)
        assert re.fullmatch(
            rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 3\t"
            r"ReplicationFactor: 1\tConfigs: retention.ms=7",
            head,
        )
        assert [line.split() for line in partitions] == [
            f"Topic: {topic} Partition: {number} Leader: 1 Replicas: 1 Isr: 1 Elr: LastKnownElr:".split()
            for number in range(3)
        ]
        assert run("kafka-topics", "--describe", "--under-replicated-partitions") == []
        assert run("kafka-topics", "--describe", "--unavailable-partitions") == []
        assert topic in run("kafka-topics", "--list")
        run("kafka-topics", "--delete", "--topic", topic)
        assert topic not in run("kafka-topics", "--list")
        assert run.run("kafka-topics", "--describe", "--topic", topic).status == 1

    def test_a_topic_is_assigned_by_hand(self, run: CommandLine, topic: str) -> None:
        run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1,1")
        assert "PartitionCount: 2" in run("kafka-topics", "--describe", "--topic", topic)[0]
        stranger = run.run("kafka-topics", "--create", "--topic", f"{topic}-2", "--replica-assignment", "9")
        assert stranger.status == 1
        assert "no such brokers" in stranger.out

    def test_leaders_are_elected_and_reassigned(self, run: CommandLine, topic: str, tmp_path: Path) -> None:
        create(run, topic, 2)
        preferred = ("--election-type", "preferred")
        elected = run("kafka-leader-election", *preferred, "--topic", topic, "--partition", 0)
        assert elected == [f"Valid replica already elected for partitions {topic}-0"]
        run("kafka-leader-election", *preferred, "--all-topic-partitions")
        assert run("kafka-reassign-partitions", "--list") == ["No partition reassignments found."]
        moved = tmp_path / "topics.json"
        moved.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
        proposed = run(
            "kafka-reassign-partitions",
            "--generate",
            "--topics-to-move-json-file",
            moved,
            "--broker-list",
            1,
        )
        [plan] = [json.loads(line) for line in proposed if '"any"' in line]
        assert [one["replicas"] for one in plan["partitions"]] == [[1], [1]]
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        chosen = ("--reassignment-json-file", tmp_path / "plan.json")
        run("kafka-reassign-partitions", *chosen, "--execute")
        verified = run("kafka-reassign-partitions", *chosen, "--verify")
        assert f"Reassignment of partition {topic}-0 is completed." in verified


class TestConfigs:
    def test_the_configuration_of_a_topic_is_set_and_unset(self, run: CommandLine, topic: str) -> None:
        """conformance 18"""
        create(run, topic)
        entity = ("--entity-type", "topics", "--entity-name", topic)
        changes = "max.message.bytes=2000,cleanup.policy=[compact,delete]"
        run("kafka-configs", "--alter", *entity, "--add-config", changes)
        head, *described = run("kafka-configs", "--describe", *entity)
        assert head == f"Dynamic configs for topic {topic} are:"
        assert [line.split(" sensitive")[0].strip() for line in sorted(described)] == [
            "cleanup.policy=compact,delete",
            "max.message.bytes=2000",
        ]
        assert any("DEFAULT_CONFIG:message.max.bytes=1048588" in line for line in described)
        assert len(run("kafka-configs", "--describe", "--all", *entity)) == 34
        run("kafka-configs", "--alter", *entity, "--delete-config", "max.message.bytes,cleanup.policy")
        assert run("kafka-configs", "--describe", *entity) == [head]
        wrong = run.run("kafka-configs", "--alter", *entity, "--add-config", "no.such.key=1")
        assert wrong.status == 1
        assert "InvalidConfigurationException" in wrong.err

    @pytest.mark.parametrize(
        ("entity", "key", "value"),
        [
            (("brokers", "--entity-name", "1"), "log.cleaner.threads", "2"),
            (("brokers", "--entity-default"), "log.retention.ms", "604800001"),
            (("groups", "--entity-name", "g"), "consumer.session.timeout.ms", "50000"),
        ],
    )
    def test_other_configurations_are_set_and_unset(
        self, run: CommandLine, entity: tuple[str, ...], key: str, value: str
    ) -> None:
        words = ("--entity-type", *entity)
        run("kafka-configs", "--alter", *words, "--add-config", f"{key}={value}")
        assert any(f"{key}={value} " in line for line in run("kafka-configs", "--describe", *words))
        run("kafka-configs", "--alter", *words, "--delete-config", key)
        assert not any(f"{key}={value} " in line for line in run("kafka-configs", "--describe", *words))

    def test_quotas_are_set_and_unset(self, run: CommandLine, topic: str) -> None:
        user, client = ("--entity-type", "users"), ("--entity-type", "clients")
        entity = (*user, "--entity-name", topic, *client, "--entity-name", "c")
        quotas = "producer_byte_rate=1024,request_percentage=12.5"
        run("kafka-configs", "--alter", *entity, "--add-config", quotas)
        [told] = run("kafka-configs", "--describe", *entity)
        assert told.startswith(f"Quota configs for user-principal '{topic}', client-id 'c' are ")
        assert set(told.rpartition(" are ")[2].split(", ")) == {
            "producer_byte_rate=1024.0",
            "request_percentage=12.5",
        }
        keys = "producer_byte_rate,request_percentage"
        run("kafka-configs", "--alter", *entity, "--delete-config", keys)
        assert run("kafka-configs", "--describe", *entity) == []

    def test_what_only_kraft_has_is_not_supported(self, run: CommandLine) -> None:
        """As by Kafka before KRaft: said at once, and nothing hangs."""
        done = run.run("kafka-metadata-quorum", "describe", "--status")
        assert done.status != 0
        assert "does not support DESCRIBE_QUORUM" in done.err + done.out


class TestRecords:
    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_what_the_console_writes_the_console_reads(
        self, run: CommandLine, topic: str, codec: str
    ) -> None:
        lines = "".join(f"h:{number},n:\tkey{number}\tvalue {number} \u00e9\n" for number in range(20))
        run(
            "kafka-console-producer",
            "--topic",
            topic,
            *("--reader-property", "parse.key=true"),
            *("--reader-property", "parse.headers=true"),
            *("--compression-codec", codec),
            input=lines,
        )
        printed = [
            word
            for name in ("key", "headers", "partition", "offset")
            for word in ("--formatter-property", f"print.{name}=true")
        ]
        found = run(
            "kafka-console-consumer", "--topic", topic, "--max-messages", 20, *printed, *FROM_THE_START
        )
        assert found == [
            f"Partition:0\tOffset:{number}\th:{number},n:\tkey{number}\tvalue {number} \u00e9"
            for number in range(20)
        ]

    def test_the_console_reads_from_an_offset(self, run: CommandLine, topic: str) -> None:
        write(run, topic, 10)
        place = ("--topic", topic, "--partition", 0)
        tail = run("kafka-console-consumer", *place, "--offset", 7, "--max-messages", 3)
        assert tail == ["7", "8", "9"]

    def test_offsets_are_found(self, run: CommandLine, topic: str) -> None:
        """conformance 63, 64"""
        create(run, topic, 2)
        assert offsets(run, topic) == [f"{topic}:0:0", f"{topic}:1:0"]
        write(run, topic, 20)
        ends = [int(line.rpartition(":")[2]) for line in offsets(run, topic)]
        assert sum(ends) == 20
        assert all(ends)
        assert offsets(run, topic, "earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
        assert offsets(run, topic, 1000) == [f"{topic}:0:0", f"{topic}:1:0"]
        assert len(offsets(run, topic, "max-timestamp")) == 2
        assert run("kafka-get-offsets", "--topic-partitions", f"{topic}:1") == [f"{topic}:1:{ends[1]}"]
        assert run.run("kafka-get-offsets", "--topic", "unknown").status == 1

    def test_records_are_deleted(self, run: CommandLine, topic: str, tmp_path: Path) -> None:
        """conformance 66"""
        write(run, topic, 10)
        file = tmp_path / "offsets.json"

        def delete(offset: int) -> str:
            row = {"topic": topic, "partition": 0, "offset": offset}
            file.write_text(json.dumps({"version": 1, "partitions": [row]}))
            return run("kafka-delete-records", "--offset-json-file", file)[-1]

        assert delete(4) == f"partition: {topic}-0\tlow_watermark: 4"
        assert offsets(run, topic, "earliest") == [f"{topic}:0:4"]
        assert "OffsetOutOfRangeException" in delete(11)
        assert delete(-1) == f"partition: {topic}-0\tlow_watermark: 10"

    def test_log_directories_are_described(self, run: CommandLine, topic: str, broker: BrokerProcess) -> None:
        write(run, topic, 10)
        described = json.loads(run("kafka-log-dirs", "--describe", "--topic-list", topic)[-1])
        [place] = described["brokers"][0]["logDirs"]
        assert (place["error"], place["logDir"]) == (None, str(broker.log.with_suffix(".data")))
        [partition] = place["partitions"]
        log = broker.log.with_suffix(".data") / f"{topic}-0" / f"{0:020}.log"
        assert partition == {
            "partition": f"{topic}-0",
            "size": log.stat().st_size,
            "offsetLag": 0,
            "isFuture": False,
        }


class TestGroups:
    def test_groups_are_listed_and_described(
        self, run: CommandLine, topic: str, broker: BrokerProcess
    ) -> None:
        """conformance 80, 81"""
        create(run, topic, 2)
        write(run, topic, 20)
        assert sorted(map(int, read_by(run, topic, topic, 20))) == list(range(20))
        assert topic in run("kafka-consumer-groups", "--list")
        assert [topic, "Empty"] in [
            line.split() for line in run("kafka-consumer-groups", "--list", "--state")
        ]
        assert [topic, "Classic", "consumer"] in [line.split() for line in run("kafka-groups", "--list")]
        group = ("--describe", "--group", topic)
        rows = table(run("kafka-consumer-groups", *group))
        ends = [line.rpartition(":")[2] for line in offsets(run, topic)]
        assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [
            ("0", ends[0], "0"),
            ("1", ends[1], "0"),
        ]
        assert [topic, broker.address, "(1)", "-", "Empty", "0"] in [
            line.split() for line in run("kafka-consumer-groups", *group, "--state")
        ]
        assert table(run("kafka-consumer-groups", *group, "--members")) == []

    def test_offsets_of_a_group_are_reset_and_deleted(self, run: CommandLine, topic: str) -> None:
        write(run, topic, 20)
        read_by(run, topic, topic, 10)

        def reset(*how: Any, wet: str = "--dry-run") -> str:
            words = ("--reset-offsets", "--group", topic, "--topic", topic, *how, wet)
            [row] = table(run("kafka-consumer-groups", *words))
            return row["NEW-OFFSET"]

        assert reset("--to-current") == "10"
        assert reset("--to-earliest") == "0"
        assert reset("--to-latest") == "20"
        assert reset("--shift-by", -3) == "7"
        assert reset("--shift-by", 100) == "20"
        assert reset("--to-offset", 5) == "5"
        assert reset("--to-datetime", "2020-01-01T00:00:00.000") == "0"
        assert reset("--by-duration", "PT1H") == "0"
        assert reset("--to-offset", 15, wet="--execute") == "15"
        assert read_by(run, topic, topic, 5) == ["15", "16", "17", "18", "19"]
        deleted = run("kafka-consumer-groups", "--delete-offsets", "--group", topic, "--topic", topic)
        assert table(deleted[1:]) == [{"TOPIC": topic, "PARTITION": "0", "STATUS": "Successful"}]
        done = run("kafka-consumer-groups", "--delete", "--group", topic)
        assert done[-1].endswith("was successful.")
        assert topic not in run("kafka-consumer-groups", "--list")
        assert any(
            "GroupIdNotFound" in line for line in run("kafka-consumer-groups", "--delete", "--group", topic)
        )

    def test_what_groups_are_stored_as_can_be_read(self, run: CommandLine, topic: str) -> None:
        """The records of `__consumer_offsets`, by Kafka's own formatters."""
        write(run, topic, 10)
        read_by(run, topic, topic, 10)
        formatters = "org.apache.kafka.tools.consumer"

        def stored(formatter: str) -> list[Any]:
            text = "".join(
                run(
                    "kafka-console-consumer",
                    *("--topic", "__consumer_offsets", "--formatter", f"{formatters}.{formatter}"),
                    *("--from-beginning", "--timeout-ms", 1000),
                )
            )
            found = [json.loads(one) for one in re.sub(r"\}\{", "}\n{", text).splitlines()]
            return [one for one in found if one["key"]["data"]["group"] == topic]

        committed = stored("OffsetsMessageFormatter")
        assert committed[-1]["key"]["data"] == {"group": topic, "topic": topic, "partition": 0}
        assert committed[-1]["value"]["data"]["offset"] == 10
        states = [one["value"]["data"] for one in stored("GroupMetadataMessageFormatter") if one["value"]]
        assert [len(one["members"]) for one in states][-2:] == [1, 0]
        assert states[-1]["protocolType"] == "consumer"


class TestTheBroker:
    def test_versions_are_told(self, run: CommandLine, broker: BrokerProcess) -> None:
        """conformance 2: every API that the broker advertises is one that Kafka's own client can use."""
        client = RawClient(broker.host, broker.port)
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        served = client.ask(request, ApiKey.API_VERSIONS, 3).api_keys
        client.socket.close()
        lines = run("kafka-broker-api-versions")
        assert lines[0].startswith(f"{broker.address} (id: 1 rack: null")
        found = {
            int(match[1]): (int(match[2]), int(match[3] or match[2]))
            for match in (
                re.search(r"\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+\]", line) for line in lines
            )
            if match
        }
        assert found == {one.api_key: (one.min_version, one.max_version) for one in served}

    def test_producers_are_described(self, run: CommandLine, topic: str) -> None:
        write(run, topic, 10)
        place = ("--topic", topic, "--partition", 0)
        [row] = table(run("kafka-transactions", "describe-producers", *place))
        assert (row["ProducerEpoch"], row["LastSequence"]) == ("0", "9")


class TestLoad:
    def test_performance_is_measured(self, run: CommandLine, topic: str) -> None:
        count = 20_000
        sent = run(
            "kafka-producer-perf-test",
            *("--topic", topic, "--num-records", count, "--record-size", 100, "--throughput", -1),
            *("--command-property", "compression.type=lz4"),
        )
        assert sent[-1].startswith(f"{count} records sent, ")
        read = run("kafka-consumer-perf-test", "--topic", topic, "--num-records", count)
        heading, row = (line.split(", ") for line in read[-2:])
        assert int(dict(zip(heading, row, strict=True))["data.consumed.in.nMsg"]) == count

    def test_what_is_written_is_verified(self, run: CommandLine, topic: str) -> None:
        count = 500
        written = list(
            map(json.loads, run.alone("kafka-verifiable-producer", "--topic", topic, "--max-messages", count))
        )
        acknowledged = [one for one in written if one["name"] == "producer_send_success"]
        assert [one["offset"] for one in acknowledged] == list(range(count))
        options = ["--topic", topic, "--group-id", topic, "--max-messages", count]
        options += ["--reset-policy", "earliest", "--verbose"]
        read = list(map(json.loads, run("kafka-verifiable-consumer", *options)))
        values = [one["value"] for one in read if one["name"] == "record_data"]
        assert values == [one["value"] for one in acknowledged]
        assert read[-1]["name"] == "shutdown_complete"
        assert [one["success"] for one in read if one["name"] == "offsets_committed"][-1] is True
