"""Nothing that comes in as data stops the pipeline, and each record ends where the table says.

One broker and one run of the pipeline, with its defaults, for all of it. Every record is sent, every one that
shall be stored is sent again, the driver and the broker are killed, and it is sent once more. Before, between
and after there are readings of honest sensors, which must not suffer.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from compat_tests.spark.driver import Driver
from kbroker.testing import Broker, Record

STORED = "event_id STRING, device STRING, kind STRING, value DOUBLE, late BOOLEAN"
WINDOWS = "device STRING, kind STRING, start TIMESTAMP, readings LONG"
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
UNTIL_WINDOWS_CLOSE_S = 30 + 5 + 10 + 5
"""Lateness, lag, the window, and some more."""


class Odd(NamedTuple):
    """A record, and the reason for which it is refused, or "" where it is stored."""

    reason: str
    fields: dict[str, Any]
    raw: bytes | None = b"reading"
    """Instead of a reading."""
    key: bytes | None = b"odd"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    """Of the record; that of its arrival replaces it."""
    age: timedelta = 0 * SECOND
    """How long before its arrival its time is."""
    is_late: bool = False


def stored(**fields: Any) -> Odd:
    return Odd("", fields)


def refused(reason: str, **fields: Any) -> Odd:
    return Odd(reason, fields)


def aged(age: timedelta, *, reason: str = "", is_late: bool = False) -> Odd:
    return Odd(reason, {}, age=age, is_late=is_late)


def raw(value: bytes | None, reason: str = "not one JSON object") -> Odd:
    return Odd(reason, {}, raw=value)


MISSING = object()
HONEST = {"event_id": "e", "device": "d", "kind": "k", "value": 1.0, "event_time": "2026-01-01T00:00:00Z"}
NOT_A_NUMBER = "value beyond 1e+15, or not a number"
NOT_A_TIME = "event_time is not a time of ISO 8601"
TOO_NEW = "event_time over 1 hour after arrival"
TOO_OLD = "event_time over 366 days before arrival"
CASES = {
    # names
    "device with a slash": stored(device="boiler room/1"),
    "device with spaces": stored(device="  boiler  room "),
    "device in unicode": stored(device="größe 温度 \N{FIRE}"),
    "device with a newline": stored(device="a\nb\r\tc\0"),
    "device that climbs": stored(device="../../etc"),
    "device with the separator of keys": stored(device='a|b","kind":"'),
    "device of 256 characters": stored(device="ü" * 256),
    "device called null": stored(device="null"),
    "device that is a number": stored(device=5),
    "kind with a slash": stored(kind="a/b=c"),
    "kind that is a number": stored(kind="12"),
    "kind of 256 characters": stored(kind="温" * 256),
    "device empty": refused("without device", device=""),
    "device blank": refused("without device", device="   "),
    "device null": refused("without device", device=None),
    "device missing": refused("without device", device=MISSING),
    "device of 10 kB": refused("device longer than 256 characters", device="x" * 10_000),
    "kind of 10 kB": refused("kind longer than 256 characters", kind="x" * 10_000),
    "event id of 10 kB": refused("event_id longer than 256 characters", event_id="x" * 10_000),
    "event id missing": refused("without event_id", event_id=MISSING),
    "nothing but a device": refused(
        "without event_id, kind, a number as value, event_time",
        event_id=MISSING,
        kind=MISSING,
        value=MISSING,
        event_time=MISSING,
    ),
    # values
    "largest": stored(value=1e15),
    "smallest": stored(value=5e-324),
    "integer": stored(value=-7),
    "with a nested field more": stored(more={"a": [{"b": None}]}),
    "NaN": refused(NOT_A_NUMBER, value=float("nan")),
    "NaN as a string": refused(NOT_A_NUMBER, value="NaN"),
    "infinity": refused(NOT_A_NUMBER, value=float("inf")),
    "negative infinity": refused(NOT_A_NUMBER, value=float("-inf")),
    "square is infinite": refused(NOT_A_NUMBER, value=1e200),
    "larger than a double": refused(NOT_A_NUMBER, value=10**400),
    "text": refused("without a number as value", value="warm"),
    "boolean": refused("without a number as value", value=True),
    "object": refused("without a number as value", value={"celsius": 20}),
    "array": refused("without a number as value", value=[20]),
    "null": refused("without a number as value", value=None),
    "missing": refused("without a number as value", value=MISSING),
    # clocks
    "10 minutes ahead": aged(-HOUR / 6),
    "a minute behind": aged(60 * SECOND, is_late=True),
    "a day behind": aged(DAY, is_late=True),
    "a year behind": aged(365 * DAY, is_late=True),
    "a day ahead": aged(-DAY, reason=TOO_NEW),
    "two years behind": aged(730 * DAY, reason=TOO_OLD),
    "1970": refused(TOO_OLD, event_time="1970-01-01T00:00:00Z"),
    "year 1": refused(TOO_OLD, event_time="0001-01-01T00:00:00Z"),
    "9999": refused(TOO_NEW, event_time="9999-12-31T23:59:59Z"),
    "negative year": refused(NOT_A_TIME, event_time="-0044-03-15T12:00:00Z"),
    "beyond Spark's timestamps": refused(NOT_A_TIME, event_time="+294248-01-01T00:00:00Z"),
    "30 February": refused(NOT_A_TIME, event_time="2026-02-30T00:00:00Z"),
    "time without a date": refused(NOT_A_TIME, event_time="12:30"),
    "date without a time": refused(NOT_A_TIME, event_time="2026-02-28"),
    "milliseconds since 1970": refused(NOT_A_TIME, event_time=1_750_000_000_000),
    "negative number as time": refused(NOT_A_TIME, event_time=-1),
    "number that overflows as time": refused(NOT_A_TIME, event_time=2**63 - 1),
    "word as time": refused(NOT_A_TIME, event_time="now"),
    "time null": refused("without event_time", event_time=None),
    "record from 1970": stored()._replace(timestamp_ms=0),
    "record from 9999": stored()._replace(timestamp_ms=253_402_300_799_000),
    "record beyond Spark's timestamps": stored()._replace(timestamp_ms=2**63 - 1),
    # records
    "key null": stored()._replace(key=None),
    "key that is not UTF-8": stored()._replace(key=b"\xff\0"),
    "headers": stored()._replace(headers=(("why", b"\xff"), ("", None))),
    "tombstone": raw(None, "no value"),
    "tombstone without a key": raw(None, "no value")._replace(key=None),
    "empty": raw(b""),
    "blank": raw(b" \n "),
    "not UTF-8": raw(b"\xff\xfe\x00", "not UTF-8"),
    "device that is not UTF-8": raw(json.dumps(HONEST).encode().replace(b'"d"', b'"\xe4"'), "not UTF-8"),
    "half a reading": raw(b'{"event_id": "half a rea'),
    "JSON null": raw(b"null"),
    "JSON number": raw(b"17"),
    "empty object": raw(b"{}", "without event_id, device, kind, a number as value, event_time"),
    "array of readings": raw(json.dumps([HONEST, HONEST]).encode()),
    "two readings in lines": raw(json.dumps(HONEST).encode() + b"\n" + json.dumps(HONEST).encode()),
    "two readings with a comma": raw(json.dumps(HONEST).encode() + b"," + json.dumps(HONEST).encode()),
    "deeply nested": raw(b'{"device":' * 50_000),
    "as large as the broker takes": raw(b"x" * 1_048_000),
    "large key": raw(b"x" * 500_000)._replace(key=b"k" * 540_000),
    "number of 2,000 digits": raw(json.dumps(HONEST).encode().replace(b"1.0", b"1" * 2000)),
}


def rendered(name: str, odd: Odd, now: datetime) -> bytes | None:
    if odd.raw != b"reading":
        return odd.raw
    at = (now - odd.age).isoformat()
    fields = {"event_id": name, "device": "odd", "kind": "odd", "value": 1.0, "event_time": at} | odd.fields
    return json.dumps({key: value for key, value in fields.items() if value is not MISSING}).encode()


class Run:
    """The pipeline, and what it was given."""

    def __init__(self, broker: Broker, driver: Driver, lake: Path) -> None:
        self.broker, self.driver, self.lake = broker, driver, lake
        self.values: dict[str, bytes | None] = {}
        """What was sent under the name of a case."""
        self.places: dict[tuple[int, int], str] = {}
        self.honest: set[str] = set()
        self._sent = 0

    def send(self, value: bytes | None, odd: Odd = CASES["integer"]) -> Record:
        [record] = self.broker.produce(
            "readings", value, key=odd.key, headers=odd.headers, timestamp=odd.timestamp_ms
        )
        self._sent += 1
        return record

    def send_honest(self, device: str, *values: float) -> None:
        for value in values:
            event_id = f"{device} {len(self.honest)}"
            fields = {"event_id": event_id, "device": device, "kind": "honest", "value": value}
            self.honest.add(event_id)
            self.send(json.dumps(fields | {"event_time": datetime.now(UTC).isoformat()}).encode())

    def send_all(self) -> None:
        for name, odd in CASES.items():
            self.values[name] = rendered(name, odd, datetime.now(UTC))
            record = self.send(self.values[name], odd)
            self.places[record.partition, record.offset] = name

    def send_again(self) -> None:
        for name, odd in CASES.items():
            if not odd.reason:
                self.send(self.values[name], odd)

    def settle(self) -> None:
        self.driver.wait_until(lambda: self.driver.has_done(self._sent))

    def restart(self) -> None:
        self.driver.kill()
        self.broker.kill()
        self.broker.restart()
        self.driver.start()

    def close_windows(self) -> None:
        """Windows end when later readings have come: time passes here, as it does for sensors."""
        end = time.monotonic() + UNTIL_WINDOWS_CLOSE_S
        while time.monotonic() < end:
            self.send_honest("clock", 0.0)
            time.sleep(1)
        self.settle()


class Ending(NamedTuple):
    """What came out."""

    run: Run
    rows: dict[str, list[Any]]
    """By event id: what is stored."""
    reasons: dict[tuple[int, int], set[str]]
    """By partition and offset: why it was refused."""
    windows: list[Any]


@pytest.fixture(scope="module")
def run(connector: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    directory = tmp_path_factory.mktemp("odd")
    with Broker({"num.partitions": 2}) as broker:
        broker.create_topic("aggregates")  # as whoever wrote or read first may have made it
        driver = Driver(broker, directory / "lake", directory / "driver.log")
        try:
            driver.wait_until(lambda: "alerts" in broker.topics())
            yield Run(broker, driver, directory / "lake")
        finally:
            driver.kill()


@pytest.fixture(scope="module")
def ending(run: Run, spark: Any) -> Ending:
    run.send_honest("boiler room/1", 1, 2, 3)
    run.send_honest("wild at first", 1e14)
    run.send_all()
    run.send_honest("boiler room/1", *[20 + number % 3 for number in range(30)])
    run.send_honest("wild at first", *[20 + number % 3 for number in range(30)])
    run.settle()
    run.send_again()
    run.send_honest("boiler room/1", 500)
    run.send_honest("wild at first", 500)
    run.settle()
    run.restart()
    run.send_again()
    run.close_windows()
    return found(run, spark)


def found(run: Run, spark: Any) -> Ending:
    rows: dict[str, list[Any]] = {}
    for row in spark.read.schema(STORED).parquet(str(run.lake / "readings")).collect():
        rows.setdefault(row.event_id, []).append(row)
    reasons: dict[tuple[int, int], set[str]] = {}
    for record in run.broker.records("readings-dead"):
        headers = {name: (value or b"").decode() for name, value in record.headers}
        place = int(headers["partition"]), int(headers["offset"])
        reasons.setdefault(place, set()).add(headers["why"])
    windows = spark.read.schema(WINDOWS).parquet(str(run.lake / "aggregates")).collect()
    return Ending(run, rows, reasons, windows)


@pytest.mark.parametrize("name", CASES)
def test_each_record_ends_where_it_should(ending: Ending, name: str) -> None:
    odd = CASES[name]
    [place] = (place for place, case in ending.run.places.items() if case == name)
    if odd.reason:
        assert ending.reasons.get(place) == {odd.reason}
        assert name not in ending.rows
    else:
        assert place not in ending.reasons
        [row] = ending.rows[name]
        sent = json.loads(ending.run.values[name] or b"")
        assert (row.device, row.kind, row.value) == (str(sent["device"]), sent["kind"], sent["value"])
        assert row.late == odd.is_late


def test_honest_readings_are_stored_and_in_time(ending: Ending) -> None:
    assert {event_id for event_id in ending.run.honest if len(ending.rows.get(event_id, [])) != 1} == set()
    assert {event_id for event_id in ending.run.honest if ending.rows[event_id][0].late} == set()


def test_nothing_else_is_stored(ending: Ending) -> None:
    expected = {name for name, odd in CASES.items() if not odd.reason} | ending.run.honest
    assert ending.rows.keys() == expected


def test_windows_have_every_reading_that_is_not_late(ending: Ending) -> None:
    """But for those of the sensor that has ended them, and is still in its own window."""
    in_time = [row for rows in ending.rows.values() for row in rows if not row.late and row.device != "clock"]
    counted = sum(row.readings for row in ending.windows if row.device != "clock")
    assert counted == len(in_time)
    keys = [(row.device, row.kind, row.start) for row in ending.windows]
    assert len(keys) == len(set(keys))


def test_alerts_name_their_device_in_the_record(ending: Ending) -> None:
    """Neither a slash, nor a wild value among the first, blinds the pipeline for a device."""
    alerts = [json.loads(record.value or b"") for record in ending.run.broker.records("alerts")]
    assert {alert["device"] for alert in alerts} == {"boiler room/1", "wild at first"}
    assert {alert["value"] for alert in alerts} == {500}
    assert all(20 <= alert["expected"] <= 22 for alert in alerts)


def test_no_name_comes_from_data(ending: Ending) -> None:
    assert set(ending.run.broker.topics()) == {"readings", "readings-dead", "aggregates", "alerts"}
    directories = {path.name for path in (ending.run.lake / "readings").iterdir() if path.is_dir()}
    assert {
        name for name in directories if not re.fullmatch(r"date=\d{4}-\d\d-\d\d|_spark_metadata", name)
    } == set()


def test_what_is_late_refused_or_double_is_counted(ending: Ending) -> None:
    counts = ending.run.driver.counts
    good = [odd for odd in CASES.values() if not odd.reason]
    assert counts["refused"] == len(CASES) - len(good)
    assert counts["late"] == sum(odd.is_late for odd in good)
    assert counts["stored"] == len(good) + len(ending.run.honest)
    assert counts["doubles"] == 2 * len(good)
    assert counts["dropped"] == 0


@pytest.mark.parametrize(
    ("topic", "setting", "value"),
    [("readings", "message.timestamp.type", "LogAppendTime"), ("aggregates", "cleanup.policy", "compact")],
)
def test_topics_get_the_settings_that_the_pipeline_relies_on(
    ending: Ending, topic: str, setting: str, value: str
) -> None:
    """Also one that was there before."""
    admin = KafkaAdminClient(bootstrap_servers=ending.run.broker.bootstrap)
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    admin.close()
    assert described["topic"][topic][setting]["value"] == value
