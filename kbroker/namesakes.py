"""Other people's packages that are called like ours: `wire`, `storage` and `controller` are common words.

A project that has one, in its directory or on PYTHONPATH, hides ours. A process that is ours alone (the
command, a broker that tests start) takes its own first: `pin`. In a process that belongs to somebody else
nothing may be taken away from them: `check` says who hides whom.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

OURS = ("wire", "storage", "controller")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""Where this package lies, and the others beside it."""


class NameTaken(ImportError):
    """A package of somebody else's goes by the name of one of ours."""


def pin() -> None:
    """Let our names mean our packages in this process, wherever its path leads."""
    for name in OURS:
        if name in sys.modules:
            continue
        spec = PathFinder.find_spec(name, [ROOT])
        if spec is None or spec.loader is None:
            raise NameTaken(f"kbroker is not complete: there is no package {name!r} in {ROOT}")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def check() -> None:
    """NameTaken if an import of one of our names would yield, or has yielded, something else."""
    for name in OURS:
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # what is loaded under the name has no spec: it was made by hand
            spec = None
        places = [os.path.abspath(place) for place in (spec and spec.submodule_search_locations) or ()]
        if places != [os.path.join(ROOT, name)]:
            other = places[0] if places else (spec and spec.origin) or "something without a file"
            raise NameTaken(
                f"{name!r} is {other} in this process, and not the package of that name that kbroker needs."
                " A broker in a process of its own, which is the default, has it; one in a thread has not."
            )
