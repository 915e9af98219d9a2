"""What the Java clients go through beside what every client does: the rest of what their Admin can ask."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compat_tests.clients.program import ClientError, Member, Program, Record, until
from compat_tests.clients.scenarios import Join, Scenarios, numbered, offsets, produce
from tests.kbroker.harness import BrokerProcess


def java_program(version: str) -> list[str]:
    return [sys.executable, "-m", "compat_tests.java.launch", version]


ELECTION_NOT_NEEDED = 84
CLUSTER_OPERATIONS = {
    "ALTER",
    "ALTER_CONFIGS",
    "CLUSTER_ACTION",
    "CREATE",
    "DESCRIBE",
    "DESCRIBE_CONFIGS",
    "IDEMPOTENT_WRITE",
}


FENCED = {47, 90}
"""Of the Errors of a producer that another one has replaced."""


class JavaScenarios(Scenarios):
    """All of them."""

    @pytest.mark.feature("transactions")
    def test_a_transaction_is_seen_whole_or_not_at_all(self, client: Program, topic: str) -> None:
        """conformance 43, 44"""

        def transact(values: range, then: str) -> None:
            client.ask("transact", id=topic, topic=topic, values=[str(one) for one in values], then=then)

        def seen(isolation: str, count: int) -> list[int]:
            asked = {"topic": topic, "starts": {"0": 0}, "count": count + 1, "timeout_ms": 1000}
            found = client.ask("consume", isolation=isolation, **asked)["records"]
            return [int(Record.from_json(one).value or b"") for one in found]

        transact(range(10), "commit")
        transact(range(10, 20), "abort")
        transact(range(20, 30), "commit")
        committed = [*range(10), *range(20, 30)]
        assert seen("read_committed", 20) == committed
        transact(range(30, 35), "stay open")
        assert seen("read_committed", 20) == committed
        assert seen("read_uncommitted", 35) == list(range(35))

    @pytest.mark.feature("transactions")
    def test_offsets_are_committed_with_their_transaction(self, client: Program, topic: str) -> None:
        """conformance 51"""
        for offset, then in ((5, "commit"), (7, "abort"), (9, "commit")):
            before = offsets(client.ask("group_offsets", group=topic, topic=topic, partitions=[0]))[0]
            client.ask("transact", id=topic, topic=topic, values=["v"], group=topic, offset=offset, then=then)
            after = offsets(client.ask("group_offsets", group=topic, topic=topic, partitions=[0]))[0]
            assert after == (offset if then == "commit" else before)

    @pytest.mark.feature("transactions")
    def test_a_producer_that_was_replaced_is_fenced_off(
        self, client: Program, topic: str, broker: BrokerProcess, tmp_path: Path
    ) -> None:
        """conformance 47"""
        asked = {"id": topic, "topic": topic, "values": ["v"]}
        client.ask("transact", **asked, then="commit")
        successor = Program(self.command, broker.address, tmp_path / "successor.log")
        successor.ask("transact", **asked, then="commit")
        successor.close()
        with pytest.raises(ClientError) as raised:
            client.ask("transact", **asked, then="commit")
        assert raised.value.code in FENCED

    @pytest.mark.feature("cluster")
    def test_the_rest_of_administration(self, client: Program, join: Join, topic: str) -> None:
        produce(client, topic, numbered(0, 10), idempotent=True)
        member: Member = join(group=topic, topics=[topic])
        until([member], lambda: len(member.read) == 10)
        member.leave()
        found = client.ask("administer", topic=topic, group=topic)
        ends = found.pop("listOffsets")
        assert 0 <= ends["max timestamp"] < ends["latest"] == 10
        assert set(found.pop("describeCluster")) == CLUSTER_OPERATIONS
        assert found == {
            "describeTopics by id": topic,
            "describeLogDirs": {"size is known": True, "lag": 0},
            "describeReplicaLogDirs": True,
            "describeProducers": [1, 9, 0],
            "electLeaders": ELECTION_NOT_NEEDED,
            "listPartitionReassignments": 0,
            "describeConfigs of a broker": "168",
            "alterConfigs of a broker": "2",
            "describeFeatures": ["transaction.version"],
            "listConsumerGroups": "Empty",
            "deleteConsumerGroupOffsets": False,
            "listClientMetricsResources": 0,
            "describeUserScramCredentials": 0,
        }
