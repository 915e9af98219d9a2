"""Every message at every version through Kafka's own generated Java classes: decoded, encoded, compared.

The classes of 3.9.2 cover the old versions and the requests between brokers, those of 4.4.0 the newest, those
of the 4.3.1 server the internal topics. Together they must know every version that the tables know.
"""

from __future__ import annotations

import random

import pytest

from tests.wire.kafka_jars import clients_class_path, run_java, server_class_path
from tests.wire.random_messages import ALL_MESSAGES, random_message, versions_of
from wire.codec import encode

PER_VERSION = 6

pytestmark = pytest.mark.slow


def test_kafkas_classes_read_and_write_the_same_bytes() -> None:
    rng = random.Random(1)
    lines = [
        f"{cls.__name__} {version} {encode(random_message(rng, cls, version), version).hex()}"
        for cls in ALL_MESSAGES
        for version in versions_of(cls)
        for _ in range(PER_VERSION)
    ]
    class_paths = (clients_class_path("3.9.2"), clients_class_path("4.4.0"), server_class_path())
    answers = [run_java(path, "MessagesCheck.java", input="\n".join(lines) + "\n") for path in class_paths]
    assert [len(per_jar) for per_jar in answers] == [len(lines)] * 3
    wrong = {answer for per_jar in answers for answer in per_jar if answer not in ("same", "absent")}
    assert wrong == set()
    unknown = {
        " ".join(line.split()[:2])
        for line, *given in zip(lines, *answers, strict=True)
        if set(given) == {"absent"}
    }
    assert unknown == set()
