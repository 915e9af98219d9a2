"""What every client goes through, written once: a client's test module inherits these tests.

To add a client, write a program that speaks the language of program.py, and a module of a few lines:

    CLIENT = "aiokafka 0.14.0"

    class TestAiokafka(Scenarios):
        command = python_program("aiokafka")
        lacks = {"cooperative": "no cooperative assignor"}

`lacks` has verbs, and the words given to `client.needs` below, that this client has not: those tests are then
skipped for that reason, and the table of docs/compatibility.md shows it. What only one client has is tested
in its own module, beside this class.

Every test has a topic of its own (its name is also the group's); all share one broker.
"""

from __future__ import annotations

import random
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from compat_tests.clients.neutral import Neutral
from compat_tests.clients.program import ClientError, Member, Program, Record, until
from tests.kbroker.harness import BrokerProcess

Join = Callable[..., Member]
Another = Callable[..., Program]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MANY = 100_000
KEYS = 97

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69


def produce(client: Program, topic: str, records: Sequence[Record], **options: Any) -> list[list[int]]:
    asked = [record.to_json() for record in records]
    offsets: list[list[int]] = client.ask("produce", topic=topic, records=asked, **options).get("offsets", [])
    return offsets


def lie_at(places: list[list[int]], first: int, end: int) -> bool:
    """Whether they got these offsets of partition 0. Clients that do not tell are not asked."""
    return places in ([], [[0, offset] for offset in range(first, end)])


def numbered(first: int, end: int, partitions: int = 1) -> list[Record]:
    """Records whose values are numbers, round about the partitions."""
    return [Record(b"%d" % number, partition=number % partitions) for number in range(first, end)]


def consume(
    client: Program, topic: str, count: int, starts: Mapping[int, int] | None = None, **options: Any
) -> list[Record]:
    asked = {str(partition): offset for partition, offset in (starts or {0: 0}).items()}
    found = client.ask("consume", topic=topic, starts=asked, count=count, **options)
    return [Record.from_json(one) for one in found["records"]]


def offsets(answer: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in answer["offsets"].items()}


def refusal(client: Program, verb: str, **arguments: Any) -> int:
    """The error that it has to end with."""
    with pytest.raises(ClientError) as raised:
        client.ask(verb, **arguments)
    return raised.value.code


class Client:
    """What a client's module states about it."""

    command: ClassVar[list[str]]
    lacks: ClassVar[Mapping[str, str]] = {}
    out_of_range_codes: ClassVar[tuple[int, ...]] = (OFFSET_OUT_OF_RANGE,)


