"""The commands that talk to a cluster: what they do there, what they print, and how they fail."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer

from kbroker.cli import main
from kbroker.commands.arguments import BOOTSTRAP
from kbroker.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_thread=True) as broker:
        yield broker


class Outcome:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def kbroker(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Run a command in this process, which is what the console script does."""
    monkeypatch.setenv(BOOTSTRAP, broker.bootstrap)

    def run(*arguments: str, status: int = 0) -> Outcome:
        found = main(arguments)
        out, err = (text.decode() for text in capsysbinary.readouterr())
        assert found == status, err
        return Outcome(found, out, err)

    return run


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Let the command read this text."""
    files: list[io.TextIOWrapper] = []

    def put(text: str) -> None:
        path = tmp_path / f"stdin-{len(files)}"
        path.write_text(text)
        files.append(path.open())
        monkeypatch.setattr(sys, "stdin", files[-1])

    yield put
    for file in files:
        file.close()


def command(broker: Broker, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """In a process of its own, as in a shell."""
    return subprocess.Popen(
        [sys.executable, "-m", "kbroker", *arguments],
        env={**os.environ, BOOTSTRAP: broker.bootstrap},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


# -- topics and configs


def test_topics_are_created_described_altered_and_deleted(kbroker: Run, broker: Broker) -> None:
    made = kbroker("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=60000")
    assert made.out == "created life with 2 partitions\n"
    assert "life" in kbroker("topics", "list").lines
    assert "__consumer_offsets" not in kbroker("topics", "list").lines
    altered = kbroker(
        "topics",
        "alter",
        "life",
        "--partitions",
        "3",
        "--config",
        "segment.bytes=1048576",
        "--unset",
        "retention.ms",
    )
    assert altered.out == "altered life, which has 3 partitions\n"
    broker.produce("life", "a", partition=2)
    title, columns, *partitions = kbroker("topics", "describe", "life").lines
    assert title == "life  3 partitions  segment.bytes=1048576"
    assert columns.split() == ["partition", "leader", "replicas", "in", "sync", "start", "end"]
    assert partitions[2].split() == ["2", "1", "1", "1", "0", "1"]
    assert kbroker("topics", "delete", "life").out == "deleted life\n"
    assert "life" not in kbroker("topics", "list").lines


def test_topics_in_json(kbroker: Run) -> None:
    assert kbroker("topics", "create", "j", "--json").json == [{"name": "j", "partitions": 1}]
    assert {"name": "j", "partitions": 1} in kbroker("topics", "list", "--json").json
    [topic] = kbroker("topics", "describe", "j", "--json").json
    assert (topic["name"], topic["configs"]) == ("j", {})
    assert topic["partitions"] == [
        {
            "partition": 0,
            "leader": 1,
            "replicas": [1],
            "in_sync_replicas": [1],
            "log_start_offset": 0,
            "log_end_offset": 0,
        }
    ]
    assert kbroker("topics", "delete", "j", "--json").json == ["j"]


def test_scripts_may_create_and_delete_twice(kbroker: Run) -> None:
    kbroker("topics", "create", "twice")
    refused = kbroker("topics", "create", "twice", status=1)
    assert refused.err.startswith("kbroker: cannot create topic twice: ")
    assert "TOPIC_ALREADY_EXISTS" in refused.err
    assert kbroker("topics", "create", "twice", "--if-not-exists").out == ""
    kbroker("topics", "delete", "twice")
    assert kbroker("topics", "delete", "twice", status=1).err == "kbroker: there is no topic twice\n"
    assert kbroker("topics", "delete", "twice", "--if-exists").out == ""


def test_an_unknown_topic_brings_names_that_look_like_it(kbroker: Run) -> None:
    kbroker("topics", "create", "payments")
    for arguments in (
        ["topics", "describe"],
        ["consume"],
        ["topics", "delete"],
        ["configs", "describe", "topic"],
    ):
        refused = kbroker(*arguments, "paymets", status=1)
        assert refused.err == "kbroker: there is no topic paymets; did you mean payments?\n"
    refused = kbroker("produce", "Payment", "v", status=1)
    assert refused.err == "kbroker: there is no topic Payment; did you mean payments?\n"


def test_settings_are_described_set_and_unset(kbroker: Run) -> None:
    kbroker("topics", "create", "set")
    assert "nothing is set for topic set" in kbroker("configs", "describe", "topic", "set").err
    assert kbroker("configs", "set", "topic", "set", "retention.ms=5000").out == "configured topic set\n"
    assert kbroker("configs", "describe", "topic", "set").lines[1].split() == [
        "retention.ms",
        "5000",
        "topic",
    ]
    everything = kbroker("configs", "describe", "topic", "set", "--all", "--json").json
    assert {
        "name": "cleanup.policy",
        "value": "delete",
        "source": "default",
        "read_only": False,
    } in everything
    kbroker("configs", "unset", "topic", "set", "retention.ms")
    assert kbroker("configs", "describe", "topic", "set", "--json").json == []
    assert "INVALID_CONFIG" in kbroker("configs", "set", "topic", "set", "no.such.key=1", status=1).err


def test_an_unknown_key_of_a_broker_is_kept_as_by_kafka_and_told_of(kbroker: Run) -> None:
    said = kbroker("configs", "set", "broker", "1", "log.retenton.ms=1")
    assert said.out == "configured broker 1\n"
    assert "unknown key log.retenton.ms" in said.err
    assert "is log.retention.ms meant?" in said.err
    kbroker("configs", "unset", "broker", "1", "log.retenton.ms")
    assert kbroker("configs", "set", "broker", "1", "log.cleaner.backoff.ms=15000").err == ""
    kbroker("configs", "unset", "broker", "1", "log.cleaner.backoff.ms")


def test_settings_of_one_broker_and_of_all(kbroker: Run) -> None:
    kbroker("configs", "set", "broker", "default", "log.retention.ms=70000")
    kbroker("configs", "set", "broker", "1", "log.retention.ms=80000")
    assert kbroker("configs", "describe", "broker", "default").lines[1].split()[:2] == [
        "log.retention.ms",
        "70000",
    ]
    assert kbroker("configs", "describe", "broker", "1").lines[1].split()[:2] == ["log.retention.ms", "80000"]
    kbroker("configs", "unset", "broker", "1", "log.retention.ms")
    kbroker("configs", "unset", "broker", "default", "log.retention.ms")
    assert (
        kbroker("configs", "describe", "broker", "7", status=1).err
        == "kbroker: there is no broker 7, only 1\n"
    )


def test_the_cluster_is_described(kbroker: Run, broker: Broker) -> None:
    document = kbroker("cluster", "describe", "--json").json
    (described,) = document["brokers"]
    assert (described["id"], described["host"], described["port"]) == (1, "127.0.0.1", broker.port)
    assert described["replicas"] == described["leaders"] == document["partitions"]
    assert (described["rack"], described["lag"]) == (None, 0)
    assert kbroker("cluster", "--json").json == document
    assert (document["controller"], document["without_leader"], document["under_replicated"]) == (1, 0, 0)
    lines = kbroker("cluster", "describe").lines
    assert lines[0] == f"cluster {document['cluster_id']}, controller 1"
    assert lines[-1].split()[:4] == ["1", "127.0.0.1", str(broker.port), "-"]


def test_the_cluster_is_watched_until_ctrl_c(broker: Broker) -> None:
    with command(broker, "cluster", "--watch", "0.05", "--json") as process:
        assert process.stdout is not None
        documents = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0
    assert [len(one["brokers"]) for one in documents] == [1, 1, 1]


def test_a_single_broker_has_nothing_to_balance(kbroker: Run) -> None:
    assert kbroker("cluster", "balance", "--json").json == []
    assert kbroker("cluster", "balance").out.startswith("nothing to move")


# -- produce and consume


def test_values_keys_and_headers_go_in_and_come_out(kbroker: Run, broker: Broker) -> None:
    broker.create_topic("args", partitions=3)
    kbroker("produce", "args", "one", "two", "--key", "k", "--header", "h=1", "--header", "i=")
    assert {(one.key, one.value, one.headers) for one in broker.records("args")} == {
        (b"k", b"one", (("h", b"1"), ("i", b""))),
        (b"k", b"two", (("h", b"1"), ("i", b""))),
    }
    three = kbroker("produce", "args", "three", "--partition", "1", "--json")
    assert three.json == {"topic": "args", "records": 1}
    assert [one.value for one in broker.records("args", partition=1)][-1] == b"three"
    shown = kbroker(
        "consume",
        "args",
        "--from-beginning",
        "--until-end",
        "--format",
        r"{topic}\t{key}={value} [{headers}]",
    )
    assert "args\tk=two [h=1,i=]" in shown.lines
    assert "args\t=three []" in shown.lines


def test_lines_of_stdin_and_of_a_file_are_records(
    kbroker: Run, broker: Broker, stdin: Callable[[str], None], tmp_path: Path
) -> None:
    broker.create_topic("lines")
    stdin("a\tb\tc\n\tempty key\nlast\twithout newline")
    kbroker("produce", "lines", "--key-separator", r"\t")
    file = tmp_path / "file"
    file.write_bytes(b"one\n\n\xff\n")
    kbroker("produce", "lines", "--file", str(file), "--compression", "zstd")
    assert [(one.key, one.value) for one in broker.records("lines")] == [
        (b"a", b"b\tc"),
        (b"", b"empty key"),
        (b"last", b"without newline"),
        (None, b"one"),
        (None, b""),
        (None, b"\xff"),
    ]
    stdin("no separator\n")
    assert (
        kbroker("produce", "lines", "--key-separator", ":", status=1).err
        == "kbroker: line 1: there is no ':' in it\n"
    )
    missing = kbroker("produce", "lines", "--file", str(tmp_path / "no"), status=1)
    assert missing.err == f"kbroker: {tmp_path}/no: No such file or directory\n"
    directory = kbroker("produce", "lines", "--file", str(tmp_path), status=1)
    assert directory.err == "kbroker: cannot read the lines: Is a directory\n"


def test_json_out_is_json_in(kbroker: Run, broker: Broker, stdin: Callable[[str], None]) -> None:
    broker.create_topic("source", partitions=2)
    broker.create_topic("copy", partitions=2)
    broker.produce("source", "text", None, "", key="k", headers=[("h", b"\xff"), ("n", None)], timestamp=5)
    broker.produce("source", b"\x80", timestamp=7)
    shown = kbroker("consume", "source", "--from-beginning", "--until-end", "--json")
    assert json.loads(shown.lines[0])["headers"] == [["h", {"hex": "ff"}], ["n", None]]
    stdin(shown.out)
    assert kbroker("produce", "copy", "--json").json == {"topic": "copy", "records": 4}
    assert [one[1:] for one in broker.records("copy")] == [one[1:] for one in broker.records("source")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 1: Expecting property name"),
        ("[]", "line 1: it is no JSON object with a value"),
        ('{"value": "v", "headers": [1]}', "line 1: headers are a list of [name, value]"),
        ('{"value": "v", "partition": "0"}', "line 1: partition and timestamp are numbers"),
        ('{"value": {"hex": "0"}}', "line 1: non-hexadecimal number found"),
    ],
)
def test_json_that_is_no_record_is_named_by_its_line(
    line: str, complaint: str, kbroker: Run, broker: Broker, stdin: Callable[[str], None]
) -> None:
    stdin(line + "\n")
    refused = kbroker("produce", "bad", "--create", "--json", status=1)
    assert refused.err.startswith(f"kbroker: {complaint}")


def test_consuming_begins_where_it_is_told_to(kbroker: Run, broker: Broker) -> None:
    broker.produce("begin", "0", "1", timestamp=1_000)
    broker.produce("begin", "2", "3")
    end = ("--until-end",)
    assert kbroker("consume", "begin", "--offset", "1", *end).lines == ["1", "2", "3"]
    assert kbroker("consume", "begin", "--offset", "-1", *end).lines == ["3"]
    assert kbroker("consume", "begin", "--offset", "-9", "--max", "1").lines == ["0"]
    assert kbroker("consume", "begin", "--since", "2001-01-01T00:00", *end).lines == ["2", "3"]
    assert kbroker("consume", "begin", "--since", "1h", *end).lines == ["2", "3"]
    assert kbroker("consume", "begin", *end).lines == []
    beyond = kbroker("consume", "begin", "--offset", "9", "--max", "1", status=1)
    assert "the log has no offset 9 (OFFSET_OUT_OF_RANGE)" in beyond.err
    nowhere = kbroker("consume", "begin", "--partition", "4", *end, status=1)
    assert nowhere.err == "kbroker: there is no partition 4\n"
    nothing = kbroker("consume", "begin", "--format", "{no}", *end, status=1)
    assert "there is no {no}, but {topic}, {partition}" in nothing.err


@pytest.mark.slow
def test_what_stdin_brings_slowly_is_written_as_it_comes(broker: Broker) -> None:
    broker.create_topic("slow")
    with command(broker, "produce", "slow", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for number in range(3):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            broker.wait_until(lambda number=number: len(broker.records("slow")) == number + 1)  # type: ignore[misc]
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2000])
def test_a_reader_that_has_seen_enough_ends_it_quietly(broker: Broker, count: int) -> None:
    """`| head -1`, also where no second record comes that could not be written."""
    broker.produce(f"endless-{count}", *["x" * 1000] * count)
    with command(broker, "consume", f"endless-{count}", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"x" * 1000 + b"\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


@pytest.mark.slow
def test_aborted_records_are_left_out_on_request(kbroker: Run, broker: Broker) -> None:
    """Conformance of what a read_committed consumer does; the transaction is a stock client's."""
    from kafka import KafkaProducer

    broker.create_topic("transactional")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="t")
    producer.init_transactions()
    for value, ends in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.send("transactional", value).get(10)
        ends()
    producer.close()
    arguments = ("consume", "transactional", "--from-beginning", "--until-end")
    assert kbroker(*arguments).lines == ["aborted", "committed"]
    assert kbroker(*arguments, "--read-committed").lines == ["committed"]
    assert [one.value for one in broker.records("transactional", read_committed=True)] == [b"committed"]


