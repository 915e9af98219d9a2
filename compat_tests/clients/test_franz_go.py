"""franz-go, with its admin client kadm."""

from __future__ import annotations

import pytest

from compat_tests.clients.program import BUILT
from compat_tests.clients.scenarios import Scenarios

CLIENT = "franz-go 1.22.2"
PROGRAM = BUILT / "franz"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="`make setup-tests` builds it, where Go is")


class TestFranzGo(Scenarios):
    command = [str(PROGRAM)]  # noqa: RUF012
