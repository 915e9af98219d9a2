"""`kbroker check`: a report for people or programs, and an exit status for scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.cli import main
from storage.files import Disk
from tests.storage.sample_directory import write_sample


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    write_sample(Disk(durable=False), str(path))
    return path


def damage(data: Path) -> Path:
    log = data / "codecs-1" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    return log


def test_a_sound_directory_gives_status_0(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(data)]) == 0
    out, err = capsys.readouterr()
    *_, totals, counts = out.splitlines()
    assert totals.startswith(f"{data}: 12 partitions, ")
    assert counts.startswith("0 errors, 0 warnings, ")
    assert err == ""


def test_damage_gives_status_1_and_a_line_that_names_the_place(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = damage(data)
    assert main(["check", str(data)]) == 1
    out, _ = capsys.readouterr()
    assert out.splitlines()[0].startswith(f"error: {log}, byte 0, offset 0: the checksum ")
    assert "1 error, 0 warnings" in out


def test_json_holds_the_same(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = damage(data)
    assert main(["check", str(data), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["sound"] is False
    assert report["counts"]["error"] == 1
    assert report["findings"][0]["path"] == str(log)
    assert (report["findings"][0]["position"], report["findings"][0]["offset"]) == (0, 0)
    assert len(report["partitions"]) == 12


def test_nothing_to_check_gives_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err == f"kbroker: {tmp_path}/missing: No such file or directory\n"


def test_on_a_terminal_it_shows_how_far_it_is_and_cleans_up(data: Path) -> None:
    master, slave = os.openpty()
    try:
        command = [sys.executable, "-m", "kbroker", "check", str(data)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, timeout=60, check=False)
        shown = os.read(master, 1 << 16).decode()
    finally:
        os.close(slave)
        os.close(master)
    assert done.returncode == 0
    assert "\r\x1b[K  0% of 0.1 MiB  __consumer_offsets-0" in shown
    assert "100% of 0.1 MiB  truncated-0" in shown
    assert shown.endswith("\r\x1b[K")
