"""What is in docker/: dashboard and alerts ask for metrics that brokers have, files name files that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kbroker.configuration.layers import Configuration, warnings
from kbroker.configuration.properties import parse_properties
from kbroker.listeners import Listeners
from kbroker.metrics import DESCRIPTIONS, document
from tests.kbroker.hosting import Hosting
from tests.kbroker.test_metrics import get, hosting, produce_everything

ROOT = Path(__file__).resolve().parents[1]
DOCKER = ROOT / "docker"
COMPOSE = DOCKER / "docker-compose.yml"
DASHBOARD = DOCKER / "grafana" / "dashboards" / "kbroker.json"
METRIC = re.compile(r"\b((?:kbroker|process)_\w+|up)\b")
FROM_PROMETHEUS = {"up"}
OPERATIONS = ROOT / "docs" / "operations.md"
BROKERS = ("broker1", "broker2", "broker3")

__all__ = ["hosting"]  # the fixture


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def dashboard_queries() -> Iterator[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (variable["query"] for variable in dashboard["templating"]["list"])


def alert_queries() -> Iterator[str]:
    for group in loaded(DOCKER / "alerts.yml")["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


@pytest.mark.parametrize("queries", [dashboard_queries, alert_queries])
def test_every_metric_that_is_queried_is_in_a_scrape(hosting: Hosting, queries: Any) -> None:
    """Of a broker that has seen some traffic, so that everything with a label has a sample."""
    produce_everything(hosting)
    scraped = {
        name
        for family in text_string_to_metric_families(get(hosting)[1])
        for name in (family.name, *(sample.name for sample in family.samples))
    }
    queried = {name for query in queries() for name in METRIC.findall(query)}
    assert len(queried) > 5
    assert queried - scraped - FROM_PROMETHEUS == set()


def test_every_metric_can_be_seen_on_the_dashboard() -> None:
    queries = " ".join(dashboard_queries())
    assert [name for name in DESCRIPTIONS if name not in queries] == ["kbroker_partition_bytes"]


def test_labels_in_queries_are_labels_of_the_metric() -> None:
    for query in (*dashboard_queries(), *alert_queries()):
        for name, matchers in re.findall(r"(kbroker_\w+)\{([^}]*)\}", query):
            labels = {label.strip() for label in re.findall(r"(\w+)\s*=~?", matchers)}
            assert labels <= {"job", "instance", *DESCRIPTIONS[name.removesuffix("_bucket")].labels}, query


def test_compose_names_files_that_exist_and_volumes_that_it_declares() -> None:
    compose = loaded(COMPOSE)
    for name, service in compose["services"].items():
        if "build" in service:
            context = DOCKER / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file(), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), volume
            else:
                assert source in compose["volumes"], volume


def test_brokers_have_an_id_an_address_and_a_port_of_their_own() -> None:
    services = loaded(COMPOSE)["services"]
    for number, name in enumerate(BROKERS, 1):
        service = services[name]
        text = " ".join(service["command"])
        default = 9091 + number
        port = f"${{BROKER{number}_PORT:-{default}}}"
        assert f"broker.id={number}" in service["command"]
        assert f"INSIDE://{name}:9092,OUTSIDE://localhost:{port}" in text
        assert service["ports"] == [f"127.0.0.1:{port}:19092"]
    assert len({tuple(services[name]["volumes"]) for name in BROKERS}) == len(BROKERS)


def test_prometheus_asks_every_broker() -> None:
    (scrape,) = loaded(DOCKER / "prometheus.yml")["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": [f"{name}:9404" for name in BROKERS]}]


def test_grafana_finds_its_data_source_and_dashboards() -> None:
    (source,) = loaded(DOCKER / "grafana/provisioning/datasources/prometheus.yml")["datasources"]
    dashboard = json.loads(DASHBOARD.read_text())
    used = {panel["datasource"]["uid"] for panel in dashboard["panels"] if "datasource" in panel}
    assert used == {source["uid"]}
    (provider,) = loaded(DOCKER / "grafana/provisioning/dashboards/kbroker.yml")["providers"]
    mounted = {volume.split(":")[1]: volume for volume in loaded(COMPOSE)["services"]["grafana"]["volumes"]}
    assert provider["options"]["path"] in mounted


def test_the_image_copies_files_that_exist_and_are_not_kept_from_it() -> None:
    lines = re.sub(r"\\\n", " ", (DOCKER / "Dockerfile").read_text()).splitlines()
    sources = [one for line in lines if line.startswith("COPY ") for one in line.split()[1:-1]]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert sources
    assert [one for one in sources if not (ROOT / one).exists()] == []
    assert set(sources) == allowed


def test_the_properties_of_the_cluster_are_understood() -> None:
    texts = parse_properties((DOCKER / "cluster.properties").read_bytes())
    assert list(warnings(texts)) == []
    listeners = Listeners.configured(Configuration(texts).broker)
    assert listeners.inter_broker == "INSIDE"
    assert [endpoint.port for endpoint in listeners.bound] == [9092, 19092]


def test_the_table_of_metrics_is_up_to_date() -> None:
    """If not: put what `.venv/bin/python -m kbroker.metrics` prints between the two marks."""
    text = OPERATIONS.read_text()
    table = text.partition("<!-- made by: python -m kbroker.metrics -->\n")[2].partition("\n<!-- end -->")[0]
    assert table == document()


def test_every_alert_is_explained() -> None:
    rules = [rule["alert"] for group in loaded(DOCKER / "alerts.yml")["groups"] for rule in group["rules"]]
    explained = re.findall(r"^\| `([A-Z]\w+)` \|", OPERATIONS.read_text(), re.MULTILINE)
    assert sorted(rules) == sorted(explained)


def test_ci_tests_builds_and_deploys() -> None:
    pipeline = loaded(ROOT / ".gitlab-ci.yml")
    assert pipeline["stages"] == ["test", "build", "deploy"]
    jobs = {name: job for name, job in pipeline.items() if isinstance(job, dict) and "script" in job}
    assert {job["stage"] for job in jobs.values()} == set(pipeline["stages"])
    assert jobs["test"]["script"] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