# -- groups


def test_a_group_goes_on_where_it_was(kbroker: Run, broker: Broker) -> None:
    broker.create_topic("jobs", partitions=2)
    broker.produce("jobs", "a", "b", "c")
    first = kbroker("consume", "jobs", "--group", "g", "--from-beginning", "--until-end")
    assert sorted(first.lines) == ["a", "b", "c"]
    broker.produce("jobs", "d")
    assert broker.group("g").lag == 1
    assert kbroker("consume", "jobs", "--group", "g", "--max", "1").lines == ["d"]
    assert broker.group("g").offsets == {("jobs", 0): 3, ("jobs", 1): 1}
    assert broker.group("g").state == "Empty"
    lines = kbroker("groups", "describe", "g").lines
    assert lines[0] == "g  Empty  0 members"
    assert lines[2].split() == ["jobs", "0", "3", "3", "0", "-"]
    [group] = kbroker("groups", "describe", "g", "--json").json
    assert [one["lag"] for one in group["partitions"]] == [0, 0]
    assert "g" in kbroker("groups", "list").lines


def test_a_member_that_stops_within_a_batch_commits_what_it_printed(kbroker: Run, broker: Broker) -> None:
    broker.produce("partly", "a", "b", "c")
    taken = kbroker("consume", "partly", "--group", "partly", "--from-beginning", "--max", "2")
    assert taken.lines == ["a", "b"]
    assert broker.group("partly").offsets == {("partly", 0): 2}


