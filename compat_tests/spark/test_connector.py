"""Ivy itself, and a repository of our own: it finds the jars of a Spark that nobody has heard of."""

from __future__ import annotations

import base64
import hashlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kbroker import spark
from kbroker.spark import SparkMissing
from tests.kbroker.spark.fake_spark import fake_pyspark

USER, PASSWORD = "me", "let me in"
JARS = {
    "spark-sql-kafka-0-10_2.13": ("org.apache.spark", "9.1.0"),
    "spark-token-provider-kafka-0-10_2.13": ("org.apache.spark", "9.1.0"),
    "kafka-clients": ("org.apache.kafka", "7.0.0"),
    "commons-pool2": ("org.apache.commons", "3.0"),
}
OTHERS = {"scala-library": ("org.scala-lang", "2.13.99"), "snappy-java": ("org.xerial.snappy", "2.0")}
"""They come with PySpark. The repository does not have them."""


def pom(artifact: str, needed: dict[str, tuple[str, str]]) -> bytes:
    group, version = JARS[artifact]
    place = "<groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    dependencies = "".join(
        f"<dependency>{place.format(group, name, version)}<scope>compile</scope></dependency>"
        for name, (group, version) in needed.items()
    )
    return (
        f"<project><modelVersion>4.0.0</modelVersion>{place.format(group, artifact, version)}"
        f"<packaging>jar</packaging><dependencies>{dependencies}</dependencies></project>"
    ).encode()


def repository() -> dict[str, bytes]:
    """Paths and contents, in Maven's layout."""
    files: dict[str, bytes] = {}
    for artifact, (group, version) in JARS.items():
        stem = f"/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}"
        needed = {"kafka-clients": JARS["kafka-clients"], **OTHERS}
        if artifact == "spark-sql-kafka-0-10_2.13":
            needed |= JARS
            del needed[artifact]
        elif artifact in ("kafka-clients", "commons-pool2"):
            needed = OTHERS
        files[f"{stem}.jar"] = artifact.encode()
        files[f"{stem}.pom"] = pom(artifact, needed)
    sums = {f"{path}.sha1": hashlib.sha1(data).hexdigest().encode() for path, data in files.items()}
    return files | sums


@pytest.fixture
def files() -> dict[str, bytes]:
    return repository()


@pytest.fixture
def url(files: dict[str, bytes]) -> Iterator[str]:
    """Where a server has the files for those who say the password."""
    login = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != login:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="the repository of some company"')
                data = b""
            else:
                data = files.get(self.path, b"")
                self.send_response(200 if data else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def directory(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the connector is to go, with a Spark 9.1.0, and a settings.xml that names the repository."""
    try:
        [ivy] = (spark.pyspark_home() / "jars").glob("ivy-*.jar")
        spark.java()
    except SparkMissing as error:
        pytest.skip(str(error))
    jars = fake_pyspark(tmp_path / "site", "9.1.0", "2.13") / "jars"
    (jars / "ivy-2.5.1.jar").unlink()
    (jars / ivy.name).symlink_to(ivy)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        f"<settings><mirrors><mirror><id>ours</id><mirrorOf>*</mirrorOf><url>{url}</url></mirror></mirrors>"
        f"<servers><server><id>ours</id><username>{USER}</username><password>{PASSWORD}</password></server>"
        "</servers></settings>"
    )
    return tmp_path / "jars"


def test_the_pom_says_which_jars_belong_to_a_connector(directory: Path) -> None:
    """And none of those that PySpark has already."""
    expected = {f"{artifact}-{version}.jar": artifact for artifact, (_, version) in JARS.items()}
    assert {jar.name: jar.read_text() for jar in spark.connector_jars(directory)} == expected
    assert sorted(path.name for path in directory.iterdir()) == sorted(expected)


def test_a_jar_that_differs_from_the_repositorys_checksum_is_refused(
    directory: Path, files: dict[str, bytes]
) -> None:
    files["/org/apache/kafka/kafka-clients/7.0.0/kafka-clients-7.0.0.jar"] = b"another"
    with pytest.raises(SparkMissing, match=r"(?s)could not fetch.*invalid sha1"):
        spark.connector_jars(directory)
    assert list(directory.iterdir()) == []
