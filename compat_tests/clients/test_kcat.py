"""kcat: a command-line tool on an older librdkafka."""

from __future__ import annotations

import shutil

import pytest

from compat_tests.clients.program import python_program
from compat_tests.clients.scenarios import Scenarios

CLIENT = "kcat 1.7.1"
ADMIN = (
    *("create_topic", "delete_topic", "grow_topic", "topic_configs", "alter_topic_configs", "delete_records"),
    *("groups", "describe_group", "delete_group", "group_offsets", "alter_group_offsets"),
)

pytestmark = pytest.mark.skipif(not shutil.which("kcat"), reason="there is no kcat here")


class TestKcat(Scenarios):
    command = python_program("kcat")
    lacks = {  # noqa: RUF012
        **dict.fromkeys(ADMIN, "no admin commands"),
        "bytes": "what is in a header comes from the command line",
        "null headers": "a header cannot be null",
        "zstd": "Debian builds it without zstd",
        "timestamps": "it sends its own time",
    }
