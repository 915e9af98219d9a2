"""Byte for byte against kafka-python's own protocol classes, both directions, every version they know."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

from tests.wire.random_messages import at_version, random_message, versions_of
from tests.wire.schema_oracle import RENAMED_FIELDS
from wire.api import ApiKey, api
from wire.api.api_versions import ApiVersionsResponse
from wire.codec import decode, encode
from wire.schema import Primitive, fields_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl

pytestmark = pytest.mark.slow

MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
OLD_NAMES = {name: {new: old for old, new in fields.items()} for name, fields in RENAMED_FIELDS.items()}


def their_class(name: str) -> Any:
    return next((getattr(module, name) for module in MODULES if hasattr(module, name)), None)


PAIRS = [
    (ours, their_class(ours.__name__))
    for key in ApiKey
    for ours in (api(key).request, api(key).response)
    if their_class(ours.__name__) is not None
]


def test_kafka_python_knows_most_of_the_messages() -> None:
    assert len(PAIRS) >= 90


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda cls: cls.__name__)
def test_bytes_are_those_of_kafka_python(ours: type, theirs: Any) -> None:
    rng = random.Random(ours.__name__)
    compared = 0
    for version in versions_of(ours):
        if not theirs.min_version <= version <= theirs.max_version:
            continue
        for _ in range(8):
            mine = random_message(rng, ours, version)
            if ours is ApiVersionsResponse:
                mine.error_code = 0  # kafka-python reads a reply with an error as v0 (conformance 2)
            encoded = encode(mine, version)
            parsed = theirs.decode(encoded, version=version)
            same_values(mine, parsed, version, ours.__name__)
            parsed._header = None  # a decoded message of kafka-python lacks what its encoder looks for
            assert bytes(parsed.encode(version=version)) == encoded
            assert decode(ours, encoded, version) == at_version(mine, version)
            compared += 1
    assert compared > 0


def same_values(mine: Any, parsed: Any, version: int, path: str) -> None:
    """Every field of this version, read by kafka-python from our bytes, is what we wrote."""
    cls: type = type(mine)
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        if field.name.endswith("authorized_operations"):
            continue  # kafka-python turns the bits into a set; the bytes are compared all the same
        value = getattr(mine, field.name)
        theirs = getattr(parsed, field.name, None)
        if theirs is None:
            theirs = getattr(parsed, OLD_NAMES.get(type(mine).__name__, {}).get(field.name, field.name))
        here = f"{path}.{field.name}"
        if field.is_tagged_in(version) and value == field.default:
            continue
        if isinstance(field.type, Primitive) or value is None:
            assert plain(theirs) == plain(value), here
        elif field.is_array:
            assert len(theirs) == len(value), here
            for one, other in zip(value, theirs, strict=True):
                same_values(one, other, version, here)
        else:
            same_values(value, theirs, version, here)


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, memoryview):
        return bytes(value)
    return value.bytes if hasattr(value, "bytes") else value
