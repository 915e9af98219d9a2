"""What a simulated disk is made of: files and directories that know what of them is durable.

`contents` and `names` are what a process sees; `durable` is what no power cut takes away; between them lie
the writes and the changes of names that were not synced. What becomes of those after a power cut is an
`Outcome`. The model as a whole is described in `simulated_disk`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum, auto

SECTOR = 512


class Outcome(Enum):
    """What becomes of that which was not durable."""

    LOST = auto()
    KEPT = auto()
    TORN = auto()
    EMPTY = auto()
    RANDOM = auto()


@dataclass(eq=False)
class Write:
    """`data` put at `position`; `data` None cuts the file there."""

    position: int
    data: bytes | None

    def apply(self, contents: bytearray) -> None:
        if self.data is None:
            del contents[self.position :]
            return
        if len(contents) < self.position:
            contents.extend(bytes(self.position - len(contents)))
        contents[self.position : self.position + len(self.data)] = self.data


@dataclass(eq=False)
class FileNode:
    contents: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    modified_ms: int = 0

    def write(self, write: Write, now_ms: int) -> None:
        write.apply(self.contents)
        self.pending.append(write)
        self.modified_ms = now_ms

    def make_durable(self) -> None:
        for write in self.pending:
            write.apply(self.durable)
        self.pending.clear()

    def moment(self, writes: int) -> bytearray:
        """The contents as they were after so many of the pending writes."""
        contents = bytearray(self.durable)
        for write in self.pending[:writes]:
            write.apply(contents)
        return contents


@dataclass(eq=False)
class DirectoryNode:
    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = FileNode | DirectoryNode
NameChange = tuple[tuple[DirectoryNode, str, Node | None], ...]
"""One or two names that come to stand for a node, or (None) for nothing: together or not at all."""


def names_after(pending: list[NameChange], outcome: Outcome, chance: random.Random) -> list[NameChange]:
    if outcome is Outcome.LOST:
        return []
    if outcome is not Outcome.RANDOM:
        return pending
    kept: list[NameChange] = []
    lost: set[int] = set()
    for change in pending:
        nodes = {id(node) for _, _, node in change if node is not None}
        if chance.random() < 0.5 and not nodes & lost:
            kept.append(change)
        else:
            lost |= nodes
    return kept


def directory_after(node: DirectoryNode, changes: list[NameChange]) -> dict[str, Node]:
    names = dict(node.durable)
    for change in changes:
        for directory, name, below in change:
            if directory is node:
                assign(names, name, below)
    return names


def contents_after(node: FileNode, outcome: Outcome, chance: random.Random) -> bytearray:
    if outcome is Outcome.KEPT:
        return bytearray(node.contents)
    if not node.pending or outcome in (Outcome.LOST, Outcome.EMPTY):
        return bytearray(node.durable)
    if outcome is Outcome.TORN:
        return _torn(node, len(node.pending), chance)
    writes = len(node.pending)
    kind = chance.choice(("lost", "kept", "torn", "mixed"))
    if kind == "lost":
        return bytearray(node.durable)
    if kind == "torn":
        return _torn(node, chance.randint(1, writes), chance)
    newer = node.moment(writes if chance.random() < 0.5 else chance.randint(1, writes))
    return newer if kind == "kept" else _mixed(node.moment(chance.randint(0, writes - 1)), newer, chance)


def _torn(node: FileNode, writes: int, chance: random.Random) -> bytearray:
    """After so many writes, the last of them incomplete."""
    contents = node.moment(writes - 1)
    last = node.pending[writes - 1]
    if last.data is not None:
        Write(last.position, last.data[: chance.randint(0, len(last.data))]).apply(contents)
    return contents


def _mixed(older: bytearray, newer: bytearray, chance: random.Random) -> bytearray:
    """Sector by sector the one or the other."""
    shorter, longer = sorted((len(older), len(newer)))
    size = chance.choice((shorter, longer, chance.randint(shorter, longer)))
    contents = bytearray(size)
    for start in range(0, size, SECTOR):
        sector = chance.choice((older, newer))[start : min(start + SECTOR, size)]
        contents[start : start + len(sector)] = sector
    return contents


def assign(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
