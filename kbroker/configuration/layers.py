"""What was set, and what holds: a value for the broker, for each topic, for each group.

Values come in layers, as text under Kafka's names. The first one that has a key decides:

    topic or group   DYNAMIC_TOPIC_CONFIG, GROUP_CONFIG      given by whoever asks
    this broker      DYNAMIC_BROKER_CONFIG                   altered over the wire
    all brokers      DYNAMIC_DEFAULT_BROKER_CONFIG           altered over the wire
    server.properties, --set, flags   STATIC_BROKER_CONFIG
    the table        DEFAULT_CONFIG

Rules:
- The table has Kafka 4.3's defaults. A broker of a cluster (one with zookeeper.connect) takes 3.9's where
  clients would notice the difference: brokers of Kafka 3.9 may be in that cluster, or may have filled it.
  That is known at the start, and the same for all brokers, whoever comes and goes.
- A Configuration never changes. What is altered makes the next one, with `with_dynamic`; whoever keeps a
  TopicConfig asks again then.
- Static values that cannot be used, alone or together, are a ConfigError before anything starts. A stored one
  (dynamic, of a topic, of a group) must not stop a broker: it may come from another version, or from a tool
  that wrote past all checks. If it cannot be parsed, its key cannot be altered, or it contradicts other
  values, it is logged and counts as not set.
- In one layer a finer unit comes before a coarser one: log.retention.ms before .minutes before .hours. Every
  negative retention time is -1.
- node.id and broker.id are two names for one thing. Either gives both.
- Unknown keys are kept and described (without their value, which may be secret), and mean nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kbroker.config import READ_ONLY, ConfigError, ConfigSource, Key, keys_of, replace, trimmed
from kbroker.configuration.broker_keys import (
    BROKER_KEYS,
    OF_A_LISTENER,
    BrokerConfig,
    find_broker_key,
    without_listener,
)
from kbroker.configuration.checks import bounds_of, check_broker, check_topic
from kbroker.configuration.group_keys import GROUP_KEYS, GroupConfig
from kbroker.configuration.topic_keys import TOPIC_KEYS, TopicConfig

logger = logging.getLogger(__name__)

Texts = Mapping[str, str]
"""What was set in one layer: Kafka's names, and values as they were written."""

NOTHING: Texts = {}

_BROKER, _DEFAULT = "broker", "default"
RETENTION = "log.retention.ms"
FOREVER = -1

UNITS = tuple(
    (name, *(one.name for one in note.coarser)) for name, note in BROKER_KEYS.items() if note.coarser
)
"""Names for one setting in several units, finest first."""

ALTERNATIVES = (("node.id", "broker.id"), ("log.dirs", "log.dir"), *UNITS)
"""All names for one setting."""


