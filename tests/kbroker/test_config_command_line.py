"""Flags and --set, and what they do to a file's values."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from kbroker.config import ConfigError
from kbroker.configuration.command_line import FLAGS, add_options, configured
from kbroker.configuration.layers import Configuration


@pytest.fixture
def parser() -> ArgumentParser:
    parser = ArgumentParser(prog="kbroker start")
    add_options(parser)
    return parser


def test_without_options_nothing_is_set(parser: ArgumentParser) -> None:
    assert configured(parser.parse_args([])) == {}


def test_flags_are_keys_and_lists_may_be_given_twice(parser: ArgumentParser) -> None:
    options = parser.parse_args(
        [
            "--listener",
            "A://:1",
            "--listener",
            "B://:2",
            "--data",
            "d",
            "--log-level",
            "debug",
            "--log-format",
            "json",
        ]
    )
    assert configured(options) == {
        "listeners": "A://:1,B://:2",
        "log.dirs": "d",
        "kbroker.log.level": "debug",
        "kbroker.log.format": "json",
    }


def test_the_file_is_weakest_and_flags_are_strongest(parser: ArgumentParser) -> None:
    file = {"log.dir": "from-file", "num.partitions": "1", "log.retention.ms": "5", "listeners": "FILE://:1"}
    options = parser.parse_args(
        [
            "--set",
            "num.partitions=2",
            "--set",
            "log.dir=from-set",
            "--set",
            "log.retention.hours=1",
            "--data",
            "flag",
        ]
    )
    configuration = Configuration(configured(options, file))
    assert configuration.broker.num_partitions == 2
    assert configuration.broker.data_directories == ("flag",)
    assert configuration.topic().retention_ms == 3_600_000
    assert configuration.broker.listeners == ("FILE://:1",)


def test_a_word_that_is_not_allowed_is_refused_by_the_parser(
    parser: ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["--log-level", "loud"])
    assert "invalid choice: 'loud'" in capsys.readouterr().err


def test_set_needs_a_value(parser: ArgumentParser) -> None:
    with pytest.raises(ConfigError, match=r"^'num\.partitions' is not of the form"):
        configured(parser.parse_args(["--set", "num.partitions"]))


def test_help_says_what_the_table_says(parser: ArgumentParser) -> None:
    text = " ".join(parser.format_help().split())
    assert sorted(FLAGS) == ["--data", "--listener", "--log-format", "--log-level", "--metrics"]
    for flag, note in FLAGS.items():
        assert f"{flag} " in text
        assert f"{note.doc} ({note.name}" in text
