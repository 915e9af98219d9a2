"""The process of a broker that tests have started: `kbroker start`, and a thread that answers questions.

Arguments: the path that the tests' process imports from, the directory to remove if that process dies, and
those of the command. Stdin carries questions. When it ends, the broker stops cleanly, and if nobody is left
to clean up, the broker's files go as well. Stdout has the ready line, then the answers; everything else that
is printed goes where stderr goes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from typing import IO, TYPE_CHECKING

from kbroker import namesakes
from kbroker.testing.process import READY, receive, send

if TYPE_CHECKING:
    from kbroker.testing.inspection import Inspector


def main() -> None:
    parent = os.getppid()
    path, orphans, *arguments = sys.argv[1:]
    namesakes.pin()
    sys.path += [place for place in path.split(os.pathsep) if place not in sys.path]
    from kbroker.cli import main as run

    answers = os.fdopen(os.dup(1), "wb")
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)
    threading.Thread(target=converse, args=(os.fdopen(reading, "rb"), answers), daemon=True).start()
    status = run(arguments)
    if orphans and os.getppid() != parent:
        shutil.rmtree(orphans, ignore_errors=True)
    # The thread may still hold a question; nobody waits for its answer.
    os._exit(status)


def converse(stdout: IO[bytes], answers: IO[bytes]) -> None:
    """Pass the ready line on, and answer until nobody asks."""
    try:
        line = stdout.readline()
        os.dup2(2, 1)
        answers.write(line)
        answers.flush()
        ready = READY.fullmatch(line)
        if ready is not None:
            answer(f"{ready[1].decode()}:{int(ready[2])}", answers)
    except BrokenPipeError:
        pass
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def answer(bootstrap: str, answers: IO[bytes]) -> None:
    inspector: Inspector | None = None
    while True:
        try:
            method, arguments = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if inspector is None:
                from kbroker.testing.inspection import Inspector

                inspector = Inspector(bootstrap)
            reply = False, getattr(inspector, method)(*arguments)
        except Exception as error:
            reply = True, error
        send(answers, reply)
