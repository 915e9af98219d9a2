"""The reply to a request that failed as a whole, made from the tables of its API: each thing asked for fails.

Rules:
- The error stands where the response has a place for it: in itself, or else in the answer to each topic,
  partition, group or whatever was asked for, and in nothing below that.
- What was asked for is found in the request: the array with the name of the response's, or else the only one.
  Its elements say whom an answer is for: by fields of the same name or, as bare names or numbers, themselves.
- All else is empty, null or unknown. Where the request does not say what was asked for ("all topics"), or the
  tables are too different, there is no reply: HangUp, and the client knows that something is wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from kbroker.context import HangUp
from wire.errors import ErrorCode
from wire.schema import REQUIRED, Field, Primitive, fields_of

UNKNOWN = {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "bool": False}
OTHER_NAMES = {
    "partition_index": ("partition", "index"),
    "partition": ("partition_index", "index"),
    "index": ("partition_index", "partition"),
    "topic": ("name",),
    "name": ("topic",),
}
"""What Kafka calls one thing in requests and in responses."""
KINDS = {str: ("string",), int: ("int32", "int64"), bytes: ("uuid",)}


class Refusal(NamedTuple):
    """What every answer says."""

    version: int
    code: ErrorCode
    message: str

    def response(self, response: type, request: object) -> Any:
        """HangUp where there is no such response."""
        answering = self.in_slices(response, request)
        try:
            while True:
                next(answering)
        except StopIteration as done:
            return done.value

    def in_slices(self, response: type, request: object) -> Generator[None, None, Any]:
        """The same for a large request."""
        if not leads_to_error(response, self.version):
            raise HangUp(
                f"{response.__name__} v{self.version} has no place for {self.code.name}: {self.message}"
            )
        return (yield from self._answer(response, request))

    def _answer(self, cls: type, asked: object) -> Generator[None, None, Any]:
        """An instance of a table, for what was asked for: a struct of the request, or a bare value."""
        says_it_here = has_error(cls, self.version)
        bare = None if hasattr(asked, "__slots__") else _field_for(cls, asked)
        values: dict[str, Any] = {}
        for field in fields_of(cls):
            if is_error(field):
                values[field.name] = self.code
            elif field.name == "error_message":
                values[field.name] = self.message
            elif self._is_answered_below(field) and not says_it_here:
                values[field.name] = answers = []
                for one in self._elements(asked, field):
                    answers.append((yield from self._answer(field.type, one)))  # type: ignore[arg-type]
                    yield
            elif _is_repeated(field, asked):
                values[field.name] = [_copied(field.type, one) for one in getattr(asked, field.name)]
            elif field is bare:
                values[field.name] = asked
            elif (named := _named(asked, field)) is not None:
                values[field.name] = named
            elif field.default is REQUIRED:
                values[field.name] = _nothing(field)
        return cls(**values)

    def _is_answered_below(self, field: Field) -> bool:
        if not field.is_array or isinstance(field.type, Primitive) or self.version not in field.versions:
            return False
        return leads_to_error(field.type, self.version)

    def _elements(self, asked: object, field: Field) -> Iterator[object]:
        arrays = {f.name: f for f in _fields_of(asked) if f.is_array and self.version in f.versions}
        found = arrays.get(field.name) or (next(iter(arrays.values())) if len(arrays) == 1 else None)
        elements = None if found is None else getattr(asked, found.name)
        if found is None or elements is None or not _match(field.type, found.type):
            raise HangUp(f"{self.code.name}, for which a reply has no place: {self.message}")
        yield from elements


def is_error(field: Field) -> bool:
    return field.name.endswith("error_code")


def is_said(field: Field) -> bool:
    """Whether it tells of the error, rather than of what was asked for."""
    return is_error(field) or field.name == "error_message"


def _is_repeated(field: Field, asked: object) -> bool:
    """Whether an answer repeats an array of structs, as the entity of a quota, to say what it is for."""
    if not field.is_array or isinstance(field.type, Primitive) or field.default is not REQUIRED:
        return False
    theirs = next((one for one in _fields_of(asked) if one.name == field.name and one.is_array), None)
    if theirs is None or isinstance(theirs.type, Primitive):
        return False
    ours = fields_of(field.type)
    if any(one.is_array or is_error(one) or not isinstance(one.type, Primitive) for one in ours):
        return False
    return {one.name for one in ours} <= {one.name for one in fields_of(theirs.type)}


def _copied(cls: Any, asked: object) -> Any:
    return cls(**{field.name: getattr(asked, field.name) for field in fields_of(cls)})


def _fields_of(message: object) -> tuple[Field, ...]:
    table: type = type(message)
    return tuple(fields_of(table)) if hasattr(message, "__slots__") else ()


def has_error(cls: type, version: int) -> bool:
    return any(is_error(field) and version in field.versions for field in fields_of(cls))


def leads_to_error(cls: type, version: int) -> bool:
    """Whether an instance, or an element of an array in it, can say that it failed."""
    return has_error(cls, version) or any(
        field.is_array
        and version in field.versions
        and not isinstance(field.type, Primitive)
        and leads_to_error(field.type, version)
        for field in fields_of(cls)
    )


def _match(answer: Primitive | type, asked: Primitive | type) -> bool:
    """Whether an answer can say for which of the things asked for it is; some say so by their place alone."""
    if isinstance(asked, Primitive) or isinstance(answer, Primitive):
        return True
    names = {name for field in fields_of(asked) for name in (field.name, *OTHER_NAMES.get(field.name, ()))}
    identities = [
        field.name
        for field in fields_of(answer)
        if field.default is REQUIRED and not (is_said(field) or field.is_array)
    ]
    return not identities or not names.isdisjoint(identities)


def _field_for(cls: type, bare: object) -> Field | None:
    """The field of an answer that holds the bare name or number it is for: the first of the kind."""
    kinds = KINDS.get(type(bare), ())
    for field in fields_of(cls):
        is_message = is_said(field)
        if (
            isinstance(field.type, Primitive)
            and field.type.name in kinds
            and not (field.is_array or is_message)
        ):
            return field
    return None


def _named(asked: object, field: Field) -> Any:
    """What the request says for a field that names something and is no result; None for nothing."""
    if field.is_array or not isinstance(field.type, Primitive):
        return None
    if field.default is not REQUIRED and field.type.name not in ("string", "uuid"):
        return None
    for name in (field.name, *OTHER_NAMES.get(field.name, ())):
        value = getattr(asked, name, None)
        if type(value) in KINDS and field.type.name in (*KINDS[type(value)], "int8", "int16"):
            return value
    return None


def _nothing(field: Field) -> Any:
    if field.is_array:
        return []
    if field.name == "throttle_time_ms":
        return 0
    if not isinstance(field.type, Primitive):
        raise HangUp(f"an error reply would need a {field.type.__name__}")
    return UNKNOWN.get(field.type.name, -1)