class Configuration:
    """Everything that was configured for one broker."""

    __slots__ = (
        "_is_clustered",
        "broker",
        "dynamic_broker",
        "dynamic_default",
        "group_defaults",
        "layers",
        "static",
        "topic_defaults",
    )

    def __init__(
        self, static: Texts = NOTHING, *, dynamic_broker: Texts = NOTHING, dynamic_default: Texts = NOTHING
    ) -> None:
        self.static = _with_both_ids(static)
        self._is_clustered = bool(trimmed(static.get("zookeeper.connect", "")))
        for name, text in self.static.items():
            if found := find_broker_key(name):
                found.parse(text)
        self.dynamic_broker = dynamic_broker
        self.dynamic_default = dynamic_default
        self.layers: tuple[tuple[ConfigSource, Texts], ...] = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, _without_nonsense(dynamic_broker)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, _without_nonsense(dynamic_default)),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
        )
        """The broker's, strongest first; all of it can be parsed."""
        self.broker = self.of_listener("")
        self.topic_defaults = TopicConfig(**self._defaults(TOPIC_KEYS))
        self.group_defaults = GroupConfig(**self._defaults(GROUP_KEYS))
        if not dynamic_broker and not dynamic_default:
            self.check()
            check_topic(self.topic_defaults)

    def check(self) -> None:
        """ConfigError if values contradict one another."""
        check_broker(self)

    def without_contradictions(self) -> Configuration:
        """What holds: each stored value that contradicts others is logged, and does not count."""
        try:
            self.check()
        except ConfigError:
            return self._of_what_fits_together()
        return self

    def _of_what_fits_together(self) -> Configuration:
        (_, broker), (_, default), _ = self.layers
        stored = {_DEFAULT: default, _BROKER: broker}
        unknown = {
            layer: {name: text for name, text in texts.items() if find_broker_key(name) is None}
            for layer, texts in stored.items()
        }
        left = {
            (layer, name): text
            for layer, texts in stored.items()
            for name, text in texts.items()
            if name not in unknown[layer]
        }
        fitting, has_grown = self.with_dynamic(**unknown), True
        reasons: dict[tuple[str, str], ConfigError] = {}
        while has_grown:
            has_grown = False
            for (layer, name), text in list(left.items()):
                try:
                    fitting = fitting._with(layer, name, text)
                except ConfigError as error:
                    reasons[layer, name] = error
                else:
                    del left[layer, name]
                    has_grown = True
        for place in left:
            logger.error("ignoring what is stored for brokers: %s", reasons[place])
        fitting.dynamic_broker, fitting.dynamic_default = self.dynamic_broker, self.dynamic_default
        return fitting

    def _with(self, layer: str, name: str, text: str) -> Configuration:
        """With one more value, if it contradicts none."""
        stored = self.dynamic_default if layer == _DEFAULT else self.dynamic_broker
        made = self.with_dynamic(**{layer: {**stored, name: text}})
        made.check()
        return made

    def with_dynamic(self, *, broker: Texts | None = None, default: Texts | None = None) -> Configuration:
        """The same, with other values stored for this broker, or for all brokers."""
        return Configuration(
            self.static,
            dynamic_broker=self.dynamic_broker if broker is None else broker,
            dynamic_default=self.dynamic_default if default is None else default,
        )

    def topic(self, stored: Texts = NOTHING) -> TopicConfig:
        """What holds for a topic for which this is stored."""
        if not stored:
            return self.topic_defaults
        return replace(self.topic_defaults, _understood(TOPIC_KEYS, stored, "topic"))

    def group(self, stored: Texts = NOTHING) -> GroupConfig:
        """What holds for a group for which this is stored."""
        if not stored:
            return self.group_defaults
        changes = _understood(GROUP_KEYS, stored, "group")
        for note in GROUP_KEYS.values():
            if note.bounds and note.attribute in changes:
                low, high = bounds_of(self.broker, note)
                changes[note.attribute] = min(max(changes[note.attribute], low), high)
        return replace(self.group_defaults, changes)

    def of_listener(self, listener: str) -> BrokerConfig:
        """The broker's values, with those that are set for one listener alone: `listener.name.NAME.KEY`."""
        prefix = f"{OF_A_LISTENER}{listener.lower()}."
        values = {}
        for name, note in keys_of(BrokerConfig).items():
            text = self.text(prefix + name) if listener else None
            text = self.text(name) if text is None else text
            values[note.attribute] = self.default(note) if text is None else note.parse(text)
        return BrokerConfig(**values)

    def default(self, note: Key) -> Any:
        """What a key is worth that is set nowhere."""
        return note.in_cluster if self._is_clustered and note.in_cluster is not None else note.default

    def value(self, name: str) -> Any:
        """What holds for a broker's key, also for one without effect, or of a single listener."""
        base = without_listener(name)
        text, note = self.text(name), BROKER_KEYS[base]
        text = self.text(base) if text is None else text
        return self.default(note) if text is None else note.parse(text)

    def text(self, name: str) -> str | None:
        """What was set for a broker's key in the strongest layer."""
        return next((layer[name] for _, layer in self.layers if name in layer), None)

    def _defaults(self, notes: Mapping[str, Key]) -> dict[str, Any]:
        """By attribute, what the broker's layers say about keys of topics or groups."""
        values = (
            (note.attribute, self._default(note, note.broker)) for note in notes.values() if note.broker
        )
        return {attribute: value for attribute, value in values if value is not None}

    def _default(self, note: Key, broker_name: str) -> Any:
        for _, layer in self.layers:
            for name, factor in ((broker_name, 1), *note.coarser):
                if name in layer:
                    value = BROKER_KEYS[name].parse(layer[name])
                    if broker_name == RETENTION and value < 0:
                        return FOREVER
                    return value if factor == 1 else value * factor
        return note.in_cluster if self._is_clustered else None


