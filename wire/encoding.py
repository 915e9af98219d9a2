"""Writes the function that encodes one message at one version.

The function appends buffers to a list: small ones it makes itself, and `record_bytes` as they are, so that
record data goes from the log to the socket without a copy. A field outside the version is not written; a
tagged field is written only when it differs from its default. Values that do not fit the format raise
`WireError` with the field's path: they are bugs of the caller, found before a byte is sent.

The same function comes as a generator for large messages: it yields after every `SLICE` elements.
"""

from __future__ import annotations

from typing import Any

from wire.primitives import ONE_BYTE_UVARINTS, MalformedValue, uvarint
from wire.schema import Field, Primitive, fields_of
from wire.source import Path, RunItem, Source, Step, repeated, struct_method

SLICE = 256
"""Elements: some hundred microseconds."""


def encoder_source(cls: type, version: int, flexible: bool, fail: Any, *, in_slices: bool = False) -> Source:
    """`encode(message, out)`; `fail(error, locals)` makes the exception to raise."""
    writer = _EncoderWriter(version, flexible, fail, in_slices)
    return writer.write(cls)


def tagged_section(tagged: list[tuple[int, list[Any]]]) -> bytes:
    """The tagged fields of a struct, each with its number and length, lowest number first."""
    parts = [uvarint(len(tagged))]
    for tag, buffers in sorted(tagged):
        value = b"".join(buffers)
        parts += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(parts)


def long_string(length: int) -> int:
    """The prefix of a compact string of more than 126 bytes; Kafka ends strings at 32767."""
    if length > 0x8000:
        raise MalformedValue(f"a string of {length - 1} bytes is longer than {0x7FFF}")
    return length


