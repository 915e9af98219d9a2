"""What configuration requests are about: a topic, a group, a broker, all brokers. One class for each.

    DescribeConfigs           resource.describe(names)
    IncrementalAlterConfigs   resource.alter(changes)       -> what is to be stored instead
    AlterConfigs              resource.replace(settings)    -> what is to be stored instead
    CreateTopics              TopicResource(configuration).create(settings)

Nothing is stored here and nothing changes. Whatever is wrong with a request is a KafkaError with the code of
Kafka 4.3, and nothing of the request is done:

- Topics and groups: an unknown key or a bad value is INVALID_CONFIG. Brokers: a bad value, a key that cannot
  be altered, or not for all brokers at once, is INVALID_REQUEST; unknown keys are stored, and mean nothing.
- A key twice, a null value, an unknown operation: INVALID_REQUEST. In CreateTopics a null is INVALID_CONFIG,
  of a key that is given twice the last value counts.
- What is set is stored as it is written.
- No keys at all is fine. So is deleting what is not set, even what is not known.
- APPEND and SUBTRACT are for lists. They start from what is stored, or else from the table's default and not
  from the broker's, and always store the outcome. Appending what is there and subtracting what is not changes
  nothing; subtracting everything leaves an empty list. Nothing is one word, empty, which no list may have; a
  comma after the last word is none. Unlike in Kafka, a space after a comma does not count.
- What is stored already and not touched by a request is not judged again: another version may have put it
  there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from enum import IntEnum

from kbroker.config import PER_BROKER, READ_ONLY, ConfigError, ConfigType, Key, trimmed, words_in
from kbroker.configuration.broker_keys import find_broker_key, without_listener
from kbroker.configuration.checks import check_bounds, check_change, check_group, check_topic
from kbroker.configuration.describing import (
    Entry,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
)
from kbroker.configuration.group_keys import GROUP_KEYS
from kbroker.configuration.layers import NOTHING, Configuration, Texts
from kbroker.configuration.topic_keys import TOPIC_KEYS
from wire.errors import ErrorCode, KafkaError


class Operation(IntEnum):
    """Of IncrementalAlterConfigs, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


