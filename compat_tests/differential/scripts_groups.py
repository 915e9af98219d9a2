"""Groups without members: FindCoordinator, commits of simple consumers, lists, descriptions, deletions.

Members and their rebalances are the matter of `test_classic_groups.py`.
"""

from __future__ import annotations

from typing import Any

from compat_tests.differential.conversation import Conversation, script

NOBODY = bytes(range(16))
FIRST_VERSION_WITH_TOPIC_IDS = 10


def prepare(talk: Conversation) -> bytes:
    """Waits for a coordinator; the topic `t` has two partitions."""
    topic_id = talk.create("t", 2)
    talk.until(lambda reply: reply.error_code == 0, "FindCoordinator", 3, key="any", key_type=0)
    talk.until(
        lambda reply: reply.error_code == 25,
        "Heartbeat",
        4,
        group_id="any",
        generation_id=1,
        member_id="nobody",
    )
    return topic_id


@script
def find_coordinator(talk: Conversation) -> None:
    prepare(talk)
    talk.until(lambda reply: reply.error_code == 0, "FindCoordinator", 3, key="any", key_type=0)
    for version in talk.versions("FindCoordinator"):
        if version < 4:
            for key in ("one", ""):
                talk.ask("FindCoordinator", version, f"of {key!r}", key=key)
            for key_type in (2, -1, 7) if version else ():
                talk.ask("FindCoordinator", version, f"type {key_type}", key="one", key_type=key_type)
        else:
            for keys in (["one"], ["one", "other", "one"], [], [""]):
                talk.ask("FindCoordinator", version, f"of {keys}", coordinator_keys=keys, key_type=0)
            for key_type in (2, -1, 7):
                talk.ask(
                    "FindCoordinator",
                    version,
                    f"type {key_type}",
                    coordinator_keys=["one"],
                    key_type=key_type,
                )


def commit(
    talk: Conversation,
    version: int,
    label: str,
    group: str,
    partitions: list[dict[str, Any]],
    *,
    name: str = "t",
    topic_id: bytes = NOBODY,
    **more: Any,
) -> None:
    topic = {"topic_id": topic_id} if version >= FIRST_VERSION_WITH_TOPIC_IDS else {"name": talk.name(name)}
    group_id = talk.name(group) if group else ""
    topics = [{**topic, "partitions": partitions}]
    talk.ask("OffsetCommit", version, label, group_id=group_id, topics=topics, **more)


def offset(index: int, value: int, metadata: str | None = "note", **more: Any) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": value, "committed_metadata": metadata, **more}


def read(
    talk: Conversation, version: int, label: str, groups: list[str], topics: list[dict[str, Any]] | None
) -> None:
    if version < 8:
        fields: dict[str, Any] = {"group_id": talk.name(groups[0]), "topics": topics}
    else:
        fields = {"groups": [{"group_id": talk.name(group), "topics": topics} for group in groups]}
    talk.ask("OffsetFetch", version, label, **fields)


@script
def commits_of_simple_consumers(talk: Conversation) -> None:
    """conformance 75, 82"""
    topic_id = prepare(talk)
    for version in talk.versions("OffsetCommit"):
        group = f"v{version}"
        more: dict[str, Any] = {"topic_id": topic_id}
        commit(talk, version, "two", group, [offset(0, 5), offset(1, 7, None)], **more)
        commit(talk, version, "unknown partition", group, [offset(2, 5), offset(-1, 5), offset(0, 6)], **more)
        commit(talk, version, "unknown topic", group, [offset(0, 5)], name="no")
        commit(talk, version, "long metadata", group, [offset(0, 5, "x" * 4097), offset(1, 8)], **more)
        commit(talk, version, "longest metadata", group, [offset(0, 5, "x" * 4096)], **more)
        commit(talk, version, "negative offset", group, [offset(0, -1)], **more)
        commit(talk, version, "very negative offset", group, [offset(0, -5)], **more)
        commit(talk, version, "a generation", group, [offset(0, 5)], generation_id_or_member_epoch=1, **more)
        commit(talk, version, "a member", group, [offset(0, 5)], member_id="somebody", **more)
        commit(talk, version, "no name", "", [offset(0, 5)], **more)
        commit(talk, version, "nothing", group, [], **more)
        if version >= 6:
            commit(talk, version, "an epoch", group, [offset(1, 9, committed_leader_epoch=4)], **more)
        if version >= 7:
            commit(talk, version, "an instance", group, [offset(0, 5)], group_instance_id="i", **more)
        read_offsets(talk, [group, "never"], topic_id)


def read_offsets(talk: Conversation, groups: list[str], topic_id: bytes) -> None:
    """What was committed, in every version."""
    for version in talk.versions("OffsetFetch"):
        known: dict[str, Any] = {"name": talk.name("t")}
        unknown: dict[str, Any] = {"name": talk.name("no")}
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            known, unknown = {"topic_id": topic_id}, {"topic_id": NOBODY}
        topics = [{**known, "partition_indexes": [0, 1, 2]}, {**unknown, "partition_indexes": [0]}]
        read(talk, version, f"of {groups}", groups, topics)
        read(talk, version, f"of {groups[::-1]}", groups[::-1], topics)
        read(talk, version, f"nothing of {groups}", groups, [])
        if version >= 2:
            read(talk, version, f"all of {groups}", groups, None)


