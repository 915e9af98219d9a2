"""How a configuration key is written down: a line in a class, under Kafka's name.

    @table
    class BrokerConfig:
        num_partitions: int32 = key(default=1, at_least=1, doc="Partitions of a new topic.")

The attribute's name is Kafka's with underscores, and the annotation is one of Kafka's types, named below. A
nullable key is `int64 | None`. Everything else that is ever said about a key comes from its line: parsing,
ranges, error messages, DescribeConfigs, the command line's flags, `docs/config.md`. The tables are in
`kbroker/configuration/`.

Rules:
- An instance of a table is a value: frozen, compared by content, cheap to read. It never shows what it holds,
  since some of that is secret. Type checkers see real attributes.
- What `parse` returns is always allowed by the key; `ConfigError` names the key and what it allows.
- A key with `no_effect` is accepted, described and documented with the reason, and nothing reads it.
- Numbers are read as Kafka reads them: no underscores, no hexadecimal, within their type, and around them
  white space by Java's measure. Unlike in Kafka digits are ASCII, and NaN, Infinity and `5f` are no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar, dataclass_transform

T = TypeVar("T")

boolean = bool
string = str
int16 = int
int32 = int
int64 = int
float64 = float
words = tuple[str, ...]
"""Kafka's LIST: separated by commas, without repetitions."""
class_name = str
password = str


class ConfigType(IntEnum):
    """Kafka's types, with their numbers in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Update(IntEnum):
    """How a broker's key may change while the broker runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    """For one broker by its id, not for all of them at once."""
    CLUSTER_WIDE = 2
    """For all brokers, or for one."""


READ_ONLY, PER_BROKER, CLUSTER_WIDE = Update

_TYPES = {
    "boolean": ConfigType.BOOLEAN,
    "string": ConfigType.STRING,
    "int32": ConfigType.INT,
    "int16": ConfigType.SHORT,
    "int64": ConfigType.LONG,
    "float64": ConfigType.DOUBLE,
    "words": ConfigType.LIST,
    "class_name": ConfigType.CLASS,
    "password": ConfigType.PASSWORD,
}

_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_JAVA_SPACE = "".join(map(chr, range(ord(" ") + 1)))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class ConfigError(ValueError):
    """A key or value that cannot be used; the text is for whoever wrote it."""


class Form(NamedTuple):
    """What a text has to look like; a list, as one text with commas and without spaces."""

    pattern: str
    meaning: str


class Coarser(NamedTuple):
    """A key that gives the same setting in a larger unit, if the key itself is not set."""

    name: str
    factor: int


class Key(NamedTuple):
    """A configuration key. `name`, `type` and `attribute` come from the table it stands in."""

    name: str
    type: ConfigType
    attribute: str
    default: Any
    in_cluster: Any
    doc: str
    at_least: float | None
    at_most: float | None
    also: int | None
    choices: tuple[str, ...]
    form: Form | None
    broker: str | None
    coarser: tuple[Coarser, ...]
    bounds: tuple[str, str] | None
    update: Update
    no_effect: str
    flag: str | None

    @property
    def is_sensitive(self) -> bool:
        return self.type == ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """The value that a text stands for; ConfigError if there is none, or it is not allowed."""
        try:
            value = _PARSERS[self.type](trimmed(text))
        except ValueError:
            raise self._refusal(text) from None
        if not self.allows(value):
            raise self._refusal(text)
        return value

    def allows(self, value: Any) -> bool:
        """Is a value of the right type within the key's range?"""
        if self.form:
            return re.fullmatch(self.form.pattern, self.format(value) or "") is not None
        if self.type == ConfigType.LIST and len(value) < (self.at_least or 0):
            return False
        if self.choices:
            return all(word in self.choices for word in (value if self.type == ConfigType.LIST else (value,)))
        if self.also is not None and value == self.also:
            return True
        low, high = self._range()
        return (low is None or value >= low) and (high is None or value <= high)

    def format(self, value: Any) -> str | None:
        """A value as Kafka writes it; None for no value."""
        if value is None:
            return None
        if self.type == ConfigType.LIST:
            return ",".join(value)
        if self.type == ConfigType.BOOLEAN:
            return "true" if value else "false"
        return _double_as_java_writes_it(value) if self.type == ConfigType.DOUBLE else str(value)

    @property
    def allowed(self) -> str:
        """What the key accepts, in words."""
        if self.form:
            return self.form.meaning
        if self.choices:
            return f"{self._kind} {', '.join(word or '(nothing)' for word in self.choices)}"
        if self.type in _NUMBERS:
            return " ".join(filter(None, (_NUMBERS[self.type], self._range_in_words())))
        return _ANY[self.type] + (", not empty" if self.at_least else "")

    @property
    def _kind(self) -> str:
        if self.type != ConfigType.LIST:
            return "one of"
        return "a list, not empty, of" if self.at_least else "a list of"

    def _range(self) -> tuple[float | None, float | None]:
        bits = _BITS.get(self.type)
        if bits is None:
            return self.at_least, self.at_most
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        return low if self.at_least is None else self.at_least, high if self.at_most is None else self.at_most

    def _range_in_words(self) -> str:
        if self.at_least is None:
            return "" if self.at_most is None else f"up to {self.at_most}"
        range = f"from {self.at_least}" + ("" if self.at_most is None else f" to {self.at_most}")
        return range if self.also is None else f"{range}, or {self.also}"

    def _refusal(self, text: str) -> ConfigError:
        shown = "that was given" if self.is_sensitive else f"{text!r:.100}"
        return ConfigError(f"{self.name}: the value {shown} is not {self.allowed}")


