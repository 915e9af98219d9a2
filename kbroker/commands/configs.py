"""`kbroker configs describe | set | unset`: the settings of a topic, a broker, all brokers, or a group."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kbroker.commands.arguments import Verbs, assignment, connect, verb
from kbroker.terminal import complain, print_json, print_table

if TYPE_CHECKING:
    from kbroker.client.topics import ResourceType

ALL_BROKERS = "default"


def add_to(commands: Verbs) -> None:
    parser = commands.add_parser("configs", help="describe and change settings of topics, brokers and groups")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    describing = verb(verbs, "describe", run_describe, "show what is set, or with --all everything")
    add_resource(describing)
    describing.add_argument("--all", action="store_true", help="what is inherited and default, too")
    setting = verb(verbs, "set", run_set, "change settings and leave the others")
    add_resource(setting)
    setting.add_argument("settings", type=assignment, nargs="+", metavar="KEY=VALUE")
    unsetting = verb(verbs, "unset", run_unset, "give settings their defaults back")
    add_resource(unsetting)
    unsetting.add_argument("keys", nargs="+", metavar="KEY")


def add_resource(parser: ArgumentParser) -> None:
    parser.add_argument("kind", choices=("topic", "broker", "group"))
    parser.add_argument("name", metavar="NAME", help=f"a broker's is its id; {ALL_BROKERS!r} is all brokers")


def resource(options: Namespace) -> tuple[ResourceType, str]:
    from kbroker.client.topics import ResourceType

    kind = ResourceType[options.kind.upper()]
    return kind, "" if kind is ResourceType.BROKER and options.name == ALL_BROKERS else options.name


def run_describe(options: Namespace) -> int:
    from kbroker.client.topics import describe_configs

    with connect(options) as cluster:
        settings = describe_configs(cluster, *resource(options))
    shown = [setting for setting in settings if options.all or setting.is_set_here]
    if options.json:
        print_json(
            [
                {"name": one.name, "value": one.value, "source": one.source, "read_only": one.read_only}
                for one in shown
            ]
        )
    elif shown:
        print_table(("key", "value", "source"), [(one.name, one.value, one.source) for one in shown])
    else:
        complain(f"nothing is set for {options.kind} {options.name}; --all shows the defaults")
    return 0


def run_set(options: Namespace) -> int:
    return alter(options, dict(options.settings), [])


def run_unset(options: Namespace) -> int:
    return alter(options, {}, options.keys)


def alter(options: Namespace, to_set: dict[str, str], to_unset: list[str]) -> int:
    from kbroker.client.topics import alter_configs, title
    from kbroker.configuration.layers import warnings

    with connect(options) as cluster:
        alter_configs(cluster, *resource(options), to_set, to_unset)
    if options.kind == "broker":  # which keeps whatever it is given, as Kafka's does
        for warning in warnings(to_set):
            complain(warning)
    if options.json:
        print_json({"set": to_set, "unset": to_unset})
    else:
        print(f"configured {title(*resource(options))}")
    return 0
