"""`kbroker produce TOPIC [VALUE ...]`: write records, one per argument or one per line.

Without values the lines of stdin, or of `--file`, are written; what comes in slowly is written as it comes,
what is there at once in large batches. With `--json` a line is what `consume --json` prints: an object with
`value`, and perhaps `key`, `headers`, `partition` and `timestamp`; bytes that are no text as {"hex": "..."}.
"""

from __future__ import annotations

import json
import os
import select
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kbroker.client.errors import ClientError
from kbroker.commands.arguments import Verbs, connect, not_negative, verb
from kbroker.terminal import Progress, print_json
from wire.words import count

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.producing import Producer
    from kbroker.client.record import Headers

READ_BYTES = 1 << 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Line(NamedTuple):
    """What is in one line."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def add_to(commands: Verbs) -> None:
    parser = verb(commands, "produce", run, "write records: values, or the lines of stdin or of a file")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("values", metavar="VALUE", nargs="*", help="by default, the lines of stdin")
    parser.add_argument("--file", help="a file to read lines from")
    parser.add_argument("--key", help="of every record")
    parser.add_argument("--key-separator", metavar="TEXT", help="lines are KEY, this, VALUE; \\t is a tab")
    parser.add_argument("--header", type=header, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--partition", type=not_negative, help="by default, the key decides")
    parser.add_argument("--compression", choices=CODECS, default="none")
    parser.add_argument("--create", action="store_true", help="create the topic if it is not there")


def header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value.encode()


def run(options: Namespace) -> int:
    from kbroker.client.producing import Producer
    from wire.compression import Codec

    written = 0

    def acknowledged(partition: tuple[str, int], offset: int, count: int) -> None:
        nonlocal written
        written += count

    with connect(options) as cluster:
        make_sure_of(cluster, options.topic, create=options.create)
        producer = Producer(cluster, codec=Codec[options.compression.upper()], acknowledged=acknowledged)
        try:
            write(options, producer)
            producer.flush()
        finally:
            if options.json:
                print_json({"topic": options.topic, "records": written})
            elif sys.stderr.isatty():
                print(f"wrote {count(written, 'record')} to {options.topic}", file=sys.stderr)
    return 0


def make_sure_of(cluster: Cluster, topic: str, *, create: bool) -> None:
    from kbroker.client.errors import UnknownTopic
    from kbroker.client.topics import create_topic

    try:
        cluster.topic(topic)
    except UnknownTopic:
        if not create:
            raise
        create_topic(cluster, topic)


def write(options: Namespace, producer: Producer) -> None:
    key = None if options.key is None else options.key.encode()
    defaults = Line(None, key, tuple(options.header), options.partition)
    if options.values:
        for value in options.values:
            send(producer, options.topic, defaults._replace(value=value.encode()))
        return
    separator = (options.key_separator or "").encode().decode("unicode_escape").encode()
    descriptor = sys.stdin.fileno() if options.file is None else open_file(options.file)
    number = 0
    for lines in lines_of(descriptor, producer):
        for text in lines:
            number += 1
            try:
                line = parsed(text, defaults, separator, as_json=options.json)
            except (ValueError, TypeError, AttributeError) as error:
                raise ClientError(f"line {number}: {error}") from None
            send(producer, options.topic, line)


def open_file(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None


def send(producer: Producer, topic: str, line: Line) -> None:
    producer.send(
        topic, line.value, line.key, line.headers, partition=line.partition, timestamp_ms=line.timestamp_ms
    )


def lines_of(descriptor: int, producer: Producer) -> Iterator[list[bytes]]:
    """The lines of an open file, as many at a time as are there; what was sent is flushed while none are."""
    progress, rest, done = Progress(), b"", 0
    total: int | None = os.fstat(descriptor).st_size or None
    while data := read(descriptor, producer):
        *lines, rest = (rest + data).split(b"\n")
        yield lines
        done += len(data)
        progress.show(done, total, f"of {total:,} bytes" if total else f"{done:,} bytes")
    progress.end()
    if rest:
        yield [rest]


def read(descriptor: int, producer: Producer) -> bytes:
    with suppress(OSError):  # a kind of file that cannot be waited for
        if not select.select([descriptor], [], [], 0)[0]:
            producer.flush()
    try:
        return os.read(descriptor, READ_BYTES)
    except OSError as error:
        raise ClientError(f"cannot read the lines: {error.strerror}") from None


def parsed(text: bytes, defaults: Line, separator: bytes, *, as_json: bool) -> Line:
    if as_json:
        return from_json(json.loads(text), defaults)
    if separator:
        key, found, value = text.partition(separator)
        if not found:
            raise ValueError(f"there is no {separator.decode()!r} in it")
        return defaults._replace(key=key, value=value)
    return defaults._replace(value=text)


def from_json(document: object, defaults: Line) -> Line:
    if not isinstance(document, dict) or "value" not in document:
        raise ValueError("it is no JSON object with a value")
    headers = document.get("headers", defaults.headers)
    partition, timestamp_ms = document.get("partition"), document.get("timestamp")
    if not (isinstance(headers, list | tuple) and all(map(is_header, headers))):
        raise ValueError("headers are a list of [name, value]")
    if not isinstance(partition, int | None) or not isinstance(timestamp_ms, int | None):
        raise ValueError("partition and timestamp are numbers")
    return Line(
        as_bytes(document["value"]),
        as_bytes(document["key"]) if "key" in document else defaults.key,
        tuple((name, as_bytes(value)) for name, value in headers),
        defaults.partition if defaults.partition is not None else partition,
        timestamp_ms,
    )


def is_header(entry: object) -> bool:
    return isinstance(entry, list | tuple) and len(entry) == 2 and isinstance(entry[0], str)


def as_bytes(value: object) -> bytes | None:
    """Text, {"hex": ...} or null; every other JSON value as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"hex"}:
        return bytes.fromhex(value["hex"])
    return json.dumps(value).encode()
