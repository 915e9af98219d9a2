"""The cluster of docker/docker-compose.yml, for tests: built here, on free ports, gone when they are done.

Needs an engine that answers, `docker compose` or `docker-compose`, and the image that docker/Dockerfile
starts from; `reason_to_skip` says what is missing. ZooKeeper is built on the same image, so that nothing else
has to be had (docker/zookeeper.Dockerfile). Only what belongs to this project is touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from prometheus_client.parser import text_string_to_metric_families

from kbroker.client.cluster import Cluster, Partition
from kbroker.client.errors import ClientError
from tests.processes import free_ports

ROOT = Path(__file__).resolve().parents[2]
BASE = "python:3.12-slim"
IMAGES = {"KBROKER_IMAGE": "kbroker-test", "ZOOKEEPER_IMAGE": "kbroker-test-zookeeper"}
SERVICES = ("zookeeper", "broker1", "broker2", "broker3")
PATIENCE_S = 120
SCRAPE = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9404/metrics').read().decode())"


def compose_command() -> list[str] | None:
    """Version 2, or else version 1."""
    tries = [["docker", "compose"], ["docker-compose"]]
    for command in tries:
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command
    return None


def reason_to_skip() -> str:
    try:
        engine = docker.from_env(timeout=10)
        engine.ping()
    except DockerException as error:
        return f"no Docker engine answers: {str(error)[:100]}"
    try:
        if compose_command() is None:
            return "there is a Docker engine, but no docker compose"
        try:
            engine.images.get(BASE)
        except ImageNotFound:
            engine.images.pull(BASE)
    except APIError as error:
        return f"{BASE} cannot be had: {error.explanation}"
    finally:
        engine.close()
    return ""


class CannotBuild(Exception):
    """What others make could not be fetched; that says nothing about us."""


class Composed:
    """`with Composed() as cluster:` is three brokers in containers, reached through published ports."""

    def __init__(self) -> None:
        self._project = f"kbroker-test-{os.getpid()}"
        self._engine = docker.from_env(timeout=600)
        ports = free_ports(3)
        self._environment = {f"BROKER{number}_PORT": str(port) for number, port in enumerate(ports, 1)}
        self.bootstrap = [f"localhost:{port}" for port in ports]

    def __enter__(self) -> Self:
        self._build("KBROKER_IMAGE", ROOT, "docker/Dockerfile")
        try:
            self._build("ZOOKEEPER_IMAGE", ROOT / "docker", "zookeeper.Dockerfile", {"BASE": BASE})
        except BuildError as error:
            raise CannotBuild(f"ZooKeeper's image cannot be built: {error}") from error
        try:
            self.compose("up", "--detach", "--no-build", *SERVICES)
            self.until(lambda: len(self.brokers()) == 3)
        except BaseException:
            print(self.compose("logs", "--tail", "30", *SERVICES))
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.compose("logs", "--tail", "60", *SERVICES))
        self._remove()

    def _remove(self) -> None:
        self.compose("down", "--volumes", "--timeout", "10")
        self._engine.close()

    def _build(
        self, image: str, context: Path, dockerfile: str, arguments: Mapping[str, str] | None = None
    ) -> None:
        self._engine.images.build(
            path=str(context),
            dockerfile=dockerfile,
            tag=IMAGES[image],
            rm=True,
            buildargs=dict(arguments or {}),
        )

    def compose(self, *arguments: str) -> str:
        """What the command says; RuntimeError where it fails."""
        command = [
            *(compose_command() or ()),
            "-p",
            self._project,
            "-f",
            str(ROOT / "docker/docker-compose.yml"),
        ]
        environment = {**os.environ, **IMAGES, **self._environment}
        done = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"compose {arguments[0]}: {done.stderr[-3000:]}")
        return done.stdout

    # -- what is there

    def container(self, broker_id: int) -> Any:
        """The SDK's object for a broker, as it is now."""
        service = f"com.docker.compose.service=broker{broker_id}"
        labels = [f"com.docker.compose.project={self._project}", service]
        (found,) = self._engine.containers.list(all=True, filters={"label": labels})
        return found

    def health(self, broker_id: int) -> str:
        status: str = self.container(broker_id).attrs["State"]["Health"]["Status"]
        return status

    def brokers(self) -> list[int]:
        try:
            with Cluster(",".join(self.bootstrap), timeout_s=5, patience_s=5) as cluster:
                return sorted(broker.node_id for broker in cluster.metadata([]).brokers)
        except (ClientError, OSError):
            return []

    def partitions(self, topic: str) -> list[Partition]:
        """None, where the broker that is asked has not heard of the topic yet."""
        with Cluster(",".join(self.bootstrap)) as cluster:
            return [
                partition for one in cluster.topics() if one.name == topic for partition in one.partitions
            ]

    def metrics(self, broker_id: int) -> dict[str, float]:
        """A scrape from within; of metrics with labels, the sum."""
        status, output = self.container(broker_id).exec_run(["python", "-c", SCRAPE])
        if status != 0:
            raise RuntimeError(output.decode())
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(output.decode()):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    @staticmethod
    def until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {patience_s} s")
            time.sleep(0.2)
