"""How a Kafka message is written down: a class per message, version ranges beside its fields.

    @message(key=1, versions="4-18", flexible="12+")
    class FetchRequest:
        replica_id: int32 = since("0-14", default=-1)
        max_wait_ms: int32
        topics: list[FetchTopic]

A field stands in wire order, under Kafka's name in snake case. A bare annotation is in every version of the
message and has to be given; anything else says so through `since`. Rules that `wire.codec` builds on:

- `T | None` is nullable on the wire: in the versions of `nullable`, everywhere when that is not given.
- A field outside its versions is not written, and reads as its default.
- A tagged field is written only when it differs from its default. A tagged struct that is absent is None.
- `record_bytes` alone may be a view of the buffer it was decoded from; every other value is its own.
- A nested class is a `@struct`; it has no version of its own and follows its message.

Decorating only notes the fields: types are resolved, and `__init__` is compiled, on first use, so that
importing every table costs milliseconds. Type checkers see ordinary dataclasses.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, cast, dataclass_transform

T = TypeVar("T")

MAX_VERSION = 0x7FFF


class Versions(NamedTuple):
    """An inclusive range of versions; `NO_VERSIONS` is empty."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        if self.last == MAX_VERSION:
            return f"{self.first}+"
        return f"{self.first}-{self.last}" if self.first < self.last else str(self.first)

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Kafka's notation: "3", "0-4", "2+", "none"."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), MAX_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NO_VERSIONS = Versions(MAX_VERSION, -1)
ALL_VERSIONS = Versions(0, MAX_VERSION)


class Primitive(NamedTuple):
    """A type of the protocol; `format` is its struct code when its size is fixed."""

    name: str
    format: str = ""
    size: int = 0


int8 = Annotated[int, Primitive("int8", "b", 1)]
int16 = Annotated[int, Primitive("int16", "h", 2)]
uint16 = Annotated[int, Primitive("uint16", "H", 2)]
int32 = Annotated[int, Primitive("int32", "i", 4)]
int64 = Annotated[int, Primitive("int64", "q", 8)]
float64 = Annotated[float, Primitive("float64", "d", 8)]
boolean = Annotated[bool, Primitive("bool", "?", 1)]
uuid = Annotated[bytes, Primitive("uuid", "16s", 16)]
string = Annotated[str, Primitive("string")]
byte_string = Annotated[bytes, Primitive("bytes")]
record_bytes = Annotated[bytes | bytearray | memoryview, Primitive("records")]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


class Since(NamedTuple):
    """What `since` notes about a field until its class is complete."""

    versions: Versions
    default: Any
    nullable: Versions
    tag: int | None
    tagged: Versions
    flexible: bool


def since(
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str = "0+",
    tag: int | None = None,
    tagged: str | None = None,
    flexible: bool = True,
) -> Any:
    """Say in which versions a field exists, and what else sets it apart.

    `nullable` narrows the versions in which a `T | None` may be null. `tagged` are the versions in which the
    field is tagged, if those are not all it has. `flexible=False` keeps the old encoding everywhere.
    """
    exists = Versions.parse(versions)
    tagged_in = NO_VERSIONS if tag is None else Versions.parse(tagged) if tagged else exists
    return Since(exists, default, Versions.parse(nullable), tag, tagged_in, flexible)


class Field(NamedTuple):
    """A field with its type resolved: a Primitive or a struct class, perhaps in an array."""

    name: str
    type: Primitive | type
    is_array: bool
    versions: Versions
    nullable: Versions
    default: Any
    tag: int | None
    tagged: Versions
    flexible: bool

    @property
    def is_struct(self) -> bool:
        return not isinstance(self.type, Primitive) and not self.is_array

    def is_tagged_in(self, version: int) -> bool:
        return version in self.tagged

    def is_nullable_in(self, version: int) -> bool:
        return version in self.nullable


