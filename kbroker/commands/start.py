"""`kbroker start [server.properties] [--listener ...] [--data DIR] [--set KEY=VALUE ...]`: run a broker.

Stdout carries the ready line alone, which scripts wait for; the log, and a banner that says what this broker
promises, go to stderr. What an operator can get wrong is one line and status 2 (what was asked for) or 1 (the
machine), never a traceback.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace, _SubParsersAction
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker import __version__
from kbroker.configuration.command_line import add_options, configured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbroker.broker import Broker
    from kbroker.configuration.layers import Configuration
    from kbroker.listeners import Listeners
    from kbroker.membership import Membership

METADATA = "metadata.db"
FEW_OPEN_FILES = 4096
"""Every connection is one, and every partition has some."""


class UnusableMetadata(Exception):
    """The file of a broker alone that says which topics there are."""

    def __init__(self, database: Path, why: str, directories: Sequence[str]) -> None:
        command = f"kbroker check --rebuild-metadata {shlex.join(directories)}"
        super().__init__(f"{database}: {why}; `{command}` makes it again from the logs")


def add_to(commands: _SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("start", help="run a broker until SIGTERM or Ctrl-C")
    parser.add_argument("file", nargs="?", type=Path, help="a server.properties file, Kafka's or kbroker's")
    add_options(parser)
    parser.set_defaults(run=run_start)


def run_start(options: Namespace) -> int:
    from controller.membership import DuplicateBrokerId
    from controller.metadata_store import StoreError
    from kbroker.data_directories import WrongCluster
    from kbroker.listeners import CannotListen
    from storage.errors import StorageError

    try:
        start(options)
    except UnusableMetadata as error:
        return complain(f"{error}", 1)
    except (ValueError, WrongCluster) as error:
        return complain(f"{error}", 2)
    except (StorageError, StoreError, CannotListen, DuplicateBrokerId) as error:
        return complain(f"{error}", 1)
    except OSError as error:
        return complain(f"cannot start: {reason_of(error)}", 1)
    return 0


def start(options: Namespace) -> None:
    """Run a broker until it is told to stop."""
    from kbroker.configuration.layers import Configuration
    from kbroker.listeners import Listeners

    configuration = Configuration(configured(options, properties_of(options.file)))
    serve(configuration, Listeners.configured(configuration.broker))


def serve(configuration: Configuration, listeners: Listeners) -> None:
    """What a configuration says can be done; from here on it is, and the log tells."""
    import gc
    import logging

    gc.disable()  # all that is made until the broker is ready stays for good

    from kbroker.configuration.layers import warnings, without_effect
    from kbroker.freed_memory import keep_freed_memory
    from kbroker.garbage import keep_pauses_short
    from kbroker.log_output import start_logging
    from kbroker.open_files import FEWEST, most_connections, most_log_files, raise_the_limit

    values = configuration.broker
    start_logging(values.kbroker_log_level, values.kbroker_log_format)
    logger = logging.getLogger("kbroker")
    for warning in (*warnings(configuration.static), *listeners.warnings()):
        logger.warning("%s", warning)
    if idle := without_effect(configuration.static):
        logger.info("keys that have no effect: %s", "; ".join(f"{key} ({idle[key]})" for key in idle))
    open_files = raise_the_limit()
    if open_files < FEWEST:
        raise OSError(f"ulimit -n is {open_files}: a broker needs at least {FEWEST} open files")
    if open_files < FEW_OPEN_FILES:
        logger.warning(
            "no more than %d files and connections can be open: see ulimit -n; "
            "clients get at most %d of them, logs keep %d files open",
            open_files,
            most_connections(),
            most_log_files(),
        )

    def ready(broker: Broker) -> None:
        logger.info("%s", banner(broker))
        keep_pauses_short()
        print(f"kbroker ready on {broker.listeners}", flush=True)
        keep_freed_memory()

    if values.zookeeper_connect:
        run_member(configuration, listeners, ready)
    else:
        run_alone(configuration, listeners, ready)


def run_alone(configuration: Configuration, listeners: Listeners, ready: Callable[[Broker], None]) -> None:
    """A broker with its own metadata; UnusableMetadata where those are lost or make no sense."""
    from controller.metadata_store import StoreDamaged
    from controller.znodes import ZnodeError
    from kbroker.config import ConfigError
    from kbroker.data_directories import check_owner
    from kbroker.serving import run
    from storage.files import Disk

    directories = configuration.broker.data_directories
    owners = check_owner(Disk(), directories, node_id_of(configuration))
    database = Path(directories[0]) / METADATA
    if not holds_data(database):
        for directory in directories[1:]:
            if holds_data(Path(directory) / METADATA):
                raise ConfigError(f"log.dirs: {METADATA} is in {directory}, which has to be named first")
        if holds_logs(directories):
            raise UnusableMetadata(database, "there are logs, and it is missing or empty", directories)
        for directory, owner in owners.items():
            if owner is not None and owner.cluster_id is not None:
                why = f"{directory} belongs to cluster {owner.cluster_id}, and it is missing or empty"
                raise UnusableMetadata(database, why, directories)
    try:
        run(lambda: make_broker(configuration, listeners), ready, lambda broker: join(broker, configuration))
    except (StoreDamaged, ZnodeError) as error:
        raise UnusableMetadata(database, f"{error}".removeprefix(f"{database}: "), directories) from error


def holds_data(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def holds_logs(directories: Sequence[str]) -> bool:
    from storage.log_directory import LOG_NAME

    return any(
        LOG_NAME.fullmatch(path.name) and path.is_dir()
        for directory in directories
        if os.path.isdir(directory)
        for path in Path(directory).iterdir()
    )


def run_member(configuration: Configuration, listeners: Listeners, ready: Callable[[Broker], None]) -> None:
    """One broker of several."""
    import asyncio

    from kbroker.cluster import serve_member
    from kbroker.serving import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve_member(configuration, listeners, ready))


def properties_of(file: Path | None) -> dict[str, str]:
    """What a server.properties file says; ConfigError names the file and the line that makes no sense."""
    from kbroker.config import ConfigError
    from kbroker.configuration.properties import parse_properties

    if file is None:
        return {}
    try:
        return parse_properties(file.read_bytes())
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def make_broker(configuration: Configuration, listeners: Listeners) -> Broker:
    from kbroker.broker import Broker

    values = configuration.broker
    return Broker(
        listeners,
        configuration=configuration,
        data=[os.path.abspath(path) for path in values.data_directories],  # as clients are told them
        node_id=node_id_of(configuration),
    )


def node_id_of(configuration: Configuration) -> int:
    """Of a broker alone."""
    broker_id = configuration.broker.broker_id
    return broker_id if broker_id >= 0 else 1


def join(broker: Broker, configuration: Configuration) -> Membership:
    """A cluster of one, on a store in the first data directory, which nobody else may use."""
    import asyncio

    from controller.embedded import EmbeddedTree
    from kbroker.data_directories import check_owner
    from kbroker.membership import Membership

    directories = [directory.path for directory in broker.logs.directories]
    check_owner(broker.logs.files, directories, broker.node_id)
    broker.logs.lock()
    broker.check_directories()
    directory = Path(configuration.broker.data_directories[0])
    is_durable = configuration.broker.kbroker_flush != "never"
    tree = EmbeddedTree.open(
        directory / METADATA, now_ms=broker.now_ms, synchronous="FULL" if is_durable else "OFF"
    )
    store = tree.connect(asyncio.get_running_loop().call_soon)
    return Membership(broker, store, tree.close, metadata_file=METADATA)


def banner(broker: Broker) -> str:
    """What this broker is, and what it promises."""
    from kbroker.listeners import text_of

    values = broker.settings.configuration.broker
    reached = " ".join(map(text_of, broker.listeners.advertised))
    zookeeper = values.zookeeper_connect
    where = f"ZooKeeper at {zookeeper}" if zookeeper else f"{METADATA} (embedded)"
    return (
        f"kbroker {__version__}: broker {broker.node_id} of cluster {broker.cluster_id} at {reached}; "
        f"data in {', '.join(values.data_directories)}; kbroker.flush={values.kbroker_flush}; "
        f"metadata in {where}"
    )


def reason_of(error: OSError) -> str:
    """The operating system's own words, with the file if there is one."""
    words = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)
    return f"{error.filename}: {words}" if error.filename else words


def complain(message: str, status: int) -> int:
    print(f"kbroker: {message}", file=sys.stderr)
    return status