def key(
    *,
    default: Any,
    in_cluster: Any = None,
    doc: str,
    at_least: float | None = None,
    at_most: float | None = None,
    also: int | None = None,
    choices: tuple[str, ...] = (),
    form: Form | None = None,
    broker: str | None = None,
    coarser: tuple[Coarser, ...] = (),
    bounds: tuple[str, str] | None = None,
    update: Update = READ_ONLY,
    no_effect: str = "",
    flag: str | None = None,
) -> Any:
    """Say what a configuration key is.

    `in_cluster` is the default where `zookeeper.connect` is set, if that of Kafka 3.9 is another and matters.
    `also` is a value outside the range that is allowed. A list has `at_least` so many words. `broker` names
    the key that gives a topic or a group its default, `coarser` those that give the same in larger units,
    `bounds` the keys of a broker that limit what a group may choose. `flag` makes it an option of the command
    line.
    """
    return Key(
        "",
        ConfigType.UNKNOWN,
        "",
        default,
        in_cluster,
        doc,
        at_least,
        at_most,
        also,
        choices,
        form,
        broker,
        coarser,
        bounds,
        update,
        no_effect,
        flag,
    )


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key,))
def table(cls: type[T]) -> type[T]:
    """Make a class of `key` lines a table: its instances are values, one attribute per key.

    A table may extend another one, whose keys then follow its own.
    """
    notes = {name: _named(name, text, cls) for name, text in cls.__annotations__.items()}
    keys = {note.name: note for note in notes.values()}
    for base in cls.__bases__:
        keys |= base.__dict__.get("__keys__", {})
    body = {
        name: value for name, value in cls.__dict__.items() if name not in _REPLACED and name not in notes
    }
    body |= {
        "__slots__": tuple(notes),
        "__keys__": keys,
        "__init__": _init,
        "__setattr__": _refuse_to_change,
        "__delattr__": _refuse_to_change,
        "__eq__": _equal,
        "__hash__": None,
    }
    made: type[T] = type(cls.__name__, cls.__bases__, body)
    return made


def keys_of(cls: type) -> Mapping[str, Key]:
    """The keys of a table by Kafka's names, in the table's order."""
    keys: Mapping[str, Key] = cls.__dict__["__keys__"]
    return keys


def replace(config: T, changes: Mapping[str, Any]) -> T:
    """A table's value with some attributes changed."""
    values = {key.attribute: getattr(config, key.attribute) for key in keys_of(type(config)).values()}
    return type(config)(**{**values, **changes})


_REPLACED = ("__dict__", "__weakref__", "__annotations__")


def _named(attribute: str, annotation: str, cls: type) -> Key:
    """A key completed by its place. Annotations stand as text, which is all that is needed here."""
    note = cls.__dict__.get(attribute)
    kind = annotation.removesuffix(" | None")
    if not isinstance(note, Key) or kind not in _TYPES:
        raise TypeError(f"{cls.__name__}.{attribute} is not a key of one of the types {', '.join(_TYPES)}")
    return note._replace(name=attribute.replace("_", "."), type=_TYPES[kind], attribute=attribute)


def _init(self: Any, **values: Any) -> None:
    for note in type(self).__keys__.values():
        object.__setattr__(self, note.attribute, values.pop(note.attribute, note.default))
    if values:
        raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")


def _refuse_to_change(self: Any, name: str, value: Any = None) -> None:
    raise AttributeError(f"{type(self).__name__} is a value: {name} cannot be changed")


def _equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    names = [note.attribute for note in type(self).__keys__.values()]
    return all(getattr(self, name) == getattr(other, name) for name in names)


def _boolean(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false"):
        raise ValueError
    return word == "true"


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError
    return int(text)


def _decimal(text: str) -> float:
    if not _DECIMAL.fullmatch(text) or abs(float(text)) == float("inf"):
        raise ValueError
    return float(text)


def trimmed(text: str) -> str:
    """Without what Java's `trim` takes off: less than Python's `strip` does, and more."""
    return text.strip(_JAVA_SPACE)


def words_in(text: str) -> list[str]:
    """The parts of a list, which may be empty. Around commas white space is what Java's \\s is."""
    return [part.strip(" \t\n\x0b\f\r") for part in text.split(",")] if text else []


def _words(text: str) -> tuple[str, ...]:
    parts = words_in(text)
    if not all(parts):
        raise ValueError
    return tuple(dict.fromkeys(parts))


_PARSERS: Mapping[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _integer,
    ConfigType.SHORT: _integer,
    ConfigType.LONG: _integer,
    ConfigType.DOUBLE: _decimal,
    ConfigType.LIST: _words,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}

_NUMBERS = {
    ConfigType.SHORT: "a 16-bit integer",
    ConfigType.INT: "a 32-bit integer",
    ConfigType.LONG: "a 64-bit integer",
    ConfigType.DOUBLE: "a number",
}
_ANY = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "any text",
    ConfigType.LIST: "a list without empty words",
    ConfigType.CLASS: "the name of a class",
    ConfigType.PASSWORD: "a secret",
}


def _double_as_java_writes_it(value: float) -> str:
    """0.5, 1.0E-5, 1.0E9: the shortest digits, with an exponent where Java starts to use one."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    digits = next(text for text in (f"{value:.{n}e}" for n in range(1, 18)) if float(text) == value)
    mantissa, exponent = digits.split("e")
    return f"{mantissa}E{int(exponent)}"
