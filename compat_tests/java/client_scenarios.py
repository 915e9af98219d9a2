"""What the Java clients go through beside what every client does: the rest of what their Admin can ask."""

from __future__ import annotations

import sys

import pytest

from compat_tests.clients.program import Member, Program, until
from compat_tests.clients.scenarios import Join, Scenarios, numbered, produce


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


class JavaScenarios(Scenarios):
    """All of them."""

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
            "describeUserScramCredentials": "UnsupportedVersionException",
        }
