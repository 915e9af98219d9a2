"""A real Prometheus with docker/prometheus.yml and three brokers: its alerts, and what Grafana would ask it.

It skips where there is no `prometheus`. Grafana itself is not needed: a panel shows what its query brings.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import KafkaConsumer

from compat_tests.cluster.processes import Cluster
from compat_tests.cluster.test_failures import create
from compat_tests.cluster.traffic import Writer
from tests import zookeeper
from tests.processes import END_WITH_US, free_ports
from tests.test_dashboard import DOCKER, dashboard_queries

PROMETHEUS = shutil.which("prometheus")
WHY_NOT = zookeeper.reason_to_skip() or ("" if PROMETHEUS else "there is no prometheus here")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

GRAFANAS_OWN = "label_values"
"""Not a query of Prometheus."""


class Measured(Cluster):
    """Each broker offers metrics."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.targets = dict(zip(self.members, free_ports(len(self.members)), strict=True))

    def properties_of(self, broker_id: int) -> Mapping[str, object]:
        listener = f"127.0.0.1:{self.targets[broker_id]}"
        return {**super().properties_of(broker_id), "kbroker.metrics.listener": listener}


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def ask(self, what: str, **parameters: str) -> Any:
        with urllib.request.urlopen(
            f"{self._url}{what}?{urllib.parse.urlencode(parameters)}", timeout=30
        ) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def is_ready(self) -> bool:
        with suppress(OSError):
            return bool(self.ask("status/buildinfo"))
        return False

    def values(self, expression: str) -> list[float]:
        return [float(one["value"][1]) for one in self.ask("query", query=expression)["result"]]

    def rules(self) -> dict[str, dict[str, Any]]:
        groups = self.ask("rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}


@contextmanager
def prometheus(directory: Path, targets: list[str]) -> Iterator[Prometheus]:
    """With the project's configuration, more often."""
    directory.mkdir()
    configuration = yaml.safe_load((DOCKER / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    configuration["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    shutil.copy(DOCKER / "alerts.yml", directory)
    (port,) = free_ports(1)
    command = [
        str(PROMETHEUS),
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
    ]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen([*END_WITH_US, *command], stdout=log, stderr=log)
    try:
        server = Prometheus(port)
        Cluster.until(server.is_ready, "Prometheus")
        yield server
    finally:
        process.terminate()
        process.wait(60)


def test_prometheus_sees_what_the_dashboard_shows(tmp_path: Path) -> None:
    with Measured(tmp_path / "cluster") as cluster:
        addresses = [f"127.0.0.1:{port}" for port in cluster.targets.values()]
        with prometheus(tmp_path / "prometheus", addresses) as server:
            create(cluster, "watched", 3)
            consumer: Any = KafkaConsumer("watched", bootstrap_servers=cluster.bootstrap, group_id="g")
            with Writer(cluster.bootstrap, "watched", 3, rate=50) as writer:
                writer.wait_for(100)
                wanted = [query for query in dashboard_queries() if not query.startswith(GRAFANAS_OWN)]
                deadline = time.monotonic() + 60
                while missing := [query for query in wanted if not answered(server, query)]:
                    assert time.monotonic() < deadline, missing
                    consumer.poll(timeout_ms=200)
                    consumer.commit()
            consumer.close()
            assert all(rule["health"] == "ok" for rule in server.rules().values())
            assert server.values("sum(up)") == [3]
            assert server.values("sum(kbroker_active_controller)") == [1]
            assert server.values("max(kbroker_brokers)") == [3]

            victim = cluster.leader("watched")
            cluster.kill(victim)
            cluster.until(lambda: server.values("max(kbroker_brokers)") == [2], "a broker is missing")
            cluster.until(lambda: server.rules()["BrokerDown"]["state"] != "inactive", "an alert")
            cluster.until(lambda: server.values("sum(kbroker_offline_partitions)") == [0], "new leaders")


def answered(server: Prometheus, query: str) -> bool:
    for name, value in {"$topic": ".*", "$__rate_interval": "10s"}.items():
        query = query.replace(name, value)
    return bool(server.values(query))
