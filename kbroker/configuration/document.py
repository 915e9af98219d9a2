"""Prints docs/config.md, which is made from the tables and from nothing else:

.venv/bin/python -m kbroker.configuration.document > docs/config.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from kbroker.config import Key, Update, keys_of
from kbroker.configuration.broker_keys import BROKER_KEYS, BrokerConfig
from kbroker.configuration.group_keys import GROUP_KEYS
from kbroker.configuration.ignored_keys import IgnoredKeys
from kbroker.configuration.security_keys import SecurityKeys
from kbroker.configuration.tiered_storage_keys import TieredStorageKeys
from kbroker.configuration.topic_keys import TOPIC_KEYS

INTRODUCTION = """\
# Configuration

<!-- Made by `python -m kbroker.configuration.document` from the tables in kbroker/configuration/. -->

kbroker takes Kafka's keys, under Kafka's names, with Kafka's types, defaults and ranges. Keys that start with
`kbroker.` are its own.

## Where values come from

```
kbroker start server.properties --data /var/lib/kbroker --set num.partitions=3
```

The first of these that has a key decides:

1. a topic or group itself: `kafka-configs --alter --topic NAME`, or at its creation;
2. what was altered for one broker: `kafka-configs --alter --broker ID`;
3. what was altered for all brokers: `kafka-configs --alter --broker-defaults`;
4. the options of `kbroker start`, then its `--set key=value`, then the `server.properties` file;
5. the default: Kafka 4.3's. What holds "in a cluster", where `zookeeper.connect` is set, is Kafka 3.9's where
   clients would notice the difference: brokers of Kafka 3.9 may be in that cluster, or may have filled it.

A file is a Java properties file, as Kafka reads it. A value that cannot be used stops the start, with the
name of the key and what it allows. An unknown key is kept, warned about, and has no effect. Keys that are
known and have no effect here are marked; one that is set is named at the start.

In lists, words are separated by commas. Sizes are in bytes. "Alterable" says whether a key can be changed
while the broker runs: for all brokers (or one), or for one only. A number of threads can be halved or doubled
then, no more at a time.

Some keys are one setting in several units. The finest that is set counts: `log.retention.ms` before
`log.retention.minutes` before `log.retention.hours`.

## Where kbroker differs from Kafka

Keys, types, ranges, and whether a key can be altered are those of Kafka 4.3, and of 3.9 for what 4.3 has
forgotten. Tests compare them with both versions, value by value. What differs:

- Listeners, files, programs, classes and secrets cannot be altered while a broker runs.
- A broker that would not do as it is told does not start: with `authorizer.class.name` and
  `zookeeper.ssl.client.enable`, and with a `replica.selector.class` or assignors that it does not have.
- `segment.bytes` may be as small as 14, as until Kafka 3.9.
- Without `node.id` and `broker.id` a broker takes a free id, as in Kafka 3.9.
- `log.flush.interval.ms` below 0 and `max.connections=0` are refused. Kafka takes them in one place or the
  other, and then does not start, or lets nobody in.
- Numbers are written in ASCII; NaN and infinities are none.
"""

MOST = {(1 << 31) - 1: "2147483647 (unlimited)", (1 << 63) - 1: "9223372036854775807 (unlimited)"}

HEAD_ROWS = 2

ALTERABLE = {Update.READ_ONLY: "no", Update.PER_BROKER: "one broker", Update.CLUSTER_WIDE: "all brokers"}


def document() -> str:
    """The whole file."""
    broker, broker_idle = _by_effect(BROKER_KEYS[name] for name in keys_of(BrokerConfig))
    topic, topic_idle = _by_effect(TOPIC_KEYS.values())
    group, group_idle = _by_effect(GROUP_KEYS.values())
    sections = (
        ("Brokers", "", _broker_table(note for note in broker if not note.name.startswith("kbroker."))),
        ("Brokers: kbroker's own", "", _broker_table(n for n in broker if n.name.startswith("kbroker."))),
        ("Topics", "Every topic has these. Its default is its broker's value.", _table(topic)),
        ("Topics: without effect", "", _table(topic_idle)),
        ("Groups", "Groups have these, before they exist as well.", _table(group)),
        ("Groups: without effect", "Groups have these, before they exist as well.", _table(group_idle)),
        (
            "Brokers: defaults of topics and groups",
            "For topics and groups that have no value of their own.",
            _defaults_table([*TOPIC_KEYS.values(), *GROUP_KEYS.values()]),
        ),
        (
            "Brokers: of what is still to come, without effect",
            "They are checked and described.",
            _ignored_table(broker_idle),
        ),
        (
            "Brokers: accepted, without effect",
            "A `server.properties` of Kafka's may have these; more follow below.",
            _ignored_table(keys_of(IgnoredKeys).values()),
        ),
        (
            "Brokers: security, without effect",
            "Everybody may connect, and do everything.",
            _ignored_table(keys_of(SecurityKeys).values()),
        ),
        (
            "Brokers: tiered storage, without effect",
            "Everything is local.",
            _ignored_table(keys_of(TieredStorageKeys).values()),
        ),
    )
    parts = [INTRODUCTION]
    for title, text, table in sections:
        rows = list(table)
        if len(rows) > HEAD_ROWS:
            parts += [f"\n## {title}\n\n", f"{text}\n\n" if text else "", *(f"{row}\n" for row in rows)]
    return "".join(parts)


def _by_effect(notes: Iterable[Key]) -> tuple[list[Key], list[Key]]:
    """Those that have one, and the others."""
    notes = list(notes)
    return [note for note in notes if not note.no_effect], [note for note in notes if note.no_effect]


def _broker_table(notes: Iterable[Key]) -> Iterator[str]:
    yield from _head("Key", "Meaning", "Default", "Allowed", "Alterable")
    for note in notes:
        name = f"`{note.name}`" + (f"<br>`{note.flag}`" if note.flag else "")
        yield _row(name, _meaning(note), _default(note), note.allowed, ALTERABLE[note.update])


def _table(notes: Iterable[Key]) -> Iterator[str]:
    yield from _head("Key", "Meaning", "Default", "Allowed", "Broker's key")
    for note in notes:
        broker = f"`{note.broker}`" if note.broker else ""
        yield _row(f"`{note.name}`", _meaning(note), _default(note), note.allowed, broker)


def _defaults_table(notes: Iterable[Key]) -> Iterator[str]:
    """What they mean stands with the topic's or group's key."""
    yield from _head("Key", "Default of", "Default", "Alterable")
    for note in notes:
        if note.broker:
            broker = BROKER_KEYS[note.broker]
            yield _row(f"`{broker.name}`", f"`{note.name}`", _default(broker), ALTERABLE[broker.update])


def _ignored_table(notes: Iterable[Key]) -> Iterator[str]:
    yield from _head("Key", "In Kafka", "Default", "Why it has no effect")
    for note in notes:
        yield _row(f"`{note.name}`", note.doc, _default(note), note.no_effect)


def _meaning(note: Key) -> str:
    return f"{note.doc} **No effect:** {note.no_effect}." if note.no_effect else note.doc


def _default(note: Key) -> str:
    usual = _value(note, note.default)
    return usual if note.in_cluster is None else f"{usual}; in a cluster {_value(note, note.in_cluster)}"


def _value(note: Key, value: Any) -> str:
    if value is None:
        return "not set"
    text = MOST.get(value) if isinstance(value, int) else note.format(value)
    text = text or note.format(value)
    return f"`{text}`" if text else "empty"


def _head(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield _row(*("---" for _ in titles))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(document())
