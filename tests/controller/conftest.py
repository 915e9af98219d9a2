"""What the tests of the controller share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.backends import BACKENDS, Backend


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Every back end of the metadata store in turn."""
    return BACKENDS[request.param](tmp_path)
