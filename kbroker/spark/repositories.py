"""Where jars come from: what the user has told Spark, Ivy or Maven already.

The first of these that is there:

1. an Ivy settings file, which Spark calls `spark.jars.ivySettings`: given as such, or in spark-defaults.conf;
2. DEFAULT_ARTIFACT_REPOSITORY, the environment variable by which Spark replaces Maven Central;
3. Maven's ~/.m2/settings.xml: a mirror of Central, or a repository of that id in an active profile;
4. Maven Central.

With 2 to 4, Spark's `--repositories` are asked as well, and Maven's first active proxy is used; with 3,
Maven's servers give user and password (not encrypted ones, which Maven alone can read). A password is
written into the settings file that Ivy reads, which is removed after that, and nowhere else.
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from kbroker.spark.installed import SparkMissing

IVY_SETTINGS = "spark.jars.ivySettings"
MORE = "spark.jars.repositories"
CENTRAL_ID = "central"
CENTRAL = ""
"""Maven Central, whose address Ivy knows."""
NOTHING = ElementTree.Element("settings")
SECURED = "org/apache/spark/spark-sql-kafka-0-10_2.13/maven-metadata.xml"
"""Any file: whoever needs a password needs it for this one."""
REALM = re.compile(r'realm="([^"]*)"')
REALM_TIMEOUT_S = 30
VARIABLE = re.compile(r"\$\{env\.(\w+)\}")


class Repositories(NamedTuple):
    """What Ivy is to be told."""

    named: str
    """For the user: where that is."""
    java_options: Sequence[str] = ()
    ivy_settings: Path | None = None
    """The user's own; without it:"""
    roots: Sequence[str] = (CENTRAL,)
    user: str = ""
    """At the first one."""
    password: str = ""

    def settings_in(self, file: Path) -> Path:
        """The Ivy settings to use, which are written to this file unless the user has his own."""
        if self.ivy_settings is not None:
            return self.ivy_settings
        login = ""
        if self.user:
            names = {"host": urlsplit(self.roots[0]).hostname or "", "realm": realm_of(self.roots[0])}
            names |= {"username": self.user, "passwd": self.password}
            login = f"<credentials {' '.join(f'{key}={quoteattr(text)}' for key, text in names.items())}/>"
        roots = [f" root={quoteattr(root)}" if root else "" for root in self.roots]
        resolvers = "".join(
            f'<ibiblio name="{number}" m2compatible="true"{root}/>' for number, root in enumerate(roots)
        )
        file.touch(mode=0o600)
        file.write_text(
            f'<ivysettings><settings defaultResolver="all"/>{login}'
            f'<resolvers><chain name="all">{resolvers}</chain></resolvers></ivysettings>'
        )
        return file


def repositories_of(
    arguments: Sequence[str] = (), given: Mapping[str, str] = os.environ, spark_home: Path | None = None
) -> Repositories:
    """`arguments` are those of spark-submit."""
    spark = spark_defaults(given, spark_home) | conf_of(arguments)
    if own := spark.get(IVY_SETTINGS):
        file = Path(own.removeprefix("file:")).expanduser()
        if not file.is_file():
            raise SparkMissing(f"{IVY_SETTINGS}: there is no file {file}")
        return Repositories(str(file), ivy_settings=file)
    maven = MavenSettings.read(Path(given.get("HOME") or Path.home()) / ".m2" / "settings.xml", given)
    more = [root.strip() for root in spark.get(MORE, "").split(",") if root.strip()]
    if root := given.get("DEFAULT_ARTIFACT_REPOSITORY"):
        user = password = ""
    else:
        identity, root = maven.central()
        user, password = maven.login(identity)
    roots = [root, *more]
    named = " and ".join(root or "Maven Central" for root in roots)
    return Repositories(named, maven.proxy_options(), None, roots, user, password)


def realm_of(root: str) -> str:
    """What the server calls the place that its password is for. Ivy wants to know, and Maven does not ask."""
    try:
        with urllib.request.urlopen(f"{root.rstrip('/')}/{SECURED}", timeout=REALM_TIMEOUT_S):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            found = REALM.search(error.headers.get("WWW-Authenticate", ""))
            return found[1] if found else ""
    except (OSError, ValueError):
        return ""  # Ivy will say what is wrong


# -- Spark's configuration


