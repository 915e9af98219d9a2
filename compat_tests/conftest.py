"""Tells the table of docs/compatibility.md what each test is about: see features.py for the convention."""

from __future__ import annotations

import pytest

from compat_tests.features import FEATURES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (feature := item.get_closest_marker("feature")) is None:
            continue
        [name] = feature.args
        if name not in FEATURES:
            raise pytest.UsageError(f"{item.nodeid}: {name!r} is not in FEATURES of compat_tests/features.py")
        marker = item.get_closest_marker("client")
        client = marker.args[0] if marker else getattr(getattr(item, "module", None), "CLIENT", None)
        if client is None:
            raise pytest.UsageError(f"{item.nodeid}: its module names no CLIENT")
        item.user_properties += [("client", client), ("feature", name)]
