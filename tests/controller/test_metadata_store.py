"""The contract of `controller.metadata_store`, which every back end keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from controller.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventType,
    InvalidPath,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionState,
    Set,
    StoreError,
    WatchEvent,
    all_of,
    ensure,
    found,
)
from tests.controller.backends import Backend


def on_its_loop(test: Callable[[Backend], Coroutine[Any, Any, None]]) -> Callable[[Backend], None]:
    """Let an async test run on the event loop of the back end."""

    @wraps(test)
    def run(backend: Backend) -> None:
        backend.run(test(backend))

    return run


async def nothing_more_came(backend: Backend, store: MetadataStore, events: list[WatchEvent]) -> None:
    """Wait for a watch that is set and fired now: whatever was due before has come by then."""
    before = list(events)
    seen: list[WatchEvent] = []
    await store.exists("/marker", seen.append)
    await store.create("/marker")
    await backend.until(lambda: bool(seen))
    assert events == before


@on_its_loop
async def test_a_node_keeps_its_data_and_counts_its_versions(backend: Backend) -> None:
    store = await backend.connect()
    assert await store.create("/a", b"one") == "/a"
    assert await store.set("/a", b"two") == 1
    assert await store.set("/a", b"two", version=1) == 2
    node = await store.get("/a")
    assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"two", 2, 0)
    assert await store.exists("/a") == node.stat
    assert await store.exists("/b") is None
    await store.delete("/a", version=2)
    with pytest.raises(NoNode):
        await store.get("/a")


@on_its_loop
async def test_children_are_named_in_order(backend: Backend) -> None:
    store = await backend.connect()
    await store.multi([Create("/t"), Create("/t/b"), Create("/t/a"), Create("/t/a/below")])
    assert await store.children("/t") == ["a", "b"]
    assert await store.children("/t/b") == []
    with pytest.raises(NoNode):
        await store.children("/u")


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), NodeExists),
        (Create("/none/b"), NoNode),
        (Create("/e/below"), NoChildrenForEphemerals),
        (Create("/b/"), InvalidPath),
        (Create("b"), InvalidPath),
        (Set("/none", b""), NoNode),
        (Set("/a", b"", version=1), BadVersion),
        (Delete("/none"), NoNode),
        (Delete("/a", version=1), BadVersion),
        (Delete("/p"), NotEmpty),
        (Check("/a", 1), BadVersion),
        (Check("/none", 0), NoNode),
    ],
    ids=str,
)
def test_a_refused_operation_says_why_and_undoes_its_transaction(
    backend: Backend, operation: Operation, error: type[StoreError]
) -> None:
    async def test() -> None:
        store = await backend.connect()
        await store.multi(
            [Create("/a"), Create("/p"), Create("/p/child"), Create("/e", ephemeral=True), Create("/q")]
        )
        before = await store.get("/q")
        with pytest.raises(error) as refused:
            await store.multi(
                [
                    Set("/q", b"new"),
                    Create("/q/n-", sequential=True),
                    Create("/x"),
                    Delete("/e"),
                    Create("/e", ephemeral=True),
                    operation,
                    Create("/z"),
                ]
            )
        assert refused.value.failed_operation == 5
        assert await store.get("/q") == before
        assert await store.children("/") == ["a", "e", "p", "q"]
        assert await store.create("/q/n-", sequential=True) == "/q/n-0000000000"

    backend.run(test())


@on_its_loop
async def test_a_transaction_answers_for_each_operation(backend: Backend) -> None:
    store = await backend.connect()
    results = await store.multi(
        [
            Create("/a"),
            Check("/a", 0),
            Set("/a", b"1"),
            Create("/a/n-", sequential=True),
            Delete("/a/n-0000000000"),
            Create("/a/n-", sequential=True),
        ]
    )
    assert results == ["/a", None, 1, "/a/n-0000000000", None, "/a/n-0000000001"]
    assert await store.multi([]) == []


@on_its_loop
async def test_sequential_names_never_repeat(backend: Backend) -> None:
    store = await backend.connect()
    await store.create("/q")
    names = await all_of([store.create("/q/n-", sequential=True) for _ in range(3)])
    assert names == [f"/q/n-000000000{number}" for number in range(3)]
    for name in names:
        await store.delete(name)
    names = await all_of([store.create("/q/n-", sequential=True) for _ in range(2)])
    assert names == ["/q/n-0000000003", "/q/n-0000000004"]


@on_its_loop
async def test_requests_are_performed_in_the_order_of_the_calls(backend: Backend) -> None:
    store = await backend.connect()
    answers = [store.create("/a"), *(store.set("/a", b"%d" % number) for number in range(5))]
    node = await store.get("/a")
    assert node.data == b"4"
    assert await all_of(answers) == ["/a", 1, 2, 3, 4, 5]


@on_its_loop
async def test_transaction_ids_grow_and_belong_to_a_registration(backend: Backend) -> None:
    store = await backend.connect()
    await store.create("/ids")
    first = (await store.get("/ids")).stat
    assert first.czxid == first.mzxid
    await store.create("/ids/1")
    second = (await store.get("/ids/1")).stat
    assert second.czxid > first.czxid
    assert (await store.get("/ids")).stat.pzxid == second.czxid
    await store.delete("/ids/1")
    await store.create("/ids/1")
    third = (await store.get("/ids/1")).stat
    await store.set("/ids/1", b"new")
    fourth = (await store.get("/ids/1")).stat
    assert second.czxid < third.czxid == fourth.czxid < fourth.mzxid


@on_its_loop
async def test_an_ephemeral_node_goes_with_its_session(backend: Backend) -> None:
    ours, theirs = await backend.connect(), await backend.connect()
    await ours.multi([Create("/lasting"), Create("/lasting/e", b"x", ephemeral=True)])
    stat = await theirs.exists("/lasting/e")
    assert stat is not None
    assert stat.ephemeral_owner == ours.session_id != theirs.session_id
    events: list[WatchEvent] = []
    await theirs.exists("/lasting/e", events.append)
    await theirs.children("/lasting", events.append)
    await ours.close()
    await backend.until(lambda: len(events) == 2)
    assert set(events) == {
        WatchEvent(EventType.DELETED, "/lasting/e"),
        WatchEvent(EventType.CHILDREN, "/lasting"),
    }
    assert await theirs.children("/lasting") == []
    assert (await theirs.get("/lasting")).data == b""


@on_its_loop
async def test_a_session_that_was_ended_is_lost_and_a_new_one_begins(backend: Backend) -> None:
    ours, theirs = await backend.connect(), await backend.connect()
    states: list[SessionState] = []
    events: list[WatchEvent] = []
    ours.listen(states.append)
    await ours.create("/mine", ephemeral=True)
    await ours.exists("/mine", events.append)
    old = ours.session_id
    await backend.expire(ours)
    await backend.until(lambda: states[-1:] == [SessionState.CONNECTED])
    assert states[-2:] == [SessionState.LOST, SessionState.CONNECTED]
    assert ours.session_id not in (old, theirs.session_id)
    assert await theirs.exists("/mine") is None
    assert await ours.create("/mine", ephemeral=True) == "/mine"
    await nothing_more_came(backend, ours, events)
    assert events == []


@pytest.mark.parametrize("event", list(EventType), ids=lambda event: event.value)
def test_a_watch_fires_once_for_whoever_made_the_change(backend: Backend, event: EventType) -> None:
    async def test() -> None:
        ours, theirs = await backend.connect(), await backend.connect()
        await ours.create("/there")
        path = "/new" if event is EventType.CREATED else "/there"
        changes: tuple[Callable[[], Awaitable[object]], ...] = {
            EventType.CREATED: (lambda: ours.create("/new"), lambda: ours.set("/new", b"")),
            EventType.CHANGED: (lambda: ours.set("/there", b"1"), lambda: ours.set("/there", b"2")),
            EventType.DELETED: (lambda: ours.delete("/there"), lambda: ours.create("/there")),
            EventType.CHILDREN: (lambda: ours.create("/there/a"), lambda: ours.create("/there/b")),
        }[event]
        seen: dict[str, list[WatchEvent]] = {"ours": [], "theirs": []}
        for name, store in (("ours", ours), ("theirs", theirs)):
            look = store.children if event is EventType.CHILDREN else store.exists
            await look(path, seen[name].append)
        for change in changes:
            await change()
        await backend.until(lambda: all(seen.values()))
        await nothing_more_came(backend, ours, seen["ours"])
        assert seen == {name: [WatchEvent(event, path)] for name in seen}

    backend.run(test())


@on_its_loop
async def test_a_watch_that_comes_with_the_data_hears_of_the_next_change(backend: Backend) -> None:
    store = await backend.connect()
    await store.create("/a", b"0")
    events: list[WatchEvent] = []
    assert (await store.get("/a", events.append)).data == b"0"
    await store.set("/a", b"1")
    await backend.until(lambda: len(events) == 1)
    assert (await store.get("/a", events.append)).data == b"1"
    await store.delete("/a")
    await backend.until(lambda: len(events) == 2)
    assert [event.type for event in events] == [EventType.CHANGED, EventType.DELETED]


@on_its_loop
async def test_reading_a_missing_node_sets_no_watch(backend: Backend) -> None:
    store = await backend.connect()
    events: list[WatchEvent] = []
    with pytest.raises(NoNode):
        await store.get("/later", events.append)
    with pytest.raises(NoNode):
        await store.children("/later", events.append)
    await store.create("/later")
    await nothing_more_came(backend, store, events)
    assert events == []


@on_its_loop
async def test_a_transaction_that_failed_fires_no_watch(backend: Backend) -> None:
    store = await backend.connect()
    events: list[WatchEvent] = []
    await store.exists("/a", events.append)
    with pytest.raises(NoNode):
        await store.multi([Create("/a"), Delete("/none")])
    await nothing_more_came(backend, store, events)
    assert events == []


@on_its_loop
async def test_the_watch_of_a_parent_hears_when_the_parent_goes(backend: Backend) -> None:
    store = await backend.connect()
    await store.create("/p")
    events: list[WatchEvent] = []
    await store.children("/p", events.append)
    await store.delete("/p")
    await backend.until(lambda: bool(events))
    assert events == [WatchEvent(EventType.DELETED, "/p")]


@on_its_loop
async def test_paths_are_ensured_with_their_parents(backend: Backend) -> None:
    store = await backend.connect()
    await store.create("/brokers", b"kept")
    await ensure(store, ["/brokers/ids", "/config/topics", "/brokers"])
    assert await store.children("/brokers") == ["ids"]
    assert await store.children("/config") == ["topics"]
    assert (await store.get("/brokers")).data == b"kept"


@on_its_loop
async def test_a_pipeline_answers_whole_or_with_the_first_error(backend: Backend) -> None:
    store = await backend.connect()
    await store.multi([Create("/a", b"1"), Create("/b", b"2")])
    nodes = await found([store.get("/a"), store.get("/none"), store.get("/b")])
    assert [node and node.data for node in nodes] == [b"1", None, b"2"]
    with pytest.raises(NodeExists):
        await all_of([store.create("/c"), store.create("/a"), store.delete("/none"), store.create("/d")])
    assert await store.children("/") == ["a", "b", "c", "d"]
