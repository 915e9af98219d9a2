"""Lines that clients cause: the first in full, then one with a count for each interval."""

from __future__ import annotations

import logging

import pytest

from kbroker.log_limits import INTERVAL_MS, MOST_KINDS, LogLimits

logger = logging.getLogger("tests.log_limits")


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock, caplog: pytest.LogCaptureFixture) -> LogLimits:
    caplog.set_level(logging.INFO)
    return LogLimits(clock)


def test_the_first_line_is_logged_and_the_rest_counted(
    limits: LogLimits, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(263_699):
        limits.warning(logger, "malformed", "closing %s", number)
    assert caplog.messages == ["closing 0"]
    clock.ms = INTERVAL_MS - 1
    limits.tick()
    assert len(caplog.messages) == 1
    clock.ms = INTERVAL_MS
    limits.tick()
    assert caplog.messages[1:] == ["263,698 more such lines in 60 s, the last: closing 263698"]
    assert caplog.records[1].levelno == logging.WARNING


def test_lines_that_go_on_are_only_counted(
    limits: LogLimits, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        for _ in range(100):
            limits.warning(logger, "malformed", "closing")
        clock.ms += INTERVAL_MS
        limits.tick()
    assert len(caplog.messages) == 1 + 10


def test_after_a_quiet_interval_a_line_is_logged_in_full(
    limits: LogLimits, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        limits.warning(logger, "malformed", "closing")
    for _ in range(2):
        clock.ms += INTERVAL_MS
        limits.tick()
    limits.warning(logger, "malformed", "closing again")
    assert caplog.messages[2:] == ["closing again"]


def test_kinds_are_counted_each_for_itself(limits: LogLimits, caplog: pytest.LogCaptureFixture) -> None:
    limits.warning(logger, "a", "one")
    limits.warning(logger, "b", "two")
    limits.warning(logger, "a", "three")
    assert caplog.messages == ["one", "two"]


def test_a_client_that_invents_kinds_gets_no_more_lines(
    limits: LogLimits, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5000):
        limits.warning(logger, ("asked for", number), "asked for %d", number)
    assert len(caplog.messages) == MOST_KINDS + 1
    clock.ms = INTERVAL_MS
    limits.tick()
    assert caplog.messages[-1] == "4,899 more such lines in 60 s, the last: asked for 4999"


def test_a_stopping_broker_says_what_it_has_counted(
    limits: LogLimits, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        limits.warning(logger, "a", "one")
    limits.report()
    assert caplog.messages[1:] == ["2 more such lines in 0 s, the last: one"]


def test_a_traceback_is_logged_with_the_first_line_only(
    limits: LogLimits, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        try:
            raise ValueError("a bug")
        except ValueError:
            limits.exception(logger, "bug", "a bug in the broker")
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_several_lines_may_be_logged_in_full(limits: LogLimits, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(10):
        limits.log(logger, logging.INFO, "notes", "note %d", number, in_full=3)
    assert caplog.messages == ["note 0", "note 1", "note 2"]