@script
def groups_that_are_empty(talk: Conversation) -> None:
    """conformance 80, 81"""
    topic_id = prepare(talk)
    commit(talk, 8, "first", "g", [offset(0, 5), offset(1, 6)], topic_id=topic_id)
    for version in talk.versions("DescribeGroups"):
        rights: dict[str, Any] = {"include_authorized_operations": True} if version >= 3 else {}
        groups = [talk.name("g"), talk.name("unknown"), ""]
        talk.ask("DescribeGroups", version, groups=groups)
        talk.ask("DescribeGroups", version, "with rights", groups=groups[:2], **rights)
        talk.ask("DescribeGroups", version, "none", groups=[])
        talk.ask("DescribeGroups", version, "twice", groups=[groups[0], groups[0]])
    for version in talk.versions("ListGroups"):
        filters: list[dict[str, Any]] = [{}]
        filters += [{"states_filter": [one]} for one in ("Empty", "EMPTY", "Stable", "no")] * (version >= 4)
        filters += [{"types_filter": [one]} for one in ("classic", "Classic", "consumer")] * (version >= 5)
        for one in filters:
            reply = talk.quietly("ListGroups", version, **one)
            reply.groups = talk.own(reply.groups, "group_id")
            talk.note(f"ListGroups v{version} {one}", reply)
    for label, rows in {
        "one": [{"name": talk.name("t"), "partitions": [{"partition_index": 1}]}],
        "unknown partition": [{"name": talk.name("t"), "partitions": [{"partition_index": 9}]}],
        "unknown topic": [{"name": talk.name("no"), "partitions": [{"partition_index": 0}]}],
        "nothing": [],
    }.items():
        for group in ("g", "unknown"):
            talk.ask("OffsetDelete", 0, f"{label} of {group}", group_id=talk.name(group), topics=rows)
    read_offsets(talk, ["g"], topic_id)
    for version in talk.versions("DeleteGroups"):
        name = f"d{version}"
        commit(talk, 8, f"before deletion {version}", name, [offset(0, 5)], topic_id=topic_id)
        groups = [talk.name(name), talk.name("unknown"), ""]
        for label in ("first", "again"):
            talk.ask("DeleteGroups", version, label, groups_names=groups)
        talk.ask("DeleteGroups", version, "none", groups_names=[])
        talk.ask("DeleteGroups", version, "twice", groups_names=[talk.name("g")] * 2)
        commit(talk, 8, f"after deletion {version}", "g", [offset(0, 5)], topic_id=topic_id)
        read(talk, 5, f"after deletion {version}", [name], [])


@script
def a_group_whose_topic_is_deleted(talk: Conversation) -> None:
    topic_id = prepare(talk)
    commit(talk, 8, "before", "g", [offset(0, 5)], topic_id=topic_id)
    talk.quietly("DeleteTopics", 5, topic_names=[talk.name("t")], timeout_ms=10_000)
    talk.until_gone("t")
    talk.until(
        lambda reply: reply.groups[0].topics[0].partitions[0].committed_offset == -1,
        "OffsetFetch",
        8,
        groups=[
            {
                "group_id": talk.name("g"),
                "topics": [{"name": talk.name("t"), "partition_indexes": [0]}],
            }
        ],
    )
    talk.ask("DescribeGroups", 5, groups=[talk.name("g")])
    commit(talk, 8, "after", "g", [offset(0, 5)])


@script
def joins_that_are_answered_at_once(talk: Conversation) -> None:
    """Which of the names in a reply is null, which is empty (conformance 71)."""
    prepare(talk)
    plain: dict[str, Any] = {
        "member_id": "",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    for version in talk.versions("JoinGroup"):
        wrong: dict[str, dict[str, Any]] = {
            "no name": {"group_id": ""},
            "short session": {"session_timeout_ms": 1},
            "unknown member": {"member_id": "somebody"},
            "no protocols": {"protocols": []},
            "no protocol type": {"protocol_type": ""},
        }
        for label, fields in wrong.items():
            asked = {"group_id": talk.name(f"v{version}"), **plain, **fields}
            talk.ask("JoinGroup", version, label, **asked)
        first = talk.quietly("JoinGroup", version, group_id=talk.name(f"m{version}"), **plain)
        talk.learn(first.member_id, "<member>")
        if first.leader:
            talk.learn(first.leader, "<member>")
        talk.note(f"JoinGroup v{version} first", first)
        again = {**plain, "group_id": talk.name(f"m{version}"), "member_id": first.member_id}
        talk.ask("JoinGroup", version, "again", **again)
        talk.ask("JoinGroup", version, "other protocol", **{**again, "protocol_type": "connect"})
