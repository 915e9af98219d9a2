"""Compiles a message at one version into a flat function, on first use, and keeps it.

    message, position = decoder(FetchRequest, 12)(frame, position)
    encoder(FetchResponse, 12)(response, buffers)

`decode` and `encode` are the same for those who call once. Decoding takes `bytes` or a `memoryview` and
copies all it keeps, but for `record_bytes`, which is a slice of what it was given: a copy from `bytes`, and
from a memoryview a view, which the caller must have used up before the buffer is filled again.

Whatever is wrong with the bytes comes out as `WireError` with the message, its version, the path of the field
and the byte it begins at; see `wire.source` for how that costs nothing as long as nothing is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar, cast

from wire.decoding import decoder_source
from wire.encoding import encoder_source
from wire.errors import WireError
from wire.primitives import Buffer, MalformedValue
from wire.schema import MessageInfo, info_of

T = TypeVar("T")

Decoder = Callable[..., tuple[T, int]]
Encoder = Callable[[T, list[Buffer]], None]
SlicingDecoder = Callable[[Buffer, int, int], Generator[None, None, tuple[T, int]]]
SlicingEncoder = Callable[[T, list[Buffer]], Generator[None, None, None]]
"""Yield where something else may be done first."""


_decoders: dict[tuple[type, int], Any] = {}
_encoders: dict[tuple[type, int], Any] = {}
_slicing_decoders: dict[tuple[type, int], Any] = {}
_slicing_encoders: dict[tuple[type, int], Any] = {}


def decoder(cls: type[T], version: int) -> Decoder[T]:
    """`(data, position=0) -> (message, position after it)`."""
    function = _decoders.get((cls, version))
    if function is None:
        function = _decoders[cls, version] = _compile_decoder(cls, version)
    return cast("Decoder[T]", function)


def encoder(cls: type[T], version: int) -> Encoder[T]:
    """`(message, buffers) -> None`, appending the message to the list of buffers."""
    function = _encoders.get((cls, version))
    if function is None:
        function = _encoders[cls, version] = _compile_encoder(cls, version)
    return cast("Encoder[T]", function)


def slicing_decoder(cls: type[T], version: int) -> SlicingDecoder[T]:
    """`(data, position, most_elements) -> generator`, which returns what a decoder does."""
    function = _slicing_decoders.get((cls, version))
    if function is None:
        function = _slicing_decoders[cls, version] = _compile_decoder(cls, version, in_slices=True)
    return cast("SlicingDecoder[T]", function)


def slicing_encoder(cls: type[T], version: int) -> SlicingEncoder[T]:
    """`(message, buffers) -> generator`."""
    function = _slicing_encoders.get((cls, version))
    if function is None:
        function = _slicing_encoders[cls, version] = _compile_encoder(cls, version, in_slices=True)
    return cast("SlicingEncoder[T]", function)


def decode(cls: type[T], data: bytes | memoryview, version: int) -> T:
    """Decode one message; bytes after it are ignored, as Kafka ignores them."""
    return decoder(cls, version)(data, 0)[0]


def encode(message: object, version: int) -> bytes:
    buffers: list[Buffer] = []
    encoder(type(message), version)(message, buffers)
    return b"".join(buffers)


def checked_info(cls: type, version: int) -> MessageInfo:
    info = info_of(cls)
    if version not in info.versions:
        raise WireError(f"{info.name} v{version} is not known; versions {info.versions} are")
    return info


def _compile_decoder(cls: type, version: int, *, in_slices: bool = False) -> Any:
    info = checked_info(cls, version)

    def failure(error: Exception, variables: Mapping[str, Any]) -> Exception:
        """What malformed bytes raise becomes a WireError; anything else is a bug and stays what it is."""
        if not isinstance(error, struct.error | ValueError | IndexError):
            return error
        field, position = source.locate_read(_line_of(error), variables)
        reason = str(error) if isinstance(error, MalformedValue | UnicodeError) else "the data ends too early"
        return WireError(f"{info.name} v{version}: {field} at byte {position}: {reason}")

    source = decoder_source(cls, version, version in info.flexible, failure, in_slices=in_slices)
    return source.compile("decode", f"decode {info.name} v{version}")


def _compile_encoder(cls: type, version: int, *, in_slices: bool = False) -> Any:
    info = checked_info(cls, version)

    def failure(error: Exception, variables: Mapping[str, Any]) -> Exception:
        if not isinstance(error, struct.error | ValueError | TypeError | AttributeError):
            return error
        field = source.locate_write(_line_of(error), variables)
        return WireError(f"cannot encode {info.name} v{version}: {field}: {error}")

    source = encoder_source(cls, version, version in info.flexible, failure, in_slices=in_slices)
    return source.compile("encode", f"encode {info.name} v{version}")


def _line_of(error: Exception) -> int:
    """The line of the compiled function that raised, or called what raised."""
    return error.__traceback__.tb_lineno if error.__traceback__ else 0
