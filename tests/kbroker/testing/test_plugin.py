"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Somebody's project, which has a package called `wire`."""
    monkeypatch.setenv("PYTHONPATH", f".:{ROOT}")
    pytester.makepyfile(**{"wire/__init__": "whose = 'theirs'"})
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "kbroker.testing.plugin", *options)


def test_kafka_is_shared_and_kafka_broker_is_not(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import wire

        seen = []

        def test_one(kafka, kafka_broker):
            kafka.produce("t", "a")
            seen.extend((kafka.bootstrap, kafka_broker.bootstrap))
            assert kafka_broker.topics() == []
            kafka_broker.kill()

        def test_two(kafka, kafka_broker):
            assert kafka.bootstrap == seen[0]
            assert kafka_broker.bootstrap not in seen
            assert [record.value for record in kafka.records("t")] == [b"a"]
            assert wire.whose == "theirs"
        """
    )
    run(project).assert_outcomes(passed=2)


def test_the_configuration_comes_from_the_ini_file_or_from_a_fixture(project: pytest.Pytester) -> None:
    project.makeini(
        """
        [pytest]
        kafka_config =
            num.partitions = 3
            auto.create.topics.enable=false
        """
    )
    partitions = """
        def partitions(broker):
            broker.create_topic("t")
            return len({record.partition for record in broker.produce("t", *"abcdef")})
    """
    project.makepyfile(
        partitions=partitions,
        test_ini="""
        from partitions import partitions

        def test_of_the_ini_file(kafka_broker):
            assert partitions(kafka_broker) == 3
        """,
        test_fixture="""
        import pytest
        from partitions import partitions

        @pytest.fixture
        def kafka_config():
            return {"num.partitions": 2}

        def test_of_the_fixture(kafka_broker):
            assert partitions(kafka_broker) == 2
        """,
    )
    run(project).assert_outcomes(passed=2)


def test_a_failure_shows_the_log_of_its_broker(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_fails(kafka_broker):
            assert kafka_broker.topics() == ["t"]
        """
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Log of the broker 'kafka_broker'*", "*Controller of epoch 1*"])


def test_brokers_can_be_threads_and_each_worker_has_its_own(project: pytest.Pytester) -> None:
    (project.path / "wire" / "__init__.py").unlink()
    (project.path / "wire").rmdir()
    project.makeini("[pytest]\nkafka_in_thread = true\n")
    project.makepyfile(
        """
        import os, pathlib, pytest

        @pytest.mark.parametrize("number", range(4))
        def test_shares(number, kafka):
            assert kafka.pid == os.getpid()
            pathlib.Path(f"seen-{kafka.port}").touch()
            kafka.produce("t", str(number))
        """
    )
    run(project, "-n", "2", "--dist", "each").assert_outcomes(passed=8)
    assert len(list(project.path.glob("seen-*"))) == 2


def test_the_example_passes(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(
        "-p",
        "kbroker.testing.plugin",
        "-p",
        "no:cacheprovider",
        str(ROOT / "examples" / "tests"),
        "--rootdir=.",
    )
    result.assert_outcomes(passed=2)
