"""A broker in a process of its own: what may happen to it, and to the process that started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbroker.testing import Broker, BrokerFailed

ROOT = Path(__file__).resolve().parents[3]
GONE_WITHIN_S = 20


def script(directory: Path, text: str, **environment: str) -> subprocess.Popen[str]:
    """A user's program, in the user's directory."""
    program = directory / "program.py"
    program.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(program)],
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # nobody may be there to wait for an orphan


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + GONE_WITHIN_S
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_importing_it_loads_nothing_of_the_broker() -> None:
    program = "import sys, kbroker.testing, kbroker.testing.plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    packages = {name.partition(".")[0] for name in loaded.stdout.split()}
    assert "kbroker" in packages
    assert packages.isdisjoint({"wire", "storage", "controller", "asyncio", "uvloop", "crc32c"})


@pytest.mark.slow
def test_after_kill_9_everything_acknowledged_is_there_on_the_same_port() -> None:
    with Broker() as broker:
        bootstrap, written = broker.bootstrap, broker.produce("t", *map(str, range(100)))
        broker.kill()
        assert not broker.is_running
        with pytest.raises(BrokerFailed, match="does not run"):
            broker.records("t")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, broker.port))
        broker.restart()
        assert (broker.bootstrap, broker.records("t")) == (bootstrap, written)
        assert "Recovered " in broker.log
        first = broker.pid
        broker.restart()
        assert broker.pid != first
        assert broker.records("t") == written
        data, second = broker.data, broker.pid
    assert not is_alive(second)
    assert not data.parent.exists()
    assert "Controller of epoch 3" in broker.log


@pytest.mark.slow
def test_ctrl_c_at_the_tests_does_not_reach_the_broker() -> None:
    with Broker() as broker:
        assert os.getpgid(broker.pid) != os.getpgid(0)


@pytest.mark.slow
def test_a_broker_that_cannot_start_says_why() -> None:
    broker = Broker({"num.partitions": "many"})
    with pytest.raises(BrokerFailed, match=r"did not start; its log ends with\nkbroker: num\.partitions"):
        broker.start()
    assert "num.partitions" in broker.log


@pytest.mark.slow
def test_a_broker_that_dies_says_what_it_said_last() -> None:
    with Broker() as broker:
        os.kill(broker.pid, signal.SIGKILL)
        with pytest.raises(BrokerFailed, match="does not run; its log ends with"):
            broker.topics()


@pytest.mark.slow
def test_data_can_stay(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker:
        written = broker.produce("t", "a")
    with Broker(data=tmp_path / "data", in_thread=True) as broker:
        assert broker.records("t") == written


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_tests_are_killed(number: signal.Signals, tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import time\n"
        "from kbroker.testing import Broker\n"
        "broker = Broker()\n"
        "broker.start()\n"
        "broker.produce('t', 'a')\n"
        "print(broker.pid, broker.data.parent, flush=True)\n"
        "time.sleep(600)\n",
        PYTHONPATH=str(ROOT),
    )
    assert program.stdout is not None
    with program.stdout:
        pid, directory = program.stdout.readline().split()
        assert is_alive(int(pid))
        assert Path(directory).is_dir()
        program.send_signal(number)
        program.wait()
    until_gone(int(pid))
    assert not is_alive(int(pid))
    assert not Path(directory).exists()


@pytest.mark.slow
@pytest.mark.parametrize("python_path", [".", ""])
def test_a_project_with_packages_of_the_same_names_keeps_them_and_has_a_broker(
    python_path: str, tmp_path: Path
) -> None:
    """Both with the project in the current directory and on PYTHONPATH."""
    for name in ("wire", "storage", "controller"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"whose = 'the project''s {name}'\n")
    program = script(
        tmp_path,
        "from kbroker.testing import Broker\n"
        "import wire, storage, controller\n"
        "with Broker() as broker:\n"
        "    broker.create_topic('t', partitions=2)\n"
        "    broker.produce('t', 'a')\n"
        "    print(len(broker.records('t')), broker.group('g').lag)\n"
        "print(wire.whose, storage.whose, controller.whose, sep=', ')\n"
        "try:\n"
        "    Broker(in_thread=True).start()\n"
        "except ImportError as error:\n"
        "    print(type(error).__name__, error)\n",
        PYTHONPATH=os.pathsep.join((python_path, str(ROOT))),
    )
    output, _ = program.communicate(timeout=60)
    records, whose, refusal = output.splitlines()
    assert records == "1 None"
    assert whose == "the projects wire, the projects storage, the projects controller"
    assert refusal.startswith(f"NameTaken 'wire' is {tmp_path / 'wire'} in this process")
    assert program.returncode == 0
