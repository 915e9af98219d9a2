"""Where tests of the protocol find Apache Kafka's own classes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

JARS = Path(__file__).parents[2] / ".cache" / "kafka"


@pytest.fixture(scope="session")
def kafka_jars() -> Callable[[str], str]:
    """A version of kafka-clients -> the class path with it and what it needs; skips where it is not there."""

    def class_path(version: str) -> str:
        client = JARS / f"kafka-clients-{version}.jar"
        if not client.exists():
            pytest.skip(f"{client.name} is not here; `make setup-tests` fetches it where Maven is installed")
        if not shutil.which("java"):
            pytest.skip("there is no java here")
        others = sorted(jar for jar in JARS.glob("*.jar") if not jar.name.startswith("kafka-"))
        return ":".join(map(str, [client, *others]))

    return class_path
