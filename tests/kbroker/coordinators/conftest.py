"""A coordinator of its own for every test."""

from __future__ import annotations

import pytest

from tests.kbroker.coordinators.driver import Driver


@pytest.fixture
def driver() -> Driver:
    """With Kafka's default configuration."""
    return Driver()
