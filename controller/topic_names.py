"""Which names a topic may have (conformance 12, 13)."""

from __future__ import annotations

import re

LONGEST = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def objection_to(name: str) -> str | None:
    """What is wrong with a name, or None."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return "a topic must not be called '.' or '..'"
    if len(name) > LONGEST:
        return f"a topic name has at most {LONGEST} characters, this one {len(name)}"
    if _LEGAL.fullmatch(name) is None:
        return f"{name!r}: a topic name consists of letters, digits, '.', '_' and '-'"
    return None


def metric_name(name: str) -> str:
    """A topic as metrics name it. Two topics with the same one cannot be told apart."""
    return name.replace(".", "_")