OF_LISTENERS_EVERYWHERE = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""What can be altered for a listener of all brokers; anything else of a listener for one broker at a time."""

Change = tuple[str, int, str | None]
"""A key, an operation, a value."""

Setting = tuple[str, str | None]
"""A key and its value."""


class Resource(ABC):
    """A resource for which `stored` is stored."""

    __slots__ = ("configuration", "stored")

    refusal = ErrorCode.INVALID_CONFIG
    """What a bad value is answered with."""

    def __init__(self, configuration: Configuration, stored: Texts = NOTHING) -> None:
        self.configuration = configuration
        self.stored = stored

    @abstractmethod
    def describe(self, names: Collection[str] | None = None) -> list[Entry]:
        """The keys of these names, or all."""

    @abstractmethod
    def find(self, name: str) -> Key | None:
        """The key of this name."""

    @abstractmethod
    def check(self, texts: Texts, touched: Texts) -> None:
        """ConfigError unless `texts`, of which `touched` is new, can be stored."""

    def alter(self, changes: Iterable[Change]) -> dict[str, str]:
        """What is to be stored after these changes."""
        changes = list(changes)
        _refuse_repetitions([name for name, _, _ in changes])
        outcome = {name: self._changed(name, operation, value) for name, operation, value in changes}
        touched = {name: text for name, text in outcome.items() if text is not None}
        texts = {name: text for name, text in self.stored.items() if name not in outcome} | touched
        return self._checked(texts, touched)

    def replace(self, settings: Iterable[Setting]) -> dict[str, str]:
        """What is to be stored where these are set, and nothing else is."""
        settings = list(settings)
        _refuse_repetitions([name for name, _ in settings])
        texts = {name: _given(name, value) for name, value in settings}
        return self._checked(texts, texts)

    def _checked(self, texts: dict[str, str], touched: dict[str, str]) -> dict[str, str]:
        try:
            self.check(texts, touched)
        except ConfigError as error:
            raise KafkaError(self.refusal, str(error)) from None
        return texts

    def _changed(self, name: str, operation: int, value: str | None) -> str | None:
        """What a key is set to by one change, if to anything."""
        match operation:
            case Operation.SET:
                return _given(name, value)
            case Operation.DELETE:
                return None
            case Operation.APPEND | Operation.SUBTRACT:
                words, given = self._list(name), dict.fromkeys(_parts(_given(name, value)))
                if operation == Operation.SUBTRACT:
                    return ",".join(word for word in words if word not in given)
                return ",".join(dict.fromkeys((*words, *given)))
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: there is no operation {operation}")

    def _list(self, name: str) -> list[str]:
        """The words to which a change is to be applied."""
        note = self.find(name)
        if note is None or note.type != ConfigType.LIST:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list: nothing to append or subtract")
        return words_in(trimmed(self.stored.get(name, note.format(note.default) or "")))


class TopicResource(Resource):
    """A topic, or one that is to be."""

    __slots__ = ()

    def describe(self, names: Collection[str] | None = None) -> list[Entry]:
        return describe_topic(self.configuration, self.stored, names)

    def find(self, name: str) -> Key | None:
        return TOPIC_KEYS.get(name)

    def check(self, texts: Texts, touched: Texts) -> None:
        _parse(self, touched, "topic")
        if texts:  # a topic that asks for nothing is not to blame for what brokers say
            check_topic(self.configuration.topic(texts))

    def create(self, settings: Iterable[Setting]) -> dict[str, str]:
        """What is to be stored for a new topic; KafkaError INVALID_CONFIG for whatever is wrong."""
        settings = list(settings)
        texts = {name: value for name, value in settings if value is not None}
        if nulls := [name for name, value in settings if value is None]:
            raise KafkaError(self.refusal, f"a topic's key needs a value: {', '.join(nulls)}")
        return self._checked(texts, texts)


class GroupResource(Resource):
    """A group, whether it exists or not."""

    __slots__ = ()

    def describe(self, names: Collection[str] | None = None) -> list[Entry]:
        return describe_group(self.configuration, self.stored, names)

    def find(self, name: str) -> Key | None:
        return GROUP_KEYS.get(name)

    def check(self, texts: Texts, touched: Texts) -> None:
        _parse(self, touched, "group")
        for name, text in touched.items():
            check_bounds(self.configuration.broker, GROUP_KEYS[name], name, GROUP_KEYS[name].parse(text))
        check_group(self.configuration.group(texts))


class BrokerResource(Resource):
    """This broker. What is stored for it is its configuration's `dynamic_broker`."""

    __slots__ = ()

    refusal = ErrorCode.INVALID_REQUEST

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration, configuration.dynamic_broker)

    def describe(self, names: Collection[str] | None = None) -> list[Entry]:
        return describe_broker(self.configuration, names)

    def find(self, name: str) -> Key | None:
        return find_broker_key(name)

    def check(self, texts: Texts, touched: Texts) -> None:
        _check_alterable(touched)
        self._check_change(self.configuration.with_dynamic(broker=texts))

    def _check_change(self, changed: Configuration) -> None:
        changed.check()
        check_change(self.configuration, changed)


class AllBrokersResource(BrokerResource):
    """All brokers, which Kafka calls the broker "". What is stored for them is `dynamic_default`."""

    __slots__ = ()

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.stored = configuration.dynamic_default

    def describe(self, names: Collection[str] | None = None) -> list[Entry]:
        return describe_all_brokers(self.configuration, names)

    def check(self, texts: Texts, touched: Texts) -> None:
        _check_alterable(touched)
        if single := [name for name in touched if _is_of_one_broker(name)]:
            raise ConfigError(f"can only be altered for one broker at a time: {', '.join(single)}")
        self._check_change(self.configuration.with_dynamic(default=texts))


def _is_of_one_broker(name: str) -> bool:
    if name != without_listener(name):
        return without_listener(name) not in OF_LISTENERS_EVERYWHERE
    note = find_broker_key(name)
    return note is not None and note.update == PER_BROKER


def _parts(text: str) -> list[str]:
    """What is to be appended or subtracted."""
    return words_in(text.rstrip(",")) if "," in text else [trimmed(text)]


def _refuse_repetitions(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a key is given more than once")


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} needs a value")
    return value


def _parse(resource: Resource, texts: Texts, kind: str) -> None:
    if unknown := [name for name in texts if resource.find(name) is None]:
        raise ConfigError(f"a {kind} has no key {', '.join(unknown)}")
    for name, text in texts.items():
        if note := resource.find(name):
            note.parse(text)


def _check_alterable(texts: Texts) -> None:
    notes = {name: note for name in texts if (note := find_broker_key(name))}
    if fixed := [name for name, note in notes.items() if note.update == READ_ONLY]:
        raise ConfigError(f"cannot be altered while a broker runs: {', '.join(fixed)}")
    for name, note in notes.items():
        note.parse(texts[name])