def conf_of(arguments: Sequence[str]) -> dict[str, str]:
    """What `--conf KEY=VALUE` and `--repositories` say, in the forms that spark-submit takes."""
    found: dict[str, str] = {}
    for option, after in pairwise([*arguments, ""]):
        name, has_value, value = option.partition("=")
        text = value if has_value else after
        if name in ("--conf", "-c"):
            key, _, found[key] = text.partition("=")
        elif name == "--repositories":
            found[MORE] = text
    return found


def spark_defaults(given: Mapping[str, str], home: Path | None) -> dict[str, str]:
    """spark-defaults.conf, where Spark looks for it."""
    directory = given.get("SPARK_CONF_DIR") or (home / "conf" if home is not None else None)
    file = Path(directory) / "spark-defaults.conf" if directory is not None else None
    if file is None or not file.is_file():
        return {}
    lines = (re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1) for line in file.read_text().splitlines())
    return {line[0]: line[1] for line in lines if len(line) == 2 and not line[0].startswith("#")}


# -- Maven's


class MavenSettings:
    """A settings.xml."""

    def __init__(self, root: ElementTree.Element, given: Mapping[str, str]) -> None:
        self._root = root
        self._given = given

    @classmethod
    def read(cls, file: Path, given: Mapping[str, str]) -> MavenSettings:
        """As if it were empty where there is none; SparkMissing where it makes no sense."""
        if not file.is_file():
            return cls(NOTHING, given)
        try:
            root = ElementTree.parse(file).getroot()
        except ElementTree.ParseError as error:
            raise SparkMissing(f"{file}: {error}") from error
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
        return cls(root, given)

    def central(self) -> tuple[str, str]:
        """The id and the address of what stands for Maven Central."""
        mirrors = [(self._text(each, "mirrorOf"), each) for each in self._root.findall("mirrors/mirror")]
        exact = [each for pattern, each in mirrors if pattern == CENTRAL_ID]
        for mirror in [*exact, *(each for pattern, each in mirrors if is_mirror_of_central(pattern))]:
            return self._text(mirror, "id"), self._text(mirror, "url")
        for repository in self._repositories():
            if self._text(repository, "id") == CENTRAL_ID:
                return CENTRAL_ID, self._text(repository, "url")
        return CENTRAL_ID, CENTRAL

    def login(self, identity: str) -> tuple[str, str]:
        """User and password of this server, or two empty texts."""
        for server in self._root.findall("servers/server"):
            if self._text(server, "id") == identity:
                password = self._text(server, "password")
                if re.fullmatch(r"\{.*\}", password):
                    raise SparkMissing(
                        f"the password of {identity} in Maven's settings.xml is encrypted, and only Maven can"
                        f" read it; name an Ivy settings file instead ({IVY_SETTINGS})"
                    )
                return self._text(server, "username"), password
        return "", ""

    def proxy_options(self) -> list[str]:
        """The first active proxy, as Java is told of it."""
        for proxy in self._root.findall("proxies/proxy"):
            if self._text(proxy, "active") != "false":
                values = {
                    "proxyHost": self._text(proxy, "host"),
                    "proxyPort": self._text(proxy, "port") or "8080",
                }
                options = [
                    f"-D{way}.{key}={value}" for way in ("http", "https") for key, value in values.items()
                ]
                direct = self._text(proxy, "nonProxyHosts")
                return options + ([f"-Dhttp.nonProxyHosts={direct}"] if direct else [])
        return []

    def _repositories(self) -> Iterator[ElementTree.Element]:
        """Of the profiles that are active without anybody asking for them."""
        active = {element.text for element in self._root.findall("activeProfiles/activeProfile")}
        for profile in self._root.findall("profiles/profile"):
            is_default = self._text(profile, "activation/activeByDefault") == "true"
            if is_default or self._text(profile, "id") in active:
                yield from profile.findall("repositories/repository")

    def _text(self, element: ElementTree.Element, name: str) -> str:
        text = (element.findtext(name) or "").strip()
        return VARIABLE.sub(lambda found: self._given.get(found[1], ""), text)


def is_mirror_of_central(pattern: str) -> bool:
    parts: Iterable[str] = [part.strip() for part in pattern.split(",")]
    return f"!{CENTRAL_ID}" not in parts and any(part in (CENTRAL_ID, "*", "external:*") for part in parts)
