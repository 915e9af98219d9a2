"""What the tests of the other clients run on, here as well."""

from __future__ import annotations

from compat_tests.clients.conftest import broker, client, join, neutral, topic

__all__ = ["broker", "client", "join", "neutral", "topic"]
