"""What must hold whatever happens. `python -O` strips `assert`, so the storage asks here instead.

A broken invariant means that the code is wrong, not the disk or the client: the log that notices it goes
offline at once, since whatever it would write next could be wrong as well.
"""

from __future__ import annotations


class InvariantBroken(Exception):
    """A bug in the storage, caught before it could reach the disk."""


def invariant(condition: bool, why: str) -> None:
    """`why` names the rule, not the values: it is evaluated on every call."""
    if not condition:
        raise InvariantBroken(why)
