"""Words for logs and messages."""

from __future__ import annotations


def count(number: int, one: str, many: str = "") -> str:
    """`1 batch`, `12,345 batches`."""
    if number != 1:
        one = many or one + ("es" if one.endswith(("s", "x", "ch", "sh")) else "s")
    return f"{number:,} {one}"
