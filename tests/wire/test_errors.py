"""Kafka's table of error codes: complete, with the same names and the same answer to "may I try again?"."""

from __future__ import annotations

import pytest

from tests.wire.kafka_jars import clients_class_path, run_java
from wire.errors import ErrorCode, KafkaError


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
    lines = run_java(clients_class_path("4.4.0"), "ErrorsDump.java")
    theirs = {tuple(line.split()) for line in lines}
    assert theirs == {(str(int(c)), c.name, str(c.retriable).lower()) for c in ErrorCode}
