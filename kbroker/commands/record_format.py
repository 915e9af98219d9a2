"""How `consume` prints a record: its value, a JSON object per line, or a format of the user's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.client.errors import ClientError
from kbroker.terminal import bytes_as_json

if TYPE_CHECKING:
    from kbroker.client.record import Record

FIELD = re.compile(r"\{(\w+)\}")


def formatter(template: str | None, *, as_json: bool) -> Callable[[Record], bytes]:
    """A function from records to what is printed; ClientError for a format that names no such field."""
    if as_json:
        return json_line
    return value_line if template is None else filled(template)


def value_line(record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def json_line(record: Record) -> bytes:
    return json.dumps(record._asdict(), default=bytes_as_json).encode() + b"\n"


def filled(template: str) -> Callable[[Record], bytes]:
    """Literal text and fields by turns, and a newline; \\t, \\n and so on mean what they mean in Python."""
    try:
        text = template.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError as error:
        raise ClientError(f"--format: {error.reason}") from None
    pieces = FIELD.split(text)
    parts: list[bytes | Callable[[Record], bytes]] = []
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            parts.append(piece.encode())
        elif piece in FIELDS:
            parts.append(FIELDS[piece])
        else:
            raise ClientError(f"--format: there is no {{{piece}}}, but {{{'}, {'.join(FIELDS)}}}")
    return lambda record: b"".join(
        [*(part if isinstance(part, bytes) else part(record) for part in parts), b"\n"]
    )


def headers_text(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


FIELDS: dict[str, Callable[[Record], bytes]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: b"%d" % record.timestamp,
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "headers": headers_text,
}
