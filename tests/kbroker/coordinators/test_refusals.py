"""What a reply becomes when it cannot be kept."""

from __future__ import annotations

import pytest

from kbroker.coordinators.refusals import refused
from tests.kbroker.coordinators.clients import GROUP, Client, stable
from tests.kbroker.coordinators.driver import Driver
from tests.kbroker.coordinators.requests import (
    commit,
    commit_in_transaction,
    delete_offsets,
    fetch,
    heartbeat,
    list_groups,
)
from wire.api.delete_groups import DeleteGroupsRequest
from wire.codec import encode
from wire.errors import ErrorCode


def test_every_reply_of_a_step_can_be_refused(driver: Driver) -> None:
    """Conformance 84: 16 while a reply is held back. The refusal is of the same kind, and can be encoded."""
    client = Client(driver)
    stable(client)
    asked = [
        client.join(),
        client.sync(),
        driver.ask(heartbeat(GROUP, client.generation, client.member_id), 4),
        driver.ask(commit("g", "t", {0: 1}), 8),
        driver.ask(commit_in_transaction("h", "t", {0: 1}), 3),
        driver.ask(delete_offsets("g", "t", [0]), 0),
        driver.ask(DeleteGroupsRequest(groups_names=["g"]), 2),
    ]
    replies = [(answer.reply, answer.version) for answer in asked] + [(client.leave(), 5)]
    for reply, version in replies:
        refusal = refused(reply, ErrorCode.NOT_COORDINATOR)
        assert type(refusal) is type(reply)
        assert f"{ErrorCode.NOT_COORDINATOR!r}" in repr(refusal)
        assert f"error_code={ErrorCode.NONE!r}" not in repr(refusal)
        encode(refusal, version)


def test_a_refused_join_does_not_hand_out_the_member_id(driver: Driver) -> None:
    client = Client(driver)
    stable(client)
    refusal = refused(client.join().reply, ErrorCode.NOT_COORDINATOR)
    assert (refusal.member_id, refusal.generation_id) == ("", -1)  # type: ignore[attr-defined]


def test_fetched_offsets_can_be_refused(driver: Driver) -> None:
    group = driver.ask(fetch(GROUP, None), 8).reply.groups[0]
    refusal = refused(group, ErrorCode.NOT_COORDINATOR)
    assert refusal.error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]


def test_nothing_else_can_be_refused(driver: Driver) -> None:
    with pytest.raises(KeyError):
        refused(driver.ask(list_groups(), 5).reply, ErrorCode.NOT_COORDINATOR)
