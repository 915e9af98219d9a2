"""Where the tests of the protocol find Apache Kafka's own classes, and how they run a small Java program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

JARS = Path(__file__).parents[2] / ".cache" / "kafka"
PROGRAMS = Path(__file__).parent / "java"


def needed(*names: str) -> list[Path]:
    """The jars of these names; skips the test where one is not there."""
    jars = [JARS / f"{name}.jar" for name in names]
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        pytest.skip(f"{missing} not here; `make setup-tests` fetches jars where Maven is installed")
    return jars


def clients_class_path(version: str) -> str:
    """kafka-clients of this version, and what it needs."""
    [client] = needed(f"kafka-clients-{version}")
    others = sorted(jar for jar in JARS.glob("*.jar") if not jar.name.startswith("kafka-"))
    return ":".join(map(str, [client, *others]))


def server_class_path(version: str = "4.3.1") -> str:
    """All of a Kafka server, which has the records of the coordinators."""
    jars = JARS.with_name(f"kafka-{version}")
    if not list(jars.glob("*.jar")):
        pytest.skip(f"no jars in {jars.name}; `make setup-tests` fetches them where Maven is installed")
    return f"{jars}/*"


def run_java(class_path: str, program: str, *arguments: str, input: str = "") -> list[str]:
    """The lines that a program of `tests/wire/java` prints, straight from its source."""
    if not shutil.which("java"):
        pytest.skip("there is no java here")
    done = subprocess.run(
        ["java", "-cp", class_path, str(PROGRAMS / program), *arguments],
        input=input,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()
