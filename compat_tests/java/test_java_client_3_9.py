"""Kafka's Java clients 3.9.2: producer, consumer and admin."""

from __future__ import annotations

import pytest

from compat_tests.java.client_scenarios import JavaScenarios, java_program
from compat_tests.java.launch import reason_to_skip

CLIENT = "Java clients 3.9.2"
VERSION = "3.9.2"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("Java clients"),
    pytest.mark.skipif(reason_to_skip(VERSION) is not None, reason=str(reason_to_skip(VERSION))),
]


class TestJavaClients(JavaScenarios):
    command = java_program(VERSION)