class RecordScenarios(Client):
    """Producing and consuming without groups."""

    @pytest.mark.feature("codecs")
    @pytest.mark.parametrize("codec", CODECS)
    def test_records_come_back_in_every_codec(
        self, client: Program, neutral: Neutral, topic: str, codec: str
    ) -> None:
        client.needs(codec)
        """The values are such that no client finds them not worth it."""
        sent = [Record(b"%d " % n * (n + 100), b"k%d" % n, partition=0) for n in range(300)]
        assert lie_at(produce(client, topic, sent, codec=codec), 0, 300)
        found = consume(client, topic, 300)
        assert [record.content for record in found] == [record.content for record in sent]
        assert [record.offset for record in found] == list(range(300))
        assert {header.codec.name.lower() for header in neutral.stored(topic)} == {codec}

    @pytest.mark.feature("headers and nulls")
    def test_keys_values_and_headers_are_untouched(self, client: Program, topic: str) -> None:
        client.needs("bytes")
        anything = bytes(range(256))
        sent = [
            Record(b"value", None, partition=0),
            Record(None, b"key", partition=0),
            Record(b"v", b"k", (("one", b"1"), ("two", anything)), 0, 1_600_000_000_123),
            Record(anything, anything, (("", b"no name"), ("\N{SNOWMAN}", b"")), 0),
        ]
        produce(client, topic, sent)
        found = consume(client, topic, len(sent))
        assert [record.content for record in found] == [record.content for record in sent]
        assert found[2].timestamp == 1_600_000_000_123

    @pytest.mark.feature("headers and nulls")
    def test_headers_come_back_in_order(self, client: Program, topic: str) -> None:
        sent = [Record(b"v", b"k", (("b", b"1"), ("a", b"2"), ("c", b"3")), 0)]
        produce(client, topic, sent)
        assert [record.content for record in consume(client, topic, 1)] == [sent[0].content]

    @pytest.mark.feature("headers and nulls")
    def test_empty_is_not_null(self, client: Program, topic: str) -> None:
        client.needs("empty")
        sent = [
            Record(b"", b"", partition=0),
            Record(b"v", None, partition=0),
            Record(None, b"k", partition=0),
        ]
        produce(client, topic, sent)
        assert [record.content for record in consume(client, topic, 3)] == [record.content for record in sent]

    @pytest.mark.feature("headers and nulls")
    def test_a_header_may_be_null_and_repeated(self, client: Program, topic: str) -> None:
        client.needs("null headers")
        sent = [Record(b"v", b"k", (("h", b"1"), ("h", None), ("h", b"")), 0)]
        produce(client, topic, sent)
        assert [record.content for record in consume(client, topic, 1)] == [sent[0].content]

    @pytest.mark.feature("1 MB records")
    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_a_megabyte_passes(self, client: Program, topic: str, codec: str) -> None:
        """Of noise, so that it is a megabyte on the wire with a codec as well."""
        big = [Record(random.Random(seed).randbytes(1_000_000), partition=0) for seed in range(3)]
        for record in big:
            produce(client, topic, [record], codec=codec)
        assert [record.value for record in consume(client, topic, 3)] == [record.value for record in big]

    @pytest.mark.feature("1 MB records")
    def test_more_than_the_topic_takes_is_refused(self, client: Program, topic: str) -> None:
        """conformance 28"""
        [record] = numbered(0, 1)
        produce(client, topic, [record])
        too_much = [Record(bytes(2_000_000), partition=0).to_json()]
        assert refusal(client, "produce", topic=topic, records=too_much) == MESSAGE_TOO_LARGE
        assert lie_at(produce(client, topic, [record]), 1, 2)

    @pytest.mark.feature("order per key")
    def test_a_hundred_thousand_records_stay_in_order_per_key(
        self, client: Program, neutral: Neutral, topic: str
    ) -> None:
        neutral.create_topic(topic, 4)
        sent = [Record(b"%d" % number, b"%d" % (number % KEYS)) for number in range(MANY)]
        produce(client, topic, sent, codec="gzip", idempotent="idempotent" not in self.lacks)
        by_key: dict[bytes, list[int]] = defaultdict(list)
        places: dict[bytes, set[int]] = defaultdict(set)
        for record in consume(client, topic, MANY, dict.fromkeys(range(4), 0)):
            by_key[record.key or b""].append(int(record.value or b""))
            places[record.key or b""].add(record.partition or 0)
        assert by_key == {b"%d" % key: list(range(key, MANY, KEYS)) for key in range(KEYS)}
        assert all(len(partitions) == 1 for partitions in places.values())
        assert len(set.union(*places.values())) == 4

    @pytest.mark.feature("acks 0, 1, all")
    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_records_arrive_with_every_kind_of_acknowledgement(
        self, client: Program, topic: str, acks: str
    ) -> None:
        answered = produce(client, topic, numbered(0, 50), acks=acks)
        assert acks == "0" or lie_at(answered, 0, 50)
        assert [record.value for record in consume(client, topic, 50)] == [b"%d" % n for n in range(50)]

    @pytest.mark.feature("idempotent producer")
    def test_an_idempotent_producer_numbers_its_records(
        self, client: Program, neutral: Neutral, topic: str
    ) -> None:
        client.needs("idempotent")
        for first in range(0, 500, 100):
            produce(client, topic, numbered(first, first + 100), idempotent=True)
        next_sequences: dict[int, int] = defaultdict(int)
        for header in neutral.stored(topic):
            assert header.producer_id >= 0
            assert header.base_sequence == next_sequences[header.producer_id]
            next_sequences[header.producer_id] += header.count
        assert sum(next_sequences.values()) == 500
        assert [record.value for record in consume(client, topic, 500)] == [b"%d" % n for n in range(500)]

    @pytest.mark.feature("fetch from offsets")
    def test_reading_starts_at_any_offset_of_any_partition(
        self, client: Program, neutral: Neutral, topic: str
    ) -> None:
        neutral.create_topic(topic, 3)
        produce(client, topic, numbered(0, 300, 3))
        found = consume(client, topic, 60, {0: 97, 1: 50, 2: 93})
        by_partition: dict[int, list[int]] = defaultdict(list)
        for record in found:
            by_partition[record.partition or 0].append(record.offset or 0)
            assert int(record.value or b"") == (record.offset or 0) * 3 + (record.partition or 0)
        assert by_partition == {0: [97, 98, 99], 1: list(range(50, 100)), 2: list(range(93, 100))}

    @pytest.mark.feature("offsets by time")
    def test_offsets_are_found_by_time(self, client: Program, topic: str) -> None:
        """conformance 63, 64"""
        client.needs("timestamps")
        times = [1_000_000 + number * 1000 for number in range(10)]
        records = [Record(b"%d" % n, partition=0, timestamp=time) for n, time in enumerate(times)]
        produce(client, topic, records)
        assert offsets(client.ask("offsets", topic=topic, at="earliest")) == {0: 0}
        assert offsets(client.ask("offsets", topic=topic, at="latest")) == {0: 10}
        assert offsets(client.ask("offsets", topic=topic, at=times[5])) == {0: 5}
        assert offsets(client.ask("offsets", topic=topic, at=times[5] + 1)) == {0: 6}
        assert offsets(client.ask("offsets", topic=topic, at=times[9] + 1))[0] in (-1, 10)
        [first, *_] = consume(client, topic, 4, {0: 6})
        assert first.timestamp == times[6]

    @pytest.mark.feature("offsets out of range")
    @pytest.mark.parametrize("start", [3, 1000])
    def test_out_of_range_the_policy_decides(
        self, client: Program, neutral: Neutral, topic: str, start: int
    ) -> None:
        """conformance 57: below the log's start, and above its end."""
        produce(client, topic, numbered(0, 100))
        neutral.delete_records(topic, 40)
        found = consume(client, topic, 60, {0: start}, reset="earliest")
        assert [record.offset for record in found] == list(range(40, 100))

    @pytest.mark.feature("offsets out of range")
    def test_out_of_range_without_a_policy_is_an_error(self, client: Program, topic: str) -> None:
        client.needs("reset none")
        produce(client, topic, numbered(0, 10))
        asked = {"topic": topic, "starts": {"0": 1000}, "count": 1}
        assert refusal(client, "consume", **asked) in self.out_of_range_codes

    @pytest.mark.feature("offsets out of range")
    def test_out_of_range_at_the_end_only_what_is_new_is_read(
        self, client: Program, another: Another, topic: str
    ) -> None:
        produce(client, topic, numbered(0, 10))
        reader = another()
        reader.tell("consume", topic=topic, starts={"0": 1000}, count=1, reset="latest", timeout_ms=30_000)
        number = 10
        while (found := reader.answer(0.1)) is None:
            produce(client, topic, numbered(number, number + 1))
            number += 1
        reader.close()
        assert 10 <= found["records"][0]["offset"] < number


