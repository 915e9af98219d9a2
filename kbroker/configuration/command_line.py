"""Keys on the command line: an option for each key with a `flag`, and `--set` for all of them.

What comes from where, weakest first: the file, `--set`, the options. A stronger place also prevails over
other names of the same setting: `--set log.dir=D` over a log.dirs in the file.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbroker.config import ConfigType, Key
from kbroker.configuration.broker_keys import BROKER_KEYS
from kbroker.configuration.layers import NOTHING, Texts, overriding
from kbroker.configuration.properties import parse_assignments

FLAGS = {note.flag: note for note in BROKER_KEYS.values() if note.flag}

_METAVARIABLES = {"--listener": "NAME://HOST:PORT", "--data": "DIR", "--metrics": "HOST:PORT"}


def add_options(parser: ArgumentParser) -> None:
    """`--set` and the flags. An option for a list may be given several times."""
    for flag, note in FLAGS.items():
        is_list = note.type == ConfigType.LIST
        parser.add_argument(
            flag,
            dest=_destination(note),
            action="append" if is_list else "store",
            choices=note.choices or None,
            metavar=None if note.choices else _METAVARIABLES.get(flag),
            help=_help(note),
        )
    parser.add_argument(
        "--set",
        dest="assignments",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any key of Kafka's, or of kbroker's; docs/config.md has them all",
    )


def configured(options: Namespace, file: Texts = NOTHING) -> dict[str, str]:
    """The static configuration: what the file says, and what these options say over it."""
    given = {note.name: getattr(options, _destination(note)) for note in FLAGS.values()}
    flags = {
        name: value if isinstance(value, str) else ",".join(value) for name, value in given.items() if value
    }
    return overriding(overriding(file, parse_assignments(options.assignments)), flags)


def _destination(note: Key) -> str:
    return f"key_{note.attribute}"


def _help(note: Key) -> str:
    default = note.format(note.default)
    text = f"{note.doc} ({note.name}{f', by default {default}' if default else ''})"
    return text.replace("%", "%%")
