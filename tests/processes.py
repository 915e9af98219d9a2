"""What tests need that start processes: ports that are free, and an end for what they have started."""

from __future__ import annotations

import shutil
import socket
from contextlib import ExitStack

END_WITH_US = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
"""In front of a command: it ends with the thread that started it, where there is setpriv."""


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of the loopback interface that nobody listens on, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)
