"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# No deadline per example: a busy machine must not fail a test that is right.
settings.register_profile("kbroker", deadline=None, print_blob=True)
settings.load_profile("kbroker")
