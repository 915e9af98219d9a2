"""What the Python programs share: the loop over requests, and bytes in JSON (program.py has the language)."""

from __future__ import annotations

import base64
import json
import select
import sys
from collections.abc import Callable, Mapping
from typing import Any

SESSION_MS = 10_000
HEARTBEAT_MS = 200
METADATA_MS = 500
LARGEST_RECORD = 8 << 20
"""So that it is the broker that refuses what is too large."""


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def to_headers(headers: Any) -> list[tuple[str, Any]]:
    return [(name, to_bytes(value)) for name, value in headers]


def as_json(record: Any) -> dict[str, Any]:
    """A record of aiokafka or kafka-python: they name its fields alike."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "key": to_text(record.key),
        "value": to_text(record.value),
        "headers": [(name, to_text(value)) for name, value in record.headers],
        "timestamp": record.timestamp,
    }


def report(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def told_to_leave() -> bool:
    """Whether a member's input has another line, or has ended."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def answer(verb: Callable[..., Any], request: dict[str, Any], code_of: Callable[[Exception], int]) -> None:
    try:
        report(**(verb(**request) or {}))
    except Exception as error:
        report(error=code_of(error), text=f"{type(error).__name__}: {error}")


def serve(verbs: Mapping[str, Callable[..., Any]], code_of: Callable[[Exception], int]) -> None:
    while line := sys.stdin.readline():
        request = json.loads(line)
        answer(verbs[request.pop("do")], request, code_of)
