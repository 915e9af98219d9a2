"""What DescribeConfigs says about a resource: each key with its value, its source, and where else it is set.

As in Kafka 4.3, entry by entry:

- The synonyms of a key are all places that give it a value, strongest first. Those before the key itself are
  left out: a topic's retention.ms that comes from log.retention.hours has no synonyms, and DEFAULT_CONFIG as
  its source, though its value is that of the hours.
- A broker's unknown key has an unknown type and no visible value, since it may be a secret.
- A key that a dynamic layer cannot alter is read-only. So is one for a single listener.
- The broker "" is all brokers: what is stored for them, as it is stored, and nothing else.
- A name that is not known is left out, one that is given twice counts once; no names, or an empty list of
  them, means all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from kbroker.config import READ_ONLY, ConfigSource, ConfigType, Key
from kbroker.configuration.broker_keys import BROKER_KEYS, find_broker_key, without_listener
from kbroker.configuration.client_metrics_keys import CLIENT_METRICS_KEYS
from kbroker.configuration.group_keys import GROUP_KEYS
from kbroker.configuration.layers import NOTHING, UNITS, Configuration, Texts
from kbroker.configuration.topic_keys import TOPIC_KEYS


class Synonym(NamedTuple):
    """One place that gives a key a value."""

    name: str
    value: str | None
    source: ConfigSource


class Entry(NamedTuple):
    """One key of a resource. The value of a secret is None."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str


def describe_topic(
    configuration: Configuration, stored: Texts = NOTHING, names: Collection[str] | None = None
) -> list[Entry]:
    """A topic for which this is stored."""
    config = configuration.topic(stored)
    synonyms_by_name = _synonyms_of_topic_keys(configuration)
    entries = []
    for note in _chosen(TOPIC_KEYS, names):
        value = note.format(getattr(config, note.attribute))
        synonyms = synonyms_by_name[note.name]
        if note.name in stored:
            synonyms = (Synonym(note.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
        entries.append(_entry(note, value, synonyms))
    return entries


def describe_group(
    configuration: Configuration, stored: Texts = NOTHING, names: Collection[str] | None = None
) -> list[Entry]:
    """A group for which this is stored, whether it exists or not."""
    config = configuration.group(stored)
    entries = []
    for note in _chosen(GROUP_KEYS, names):
        value = note.format(getattr(config, note.attribute))
        synonyms = (
            _of_broker(configuration, note.broker) if note.broker else tuple(_default(configuration, note))
        )
        if note.name in stored:
            synonyms = (Synonym(note.name, value, ConfigSource.GROUP_CONFIG), *synonyms)
        entries.append(_entry(note, value, synonyms))
    return entries


def describe_client_metrics(names: Collection[str] | None = None) -> list[Entry]:
    """A subscription, which cannot be made."""
    return [_entry(note, note.format(note.default), ()) for note in _chosen(CLIENT_METRICS_KEYS, names)]


def describe_broker(configuration: Configuration, names: Collection[str] | None = None) -> list[Entry]:
    """This broker."""
    known = dict.fromkeys(BROKER_KEYS)
    for _, layer in configuration.layers:
        known |= dict.fromkeys(layer)
    return [_broker_entry(configuration, name) for name in dict.fromkeys(names or known) if name in known]


def describe_all_brokers(configuration: Configuration, names: Collection[str] | None = None) -> list[Entry]:
    """What is stored for all brokers."""
    entries, wanted = [], frozenset(names or configuration.dynamic_default)
    for name, text in configuration.dynamic_default.items():
        if name in wanted:
            note = find_broker_key(name)
            value = _shown(note, text)
            synonym = Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            entries.append(_of_layers(name, note, value, (synonym,)))
    return entries


def _broker_entry(configuration: Configuration, name: str) -> Entry:
    note, text = find_broker_key(name), configuration.text(name)
    value = None
    if note and not note.is_sensitive:
        value = note.format(configuration.default(note) if text is None else note.parse(text))
    return _of_layers(name, note, value, _of_broker(configuration, name))


def _of_layers(name: str, note: Key | None, value: str | None, synonyms: tuple[Synonym, ...]) -> Entry:
    """An entry of a broker, whose key may be unknown, or one for a single listener."""
    if note is None:
        return Entry(name, None, True, synonyms[0].source, True, synonyms, ConfigType.UNKNOWN, "")
    read_only = note.update == READ_ONLY or name != note.name
    return _entry(note, value, synonyms)._replace(name=name, read_only=read_only)


def _chosen(notes: Mapping[str, Key], names: Collection[str] | None) -> Iterator[Key]:
    return (notes[name] for name in dict.fromkeys(names or notes) if name in notes)


def _entry(note: Key, value: str | None, synonyms: tuple[Synonym, ...]) -> Entry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    doc = f"{note.doc} No effect: {note.no_effect}." if note.no_effect else note.doc
    return Entry(note.name, value, False, source, note.is_sensitive, synonyms, note.type, doc)


@lru_cache(maxsize=1)
def _synonyms_of_topic_keys(configuration: Configuration) -> Mapping[str, tuple[Synonym, ...]]:
    """The same for all topics, and asked for thousands of them at a time."""
    return {
        name: _of_broker(configuration, note.broker) if note.broker else ()
        for name, note in TOPIC_KEYS.items()
    }


_IN_ITS_UNITS = {name: names for names in UNITS for name in names}


def _of_broker(configuration: Configuration, name: str) -> tuple[Synonym, ...]:
    """The places that give a broker's key a value, from the first one under its own name."""
    names = _IN_ITS_UNITS.get(name) or tuple(dict.fromkeys((name, without_listener(name))))
    found = [
        Synonym(one, _shown(find_broker_key(one), layer[one]), source)
        for source, layer in configuration.layers
        for one in names
        if one in layer
    ]
    notes = [BROKER_KEYS[one] for one in names if one in BROKER_KEYS]
    found += [default for note in notes for default in _default(configuration, note)]
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[first:])


def _default(configuration: Configuration, note: Key) -> Iterator[Synonym]:
    value = configuration.default(note)
    if value is not None:
        yield Synonym(note.name, note.format(value), ConfigSource.DEFAULT_CONFIG)


def _shown(note: Key | None, text: str) -> str | None:
    return None if note is None or note.is_sensitive else text
