"""What `pip install kbroker` puts on a machine."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kbroker import __version__

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_the_wheel_has_the_four_packages_and_a_command_that_starts(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    packaged = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert packaged == {"kbroker", "wire", "storage", "controller"}
    assert {f"{package}/py.typed" for package in packaged} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)

    installed = tmp_path / "installed"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--target",
        str(installed),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, str(installed / "bin" / "kbroker"), "--version"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert result.stdout == f"kbroker {__version__}\n"

    offered = subprocess.run(
        [sys.executable, "-m", "pytest", "--fixtures"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "kafka_broker" in offered.stdout, offered.stdout + offered.stderr
