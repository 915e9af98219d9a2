"""The pytest plugin: brokers as fixtures.

- `kafka`: one broker for the whole run, or for each worker of pytest-xdist; tests use topics of their own.
- `kafka_broker`: a broker of its own for one test, which may kill it.
- `kafka_config`: what both are configured with. From pytest's ini file (`kafka_config`, a line per
  KEY=VALUE), unless the fixture is overridden in a conftest.py or a test module.

With `kafka_in_thread = true` in the ini file brokers are threads of the tests' process, which start in an
instant but cannot be killed. The log of a broker is shown with the tests that fail on it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from kbroker.testing import Broker

LOG_LINES = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "kafka_config",
        "Configuration of kbroker's brokers, a line per KEY=VALUE.",
        type="linelist",
        default=[],
    )
    parser.addini(
        "kafka_in_thread",
        "Run kbroker's brokers in threads of the tests' process.",
        type="bool",
        default=False,
    )


@pytest.fixture(scope="session")
def kafka_config(pytestconfig: pytest.Config) -> dict[str, object]:
    """The configuration of `kafka` and `kafka_broker`, over the test profile."""
    config: dict[str, object] = {}
    for line in pytestconfig.getini("kafka_config"):
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"kafka_config: {line!r} is not of the form KEY=VALUE")
        config[key.strip()] = value.strip()
    return config


@pytest.fixture(scope="session")
def kafka(kafka_config: dict[str, object], pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A broker that all tests share."""
    with Broker(kafka_config, in_thread=pytestconfig.getini("kafka_in_thread")) as broker:
        yield broker


@pytest.fixture
def kafka_broker(kafka_config: dict[str, object], pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A broker of its own for one test."""
    with Broker(kafka_config, in_thread=pytestconfig.getini("kafka_in_thread")) as broker:
        yield broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Broker) and (lines := value.log.splitlines()[-LOG_LINES:]):
                report.sections.append((f"Log of the broker {name!r}", "\n".join(lines)))
    return report
