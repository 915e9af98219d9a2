"""`python -m compat_tests.java.launch VERSION ADDRESS`: becomes the Java client of this version.

The program is compiled once, against the oldest version; the classes that a version needs at its start are
archived once (AppCDS), which halves the time of every later start. Both lie under the name of what they were
made from: whoever makes them at the same time makes the same.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache"
BUILT = CACHE / "clients" / "java"
OLDEST = "3.9.2"
NEEDED = ("lz4-java", "slf4j-api", "snappy-java", "zstd-jni")
"""By kafka-clients, beside itself."""

WARM = """\
{"do": "consume", "topic": "warm", "starts": {}, "count": 1, "timeout_ms": 1}
{"do": "topics"}
"""
"""What loads the classes that most programs load; answered or not."""


def reason_to_skip(version: str) -> str | None:
    if not (CACHE / "kafka" / f"kafka-clients-{version}.jar").exists():
        return f"kafka-clients {version} is not here; `make setup-tests` fetches it where Maven is installed"
    if not list((CACHE / "kafka-4.3.1").glob("jackson-databind-*.jar")):
        return "jackson is not here; `make setup-tests` fetches it with Kafka 4.3.1, where Maven is installed"
    return None


def class_path(version: str) -> str:
    jars = [CACHE / "kafka" / f"kafka-clients-{version}.jar"]
    jars += [jar for name in NEEDED for jar in sorted((CACHE / "kafka").glob(f"{name}-*.jar"))]
    for name in ("core", "databind", "annotations"):
        jars += sorted((CACHE / "kafka-4.3.1").glob(f"jackson-{name}-2*.jar"))
    return os.pathsep.join(map(str, jars))


def compiled(source: Path, libraries: str | None = None) -> Path:
    """The jar of a program; a directory of classes could not be archived. `libraries` is a class path."""
    target = BUILT / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.jar"
    if not target.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as directory:
            command = [
                "javac",
                "-nowarn",
                "-d",
                directory,
                "-cp",
                libraries or class_path(OLDEST),
                str(source),
            ]
            subprocess.run(command, check=True, capture_output=True)
            new = Path(directory) / "new.jar"
            with zipfile.ZipFile(new, "w") as jar:
                for path in sorted(Path(directory).glob("*.class")):
                    jar.write(path, path.name)
            new.replace(target)
    return target


def command(version: str, address: str) -> list[str]:
    jar = compiled(HERE / "Client.java")
    archive = jar.with_suffix(f".{version}.jsa")
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xlog:disable"]
    rest = ["-cp", os.pathsep.join((str(jar), class_path(version))), "Client", address]
    if not archive.exists():
        new = archive.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [*java, f"-XX:ArchiveClassesAtExit={new}", *rest],
            input=WARM,
            text=True,
            check=True,
            capture_output=True,
        )
        new.replace(archive)
    return [*java, f"-XX:SharedArchiveFile={archive}", *rest]


if __name__ == "__main__":
    arguments = command(*sys.argv[1:])
    os.execvp(arguments[0], arguments)
