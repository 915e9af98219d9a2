"""Where the connector is fetched from: what the user has told Spark, Ivy or Maven."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kbroker.spark import SparkMissing
from kbroker.spark.repositories import CENTRAL, repositories_of

NAMESPACE = 'xmlns="urn:settings"'


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """An environment with a home of its own."""
    return {"HOME": str(tmp_path)}


def maven(tmp_path: Path, settings: str) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(f"<settings {NAMESPACE}>{settings}</settings>")


def mirror(of: str, url: str = "https://mirror.example/maven") -> str:
    return f"<mirror><id>ours</id><mirrorOf>{of}</mirrorOf><url>{url}</url></mirror>"


def test_without_any_settings_it_is_maven_central(given: dict[str, str], tmp_path: Path) -> None:
    found = repositories_of(given=given)
    assert (found.named, found.roots) == ("Maven Central", [CENTRAL])
    [resolver] = ElementTree.parse(found.settings_in(tmp_path / "ivysettings.xml")).iter("ibiblio")
    assert resolver.attrib == {"name": "0", "m2compatible": "true"}


@pytest.mark.parametrize(
    ("pattern", "is_meant"),
    [
        ("central", True),
        ("*", True),
        ("external:*", True),
        ("a, central", True),
        ("*,!central", False),
        ("a", False),
    ],
)
def test_mavens_mirror_of_central_is_asked(
    given: dict[str, str], tmp_path: Path, pattern: str, is_meant: bool
) -> None:
    maven(tmp_path, f"<mirrors>{mirror(pattern)}</mirrors>")
    root = "https://mirror.example/maven" if is_meant else CENTRAL
    assert repositories_of(given=given).roots == [root]


def test_a_mirror_of_central_alone_goes_before_one_of_everything(
    given: dict[str, str], tmp_path: Path
) -> None:
    maven(tmp_path, f"<mirrors>{mirror('*')}{mirror('central', 'https://exact.example')}</mirrors>")
    assert repositories_of(given=given).roots == ["https://exact.example"]


@pytest.mark.parametrize("how", ["activeProfile", "activeByDefault", "not at all"])
def test_a_profile_that_is_active_may_say_where_central_is(
    given: dict[str, str], tmp_path: Path, how: str
) -> None:
    activation = "<activation><activeByDefault>true</activeByDefault></activation>"
    maven(
        tmp_path,
        f"<profiles><profile><id>ours</id>{activation if how == 'activeByDefault' else ''}<repositories>"
        "<repository><id>central</id><url>https://profile.example</url></repository></repositories></profile>"
        "</profiles><activeProfiles>"
        f"{'<activeProfile>ours</activeProfile>' if how == 'activeProfile' else ''}</activeProfiles>",
    )
    assert repositories_of(given=given).roots == [
        CENTRAL if how == "not at all" else "https://profile.example"
    ]


def test_a_server_gives_user_and_password_to_its_mirror_alone(given: dict[str, str], tmp_path: Path) -> None:
    maven(
        tmp_path,
        f"<mirrors>{mirror('*', 'http://127.0.0.1:1/maven')}</mirrors><servers>"
        "<server><id>other</id><username>x</username><password>y</password></server>"
        "<server><id>ours</id><username>me</username><password>${env.SECRET}</password></server></servers>",
    )
    found = repositories_of(given=given | {"SECRET": 'a"&<b'})
    file = found.settings_in(tmp_path / "ivysettings.xml")
    credentials = ElementTree.parse(file).find("credentials")
    assert credentials is not None
    assert credentials.attrib == {
        "host": "127.0.0.1",
        "realm": "",
        "username": "me",
        "passwd": 'a"&<b',
    }
    assert file.stat().st_mode & 0o077 == 0

    elsewhere = repositories_of(given=given | {"DEFAULT_ARTIFACT_REPOSITORY": "https://another.example"})
    assert (elsewhere.roots, elsewhere.user, elsewhere.password) == (["https://another.example"], "", "")


def test_an_encrypted_password_is_said_to_be_unreadable(given: dict[str, str], tmp_path: Path) -> None:
    maven(
        tmp_path,
        f"<mirrors>{mirror('*')}</mirrors><servers>"
        "<server><id>ours</id><username>me</username><password>{COQLCE6DU6GtcS5P=}</password></server></servers>",
    )
    with pytest.raises(SparkMissing, match=r"the password of ours .* is encrypted.*spark\.jars\.ivySettings"):
        repositories_of(given=given)


def test_the_first_active_proxy_is_used(given: dict[str, str], tmp_path: Path) -> None:
    maven(
        tmp_path,
        "<proxies><proxy><active>false</active><host>no.example</host><port>1</port></proxy>"
        "<proxy><host>proxy.example</host><port>3128</port><nonProxyHosts>*.example|localhost</nonProxyHosts>"
        "</proxy></proxies>",
    )
    assert repositories_of(given=given).java_options == [
        "-Dhttp.proxyHost=proxy.example",
        "-Dhttp.proxyPort=3128",
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=*.example|localhost",
    ]


def test_settings_that_are_no_xml_are_named(given: dict[str, str], tmp_path: Path) -> None:
    maven(tmp_path, "<mirrors>")
    with pytest.raises(SparkMissing, match=r"settings\.xml: mismatched tag"):
        repositories_of(given=given)


@pytest.mark.parametrize("how", ["--conf", "-c", "--conf=", "spark-defaults.conf", "SPARK_CONF_DIR"])
def test_sparks_own_ivy_settings_go_before_mavens(given: dict[str, str], tmp_path: Path, how: str) -> None:
    maven(tmp_path, "<mirrors>no XML")
    own = tmp_path / "ivysettings.xml"
    own.write_text("<ivysettings/>")
    arguments: list[str] = []
    if how == "--conf=":
        arguments = [f"--conf=spark.jars.ivySettings={own}"]
    elif how.startswith("-"):
        arguments = ["--name", "x", how, f"spark.jars.ivySettings={own}", "script.py"]
    else:
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "spark-defaults.conf").write_text(f"# mine\n\nspark.jars.ivySettings   {own}\n")
        if how == "SPARK_CONF_DIR":
            given["SPARK_CONF_DIR"] = str(tmp_path / "conf")
    home = tmp_path if how == "spark-defaults.conf" else None
    found = repositories_of(arguments, given, home)
    assert found.settings_in(tmp_path / "another.xml") == own
    assert not (tmp_path / "another.xml").exists()


def test_ivy_settings_that_are_not_there_are_named(given: dict[str, str]) -> None:
    with pytest.raises(SparkMissing, match=r"spark\.jars\.ivySettings: there is no file /no/where\.xml"):
        repositories_of(["--conf", "spark.jars.ivySettings=/no/where.xml"], given)


def test_sparks_repositories_are_asked_after_the_first(given: dict[str, str], tmp_path: Path) -> None:
    given["DEFAULT_ARTIFACT_REPOSITORY"] = "https://first.example/a?b=1&c=2"
    found = repositories_of(["--repositories", "https://second.example,https://third.example"], given)
    written = ElementTree.parse(found.settings_in(tmp_path / "ivysettings.xml"))
    assert [one.get("root") for one in written.iter("ibiblio")] == [
        "https://first.example/a?b=1&c=2",
        "https://second.example",
        "https://third.example",
    ]
