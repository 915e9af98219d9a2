"""Keys that belong together, with values that go together and some that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

TWO = "PLAINTEXT://localhost:9092,EXT://localhost:9093"

LISTENERS = (
    "PLAINTEXT://[::]:9092",
    "PLAINTEXT://:9092",
    "PLAINTEXT://0.0.0.0:9092",
    "PLAINTEXT://[::1]:9092",
    "PLAINTEXT://localhost:9092",
    "PLAINTEXT://127.0.0.1:9092,EXT://127.0.0.1:9092",
    "PLAINTEXT://127.0.0.1:9092,EXT://127.0.0.2:9092",
    "PLAINTEXT://127.0.0.1:9092,EXT://[::1]:9092",
    "PLAINTEXT://localhost:9092,EXT://[::1]:9092",
    "PLAINTEXT://:9092,EXT://[::1]:9092",
    "PLAINTEXT://localhost:9092,EXT://otherhost:9092",
    "PLAINTEXT://localhost:0,EXT://localhost:0",
    "PLAINTEXT://127.0.0.1:9092,EXT://[::1]:9092,THIRD://127.0.0.2:9092",
    "PLAINTEXT://127.0.0.1:9092,EXT://[::1]:9092,THIRD://x:9092",
    " PLAINTEXT://localhost:9092 , EXT://localhost:9093 ",
    "PLAINTEXT://localhost:9092,",
    "PLAINTEXT://localhost:9092,,EXT://localhost:9093",
    ",PLAINTEXT://localhost:9092",
    "plaintext://localhost:9092",
    "PLAINTEXT://localhost:99999",
    "PLAINTEXT://localhost:65536",
    "PLAINTEXT://localhost:-1",
    "PLAINTEXT://localhost",
    "PLAINTEXT:localhost:9092",
    "PLAINTEXT://local host:9092",
    "PLAINTEXT://localhost:9092,PLAINTEXT://localhost:9093",
    "PLAINTEXT://localhost:9092,plaintext://localhost:9093",
    "PLAIN-TEXT://localhost:9092",
    "PLAINTEXT://loc_al.host:9092",
    "PLAINTEXT://[fe80::1%eth0]:9092",
    "PLAINTEXT://::1:9092",
    "NOPE://localhost:9092",
    "PLAINTEXT://localhost:00009092",
    "PLAINTEXT://[::ffff:1.2.3.4]:9092",
    "PLAINTEXT://:0",
    "PLAINTEXT:///:9092",
    "",
    "PLAINTEXT://localhost:9092;EXT://localhost:9093",
)
ADVERTISED = (
    "PLAINTEXT://[::]:9092",
    "PLAINTEXT://0.0.0.0:9092",
    "PLAINTEXT://:9092",
    "PLAINTEXT://h:0",
    "PLAINTEXT://h:9092,EXT://h:9092",
    "EXT://h:9092",
    "PLAINTEXT://h:9092,OTHER://h:1",
    "PLAINTEXT://h:9092 , EXT://h:9093",
    "",
    "PLAINTEXT://h:9092,",
    "PLAINTEXT://127.0.0.1:1,EXT://127.0.0.1:1",
)
PROTOCOLS = (
    "PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT,",
    " PLAINTEXT : PLAINTEXT , EXT : PLAINTEXT ",
    "PLAINTEXT:PLAINTEXT,,EXT:PLAINTEXT",
    ",PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT",
    "PLAINTEXT:plaintext,ext:Plaintext",
    "PLAINTEXT:PLAINTEXT",
    "PLAINTEXT:PLAINTEXT,EXT:NOPE",
    "PLAINTEXT:PLAINTEXT,EXT",
    "PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT,OTHER:NOPE",
    "PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT,EXT:PLAINTEXT",
    "",
    ",",
    "PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT , , ",
    "A:B:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT",
    "PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT,,",
    ":PLAINTEXT,PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT",
    "PLAINTEXT=PLAINTEXT",
)
LIMITS_OF_HOSTS = (
    "",
    "h:5",
    "h:5,",
    "h : 5 , i:6",
    "[::1]:5",
    "::1:5",
    "h:x",
    "h:",
    "h",
    "h:-1",
    "h:+1",
    "h:99999999999",
    "h:2147483647",
    ",h:5",
    "h:5,,i:6",
    "h b:5",
    "h:5;i:6",
    "127.0.0.1:0",
    "h/8:5",
    "h:0x5",
    "h:5,h:6",
    ":5",
    ",",
)
OF_BROKERS = (
    "PLAINTEXT",
    "EXT",
    "ext",
    " EXT ",
    "NOPE",
    "",
)
PROTOCOL_OF_BROKERS = ("PLAINTEXT", "SSL", "plaintext", "NOPE", "")


def _listener_combinations() -> Iterator[Mapping[str, str]]:
    for text in LISTENERS:
        yield {"listeners": text}
    for text in ADVERTISED:
        yield {"listeners": TWO, "advertised.listeners": text}
    for text in PROTOCOLS:
        protocols = {"listener.security.protocol.map": text}
        yield {"listeners": TWO, "inter.broker.listener.name": "PLAINTEXT", **protocols}
    for text in OF_BROKERS:
        yield {"listeners": TWO, "inter.broker.listener.name": text}
        protocol = {"security.inter.broker.protocol": "PLAINTEXT"}
        yield {"listeners": TWO, "inter.broker.listener.name": text, **protocol}
    for text in PROTOCOL_OF_BROKERS:
        yield {"security.inter.broker.protocol": text}


LISTENER_COMBINATIONS = tuple(_listener_combinations())

TIMES = (None, "-5", "-1", "0", "5")
TOGETHER: Mapping[tuple[str, ...], tuple[tuple[str, ...], ...]] = {
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"): (
        ("10", "5"),
        ("5", "5"),
        ("5", "10"),
        ("-1", "5"),
    ),
    ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"): (
        ("1048576", "1"),
        ("1048577", "1"),
        ("2097153", "2"),
        ("2097152", "2"),
        ("3145728", "2"),
        ("3000000000", "1000"),
    ),
    ("connections.max.idle.ms", "connection.failed.authentication.delay.ms"): (
        ("100", "100"),
        ("101", "100"),
        ("-1", "100"),
        ("0", "0"),
        ("1", "0"),
        ("5000", "10000"),
        ("-5", "10000"),
    ),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "replica.lag.time.max.ms"): (
        ("500", "500", "500"),
        ("500", "499", "30000"),
        ("500", "30000", "499"),
        ("0", "0", "0"),
    ),
    ("queued.max.request.bytes", "socket.request.max.bytes"): (
        ("-1", "100"),
        ("0", "100"),
        ("99", "100"),
        ("100", "100"),
    ),
    (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
        "group.consumer.session.timeout.ms",
    ): (
        ("45000", "60000", "44999"),
        ("45000", "60000", "45000"),
        ("45000", "44999", "45000"),
        ("50000", "60000", "45000"),
        ("1", "2", "2"),
    ),
    (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "group.consumer.heartbeat.interval.ms",
    ): (
        ("5000", "15000", "4999"),
        ("5000", "15000", "15001"),
        ("5000", "45000", "45000"),
        ("5000", "45001", "45001"),
        ("5000", "44999", "44999"),
    ),
    (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
        "group.consumer.assignment.interval.ms",
    ): (
        ("0", "15000", "15001"),
        ("10", "5", "7"),
        ("10", "20", "7"),
    ),
    (
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
        "group.share.session.timeout.ms",
    ): (
        ("45000", "60000", "44999"),
        ("45000", "60000", "45000"),
        ("45000", "44999", "45000"),
        ("50000", "60000", "45000"),
        ("1", "2", "2"),
    ),
    (
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
        "group.share.heartbeat.interval.ms",
    ): (
        ("5000", "15000", "4999"),
        ("5000", "15000", "15001"),
        ("5000", "45000", "45000"),
        ("5000", "45001", "45001"),
        ("5000", "44999", "44999"),
    ),
    (
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
        "group.share.assignment.interval.ms",
    ): (
        ("0", "15000", "15001"),
        ("10", "5", "7"),
        ("10", "20", "7"),
    ),
    (
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
        "group.streams.session.timeout.ms",
    ): (
        ("45000", "60000", "44999"),
        ("45000", "60000", "45000"),
        ("45000", "44999", "45000"),
        ("50000", "60000", "45000"),
        ("1", "2", "2"),
    ),
    (
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
        "group.streams.heartbeat.interval.ms",
    ): (
        ("5000", "15000", "4999"),
        ("5000", "15000", "15001"),
        ("5000", "45000", "45000"),
        ("5000", "45001", "45001"),
        ("5000", "44999", "44999"),
    ),
    (
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
    ): (
        ("0", "15000", "15001"),
        ("10", "5", "7"),
        ("10", "20", "7"),
    ),
    ("group.share.max.share.sessions", "group.share.max.size"): (
        ("2000", "200"),
        ("200", "200"),
        ("199", "200"),
    ),
    ("group.share.assignors",): (
        ("simple",),
        ("simple,simple",),
        ("simple,range",),
        ("org.apache.kafka.coordinator.group.assignor.SimpleAssignor",),
    ),
    ("group.consumer.assignors",): (
        ("uniform",),
        ("range",),
        ("uniform,range",),
        ("range,uniform,range",),
        ("Uniform",),
    ),
    (
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
        "group.share.delivery.count.limit",
    ): (
        ("2", "10", "5"),
        ("5", "5", "5"),
        ("3", "10", "2"),
        ("2", "5", "6"),
    ),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"): (
        ("6000", "5000"),
        ("0", "0"),
        ("-5", "-6"),
    ),
    ("log.dirs",): (
        ("",),
        ("/tmp/a",),
        ("/tmp/a,/tmp/b",),
        ("/tmp/a,,/tmp/b",),
        ("/tmp/a,",),
        ("/tmp/a,/tmp/a",),
        (" /tmp/a , /tmp/b ",),
    ),
    ("log.local.retention.ms",): (
        ("-1",),
        ("700000000",),
    ),
    ("log.local.retention.bytes", "log.retention.bytes"): (("5", "4"),),
}
"""Keys, and values for them."""


UNITS: tuple[tuple[str, ...], ...] = (
    ("log.retention.hours", "log.retention.minutes", "log.retention.ms"),
    ("log.roll.hours", "log.roll.ms"),
    ("log.roll.jitter.hours", "log.roll.jitter.ms"),
)


def _value_combinations() -> Iterator[Mapping[str, str]]:
    for units in UNITS:
        for times in product(TIMES, repeat=len(units)):
            yield {name: time for name, time in zip(units, times, strict=True) if time is not None}
    for text in LIMITS_OF_HOSTS:
        yield {"max.connections.per.ip.overrides": text}
        yield {"max.connections.per.ip.overrides": text, "max.connections.per.ip": "0"}
    for names, rows in TOGETHER.items():
        for row in rows:
            yield dict(zip(names, row, strict=True))


VALUE_COMBINATIONS = tuple(_value_combinations())
