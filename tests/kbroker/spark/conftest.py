"""A PySpark 3.5.7 that is not one, for whoever looks for it; the user's own settings stay out of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kbroker.spark.fake_spark import fake_pyspark


@pytest.fixture
def pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    for name in ("SPARK_CONF_DIR", "DEFAULT_ARTIFACT_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return fake_pyspark(tmp_path / "site")
