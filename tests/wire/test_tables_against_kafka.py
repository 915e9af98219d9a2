"""Every table of `wire`, field by field and version by version, against Kafka's own specifications.

The oracles: the JSON inside the installed kafka-python, and inside Kafka's jars: clients 3.9.2 (old versions,
inter-broker requests) and 4.4.0, and the coordinators' records of 3.9.2 and 4.3.1.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.wire.kafka_jars import needed
from tests.wire.random_messages import ALL_MESSAGES, api_messages, versions_of
from tests.wire.schema_oracle import DELIBERATE, PREVIEW, differences, load_specifications, valid_versions
from wire.api import ApiKey, api
from wire.schema import REQUIRED, fields_of, info_of
from wire.source import minimum_struct_size

JAR_NAMES = (
    "kafka-clients-3.9.2",
    "kafka-clients-4.4.0",
    "kafka-group-coordinator-3.9.2",
    "kafka-group-coordinator-4.3.1",
    "kafka-transaction-coordinator-4.3.1",
    "kafka-share-coordinator-4.3.1",
)
BY_NAME = {cls.__name__: cls for cls in ALL_MESSAGES}

# What each API must be able to speak: the floor and the ceiling that clients were seen to need.
WANTED = {
    **{
        0: (3, 13),
        1: (4, 18),
        2: (0, 11),
        3: (0, 13),
        4: (0, 7),
        5: (0, 4),
        6: (0, 8),
        7: (0, 3),
        8: (1, 10),
    },
    **{
        9: (1, 10),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        15: (0, 6),
        16: (0, 5),
        17: (0, 1),
    },
    **{
        18: (0, 5),
        19: (0, 7),
        20: (0, 6),
        21: (0, 2),
        22: (0, 5),
        23: (0, 4),
        24: (0, 5),
        25: (0, 4),
        26: (0, 5),
    },
    **{
        27: (0, 2),
        28: (0, 6),
        29: (0, 3),
        30: (0, 3),
        31: (0, 3),
        32: (0, 4),
        33: (0, 2),
        34: (0, 2),
        35: (0, 5),
    },
    **{
        36: (0, 2),
        37: (0, 3),
        42: (0, 3),
        43: (0, 2),
        44: (0, 1),
        45: (0, 1),
        46: (0, 0),
        47: (0, 0),
        48: (0, 1),
    },
    **{
        49: (0, 1),
        50: (0, 0),
        51: (0, 0),
        55: (0, 2),
        56: (0, 3),
        57: (0, 2),
        60: (0, 2),
        61: (0, 0),
        65: (0, 0),
    },
    **{
        66: (0, 2),
        67: (0, 0),
        68: (0, 1),
        69: (0, 1),
        74: (0, 1),
        75: (0, 0),
        76: (1, 1),
        77: (1, 1),
        78: (1, 2),
        79: (1, 2),
    },
    **{88: (0, 1), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0)},
}


def specifications(source: str) -> dict[str, dict[str, Any]]:
    if source == "kafka-python":
        package = find_spec("kafka")
        assert package is not None
        assert package.origin is not None
        return load_specifications(Path(package.origin).parent / "protocol" / "schemas" / "resources")
    [jar] = needed(source)
    return load_specifications(jar)


@pytest.mark.parametrize("source", ["kafka-python", *JAR_NAMES])
def test_tables_agree_with_the_specifications_of(source: str) -> None:
    compared, found = 0, []
    for name, spec in specifications(source).items():
        cls = BY_NAME.get(name)
        if cls is None or (source, name) in PREVIEW:
            continue
        compared += len(valid_versions(spec))
        found += differences(cls, spec)
    assert compared > 0
    assert found == []


def test_no_version_of_a_table_is_without_an_oracle() -> None:
    proven: dict[str, set[int]] = {}
    for source in JAR_NAMES:
        for name, spec in specifications(source).items():
            proven.setdefault(name, set()).update(valid_versions(spec))
    unproven = {c.__name__: set(versions_of(c)) - proven.get(c.__name__, set()) for c in ALL_MESSAGES}
    assert {name: versions for name, versions in unproven.items() if versions} == {}


def test_every_wanted_api_is_there_in_its_versions() -> None:
    assert {int(key) for key in ApiKey} == set(WANTED)
    for key, (first, last) in WANTED.items():
        assert api(key).versions.first <= first, api(key)
        assert api(key).versions.last >= last, api(key)


def test_requests_and_responses_agree_on_key_and_versions() -> None:
    for key in ApiKey:
        request, response = info_of(api(key).request), info_of(api(key).response)
        assert (request.key, request.versions) == (key, response.versions)
        assert response.key == key
        assert request.flexible == response.flexible


def test_a_field_outside_a_version_has_a_default() -> None:
    def check(cls: type, versions: range) -> None:
        for field in fields_of(cls):
            absent = [v for v in versions if v not in field.versions or field.is_tagged_in(v)]
            assert not absent or field.default is not REQUIRED, (cls.__name__, field.name)
            if isinstance(field.type, type) and "__notes__" in vars(field.type):
                check(field.type, range(*_overlap(versions, field.versions)))

    for cls in ALL_MESSAGES:
        check(cls, versions_of(cls))


def _overlap(versions: range, other: tuple[int, int]) -> tuple[int, int]:
    return max(versions.start, other[0]), min(versions.stop, other[1] + 1)


def test_an_array_element_takes_at_least_a_byte() -> None:
    """Otherwise an element count could not be bounded by the bytes that remain (conformance 4)."""

    def check(cls: type, version: int, flexible: bool) -> None:
        for field in fields_of(cls):
            if version in field.versions and isinstance(field.type, type) and "__notes__" in vars(field.type):
                assert not field.is_array or minimum_struct_size(field.type, version, flexible) > 0
                check(field.type, version, flexible)

    for cls in api_messages():
        for version in versions_of(cls):
            check(cls, version, version in info_of(cls).flexible)


def test_deliberate_differences_have_reasons() -> None:
    assert all(len(reason) > 40 for reason in DELIBERATE.values())
