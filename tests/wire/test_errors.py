"""Kafka's table of error codes: complete, with the same names and the same answer to "may I try again?"."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.wire.test_tables_against_kafka import JARS
from wire.errors import ErrorCode, KafkaError

JAVA = Path(__file__).parent / "java" / "ErrorsDump.java"


def test_codes_are_integers_with_a_sentence_each() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert all(code.message.endswith(".") for code in ErrorCode)


def test_a_kafka_error_carries_its_code_and_speaks() -> None:
    assert str(KafkaError(ErrorCode.INVALID_CONFIG)) == ErrorCode.INVALID_CONFIG.message
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms: -5 is below -1")).startswith(
        "retention.ms"
    )


@pytest.mark.slow
def test_codes_and_retriability_agree_with_kafka_itself() -> None:
    jars = [JARS / "kafka-clients-4.4.0.jar", JARS / "slf4j-api-1.7.36.jar"]
    if not shutil.which("java") or not all(jar.exists() for jar in jars):
        pytest.skip("needs java and Kafka's jars; `make setup-tests` fetches them where Maven is installed")
    command = ["java", "-cp", ":".join(map(str, jars)), str(JAVA)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    theirs = {tuple(line.split()) for line in done.stdout.splitlines()}
    assert theirs == {(str(int(c)), c.name, str(c.retriable).lower()) for c in ErrorCode}
