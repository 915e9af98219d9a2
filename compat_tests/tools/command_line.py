"""Kafka's own command-line tools, run one after another in one JVM against one broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.apache_kafka import java_command, run_java_tool
from compat_tests.clients.program import Program
from compat_tests.java.launch import compiled

VERSION = "4.3.1"
TOOLS = "org.apache.kafka.tools"
MAINS = {
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": f"{TOOLS}.ConsoleProducer",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-groups": f"{TOOLS}.GroupsCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "kafka-log-dirs": f"{TOOLS}.LogDirsCommand",
    "kafka-broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "kafka-leader-election": f"{TOOLS}.LeaderElectionCommand",
    "kafka-metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "kafka-reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-transactions": f"{TOOLS}.TransactionsCommand",
    "kafka-producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "kafka-consumer-perf-test": f"{TOOLS}.ConsumerPerformance",
    "kafka-verifiable-producer": f"{TOOLS}.VerifiableProducer",
    "kafka-verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
}


class Done(NamedTuple):
    """What a tool said, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class CommandLine:
    """The JVM that runs them."""

    def __init__(self, address: str, directory: Path) -> None:
        self.address = address
        command = java_command(VERSION, directory, level="WARN")
        command[-1] += os.pathsep + str(compiled(Path(__file__).with_name("Tools.java")))
        self._program = Program([*command, "Tools"], address, directory / "tools.log")

    def run(self, tool: str, *arguments: Any, input: str = "") -> Done:
        """Ends as it may."""
        words = ["--bootstrap-server", self.address, *map(str, arguments)]
        answer = self._program.ask("run", main=MAINS[tool], arguments=words, input=input)
        return Done(answer["status"], answer["out"], answer["err"])

    def __call__(self, tool: str, *arguments: Any, input: str = "") -> list[str]:
        """The lines that it prints; it has to succeed."""
        done = self.run(tool, *arguments, input=input)
        assert done.status == 0, (done.err, done.out)
        return done.lines

    def alone(self, tool: str, *arguments: Any) -> list[str]:
        """In a JVM of its own, for a tool that does its last work when that ends."""
        words = ["--bootstrap-server", self.address, *arguments]
        done = run_java_tool(MAINS[tool], words, VERSION)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def close(self) -> None:
        self._program.close()