def test_offsets_are_reset(kbroker: Run, broker: Broker) -> None:
    broker.create_topic("reset", partitions=2)
    broker.produce("reset", *"abcd", partition=0, timestamp=1_000)
    broker.produce("reset", "e", partition=0)
    group = broker.group("resetting")
    arguments = ("groups", "reset-offsets", "resetting")
    refused = kbroker(*arguments, "--to", "earliest", status=1)
    assert refused.err == "kbroker: group resetting has no offsets; name topics with --topic\n"
    kbroker(*arguments, "--to", "latest", "--topic", "reset")
    assert group.offsets == {("reset", 0): 5, ("reset", 1): 0}
    shown = kbroker(*arguments, "--to", "-2", "--dry-run", "--json").json
    assert shown[0] == {"topic": "reset", "partition": 0, "before": 5, "after": 3}
    assert group.offsets["reset", 0] == 5
    for where, offset in (("-2", 3), ("+1", 4), ("1", 1), ("2001-01-01", 4), ("99", 5), ("earliest", 0)):
        kbroker(*arguments, "--to", where, "--topic", "reset:0")
        assert group.offsets["reset", 0] == offset, where
    assert kbroker("groups", "delete", "resetting").out == "deleted resetting\n"
    assert kbroker("groups", "delete", "resetting", status=1).err == "kbroker: there is no group resetting\n"