class MessageInfo(NamedTuple):
    """What `@message` says: the API key (or record type), its versions, and which of them are flexible."""

    name: str
    key: int | None
    versions: Versions
    flexible: Versions


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def message(*, key: int | None = None, versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Declare a message. `key` is its API key, or for a record of an internal topic the type of record."""

    def declare(cls: type[T]) -> type[T]:
        info = MessageInfo(cls.__name__, key, Versions.parse(versions), Versions.parse(flexible))
        return _with_slots(cls, info)

    return declare


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def struct(cls: type[T]) -> type[T]:
    """Declare a structure inside a message."""
    return _with_slots(cls, None)


def info_of(cls: type) -> MessageInfo:
    """The header of a message's table."""
    info = cls.__dict__.get("__info__")
    if not isinstance(info, MessageInfo):
        raise TypeError(f"{cls.__name__} is not a message")
    return info


@cache
def fields_of(cls: type) -> tuple[Field, ...]:
    """The fields of a message or struct, in wire order, with types resolved."""
    hints = cls.__annotations__
    return tuple(
        _resolve(name, _evaluate(hints[name], cls), note) for name, note in cls.__dict__["__notes__"].items()
    )


_evaluated: dict[tuple[str, str], Any] = {}


def _evaluate(annotation: str, cls: type) -> Any:
    """The type behind an annotation, which stands as text; most texts occur many times in a module."""
    key = (annotation, cls.__module__)
    if key not in _evaluated:
        _evaluated[key] = eval(annotation, vars(sys.modules[cls.__module__]))
    return _evaluated[key]


def _with_slots(cls: type[T], info: MessageInfo | None) -> type[T]:
    body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    annotations = body.get("__annotations__", {})
    notes = {name: _note(body.pop(name, REQUIRED)) for name in annotations}
    body |= {
        "__slots__": tuple(annotations),
        "__notes__": notes,
        "__info__": info,
        "__init__": _compile_init_and_call_it,
        "__eq__": _equal,
        "__hash__": None,
        "__repr__": _represent,
    }
    return cast(type[T], type(cls.__name__, cls.__bases__, body))


def _note(value: Any) -> Since:
    if isinstance(value, Since):
        return value
    return Since(ALL_VERSIONS, value, ALL_VERSIONS, None, NO_VERSIONS, True)


def _resolve(name: str, hint: Any, note: Since) -> Field:
    nullable = NO_VERSIONS
    if typing.get_origin(hint) in (typing.Union, UnionType):
        (hint,) = (option for option in typing.get_args(hint) if option is not NoneType)
        nullable = note.nullable
    is_array = typing.get_origin(hint) is list
    if is_array:
        (hint,) = typing.get_args(hint)
    kind = typing.get_args(hint)[1] if typing.get_origin(hint) is Annotated else hint
    return Field(
        name, kind, is_array, note.versions, nullable, note.default, note.tag, note.tagged, note.flexible
    )


def _compile_init_and_call_it(self: Any, **values: Any) -> None:
    """Stands in for `__init__` until the first instance of a class is made."""
    cls = type(self)
    cls.__init__ = _compile_init(cls)
    self.__init__(**values)


def _compile_init(cls: type) -> Any:
    names: dict[str, Any] = {"REQUIRED": REQUIRED}
    parameters, body = [], []
    for name, note in cls.__dict__["__notes__"].items():
        if note.default is REQUIRED:
            parameters.append(name)
        elif isinstance(note.default, list):
            parameters.append(f"{name}=REQUIRED")
            body.append(f"    if {name} is REQUIRED: {name} = []")
        else:
            names[f"default_{name}"] = note.default
            parameters.append(f"{name}=default_{name}")
        body.append(f"    self.{name} = {name}")
    head = f"def __init__(self, *, {', '.join(parameters)}):" if parameters else "def __init__(self):"
    exec("\n".join([head, *(body or ["    pass"])]), names)
    return names["__init__"]


def _equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _represent(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__name__}({values})"
