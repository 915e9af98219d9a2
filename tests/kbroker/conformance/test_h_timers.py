"""Conformance H: what happens to groups when time passes, on a broker that allows for short sessions.

What is decided at which moment is proven in `tests/kbroker/coordinators`, where time is passed in. Here the
clock of a running broker drives it, and times are chosen so that only a broker that waits for ever fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kbroker.conformance.test_h_groups import Member, committed, state, until
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import DEADLINE_S, Speaker
from wire.api import ApiKey
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.errors import ErrorCode

pytestmark = pytest.mark.slow

SHORT_MS = 400
LONG_MS = 60_000


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    log = tmp_path_factory.mktemp("broker") / "broker.log"
    settings = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=100")
    broker = BrokerProcess(log, *(word for setting in settings for word in ("--set", setting)))
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in log.read_text()


@pytest.fixture
def new_member(hasty: BrokerProcess, topic: str) -> Iterator[Callable[..., Member]]:
    """Makes members of one group, each on a connection of its own."""
    opened: list[Speaker] = []

    def make(instance_id: str | None = None) -> Member:
        opened.append(Speaker(hasty.host, hasty.port))
        return Member(opened[-1], topic, instance_id)

    first = make().speaker
    first.create(topic)
    asked = FindCoordinatorRequest(key=topic, key_type=0)
    until(lambda: first.ask(asked, ApiKey.FIND_COORDINATOR, 2).error_code == 0)
    until(lambda: state(first, topic)[0] == 0)
    yield make
    for speaker in opened:
        speaker.socket.close()


def join(member: Member, **values: Any) -> Any:
    """With the id that it is given first."""
    member.join(**values)
    return member.join(**values)


def test_a_member_that_falls_silent_leaves_and_offsets_stay(new_member: Callable[..., Member]) -> None:
    """conformance 80"""
    member = new_member()
    assert join(member, session_timeout_ms=SHORT_MS).error_code == 0
    member.sync({member.member_id: b""})
    assert member.commit(member.group) == 0
    until(lambda: state(member.speaker, member.group) == (0, "Empty"))
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(member)[0] == 5


def test_a_rebalance_goes_on_without_those_who_are_late(new_member: Callable[..., Member]) -> None:
    """conformance 73: the late one is dropped, and the others are told of a group without it."""
    late, punctual = new_member(), new_member()
    assert join(late, session_timeout_ms=SHORT_MS).error_code == 0
    late.sync({late.member_id: b""})
    joined = join(punctual, session_timeout_ms=LONG_MS)
    assert (joined.error_code, joined.leader) == (0, punctual.member_id)
    assert [one.member_id for one in joined.members] == [punctual.member_id]
    assert late.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_asked_for_an_id_and_never_came_keeps_no_group_waiting(new_member: Callable[..., Member]) -> None:
    """conformance 71, 73: pending members delay it no longer than their session timeout."""
    first, pending = new_member(), new_member()
    assert join(first, session_timeout_ms=LONG_MS).error_code == 0
    first.sync({first.member_id: b""})
    asked = pending.join(session_timeout_ms=SHORT_MS)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    began = time.monotonic()
    rejoined = first.join(session_timeout_ms=LONG_MS, protocols=("range", "roundrobin"))
    assert time.monotonic() - began < DEADLINE_S
    assert (rejoined.error_code, len(rejoined.members)) == (0, 1)


def test_a_static_member_may_be_away_for_its_session_and_no_longer(new_member: Callable[..., Member]) -> None:
    """conformance 78, 80"""
    before, after = new_member("one"), new_member("one")
    assert before.join(session_timeout_ms=SHORT_MS).error_code == 0
    before.sync({before.member_id: b"mine"})
    assert after.join(session_timeout_ms=SHORT_MS).generation_id == before.generation
    assert after.sync().assignment == b"mine"
    until(lambda: state(after.speaker, after.group) == (0, "Empty"))
    assert after.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    after.member_id = ""
    assert after.join(session_timeout_ms=SHORT_MS).generation_id > before.generation
