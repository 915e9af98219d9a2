"""Writes the function that decodes one message at one version.

The function is flat: nested structs and arrays become nested blocks and loops. Its bounds:

- every length is checked against the bytes that remain before anything is sliced;
- every element count is checked against the bytes that remain divided by the smallest element;
- nothing is allocated from a claimed size, so a frame can cost only a small multiple of its own bytes;
- unknown tagged fields are skipped by their length, and bytes after the message are left alone.

The same function comes as a generator for large messages: it yields after every `SLICE` elements, and raises
TooManyElements where all arrays together have more than it is told. Small elements take many times their own
bytes of memory, so that is what bounds the memory of a large message.
"""

from __future__ import annotations

from typing import Any

from wire.errors import TooManyElements
from wire.primitives import MalformedValue, longer_uvarint, read_uvarint
from wire.schema import REQUIRED, Field, Primitive, fields_of
from wire.source import Path, RunItem, Source, Step, minimum_struct_size, repeated, struct_method

LONGEST_STRING = 0x7FFF
SLICE = 256
"""Elements: some hundred microseconds."""


def decoder_source(cls: type, version: int, flexible: bool, fail: Any, *, in_slices: bool = False) -> Source:
    """`decode(data, pos=0) -> (message, pos)`; `fail(error, locals)` makes the exception to raise.

    In slices it is a generator that returns the same, `decode(data, pos, most_elements)`.
    """
    writer = _DecoderWriter(version, flexible, fail, in_slices)
    return writer.write(cls)


def too_many(most: int) -> TooManyElements:
    return TooManyElements(f"its arrays have more than {most} elements")


def overrun(length: int, remaining: int) -> MalformedValue:
    if length < 0:
        return MalformedValue("null where the field must not be null")
    return MalformedValue(f"claims {length} where {remaining} bytes remain")


