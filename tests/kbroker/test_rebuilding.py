"""A broker whose metadata.db is lost: what `kbroker check --rebuild-metadata` makes of its directories."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.cli import main
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch
from wire.api import ApiKey
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.init_producer_id import InitProducerIdRequest
from wire.errors import ErrorCode

pytestmark = pytest.mark.slow

COUNT = 5


def connected(broker: BrokerProcess) -> Speaker:
    return Speaker(broker.host, broker.port)


def new_producer_id(client: Speaker, transactional_id: str | None = None) -> int:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_epoch=-1
    )
    if transactional_id is not None:  # the coordinator's topic is made when somebody looks for it
        find = FindCoordinatorRequest(key=transactional_id, key_type=1)
        while client.ask(find, ApiKey.FIND_COORDINATOR, 3).error_code:
            pass
    while True:
        answer = client.ask(request, ApiKey.INIT_PRODUCER_ID, 4)
        if answer.error_code == ErrorCode.NONE:
            return int(answer.producer_id)
        assert answer.error_code in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Of a broker that had two topics, a group's offsets and two producers; its data are beside the log."""
    log = tmp_path / "log"
    broker = BrokerProcess(log)
    client = connected(broker)
    client.create("plain", 3, retention_ms=1000)
    client.create("other.topic-1", 1)
    for partition in range(3):
        for number in range(COUNT):
            data = batch(b"%d" % number, producer_id=4_000, producer_epoch=0, base_sequence=number)
            assert client.produce("plain", data, partition=partition).error_code == ErrorCode.NONE
    client.produce("other.topic-1")
    assert broker.stop() == 0
    return log


def data_of(log: Path) -> Path:
    return log.with_suffix(".data")


def complaint_of_a_start(*data: Path, status: int = 1) -> str:
    command = [sys.executable, "-m", "kbroker", "start"]
    options = ["--listener", "PLAINTEXT://127.0.0.1:0", *(f"--data={one}" for one in data)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_the_broker_starts_again_with_all_topics_and_records(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = BrokerProcess(log)
    ids = {name: connected(broker).metadata(name).topic_id for name in ("plain", "other.topic-1")}
    broker.stop()
    assert main(["check", str(data_of(log))]) == 0
    (data_of(log) / "metadata.db").unlink()
    assert main(["check", str(data_of(log))]) == 1
    assert "metadata.db: it is missing or empty, and says which topics there are." in capsys.readouterr().out
    assert main(["check", "--rebuild-metadata", str(data_of(log))]) == 0
    out, err = capsys.readouterr()
    assert "plain: 3 partitions\n" in out
    assert "2 topics of broker 1" in out
    assert "retention.ms=-1" in err
    broker = BrokerProcess(log)
    client = connected(broker)
    assert {name: client.metadata(name).topic_id for name in ids} == ids
    for partition in range(3):
        values = [record.value for record in client.records("plain", partition=partition)]
        assert values == [b"%d" % number for number in range(COUNT)]
        assert client.produce("plain", partition=partition).base_offset == COUNT
    [headers] = [client.batches("plain")]
    epochs = [header.leader_epoch for header in headers]
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0], "a leader of its own, after all that were before"
    assert client.describe(2, "plain", "retention.ms").configs[0].value == "-1"
    assert new_producer_id(client) > 4_000
    assert broker.stop() == 0


def test_ids_of_transactional_producers_that_wrote_nothing_are_not_given_out_again(log: Path) -> None:
    broker = BrokerProcess(log)
    given = new_producer_id(connected(broker), "t")
    broker.stop()
    (data_of(log) / "metadata.db").unlink()
    shutil.rmtree(data_of(log) / "plain-0")
    for partition in (1, 2):  # nothing but the state of transactions knows of producers now
        shutil.rmtree(data_of(log) / f"plain-{partition}")
    assert main(["check", "--rebuild-metadata", str(data_of(log))]) == 0
    broker = BrokerProcess(log)
    client = connected(broker)
    assert new_producer_id(client) > given
    assert new_producer_id(client, "t") == given
    assert client.describe(2, "__transaction_state", "cleanup.policy").configs[0].value == "compact"
    assert broker.stop() == 0


def test_a_partition_whose_directory_is_gone_is_said_to_be_empty(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_of(log) / "metadata.db").unlink()
    shutil.rmtree(data_of(log) / "plain-1")
    assert main(["check", "--rebuild-metadata", str(data_of(log))]) == 0
    assert "plain: 3 partitions, 1 of them without a directory and empty\n" in capsys.readouterr().out
    broker = BrokerProcess(log)
    client = connected(broker)
    assert client.produce("plain", partition=1).base_offset == 0
    assert len(client.records("plain", partition=2)) == COUNT
    assert broker.stop() == 0


@pytest.mark.parametrize("damage", [b"", b"no database at all", bytes(8192)], ids=["empty", "text", "zeros"])
def test_a_damaged_file_is_named_with_the_way_out_and_set_aside(log: Path, damage: bytes) -> None:
    database = data_of(log) / "metadata.db"
    database.write_bytes(damage)
    said = complaint_of_a_start(data_of(log))
    assert said.startswith(f"kbroker: {database}: ")
    assert said.endswith(f"`kbroker check --rebuild-metadata {data_of(log)}` makes it again from the logs")
    assert main(["check", "--rebuild-metadata", str(data_of(log))]) == 0
    broker = BrokerProcess(log)
    assert len(connected(broker).records("plain", partition=2)) == COUNT
    assert broker.stop() == 0


def test_a_file_that_may_be_whole_is_not_made_again(log: Path) -> None:
    """On a full disk, say."""
    database = data_of(log) / "metadata.db"
    before = database.read_bytes()
    command = f"ulimit -f 0; exec {sys.executable} -m kbroker check --rebuild-metadata {data_of(log)}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.endswith("what is in it may be whole\n")
    assert database.read_bytes() == before


def test_one_wrong_node_in_the_file_is_told_of_with_its_path(log: Path) -> None:
    database = data_of(log) / "metadata.db"
    database.write_bytes(database.read_bytes().replace(b'"partitions":', b'"partit)ons":'))
    said = complaint_of_a_start(data_of(log))
    assert said.startswith(f"kbroker: {database}: ")
    assert "partit)ons" in said


def test_metadata_that_can_be_read_are_left_alone(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (data_of(log) / "metadata.db").read_bytes()
    assert main(["check", "--rebuild-metadata", str(data_of(log))]) == 2
    assert "has 2 topics; it is left alone" in capsys.readouterr().err
    broker = BrokerProcess(log)
    assert len(connected(broker).records("plain")) == COUNT
    assert main(["check", "--rebuild-metadata", str(data_of(log))]) == 2, "it is in use"
    assert broker.stop() == 0
    assert before


def test_metadata_in_another_directory_than_the_first_are_not_lost(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = log.with_name("new")
    new.mkdir()
    said = complaint_of_a_start(new, data_of(log), status=2)
    assert said == f"kbroker: log.dirs: metadata.db is in {data_of(log)}, which has to be named first"
    assert main(["check", "--rebuild-metadata", str(new), str(data_of(log))]) == 2
    assert f"{data_of(log)}/metadata.db can be read, and has 2 topics" in capsys.readouterr().err
    assert not list(new.glob("metadata.db*"))
