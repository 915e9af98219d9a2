"""sarama."""

from __future__ import annotations

import pytest

from compat_tests.clients.program import BUILT
from compat_tests.clients.scenarios import Scenarios

CLIENT = "sarama 1.61.1"
PROGRAM = BUILT / "sarama"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="`make setup-tests` builds it, where Go is")


class TestSarama(Scenarios):
    command = [str(PROGRAM)]  # noqa: RUF012
    lacks = {"pattern": "its groups subscribe to names only"}  # noqa: RUF012