@pytest.mark.slow
def test_a_group_with_members_shows_them_and_is_not_changed(kbroker: Run, broker: Broker) -> None:
    broker.produce("busy", "a")
    with command(broker, "consume", "busy", "--group", "workers", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        [member] = kbroker("groups", "describe", "workers", "--json").json[0]["members"]
        assert (member["client_id"], member["assignment"]) == ("kbroker", [["busy", 0]])
        refused = kbroker(
            "groups", "reset-offsets", "workers", "--topic", "busy", "--to", "earliest", status=1
        )
        assert "the group has members; stop them first" in refused.err
        assert "NON_EMPTY_GROUP" in kbroker("groups", "delete", "workers", status=1).err
        process.send_signal(2)
        assert process.wait(30) == 0
        process.stdout.close()
    assert broker.group("workers").state == "Empty"
    assert broker.group("workers").lag == 0


@pytest.mark.slow
def test_members_of_the_command_and_of_a_stock_client_share_a_group(broker: Broker) -> None:
    """Whoever leads, both speak the range assignor; nobody misses a record, and the command hands over."""
    broker.create_topic("shared", partitions=4)
    group = broker.group("mixed")
    with command(broker, "consume", "shared", "--group", "mixed", "--format", "{partition}") as process:
        assert process.stdout is not None
        broker.wait_until(lambda: [len(one.partitions) for one in group.members] == [4], timeout=30)
        consumer = KafkaConsumer(
            "shared", bootstrap_servers=broker.bootstrap, group_id="mixed", auto_offset_reset="earliest"
        )
        taken: set[int] = set()
        stopping = threading.Event()

        def consume() -> None:
            while not stopping.is_set():
                for records in consumer.poll(500).values():
                    taken.update(record.partition for record in records)

        thread = threading.Thread(target=consume)
        thread.start()
        broker.wait_until(lambda: [len(one.partitions) for one in group.members] == [2, 2], timeout=30)
        broker.produce("shared", *"abcd")
        printed = {int(process.stdout.readline()) for _ in range(2)}
        broker.wait_until(lambda: len(taken) == 2, timeout=30)
        stopping.set()
        thread.join()
        consumer.close()
        assert printed | taken == {0, 1, 2, 3}
        broker.wait_until(lambda: [len(one.partitions) for one in group.members] == [4], timeout=30)
        process.send_signal(2)
        assert process.wait(30) == 0
        process.stdout.close()


# -- failures


def test_a_broker_that_is_not_there_is_one_line(kbroker: Run) -> None:
    refused = kbroker("topics", "list", "--bootstrap", "127.0.0.1:1", status=1)
    assert refused.err == "kbroker: cannot connect to 127.0.0.1:1: Connection refused\n"
    assert kbroker("topics", "list", "--bootstrap", "nowhere:x", status=1).err.startswith(
        "kbroker: nowhere:x is not"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics"],
        ["topics", "create", "t", "--partitions", "0"],
        ["topics", "create", "t", "--config", "x"],
        ["consume", "t", "--since", "yesterday"],
        ["consume", "t", "--from-beginning", "--offset", "3"],
        ["consume", "t", "--group", ""],
        ["groups", "reset-offsets", "g", "--to", "nowhere"],
        ["configs", "set", "user", "u", "a=b"],
    ],
)
def test_arguments_that_cannot_be_meant_give_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "t", "--partition", "one"], "argument --partition: 'one' is not a number from 0 on"),
        (["consume", "t", "--partition", "-1"], "argument --partition: '-1' is not a number from 0 on"),
        (["consume", "t", "--offset", "0x5"], "argument --offset: '0x5' is not a whole number"),
        (["produce", "t", "--partition", "1.5"], "argument --partition: '1.5' is not a number from 0 on"),
        (["consume", "t", "--max", "many"], "argument --max: 'many' is not a number from 1 on"),
    ],
)
def test_what_is_wrong_with_an_argument_is_said_in_plain_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err
