"""Every message at every version through Kafka's own generated Java classes: decoded, encoded, compared.

The classes of 3.9.2 cover the old versions and the requests between brokers, those of 4.4.0 the newest, those
of the 4.3.1 server the internal topics. Together they must know every version that the tables know.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.wire.random_messages import ALL_MESSAGES, random_message, versions_of
from tests.wire.test_tables_against_kafka import JARS
from wire.codec import encode

JAVA = Path(__file__).parent / "java" / "MessagesCheck.java"
PER_VERSION = 6

pytestmark = pytest.mark.slow


def run_java(class_path: str, lines: list[str]) -> list[str]:
    if not shutil.which("java"):
        pytest.skip("there is no java here")
    done = subprocess.run(
        ["java", "-cp", class_path, str(JAVA)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def class_paths() -> list[str]:
    """Clients 3.9.2 and 4.4.0, and the whole of a 4.3.1 server, which has the records of the coordinators."""
    jars = [
        JARS / f"{name}.jar" for name in ("kafka-clients-3.9.2", "kafka-clients-4.4.0", "slf4j-api-1.7.36")
    ]
    server = JARS.with_name("kafka-4.3.1")
    if not all(jar.exists() for jar in jars) or not list(server.glob("*.jar")):
        pytest.skip("Kafka's jars are not here; `make setup-tests` fetches them where Maven is installed")
    return [f"{jars[0]}:{jars[2]}", f"{jars[1]}:{jars[2]}", f"{server}/*"]


def test_kafkas_classes_read_and_write_the_same_bytes() -> None:
    rng = random.Random(1)
    lines = [
        f"{cls.__name__} {version} {encode(random_message(rng, cls, version), version).hex()}"
        for cls in ALL_MESSAGES
        for version in versions_of(cls)
        for _ in range(PER_VERSION)
    ]
    answers = [run_java(class_path, lines) for class_path in class_paths()]
    assert [len(per_jar) for per_jar in answers] == [len(lines)] * 3
    wrong = {answer for per_jar in answers for answer in per_jar if answer not in ("same", "absent")}
    assert wrong == set()
    unknown = {
        " ".join(line.split()[:2])
        for line, *given in zip(lines, *answers, strict=True)
        if set(given) == {"absent"}
    }
    assert unknown == set()
