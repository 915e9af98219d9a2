"""The broker process against Apache Kafka, frame by frame: the same requests, and equal replies.

What differs on purpose stands in `differences.py`. A difference that is not there fails, and so does one that
is there and has gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.apache_kafka import ApacheKafka, reason_to_skip
from compat_tests.differential import (
    scripts_cluster,
    scripts_configs,
    scripts_fetch,
    scripts_groups,
    scripts_malformed,
    scripts_offsets,
    scripts_produce,
    scripts_records,
    scripts_security,
    scripts_topics,
    scripts_transactions,
)
from compat_tests.differential.conversation import (
    SCRIPTS,
    Conversation,
    World,
    cluster_of,
    common,
    different,
    served_by,
)
from compat_tests.differential.differences import DIFFERENCES
from tests.kbroker.harness import BrokerProcess

VERSION = "4.3.1"
OLDER = "3.9.2"
MODULES = (
    scripts_cluster,
    scripts_configs,
    scripts_fetch,
    scripts_groups,
    scripts_malformed,
    scripts_offsets,
    scripts_produce,
    scripts_records,
    scripts_security,
    scripts_topics,
    scripts_transactions,
)
"""Importing them fills SCRIPTS."""

PROPERTIES = {
    "node.id": 1,
    "num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("differential data plane"),
    pytest.mark.skipif(reason_to_skip(VERSION) is not None, reason=str(reason_to_skip(VERSION))),
]


@contextmanager
def beside(version: str, log: Path, **more: object) -> Iterator[tuple[World, World]]:
    """Kafka, and us; more properties with `_` for `.`."""
    properties = {**PROPERTIES, **{key.replace("_", "."): value for key, value in more.items()}}
    settings = [option for key, value in properties.items() for option in ("--set", f"{key}={value}")]
    ours = BrokerProcess(log, *settings)
    try:
        with ApacheKafka(version, properties=properties) as kafka:
            theirs_at, ours_at = ("127.0.0.1", kafka.ports[0]), (ours.host, ours.port)
            versions = common(served_by(theirs_at), served_by(ours_at))
            yield (
                World(theirs_at, cluster_of(theirs_at), versions),
                World(ours_at, cluster_of(ours_at), versions),
            )
    finally:
        ours.stop()
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, World]]:
    with beside(VERSION, tmp_path_factory.mktemp("kbroker") / "broker.log") as both:
        yield both


@pytest.mark.parametrize("name", SCRIPTS)
def test_we_answer_as_kafka(name: str, worlds: tuple[World, World]) -> None:
    answers_are_equal(name, worlds)


@pytest.mark.skipif(reason_to_skip(OLDER) is not None, reason=str(reason_to_skip(OLDER)))
def test_records_are_looked_at_as_by_an_older_kafka(tmp_path: Path) -> None:
    an_hour = {"log_message_timestamp_after_max_ms": 3_600_000}  # the default of Kafka 4
    with beside(OLDER, tmp_path / "broker.log", **an_hour) as both:
        for name in ("records_that_are_not_right", "records_of_particular_topics"):
            answers_are_equal(name, both)


def answers_are_equal(name: str, worlds: tuple[World, World]) -> None:
    held = []
    for world in worlds:
        conversation = Conversation(world, name)
        try:
            SCRIPTS[name](conversation)
        finally:
            conversation.close()
        held.append(conversation)
    found = different(*held)
    surprises = [one for one in found if not any(known.covers(name, one) for known in DIFFERENCES)]
    own = [known for known in DIFFERENCES if known.script == name]
    gone = [known for known in own if not any(known.covers(name, one) for one in found)]
    assert not surprises, "\n".join(map(str, surprises))
    assert not gone, f"no longer different: {gone}"


def test_a_difference_is_of_a_script_that_exists() -> None:
    assert {one.script for one in DIFFERENCES} <= {*SCRIPTS, "*"}
