"""The records of Kafka's internal topics, as the brokers write them to themselves.

A record's key begins with an int16 that tells its type (the `key` of its table), its value with an int16 that
tells the version of its table. A null value is a tombstone. Types that a newer broker wrote and nobody here
knows decode to None, so that a reader can pass over them, as Kafka does.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib import import_module

from wire.codec import decode, encode
from wire.errors import WireError
from wire.primitives import Buffer
from wire.schema import MessageInfo, info_of

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"

TABLES = {
    CONSUMER_OFFSETS: ("offsets_and_groups", "consumer_groups", "share_groups", "streams_groups"),
    TRANSACTION_STATE: ("transaction_state",),
    SHARE_GROUP_STATE: ("share_group_state",),
}
INTERNAL_TOPICS = frozenset(TABLES)

_INT16 = struct.Struct(">h")


def encode_record_key(key: object) -> bytes:
    record_type = info_of(type(key)).key
    if record_type is None:
        raise WireError(f"{type(key).__name__} is not the key of a record")
    return _INT16.pack(record_type) + encode(key, 0)


def encode_record_value(value: object, version: int) -> bytes:
    return _INT16.pack(version) + encode(value, version)


def decode_record(topic: str, key: Buffer, value: Buffer | None) -> tuple[object, object | None] | None:
    """The key and value of a record of an internal topic, or None for a type that is not known."""
    classes = record_types(topic).get(_leading_int16(key, "key"))
    if classes is None:
        return None
    key_class, value_class = classes
    decoded_key: object = decode(key_class, bytes(key[2:]), 0)
    if value is None:
        return decoded_key, None
    decoded_value: object = decode(value_class, bytes(value[2:]), _leading_int16(value, "value"))
    return decoded_key, decoded_value


@cache
def record_types(topic: str) -> dict[int, tuple[type, type]]:
    """Record type -> the tables of its key and value, for one internal topic."""
    keys: dict[int, type] = {}
    values: dict[int, type] = {}
    for name in TABLES[topic]:
        for cls in vars(import_module(f"wire.internal.{name}")).values():
            info = getattr(cls, "__info__", None)
            if isinstance(info, MessageInfo) and info.key is not None:
                (keys if info.name.endswith("Key") else values)[info.key] = cls
    return {record_type: (keys[record_type], values[record_type]) for record_type in keys}


def _leading_int16(data: Buffer, what: str) -> int:
    if len(data) < 2:
        raise WireError(f"the {what} of an internal record has {len(data)} bytes")
    number: int = _INT16.unpack_from(data)[0]
    return number
