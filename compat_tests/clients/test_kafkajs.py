"""kafkajs."""

from __future__ import annotations

import shutil

import pytest

from compat_tests.clients.program import BUILT, PROGRAMS
from compat_tests.clients.scenarios import Scenarios

CLIENT = "kafkajs 2.2.4"

pytestmark = pytest.mark.skipif(
    not (shutil.which("node") and (BUILT / "node_modules" / "kafkajs").exists()),
    reason="`make setup-tests` fetches it, where Node is",
)


class TestKafkajs(Scenarios):
    command = ["node", str(PROGRAMS / "kafkajs.js")]  # noqa: RUF012
    lacks = {  # noqa: RUF012
        **dict.fromkeys(["snappy", "lz4", "zstd"], "a codec other than gzip is a plug-in"),
        "null headers": "a header cannot be null",
        "cooperative": "no cooperative assignor",
        "static members": "no group.instance.id",
        "pattern": "a pattern is looked up once, on subscribing",
        "reset none": "out of range, its consumers always reset",
    }
