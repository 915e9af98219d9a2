"""What the scenarios of all clients run on, here as well: every fixture, whichever they come to need."""

from __future__ import annotations

from compat_tests.clients.conftest import *  # noqa: F403
