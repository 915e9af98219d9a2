"""What a handler may know about a request beyond its body."""

from __future__ import annotations

from typing import NamedTuple


class Context(NamedTuple):
    """Who asks, and in which version of the API."""

    api_version: int
    client_id: str | None
