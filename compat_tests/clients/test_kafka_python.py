"""kafka-python: the scenarios."""

from __future__ import annotations

from compat_tests.clients.program import python_program
from compat_tests.clients.scenarios import Scenarios

CLIENT = "kafka-python 3.0.12"


class TestKafkaPython(Scenarios):
    command = python_program("kafka_python")
    lacks = {"null headers": "its producer takes only bytes as the value of a header"}  # noqa: RUF012
