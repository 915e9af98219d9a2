"""`kbroker dump`: lines for people or programs, and an exit status for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.cli import main
from wire.compression import Codec
from wire.records import Record, build_batch


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    records = [
        Record(0, 1_700_000_000_000, b"key", "grün".encode(), (("trace", b"\x00\xff"),)),
        Record(1, 1_700_000_000_001, None, b"\x80"),
    ]
    path.write_bytes(build_batch(records, codec=Codec.GZIP))
    return path


def test_batches_and_records_are_lines(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", str(log), "--records"]) == 0
    batch, first, second = capsys.readouterr().out.splitlines()
    assert batch.startswith("position: 0  base_offset: 0  last_offset: 1  count: 2  size: ")
    assert "codec: gzip" in batch
    assert "max_timestamp: 1700000000001 (2023-11-14T22:13:20.001+00:00)" in batch
    assert first.startswith("    offset: 0  timestamp: 1700000000000 (")
    assert first.endswith("key: key  value: grün  headers: [[trace, 0x00ff]]")
    assert second.endswith("key: null  value: 0x80")


def test_json_is_one_object_per_line(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", str(log), "--records", "--json"]) == 0
    batch, first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (batch["file"], batch["count"]) == (str(log), 2)
    assert (first["key"], first["value"]) == ("key", "grün")
    assert first["headers"] == [["trace", {"hex": "00ff"}]]
    assert (second["key"], second["value"]) == (None, {"hex": "80"})


def test_damage_is_shown_and_gives_status_1(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(log.read_bytes()[:-1])
    assert main(["dump", str(log)]) == 1
    assert capsys.readouterr().out.startswith("position: 0  corrupt: the file ends within the batch")


def test_one_file_that_cannot_be_dumped_does_not_stop_the_others(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = log.with_name("00000000000000000009.index")
    other = log.with_name("notes.txt")
    assert main(["dump", str(missing), str(other), str(log)]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"kbroker: {missing}: No such file or directory",
        f"kbroker: {other} is not named like a segment, an index, a snapshot or a checkpoint",
    ]
    assert "base_offset: 0" in out


def test_a_reader_that_has_seen_enough_is_no_error(log: Path) -> None:
    log.write_bytes(log.read_bytes() * 2000)
    command = [sys.executable, "-m", "kbroker", "dump", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_damage_is_no_traceback(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(log.read_bytes())
    for position in range(len(content)):
        log.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        assert main(["dump", str(log), "--records"]) in (0, 1)
    assert "corrupt" in capsys.readouterr().out
