"""confluent-kafka for Python, which is librdkafka."""

from __future__ import annotations

from compat_tests.clients.program import python_program
from compat_tests.clients.scenarios import Scenarios

CLIENT = "confluent-kafka 2.16.1"


AUTO_OFFSET_RESET = -140
"""What librdkafka calls an offset out of range, to users."""


class TestConfluentKafka(Scenarios):
    command = python_program("confluent")
    out_of_range_codes = (AUTO_OFFSET_RESET,)
