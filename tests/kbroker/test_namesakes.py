"""Projects with packages called like ours: the command takes its own, and says so where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker import namesakes
from kbroker.namesakes import NameTaken

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("python_path", [".", ""])
def test_the_command_works_in_a_directory_with_packages_of_the_same_names(
    python_path: str, tmp_path: Path
) -> None:
    for name in namesakes.OURS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('this is not yours')\n")
    done = subprocess.run(
        [sys.executable, "-m", "kbroker", "dump", "00000000000000000000.log"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((python_path, str(ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "kbroker: 00000000000000000000.log: No such file or directory\n"
    assert done.returncode == 2


def test_in_this_process_they_are_ours() -> None:
    namesakes.check()


def test_what_is_not_there_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namesakes, "OURS", ("no_such_package",))
    with pytest.raises(NameTaken, match="there is no package 'no_such_package'"):
        namesakes.pin()
    with pytest.raises(NameTaken, match="'no_such_package' is something without a file"):
        namesakes.check()
