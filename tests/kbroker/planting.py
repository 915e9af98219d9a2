"""Bugs put into the broker's own methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


class Planted(Exception):
    """The bug."""


class Bug:
    """Takes the place of a method, and fails the first time; `of` says for whom."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, of: Callable[..., bool] | None = None
    ) -> None:
        self.times = 0
        method, bug = getattr(owner, name), self

        def planted(self: Any, *arguments: Any, **options: Any) -> Any:
            if not bug.times and (of is None or of(self, *arguments)):
                bug.times += 1
                raise Planted
            return method(self, *arguments, **options)

        monkeypatch.setattr(owner, name, planted)
