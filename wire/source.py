"""Source text of one codec function, with a map from its lines back to the fields of the message.

The generated functions carry no bookkeeping for errors: when one raises, the number of the line it stood on
leads to the field, and its local variables to the position and to the array elements it had reached. A *run*
collects neighbouring values of fixed size, so that one `struct` call moves them all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from wire.schema import Field, Primitive, fields_of


class Step(NamedTuple):
    """One step of a field path; `array` is the local variable that holds the array's elements so far."""

    name: str
    array: str | None = None


Path = tuple[Step, ...]


class RunItem(NamedTuple):
    """A value of fixed size: its expression in the generated code (or target), format, size, and field."""

    expression: str
    format: str
    size: int
    path: Path


class Source:
    """Lines of a function under construction, the names it uses, and the path of each line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.paths: dict[int, Path] = {}
        self.runs: dict[int, list[RunItem]] = {}
        self.depth = 0
        self._count = 0

    def emit(self, line: str, path: Path = (), run: list[RunItem] | None = None) -> None:
        self.lines.append(" " * self.depth + line)
        if run:
            self.runs[len(self.lines)] = run
        else:
            self.paths[len(self.lines)] = path

    def local(self, prefix: str) -> str:
        """A fresh variable name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: Any) -> str:
        """A fresh global of the function, bound to `value`."""
        name = self.local(prefix)
        self.names[name] = value
        return name

    def compile(self, name: str, label: str) -> Callable[..., Any]:
        exec(compile("\n".join(self.lines), f"<wire {label}>", "exec"), self.names)
        function: Callable[..., Any] = self.names[name]
        return function

    def locate_read(self, line: int, variables: Mapping[str, Any]) -> tuple[str, int]:
        """The field that a line of a decoder was about, and the byte at which it begins."""
        position, end = variables["pos"], variables["end"]
        path = self.paths.get(line, ())
        for item in self.runs.get(line, ()):
            path = item.path
            if position + item.size > end:
                break
            position += item.size
        return describe(path, variables), position

    def locate_write(self, line: int, variables: Mapping[str, Any]) -> str:
        """The field that a line of an encoder was about: of a run, the value that does not fit."""
        for item in self.runs.get(line, ()):
            try:
                value = eval(item.expression or "0", self.names, dict(variables))
                struct.pack(">" + item.format, *(() if item.format == "x" else (value,)))
            except (struct.error, TypeError, AttributeError):
                return describe(item.path, variables)
        return describe(self.paths.get(line, ()), variables)


def describe(path: Path, variables: Mapping[str, Any]) -> str:
    return ".".join(_describe_step(step, variables) for step in path) or "message"


def _describe_step(step: Step, variables: Mapping[str, Any]) -> str:
    if step.array is None:
        return step.name
    elements = variables.get(step.array)
    return f"{step.name}[{len(elements) - 1}]" if elements else f"{step.name}[]"


class Repeated(dict[int, Any]):
    """`struct` methods for n values of one primitive, made on first use; only small n are kept."""

    def __init__(self, element: Primitive, method: str) -> None:
        super().__init__()
        self._element = element
        self._method = method

    def __missing__(self, count: int) -> Any:
        element = self._element
        format = element.format * count if len(element.format) > 1 else f"{count}{element.format}"
        function = getattr(struct.Struct(">" + format), self._method)
        if count <= 64:
            self[count] = function
        return function


@cache
def repeated(element: Primitive, method: str) -> Repeated:
    return Repeated(element, method)


@cache
def struct_method(format: str, method: str) -> Any:
    """`unpack_from` or `pack` of a format, shared by every function that needs it."""
    return getattr(struct.Struct(">" + format), method)


def minimum_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that a field of a message can take: what bounds the length of an array."""
    compact = flexible and field.flexible
    if field.is_array:
        return 1 if compact else 4
    if isinstance(field.type, Primitive):
        if field.type.size:
            return field.type.size
        return 1 if compact else 2 if field.type.name == "string" else 4
    return 1 if field.is_nullable_in(version) else minimum_struct_size(field.type, version, flexible)


def minimum_struct_size(cls: type, version: int, flexible: bool) -> int:
    present = (f for f in fields_of(cls) if version in f.versions and not f.is_tagged_in(version))
    return sum(minimum_size(field, version, flexible) for field in present) + flexible
