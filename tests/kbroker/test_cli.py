"""The command: it says when it is ready, stops when told to, and complains in one line."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker import __version__
from kbroker.cli import main
from tests.kbroker.harness import BrokerProcess, RawClient


def kbroker(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbroker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_version() -> None:
    result = kbroker("--version")
    assert (result.returncode, result.stdout) == (0, f"kbroker {__version__}\n")


def test_the_command_says_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["consume", "t", "--count", "3"])
    assert ended.value.code == 2
    assert "kbroker consume: error: unrecognized arguments: --count 3" in capsys.readouterr().err


def test_ctrl_c_while_modules_are_loaded_is_quiet() -> None:
    program = """
import sys
class PressesCtrlC:
    def find_spec(self, name, path, target=None):
        if name == "kbroker.commands.check":
            raise KeyboardInterrupt
sys.meta_path.insert(0, PressesCtrlC())
from kbroker.cli import main
sys.exit(main(["--version"]))
"""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_status_0_and_closes_connections(
    number: signal.Signals, tmp_path: Path, connect: Callable[[BrokerProcess], RawClient]
) -> None:
    broker = BrokerProcess(tmp_path / "broker.log")
    idle, halfway = connect(broker), connect(broker)
    halfway.socket.sendall(b"\x00\x00\x01\x00half a request")
    assert broker.stop(number) == 0
    assert idle.receive() == b""
    assert halfway.receive() == b""
    [banner] = [line for line in broker.log.read_text().splitlines() if f": kbroker {__version__}: " in line]
    assert f" at PLAINTEXT://{broker.address};" in banner
    assert "kbroker.flush=auto" in banner
    assert str(tmp_path) in banner


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        result = kbroker("start", "--listener", listener, "--data", str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"kbroker: cannot listen on {listener}: Address already in use\n"


def test_a_host_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    result = kbroker("start", "--listener", "PLAINTEXT://no-such-host.invalid:9092", "--data", str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("kbroker: cannot listen on PLAINTEXT://no-such-host.invalid:9092: ")
    assert result.stderr.count("\n") == 1


def test_a_data_directory_in_use_is_one_line(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker.log")
    data = str(tmp_path / "broker.data")
    result = kbroker("start", "--listener", "PLAINTEXT://127.0.0.1:0", "--data", data)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert "another process uses the data directory" in result.stderr
    assert broker.stop() == 0
