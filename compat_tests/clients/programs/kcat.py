"""kcat, as a program that `program.py` speaks with: every request is a run of the command."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import threading
from typing import Any

from compat_tests.clients.programs.lines import (
    HEARTBEAT_MS,
    LARGEST_RECORD,
    METADATA_MS,
    SESSION_MS,
    report,
    serve,
    to_bytes,
    to_text,
)

ADDRESS = sys.argv[-1]
END, KEY = b"<end>", b"<key>"
FORMAT = "%p %o %T %K %S %h\\n%k%s"
EARLIEST, LATEST = -2, -1
ASSIGNORS = {"range": "range", "cooperative": "cooperative-sticky"}
CODES = {"Offset out of range": 1, "Unknown topic or partition": 3, "Message size too large": 10}


class KcatFailed(Exception):
    """It ended with an error."""


def code_of(error: Exception) -> int:
    return next((code for text, code in CODES.items() if text in str(error)), -1)


def command(*options: str, **settings: Any) -> list[str]:
    """Underscores in names of settings stand for dots."""
    pairs = [word for name, value in settings.items() for word in ("-X", f"{name.replace('_', '.')}={value}")]
    return ["kcat", "-b", ADDRESS, *pairs, *options]


def kcat(*options: str, given: bytes = b"", timeout_s: float = 30, **settings: Any) -> bytes:
    done = subprocess.run(command(*options, **settings), input=given, capture_output=True, timeout=timeout_s)
    if done.returncode or b"% ERROR" in done.stderr or b"Delivery failed" in done.stderr:
        raise KcatFailed(done.stderr.decode())
    return done.stdout


def produce(
    topic: str, records: list[Any], codec: str = "none", acks: str = "all", idempotent: bool = False
) -> Any:
    """One run for records that options can describe together. It tells nothing of offsets."""

    def options(record: Any) -> tuple[Any, ...]:
        headers = tuple(f"{name}={(to_bytes(value) or b'').decode()}" for name, value in record["headers"])
        return record["partition"], headers, record["value"] is None

    by_partition = sorted(records, key=lambda record: record["partition"] or 0)
    for (partition, headers, is_null), group in itertools.groupby(by_partition, options):
        words = ["-P", "-t", topic, "-z", codec, "-D", END.decode(), "-K", KEY.decode()]
        words += ["-p", str(partition)] if partition is not None else []
        words += [word for header in headers for word in ("-H", header)]
        settings: dict[str, Any] = {
            "acks": acks,
            "enable.idempotence": idempotent,
            "message.max.bytes": LARGEST_RECORD,
        }
        kcat(*words, *(["-Z"] if is_null else []), given=b"".join(map(as_input, group)), **settings)
    return {"offsets": []}


def as_input(record: Any) -> bytes:
    key = to_bytes(record["key"])
    return (b"" if key is None else key + KEY) + (to_bytes(record["value"]) or b"") + END


def consume(
    topic: str, starts: dict[str, int], count: int, reset: str = "none", timeout_ms: int = 30_000
) -> Any:
    """A run for each partition, to its end; where it starts at the end, to the first record."""
    policy = {"none": "error"}.get(reset, reset)
    records: list[Any] = []
    for number, offset in starts.items():
        words = ["-C", "-q", "-t", topic, "-p", number, "-o", str(offset), "-f", FORMAT]
        words += ["-c", str(count)] if reset == "latest" else ["-e"]
        records += parsed(
            kcat(*words, timeout_s=timeout_ms / 1000, topic_auto_offset_reset=policy, fetch_wait_max_ms=100)
        )
    return {"records": records[:count]}


def parsed(output: bytes) -> list[Any]:
    records = []
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        partition, offset, timestamp, key_size, value_size, headers = output[position:end].split(b" ", 5)
        position = end + 1
        key, position = taken(output, position, int(key_size))
        value, position = taken(output, position, int(value_size))
        pairs = [one.split(b"=", 1) for one in headers.split(b",") if one]
        records.append(
            {
                "partition": int(partition),
                "offset": int(offset),
                "key": to_text(key),
                "value": to_text(value),
                "headers": [(name.decode(), to_text(text)) for name, text in pairs],
                "timestamp": int(timestamp),
            }
        )
    return records


def taken(output: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    return (None, position) if size < 0 else (output[position : position + size], position + size)


def member(
    group: str,
    topics: list[str] | None = None,
    pattern: str | None = None,
    assignor: str = "range",
    instance_id: str | None = None,
    count: int | None = None,
    session_ms: int = SESSION_MS,
) -> Any:
    settings = {
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "partition.assignment.strategy": ASSIGNORS[assignor],
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "topic.metadata.refresh.interval.ms": METADATA_MS,
    }
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    words = [
        "-G",
        group,
        "-E",
        "-u",
        "-f",
        "%t %p %o %s\\n",
        *(["-c", str(count)] if count is not None else []),
    ]
    process = subprocess.Popen(
        command(*words, *(topics or [pattern or ""]), **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    threads = [
        threading.Thread(target=report_records, args=(process,)),
        threading.Thread(target=report_rebalances, args=(process,)),
    ]
    for thread in threads:
        thread.start()
    if count is None:
        sys.stdin.readline()
        process.send_signal(signal.SIGINT)
    process.wait()
    for thread in threads:
        thread.join()
    return {"left": True}


def report_records(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        topic, partition, offset, value = line.rstrip("\n").split(" ", 3)
        report(records=[[topic, int(partition), int(offset), to_text(value.encode())]])


def report_rebalances(process: subprocess.Popen[str]) -> None:
    """Told on stderr: ... assigned: t [0], t [1]; ... incremental revoke of 1 partition(s) ...: t [0]."""
    mine: set[tuple[str, int]] = set()
    assert process.stderr is not None
    for line in process.stderr:
        if not line.startswith("% Group"):
            continue
        places = {(topic, int(number)) for topic, number in re.findall(r"(\S+) \[(\d+)\]", line)}
        mine = mine - places if "revoke" in line else mine | places
        report(assigned=sorted(mine))


def metadata() -> Any:
    return json.loads(kcat("-L", "-J"))


def topics() -> Any:
    return {"topics": [one["topic"] for one in metadata()["topics"]]}


def describe_topic(topic: str) -> Any:
    [found] = [one for one in metadata()["topics"] if one["topic"] == topic]
    return {"leaders": {one["partition"]: one["leader"] for one in found["partitions"]}}


def offsets(topic: str, at: Any) -> Any:
    time = {"earliest": EARLIEST, "latest": LATEST}.get(at, at)
    asked = [f"{topic}:{number}:{time}" for number in describe_topic(topic)["leaders"]]
    output = kcat("-Q", *(word for one in asked for word in ("-t", one))).decode()
    found = re.findall(r"\[(\d+)\] offset (-?\d+)", output)
    return {"offsets": {number: int(offset) for number, offset in found}}


def cluster() -> Any:
    found = metadata()
    places = [(one["id"], *one["name"].rsplit(":", 1)) for one in found["brokers"]]
    return {
        "brokers": [[number, host, int(port)] for number, host, port in places],
        "controller": found["controllerid"],
    }


VERBS = (produce, consume, member, offsets, cluster, topics, describe_topic)

if __name__ == "__main__":
    serve({verb.__name__: verb for verb in VERBS}, code_of)