def long_string_length(first: int, data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The length of a compact string of more than 126 bytes; Kafka ends strings at 32767."""
    length, position = longer_uvarint(first, data, position)
    if length > LONGEST_STRING + 1:
        raise MalformedValue(f"a string of {length - 1} bytes is longer than {LONGEST_STRING}")
    return length, position


def skip_tagged_fields(count: int, data: bytes | memoryview, position: int, end: int) -> int:
    """Pass over tagged fields that nobody here knows."""
    if count > 127:
        count, position = longer_uvarint(count, data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            raise overrun(size, end - position + size)
    return position


class _DecoderWriter:
    def __init__(self, version: int, flexible: bool, fail: Any, in_slices: bool) -> None:
        self.version = version
        self.in_slices = in_slices
        self.flexible = flexible
        self.run: list[RunItem] = []
        self.source = Source()
        self.source.names |= {
            "new": object.__new__,
            "fail": fail,
            "longer_uvarint": longer_uvarint,
            "long_string_length": long_string_length,
            "read_uvarint": read_uvarint,
            "skip_tagged_fields": skip_tagged_fields,
            "overrun": overrun,
            "too_many": too_many,
        }

    def write(self, cls: type) -> Source:
        source = self.source
        if self.in_slices:
            source.emit("def decode(data, pos, most):")
            source.emit(f" end, room, left = len(data), most, {SLICE}")
            source.emit(" if False: yield")
        else:
            source.emit("def decode(data, pos=0):")
            source.emit(" end = len(data)")
        source.emit(" try:")
        source.depth = 2
        source.emit(f"message = new({source.constant('C', cls)})")
        self.struct_body(cls, "message", ())
        source.emit("return message, pos")
        source.depth = 1
        source.emit("except Exception as error:")
        source.emit(" raise fail(error, locals()) from None")
        return source

    def struct_body(self, cls: type, target: str, path: Path) -> None:
        """Decode the fields of `cls` into the existing object `target`."""
        fields = fields_of(cls)
        tagged = [field for field in fields if field.is_tagged_in(self.version)]
        present = [field for field in fields if self.version in field.versions and field not in tagged]
        absent = [(f"{target}.{field.name}", field.default) for field in fields if field not in present]
        self.set_defaults(absent)
        for field in present:
            self.field(field, f"{target}.{field.name}", (*path, Step(field.name)))
        if self.flexible:
            self.tagged_fields(tagged, target, path)
        self.flush()

    def set_defaults(self, absent: list[tuple[str, Any]]) -> None:
        chained: dict[str, list[str]] = {}
        for target, default in absent:
            if default is REQUIRED:
                raise TypeError(f"{target} needs a default: version {self.version} does not have it")
            if isinstance(default, list):
                self.source.emit(f"{target} = []")
            else:
                chained.setdefault(self._literal(default), []).append(target)
        for literal, targets in chained.items():
            self.source.emit(f"{' = '.join(targets)} = {literal}")

    def _literal(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | str) or value == b"":
            return repr(value)
        return self.source.constant("D", value)

    # -- values of fixed size

    def fixed(self, target: str, format: str, size: int, path: Path) -> None:
        self.run.append(RunItem(target, format, size, path))

    def flush(self) -> None:
        """Unpack the run collected so far with one call."""
        if not self.run:
            return
        if len(self.run) == 1 and self.run[0].format == "B":
            self.source.emit(f"{self.run[0].expression} = data[pos]; pos += 1", run=self.run)
            self.run = []
            return
        targets = ", ".join(item.expression for item in self.run)
        format = "".join(item.format for item in self.run)
        size = sum(item.size for item in self.run)
        unpack = self.source.constant("U", struct_method(format, "unpack_from"))
        self.source.emit(f"{targets}, = {unpack}(data, pos)", run=self.run)
        self.source.emit(f"pos += {size}")
        self.run = []

    def length(self, path: Path, old_format: str, compact: bool, *, of_string: bool = False) -> str:
        """Read a length prefix into a fresh variable, ending the run; null is 0 if compact, else negative."""
        count = self.source.local("n")
        if not compact:
            self.fixed(count, old_format, {"h": 2, "i": 4}[old_format], path)
            self.flush()
            return count
        self.fixed(count, "B", 1, path)
        self.flush()
        longer = "long_string_length" if of_string else "longer_uvarint"
        self.source.emit(f"if {count} > 127: {count}, pos = {longer}({count}, data, pos)", path)
        return count

    # -- fields

    def field(self, field: Field, target: str, path: Path) -> None:
        compact = self.flexible and field.flexible
        nullable = field.is_nullable_in(self.version)
        if field.is_array:
            self.array(field.type, target, path, compact, nullable)
        elif isinstance(field.type, Primitive):
            self.primitive(field.type, target, path, compact, nullable)
        else:
            self.nested(field.type, target, path, nullable)

    def primitive(self, kind: Primitive, target: str, path: Path, compact: bool, nullable: bool) -> None:
        if kind.size:
            self.fixed(target, kind.format, kind.size, path)
            return
        is_string = kind.name == "string"
        count = self.length(path, "h" if is_string else "i", compact, of_string=is_string)
        read = {
            "string": "str(data[pos:stop], 'utf-8')",
            "bytes": "bytes(data[pos:stop])",
            "records": "data[pos:stop]",
        }[kind.name]
        source = self.source
        is_null = f"not {count}" if compact else f"{count} < 0"
        if nullable:
            source.emit(f"if {is_null}: {target} = None", path)
            source.emit("else:")
            source.depth += 1
            refused = "stop > end"
        else:
            refused = f"stop > end or {is_null}"
        shown = f"{count} - 1" if compact else count
        source.emit(f"stop = pos + {shown}", path)
        source.emit(f"if {refused}: raise overrun({shown}, end - pos)", path)
        source.emit(f"{target} = {read}", path)
        source.emit("pos = stop")
        if nullable:
            source.depth -= 1

    def nested(self, cls: type, target: str, path: Path, nullable: bool) -> None:
        """A struct field. A nullable one is led by a byte: negative for null."""
        source = self.source
        if nullable:
            lead = source.local("n")
            self.fixed(lead, "b", 1, path)
        self.flush()
        element = source.local("e")
        if nullable:
            source.emit(f"if {lead} < 0: {target} = None", path)
            source.emit("else:")
            source.depth += 1
        source.emit(f"{element} = {target} = new({source.constant('C', cls)})")
        self.struct_body(cls, element, path)
        if nullable:
            source.depth -= 1

    def array(self, kind: Primitive | type, target: str, path: Path, compact: bool, nullable: bool) -> None:
        count = self.length(path, "i", compact)
        source = self.source
        if compact:
            source.emit(f"{count} -= 1")
        if nullable:
            source.emit(f"if {count} < 0: {target} = None", path)
            source.emit("else:")
            source.depth += 1
        needed = self.check_count(kind, path, compact, count, nullable)
        self.elements(kind, target, path, compact, count, needed)
        if nullable:
            source.depth -= 1

    def check_count(
        self, kind: Primitive | type, path: Path, compact: bool, count: str, nullable: bool
    ) -> str:
        """Refuse a count that the remaining bytes cannot hold; returns the fewest bytes the elements take."""
        if isinstance(kind, Primitive):
            smallest = kind.size or (1 if compact else 2 if kind.name == "string" else 4)
        else:
            smallest = minimum_struct_size(kind, self.version, self.flexible)
        needed = f"{count} * {smallest}" if smallest > 1 else count
        refused = f"{needed} > end - pos" + ("" if nullable else f" or {count} < 0")
        self.source.emit(f"if {refused}: raise overrun({count}, end - pos)", path)
        if self.in_slices:
            self.source.emit(f"room -= {count}")
            self.source.emit("if room < 0: raise too_many(most)", path)
        return needed

    def elements(
        self, kind: Primitive | type, target: str, path: Path, compact: bool, count: str, needed: str
    ) -> None:
        source = self.source
        if isinstance(kind, Primitive) and kind.size:
            unpack = source.constant("R", repeated(kind, "unpack_from"))
            source.emit(f"{target} = list({unpack}[{count}](data, pos))", path)
            source.emit(f"pos += {needed}")
            return
        array = source.local("a")
        element = source.local("e")
        inside = (*path[:-1], Step(path[-1].name, array))
        source.emit(f"{array} = {target} = []")
        source.emit(f"for _ in range({count}) if {count} else ():")
        source.depth += 1
        if self.in_slices:
            source.emit("left -= 1")
            source.emit(f"if not left: left = {SLICE}; yield")
        if isinstance(kind, Primitive):
            self.primitive(kind, element, inside, compact, nullable=False)
            source.emit(f"{array}.append({element})")
        else:
            source.emit(f"{element} = new({source.constant('C', kind)})")
            source.emit(f"{array}.append({element})")
            self.struct_body(kind, element, inside)
        source.depth -= 1

    # -- tagged fields

    def tagged_fields(self, tagged: list[Field], target: str, path: Path) -> None:
        source = self.source
        count = source.local("n")
        here = (*path, Step("tagged fields"))
        self.fixed(count, "B", 1, here)
        self.flush()
        if not tagged:
            source.emit(f"if {count}: pos = skip_tagged_fields({count}, data, pos, end)", here)
            return
        tag, limit = source.local("t"), source.local("l")
        source.emit(f"if {count}:")
        source.depth += 1
        source.emit(f"if {count} > 127: {count}, pos = longer_uvarint({count}, data, pos)", here)
        source.emit(f"for _ in range({count}):")
        source.depth += 1
        source.emit(f"{tag}, pos = read_uvarint(data, pos)", here)
        source.emit(f"{limit}, pos = read_uvarint(data, pos)", here)
        source.emit(f"{limit} += pos", here)
        source.emit(f"if {limit} > end: raise overrun({limit} - pos, end - pos)", here)
        for number, field in enumerate(tagged):
            source.emit(f"{'el' if number else ''}if {tag} == {field.tag}:")
            source.depth += 1
            self.field(field, f"{target}.{field.name}", (*path, Step(field.name)))
            self.flush()
            source.emit(f"if pos != {limit}: raise overrun(pos - {limit}, 0)", (*path, Step(field.name)))
            source.depth -= 1
        source.emit(f"else: pos = {limit}")
        source.depth -= 2