def overriding(weaker: Texts, stronger: Texts) -> dict[str, str]:
    """Both, where what is set in `stronger` holds even if `weaker` has another name for it.

    So `--set log.retention.hours=1` prevails over a file that has log.retention.ms.
    """
    hidden = {name for names in ALTERNATIVES for name in names if not stronger.keys().isdisjoint(names)}
    return {name: text for name, text in weaker.items() if name not in hidden} | dict(stronger)


def warnings(static: Texts) -> Iterator[str]:
    """What whoever wrote this should look at: keys that are unknown."""
    for name, hint in unknown_keys(static):
        yield f"unknown key {name}: it is kept, and has no effect{hint}"


def unknown_keys(static: Iterable[str]) -> Iterator[tuple[str, str]]:
    """And what may be meant, if there is anything."""
    for name in static:
        if find_broker_key(name) is None:
            yield name, _hint(name)


def without_effect(static: Texts) -> dict[str, str]:
    """The known keys that do nothing, and why; a real file has many."""
    found = {name: find_broker_key(name) for name in static}
    return {name: note.no_effect for name, note in found.items() if note is not None and note.no_effect}


def _hint(name: str) -> str:
    if name in TOPIC_KEYS:
        broker = TOPIC_KEYS[name].broker
        return "; it belongs to a topic" + (
            f", the broker's key for all topics is {broker}" if broker else ""
        )
    from difflib import get_close_matches  # rarely needed, and not for nothing

    alike = get_close_matches(name, BROKER_KEYS, n=1, cutoff=0.8)
    return f"; is {alike[0]} meant?" if alike else ""


def _with_both_ids(static: Texts) -> Texts:
    ids = {trimmed(static[name]) for name in ("node.id", "broker.id") if name in static}
    if len(ids) > 1:
        raise ConfigError(
            f"node.id={static['node.id']} and broker.id={static['broker.id']} contradict each other"
        )
    return {**static, **dict.fromkeys(("node.id", "broker.id"), ids.pop())} if ids else static


def _without_nonsense(stored: Texts) -> Texts:
    """What is stored for brokers and may be, and the unknown keys."""
    return {name: text for name, text in stored.items() if _makes_sense(name, text)}


def _makes_sense(name: str, text: str) -> bool:
    try:
        if found := find_broker_key(name):
            found.parse(text)
            if found.update == READ_ONLY:
                raise ConfigError(f"{name} cannot be altered while a broker runs")
    except ConfigError as error:
        logger.error("ignoring what is stored for brokers: %s", error)
        return False
    return True


def _understood(notes: Mapping[str, Key], stored: Texts, of: str) -> dict[str, Any]:
    """By attribute, what is stored for a topic or group and makes sense."""
    values = {}
    for name, text in stored.items():
        try:
            if name not in notes:
                raise ConfigError(f"there is no key {name}")
            values[notes[name].attribute] = notes[name].parse(text)
        except ConfigError as error:
            logger.warning("ignoring what is stored for a %s: %s", of, error)
    return values