class _EncoderWriter:
    def __init__(self, version: int, flexible: bool, fail: Any, in_slices: bool) -> None:
        self.version = version
        self.in_slices = in_slices
        self.flexible = flexible
        self.run: list[RunItem] = []
        self.write_to = "w"
        self.source = Source()
        self.source.names |= {
            "fail": fail,
            "uvarint": uvarint,
            "small": ONE_BYTE_UVARINTS,
            "long_string": long_string,
            "tagged_section": tagged_section,
        }

    def write(self, cls: type) -> Source:
        source = self.source
        source.emit("def encode(message, out):")
        source.emit(" w = out.append")
        if self.in_slices:
            source.emit(f" left = {SLICE}")
            source.emit(" if False: yield")
        source.emit(" try:")
        source.depth = 2
        self.struct_body(cls, "message", ())
        self.flush()
        source.emit("return")
        source.depth = 1
        source.emit("except Exception as error:")
        source.emit(" raise fail(error, locals()) from error")
        return source

    def struct_body(self, cls: type, value: str, path: Path) -> None:
        """Encode the fields of `value`; a run may be left open for what follows."""
        tagged: list[Field] = []
        for field in fields_of(cls):
            if self.version not in field.versions:
                continue
            if field.is_tagged_in(self.version):
                tagged.append(field)
            else:
                self.field(field, f"{value}.{field.name}", (*path, Step(field.name)))
        if self.flexible:
            self.tagged_fields(tagged, value, path)

    # -- values of fixed size

    def fixed(self, expression: str, format: str, path: Path) -> None:
        self.run.append(RunItem(expression, format, 0, path))

    def pack_call(self, run: list[RunItem]) -> str:
        arguments = ", ".join(item.expression for item in run if item.expression)
        format = "".join(item.format for item in run)
        pack = self.source.constant("P", struct_method(format, "pack"))
        return f"{self.write_to}({pack}({arguments}))"

    def flush(self) -> None:
        if not self.run:
            return
        if not any(item.expression for item in self.run):
            self.source.emit(f"{self.write_to}({bytes(len(self.run))!r})")
        else:
            self.source.emit(self.pack_call(self.run), run=self.run)
        self.run = []

    def length(self, count: str, old_format: str, path: Path, compact: bool, is_string: bool = False) -> None:
        """Write a length prefix together with the run that leads up to it; compact lengths are one more."""
        if not compact:
            self.fixed(count, old_format, path)
            self.flush()
            return
        source = self.source
        longer = f"uvarint(long_string({count}))" if is_string else f"uvarint({count})"
        if not self.run:
            source.emit(f"{self.write_to}(small[{count}] if {count} < 128 else {longer})", path)
            return
        with_length = [*self.run, RunItem(count, "B", 0, path)]
        source.emit(f"if {count} < 128:", path)
        source.depth += 1
        source.emit(self.pack_call(with_length), run=with_length)
        source.depth -= 1
        source.emit("else:")
        source.depth += 1
        self.flush()
        source.emit(f"{self.write_to}({longer})", path)
        source.depth -= 1

    # -- fields

    def field(self, field: Field, value: str, path: Path) -> None:
        compact = self.flexible and field.flexible
        nullable = field.is_nullable_in(self.version)
        if field.is_array:
            self.array(field.type, value, path, compact, nullable)
        elif isinstance(field.type, Primitive):
            self.primitive(field.type, value, path, compact, nullable)
        else:
            self.nested(field.type, value, path, nullable)

    def primitive(self, kind: Primitive, value: str, path: Path, compact: bool, nullable: bool) -> None:
        if kind.size:
            self.fixed(value, kind.format, path)
            return
        source = self.source
        is_string = kind.name == "string"
        data, count = source.local("v"), source.local("n")
        extra = " + 1" if compact else ""
        source.emit(f"{data} = {value}", path)
        encode = f"{data} = {data}.encode()" if is_string else ""
        if nullable:
            source.emit(f"if {data} is None: {count}, {data} = {0 if compact else -1}, b''", path)
            source.emit("else:")
            source.emit(f" {encode + '; ' if encode else ''}{count} = len({data}){extra}", path)
        else:
            source.emit(f"{encode + '; ' if encode else ''}{count} = len({data}){extra}", path)
        self.length(count, "h" if is_string else "i", path, compact, is_string)
        source.emit(f"{self.write_to}({data})", path)

    def nested(self, cls: type, value: str, path: Path, nullable: bool) -> None:
        """A struct field. A nullable one is led by a byte: -1 for null, 1 otherwise."""
        source = self.source
        element = source.local("e")
        if not nullable:
            source.emit(f"{element} = {value}", path)
            self.struct_body(cls, element, path)
            return
        self.flush()
        source.emit(f"{element} = {value}", path)
        source.emit(f"if {element} is None: {self.write_to}(b'\\xff')")
        source.emit("else:")
        source.depth += 1
        self.fixed("1", "b", path)
        self.struct_body(cls, element, path)
        self.flush()
        source.depth -= 1

    def array(self, kind: Primitive | type, value: str, path: Path, compact: bool, nullable: bool) -> None:
        source = self.source
        array, count = source.local("a"), source.local("n")
        source.emit(f"{array} = {value}", path)
        size = f"len({array}){' + 1' if compact else ''}"
        if nullable:
            source.emit(f"if {array} is None: {count}, {array} = {0 if compact else -1}, ()", path)
            source.emit(f"else: {count} = {size}", path)
        else:
            source.emit(f"{count} = {size}", path)
        self.length(count, "i", path, compact)
        if isinstance(kind, Primitive) and kind.size:
            pack = source.constant("R", repeated(kind, "pack"))
            source.emit(f"if {array}: {self.write_to}({pack}[len({array})](*{array}))", path)
            return
        element = source.local("e")
        inside = (*path[:-1], Step(path[-1].name + "[]"))
        source.emit(f"for {element} in {array}:", path)
        source.depth += 1
        if self.in_slices:
            source.emit("left -= 1")
            source.emit(f"if not left: left = {SLICE}; yield")
        if isinstance(kind, Primitive):
            self.primitive(kind, element, inside, compact, nullable=False)
        else:
            self.struct_body(kind, element, inside)
        self.flush()
        source.depth -= 1

    # -- tagged fields

    def tagged_fields(self, tagged: list[Field], value: str, path: Path) -> None:
        if not tagged:
            self.fixed("", "x", path)
            return
        self.flush()
        source = self.source
        section = source.local("t")
        source.emit(f"{section} = []")
        outer = self.write_to
        for field in tagged:
            expression = f"{value}.{field.name}"
            differs = (
                f"{expression} is not None" if field.default is None else self.differs(field, expression)
            )
            buffers = source.local("b")
            here = (*path, Step(field.name))
            source.emit(f"if {differs}:", here)
            source.depth += 1
            source.emit(f"{buffers} = []")
            self.write_to = f"{buffers}.append"
            self.field(field, expression, here)
            self.flush()
            source.emit(f"{section}.append(({field.tag}, {buffers}))")
            source.depth -= 1
        self.write_to = outer
        source.emit(f"{outer}(tagged_section({section}) if {section} else b'\\0')", path)

    def differs(self, field: Field, expression: str) -> str:
        if field.default is None:
            return f"{expression} is not None"
        if isinstance(field.default, list):
            return f"{expression} is None or {expression}"
        return f"{expression} != {self.source.constant('D', field.default)}"
