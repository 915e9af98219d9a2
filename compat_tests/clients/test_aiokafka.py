"""aiokafka."""

from __future__ import annotations

from compat_tests.clients.program import python_program
from compat_tests.clients.scenarios import Scenarios

CLIENT = "aiokafka 0.14.0"


class TestAiokafka(Scenarios):
    command = python_program("aio")
    lacks = {  # noqa: RUF012
        "cooperative": "no cooperative assignor",
        "delete_group": "its admin client deletes no groups",
    }
