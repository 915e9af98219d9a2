r"""A `server.properties` file, and `key=value` on the command line.

The syntax is that of Java's Properties:

- A line is a key, then `=`, `:` or white space, then the value. White space before the key and around the
  separator does not count; white space after the value does.
- A line that starts with `#` or `!` is a comment. A blank line is nothing.
- A line that ends in an odd number of backslashes goes on in the next one, whose leading white space does not
  count. A comment does not go on.
- \t \n \r \f and \uXXXX are what they are in Java; before any other character a backslash disappears.
- A key that is given twice has its last value.

Java reads ISO 8859-1. So do we, unless the file is UTF-8, which is what people write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kbroker.config import ConfigError

_SPACE = " \t\f"
_LINE = re.compile(r"(?P<key>(?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """What a file says. ConfigError names the line that makes no sense."""
    properties = {}
    for number, line in _logical_lines(_decode(data)):
        if match := _LINE.fullmatch(line):
            try:
                properties[_unescape(match["key"])] = _unescape(match["value"])
            except ValueError:
                raise ConfigError(f"line {number}: \\u needs four hexadecimal digits") from None
    return properties


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """`key=value`, one after the other, without any escapes."""
    properties = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{assignment!r} is not of the form key=value")
        properties[name.strip()] = value
    return properties


def _decode(data: bytes) -> str:
    if b"\0" in data:  # Java would take it for a part of keys that nobody knows
        raise ConfigError("this is not a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with their continuations, and the number of the first."""
    whole, begun = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_SPACE)
        if not whole:
            if not line or line[0] in "#!":
                continue
            begun = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            whole += line[:-1]
            continue
        yield begun, whole + line
        whole = ""
    if whole:
        yield begun, whole


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped == "u":
        raise ValueError
    return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _CHARACTERS.get(escaped, escaped)
