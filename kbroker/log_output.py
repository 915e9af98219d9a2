"""The broker's own log, on stderr: a line for people, or a JSON object a line for machines.

A JSON line has `time` (UTC), `level`, `logger`, `message` and, after a failure, `exception`: the traceback.
"""

from __future__ import annotations

import json
import logging
import time

PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """One object a line, whatever stands in the message."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def start_logging(level: str, format: str) -> None:
    """From here on everything that is logged goes to stderr; the root logger must be as Python made it."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if format == "json" else logging.Formatter(PLAIN))
    logging.basicConfig(level=level.upper(), handlers=[handler])