class GroupScenarios(Client):
    """Classic consumer groups: whatever happens to members, no record is lost."""

    @staticmethod
    def check_nothing_is_lost(members: Sequence[Member], count: int) -> None:
        assert {number for member in members for number in member.values} == set(range(count))

    @staticmethod
    def share_out(members: Sequence[Member], total: int) -> None:
        """Wait until every member has its share of the partitions, and nobody that of another."""
        until(
            members,
            lambda: (
                all(len(one.share) == total // len(members) for one in members)
                and len(frozenset().union(*(one.share for one in members))) == total
            ),
        )

    @pytest.mark.feature("consumer groups")
    def test_members_join_share_and_leave(
        self, client: Program, neutral: Neutral, join: Join, topic: str
    ) -> None:
        """conformance 73, 76, 79: while nobody comes or goes, no record is read twice."""
        neutral.create_topic(topic, 4)
        first = join(group=topic, topics=[topic])
        self.share_out([first], 4)
        second = join(group=topic, topics=[topic])
        members = [first, second]
        self.share_out(members, 4)
        produce(client, topic, numbered(0, 400, 4))
        until(members, lambda: len(first.read) + len(second.read) >= 400)
        assert sorted(first.values + second.values) == list(range(400))
        second.leave()
        self.share_out([first], 4)
        produce(client, topic, numbered(400, 800, 4))
        until([first], lambda: set(range(400, 800)) <= set(first.values))
        assert [number for number in first.values if number >= 400 and number % 4 == 1] == list(
            range(401, 800, 4)
        )
        first.leave()

    @pytest.mark.feature("cooperative groups")
    def test_cooperative_members_keep_what_they_can(
        self, client: Program, neutral: Neutral, join: Join, topic: str
    ) -> None:
        """conformance 77: at no time is the one that was there first without partitions."""
        client.needs("cooperative")
        neutral.create_topic(topic, 4)
        options = {"group": topic, "topics": [topic], "assignor": "cooperative"}
        first = join(**options)
        self.share_out([first], 4)
        before = len(first.assignments)
        second = join(**options)
        self.share_out([first, second], 4)
        assert all(len(share) >= 2 for share in first.assignments[before - 1 :])
        produce(client, topic, numbered(0, 400, 4))
        until([first, second], lambda: len(first.read) + len(second.read) >= 400)
        assert sorted(first.values + second.values) == list(range(400))
        before, kept = len(first.assignments), first.share
        second.leave()
        self.share_out([first], 4)
        assert all(share >= kept for share in first.assignments[before - 1 :])
        first.leave()

    @pytest.mark.feature("members that die")
    def test_the_work_of_a_member_that_dies_goes_to_others(
        self, client: Program, neutral: Neutral, join: Join, topic: str
    ) -> None:
        neutral.create_topic(topic, 4)
        first, second = members = [join(group=topic, topics=[topic], session_ms=1500) for _ in range(2)]
        self.share_out(members, 4)
        produce(client, topic, numbered(0, 200, 4))
        until(members, lambda: len(first.read) + len(second.read) >= 200)
        second.kill()
        produce(client, topic, numbered(200, 400, 4))
        self.share_out([first], 4)
        until([first], lambda: set(range(200, 400)) <= set(first.values))
        self.check_nothing_is_lost(members, 400)
        first.leave()

    @pytest.mark.feature("static members")
    def test_a_static_member_that_comes_back_disturbs_nobody(
        self, client: Program, neutral: Neutral, join: Join, topic: str
    ) -> None:
        client.needs("static members")
        neutral.create_topic(topic, 4)
        options = {"group": topic, "topics": [topic]}
        first = join(**options, instance_id="one")
        second = join(**options, instance_id="two")
        self.share_out([first, second], 4)
        changes, share = len(first.assignments), second.share
        second.kill()
        again = join(**options, instance_id="two")
        until([first, again], lambda: again.share == share)
        produce(client, topic, numbered(0, 40, 4))
        until([first, again], lambda: len(first.read) + len(again.read) >= 40)
        assert len(first.assignments) == changes
        first.leave()
        again.leave()

    @pytest.mark.feature("commit and resume")
    def test_a_group_goes_on_where_it_left_off(self, client: Program, join: Join, topic: str) -> None:
        """conformance 82: across the death of all members."""
        produce(client, topic, numbered(0, 100))
        ends = [40, 45, 100]
        for begin, end in zip([0, *ends], ends, strict=False):
            one = join(group=topic, topics=[topic], count=end - begin)
            one.finish()
            assert one.values == list(range(begin, end))

    @pytest.mark.feature("regex subscription")
    def test_a_pattern_takes_in_topics_that_come_later(
        self, client: Program, neutral: Neutral, join: Join, topic: str
    ) -> None:
        client.needs("pattern")
        here, later, other = f"{topic}-here", f"{topic}-later", f"not-{topic}"
        neutral.create_topic(here)
        neutral.create_topic(other)
        member = join(group=topic, pattern=f"^{topic}-.*")
        until([member], lambda: member.share == {(here, 0)})
        neutral.create_topic(later)
        until([member], lambda: member.share == {(here, 0), (later, 0)})
        for number, name in enumerate((here, other, later)):
            produce(client, name, numbered(number, number + 1))
        until([member], lambda: len(member.read) >= 2)
        assert sorted(member.values) == [0, 2]
        member.leave()


class AdminScenarios(Client):
    """What clients ask about a broker, and change in it."""

    @pytest.mark.feature("topics")
    def test_topics_are_created_listed_and_deleted(self, client: Program, topic: str) -> None:
        """conformance 15, 16"""
        client.needs("create_topic", "delete_topic", "topics", "describe_topic")
        client.ask("create_topic", topic=topic, partitions=3)
        assert topic in client.ask("topics")["topics"]
        assert client.ask("describe_topic", topic=topic)["leaders"] == {"0": 1, "1": 1, "2": 1}
        assert refusal(client, "create_topic", topic=topic, partitions=3) == TOPIC_ALREADY_EXISTS
        client.ask("delete_topic", topic=topic)
        assert topic not in client.ask("topics")["topics"]
        assert refusal(client, "delete_topic", topic=topic) == UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.feature("topics")
    def test_a_topic_that_comes_again_is_empty(self, client: Program, topic: str) -> None:
        """conformance 15"""
        client.needs("create_topic", "delete_topic")
        for _ in range(2):
            client.ask("create_topic", topic=topic, partitions=1)
            assert offsets(client.ask("offsets", topic=topic, at="latest")) == {0: 0}
            assert lie_at(produce(client, topic, numbered(0, 5)), 0, 5)
            client.ask("delete_topic", topic=topic)

    @pytest.mark.feature("topics")
    def test_topics_are_listed(self, client: Program, neutral: Neutral, topic: str) -> None:
        neutral.create_topic(topic, 2)
        assert topic in client.ask("topics")["topics"]
        assert client.ask("describe_topic", topic=topic)["leaders"] == {"0": 1, "1": 1}

    @pytest.mark.feature("partitions")
    def test_a_topic_grows_and_does_not_shrink(self, client: Program, neutral: Neutral, topic: str) -> None:
        """conformance 17"""
        neutral.create_topic(topic, 1)
        client.ask("grow_topic", topic=topic, partitions=3)
        assert client.ask("describe_topic", topic=topic)["leaders"] == {"0": 1, "1": 1, "2": 1}
        assert refusal(client, "grow_topic", topic=topic, partitions=2) == INVALID_PARTITIONS
        assert sorted(produce(client, topic, numbered(0, 3, 3))) == [[0, 0], [1, 0], [2, 0]]

    @pytest.mark.feature("configs")
    def test_configurations_are_described_and_altered(
        self, client: Program, neutral: Neutral, topic: str
    ) -> None:
        """conformance 18"""
        neutral.create_topic(topic)
        found = client.ask("topic_configs", topic=topic)["configs"]
        assert (found["retention.ms"], found["cleanup.policy"]) == ("604800000", "delete")
        client.ask(
            "alter_topic_configs", topic=topic, configs={"retention.ms": "4711", "cleanup.policy": "compact"}
        )
        found = client.ask("topic_configs", topic=topic)["configs"]
        assert (found["retention.ms"], found["cleanup.policy"]) == ("4711", "compact")
        wrong = {"topic": topic, "configs": {"retention.ms": "soon"}}
        assert refusal(client, "alter_topic_configs", **wrong) == INVALID_CONFIG

    @pytest.mark.feature("configs")
    def test_a_topic_is_created_with_configurations(self, client: Program, topic: str) -> None:
        client.ask("create_topic", topic=topic, partitions=1, configs={"max.message.bytes": "1000"})
        assert client.ask("topic_configs", topic=topic)["configs"]["max.message.bytes"] == "1000"
        too_much = [Record(bytes(2000), partition=0).to_json()]
        assert refusal(client, "produce", topic=topic, records=too_much) == MESSAGE_TOO_LARGE

    @pytest.mark.feature("delete records")
    def test_records_are_deleted_up_to_an_offset(self, client: Program, topic: str) -> None:
        """conformance 66"""
        produce(client, topic, numbered(0, 100))
        client.ask("delete_records", topic=topic, before={"0": 42})
        assert offsets(client.ask("offsets", topic=topic, at="earliest")) == {0: 42}
        assert consume(client, topic, 1, {0: 42})[0].value == b"42"
        beyond = {"topic": topic, "before": {"0": 101}}
        assert refusal(client, "delete_records", **beyond) == OFFSET_OUT_OF_RANGE

    @pytest.mark.feature("groups")
    def test_groups_are_listed_and_described(self, client: Program, join: Join, topic: str) -> None:
        """conformance 80"""
        produce(client, topic, numbered(0, 10))
        member = join(group=topic, topics=[topic])
        until([member], lambda: len(member.read) == 10)
        assert topic in client.ask("groups")["groups"]
        assert client.ask("describe_group", group=topic) == {"state": "Stable", "members": 1}
        member.leave()
        assert client.ask("describe_group", group=topic) == {"state": "Empty", "members": 0}

    @pytest.mark.feature("groups")
    def test_groups_without_members_are_deleted(self, client: Program, join: Join, topic: str) -> None:
        """conformance 81"""
        client.needs("delete_group", "groups")
        produce(client, topic, numbered(0, 10))
        member = join(group=topic, topics=[topic])
        until([member], lambda: len(member.read) == 10)
        assert refusal(client, "delete_group", group=topic) == NON_EMPTY_GROUP
        member.leave()
        client.ask("delete_group", group=topic)
        assert topic not in client.ask("groups")["groups"]
        assert refusal(client, "delete_group", group=topic) == GROUP_ID_NOT_FOUND

    @pytest.mark.feature("group offsets")
    def test_offsets_of_a_group_are_listed_and_altered(
        self, client: Program, join: Join, neutral: Neutral, topic: str
    ) -> None:
        client.needs("group_offsets")
        neutral.create_topic(topic, 2)
        produce(client, topic, numbered(0, 20, 2))
        member = join(group=topic, topics=[topic])
        until([member], lambda: len(member.read) == 20)
        member.leave()
        asked = {"group": topic, "topic": topic, "partitions": [0, 1]}
        assert offsets(client.ask("group_offsets", **asked)) == {0: 10, 1: 10}
        client.ask("alter_group_offsets", group=topic, topic=topic, offsets={"0": 7})
        assert offsets(client.ask("group_offsets", **asked)) == {0: 7, 1: 10}
        again = join(group=topic, topics=[topic], count=3)
        again.finish()
        assert again.values == [14, 16, 18]

    @pytest.mark.feature("cluster")
    def test_the_cluster_is_described(self, client: Program, broker: BrokerProcess) -> None:
        """conformance 19"""
        found = client.ask("cluster")
        assert found == {"brokers": [[1, broker.host, broker.port]], "controller": 1}


class RestartScenarios(Client):
    """A broker that dies and comes back at the same address, with clients that live on."""

    @pytest.mark.feature("broker restart")
    def test_clients_survive_the_death_of_the_broker(
        self, mortal_broker: Callable[..., BrokerProcess], another: Another, join: Join, topic: str
    ) -> None:
        """conformance 88, 89: kill -9 under a producer and a group, and nothing is lost or written twice."""
        broker = mortal_broker()
        client = another(broker.address)
        idempotent = {"idempotent": "idempotent" not in self.lacks}
        produce(client, topic, numbered(0, 100), **idempotent)
        member = join(broker.address, group=topic, topics=[topic])
        until([member], lambda: len(member.read) >= 100)
        broker.stop(signal.SIGKILL)
        broker = mortal_broker(listener=f"PLAINTEXT://{broker.address}")
        assert lie_at(produce(client, topic, numbered(100, 200), **idempotent), 100, 200)
        until([member], lambda: set(member.values) == set(range(200)))
        member.leave()
        client.close()
        assert broker.stop() == 0


class Scenarios(RecordScenarios, GroupScenarios, AdminScenarios, RestartScenarios):
    """All of them."""
