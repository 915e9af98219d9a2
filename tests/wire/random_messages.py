"""Every message of `wire`, and random instances: by a seed for cross-checks, by hypothesis for laws."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from hypothesis import strategies as st

from wire.api import ApiKey, api
from wire.headers import RequestHeader, ResponseHeader
from wire.schema import REQUIRED, Field, MessageInfo, Primitive, fields_of, info_of

INTERNAL = (
    "consumer_groups",
    "consumer_protocol",
    "offsets_and_groups",
    "share_group_state",
    "share_groups",
    "streams_groups",
    "transaction_state",
)
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def api_messages() -> Iterator[type]:
    for key in ApiKey:
        yield api(key).request
        yield api(key).response


def internal_messages() -> Iterator[type]:
    for name in INTERNAL:
        module = import_module(f"wire.internal.{name}")
        for value in vars(module).values():
            if isinstance(getattr(value, "__info__", None), MessageInfo):
                yield value


ALL_MESSAGES = [*api_messages(), *internal_messages(), RequestHeader, ResponseHeader]


def versions_of(cls: type) -> range:
    first, last = info_of(cls).versions
    return range(first, last + 1)


def is_present(field: Field, version: int) -> bool:
    return version in field.versions


def at_version(message: Any, version: int) -> Any:
    """What is left of a message when it travels at this version: other fields fall back to their defaults."""
    cls: type = type(message)
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        value = getattr(message, field.name)
        if not is_present(field, version):
            continue
        if value is None and not field.is_nullable_in(version) and not _may_be_absent(field, version):
            value = [] if field.is_array else _zero(field.type, version)
        elif value is not None and not isinstance(field.type, Primitive):
            value = [at_version(v, version) for v in value] if field.is_array else at_version(value, version)
        values[field.name] = value
    return cls(**values)


def _may_be_absent(field: Field, version: int) -> bool:
    return field.is_struct and field.is_tagged_in(version)


def _zero(kind: Primitive | type, version: int) -> Any:
    if not isinstance(kind, Primitive):
        return random_message(random.Random(0), kind, version, size=0)
    return {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16)}.get(kind.name, 0)


# -- by seed


def random_message(rng: random.Random, cls: type, version: int, size: int = 3) -> Any:
    """An instance of `cls` as it may travel at this version."""
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if not is_present(field, version):
            continue
        if field.is_tagged_in(version) and rng.random() < 0.4:
            continue
        if field.is_nullable_in(version) and rng.random() < 0.25:
            values[field.name] = None
        elif field.is_array:
            elements = [
                _random_value(rng, field.type, version, size - 1) for _ in range(rng.randrange(size + 1))
            ]
            values[field.name] = _without_equal_keys(elements, field)
        else:
            value = _random_value(rng, field.type, version, size)
            if field.is_struct and field.is_tagged_in(version) and not field.is_nullable_in(version):
                # Kafka does not write a tagged struct of defaults: see `schema_oracle.DELIBERATE`.
                value = None if value == type(value)() else value
            values[field.name] = value
    return cls(**values)


def _without_equal_keys(elements: list[Any], field: Field) -> list[Any]:
    """Kafka keeps some arrays as maps, by their first field, and drops what comes twice."""
    if isinstance(field.type, Primitive):
        return elements
    return list({repr(_key(element)): element for element in elements}.values())


def _key(element: Any) -> Any:
    return [
        getattr(element, name) for name in element.__slots__ if not isinstance(getattr(element, name), list)
    ]


def _random_value(rng: random.Random, kind: Primitive | type, version: int, size: int) -> Any:
    if not isinstance(kind, Primitive):
        return random_message(rng, kind, version, max(size, 0))
    if kind.name in INTEGERS:
        bits = INTEGERS[kind.name]
        return rng.choice((0, 1, -1, rng.randrange(-(1 << bits - 1), 1 << bits - 1)))
    if kind.name == "string":
        return "".join(rng.choice("ab.-_0é漢") for _ in range(rng.choice((0, 3, 12, 130))))
    simple: dict[str, Callable[[], Any]] = {
        "uint16": lambda: rng.randrange(1 << 16),
        "bool": lambda: rng.random() < 0.5,
        "float64": lambda: rng.uniform(-1e9, 1e9),
        "uuid": lambda: rng.randbytes(16),
    }
    return simple.get(kind.name, lambda: rng.randbytes(rng.choice((0, 5, 200))))()


# -- by hypothesis


def messages(cls: type) -> st.SearchStrategy[Any]:
    """Instances with every field of every version set; `at_version` cuts them down."""
    return st.fixed_dictionaries({f.name: _values(f) for f in fields_of(cls)}).map(lambda v: cls(**v))


def _values(field: Field) -> st.SearchStrategy[Any]:
    value = _primitives(field.type) if isinstance(field.type, Primitive) else messages(field.type)
    if field.is_array:
        value = st.lists(value, max_size=2)
    may_be_none = field.nullable.first <= field.nullable.last or (field.is_struct and field.default is None)
    value = st.none() | value if may_be_none else value
    if field.default is not REQUIRED and not isinstance(field.default, list):
        value = st.just(field.default) | value
    return value


def _primitives(kind: Primitive) -> st.SearchStrategy[Any]:
    if kind.name in INTEGERS:
        bits = INTEGERS[kind.name]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return {
        "uint16": st.integers(0, 65535),
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(st.characters(codec="utf-8"), max_size=200),
    }.get(kind.name, st.binary(max_size=200))
