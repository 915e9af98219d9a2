"""Reads Kafka's own message specifications and compares them with the tables of `wire`.

Two layouts are compared field by field at every version that both sides know: name, type, nullability, tag,
default, in wire order. `DELIBERATE` is the whole list of differences that are meant.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wire.schema import REQUIRED, Primitive, Versions, fields_of, info_of

DELIBERATE = {
    "absent tagged struct": "Kafka fills an absent tagged struct with defaults; here it is None, which costs "
    "nothing to read and is not written. The bytes are the same.",
    "later tagged fields": "A record of an internal topic keeps its version when it gains a tagged field, so "
    "the tables have some that older coordinators lack; these skip them by length, as they must.",
    "record keys": "Until 4.0 the version in the specification of a record's key was its type; the bytes (an "
    "int16 and the fields) are the same. The tables follow the later specifications: key=type, version 0.",
    "renamed": "Some fields and one API changed names, not bytes; the tables use the newest names.",
    "preview": "The records of share groups in 3.9 were a preview that 4.1 changed under the same version.",
}
PREVIEW = {("kafka-group-coordinator-3.9.2", "ShareGroupMetadataValue")}
RENAMED_MESSAGES = {
    "ListClientMetricsResourcesRequest": "ListConfigResourcesRequest",
    "ListClientMetricsResourcesResponse": "ListConfigResourcesResponse",
}
RENAMED_FIELDS = {
    "TxnOffsetCommitRequest": {"generation_id": "generation_id_or_member_epoch"},
    "ListConfigResourcesResponse": {"client_metrics_resources": "config_resources", "name": "resource_name"},
}
IMPLICIT_DEFAULTS = {"string": "", "bool": False, "uuid": bytes(16), "bytes": b"", "records": None}


class Column(NamedTuple):
    """One field at one version."""

    name: str
    type: str
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    fields: tuple[Column, ...]


def load_specifications(resource: Path) -> dict[str, dict[str, Any]]:
    """Message name -> specification, from a jar or from a directory of JSON files."""
    if resource.is_dir():
        texts = [path.read_text() for path in sorted(resource.glob("*.json"))]
    else:
        with zipfile.ZipFile(resource) as jar:
            names = [n for n in jar.namelist() if n.startswith("common/message/") and n.endswith(".json")]
            texts = [jar.read(name).decode() for name in sorted(names)]
    specifications = (json.loads(_without_comments(text)) for text in texts)
    return {
        RENAMED_MESSAGES.get(spec["name"], spec["name"]): spec
        for spec in specifications
        if spec["validVersions"] != "none"
    }


def _without_comments(text: str) -> str:
    return re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda match: match[1] or "", text)


def valid_versions(spec: dict[str, Any]) -> range:
    first, last = Versions.parse(spec["validVersions"])
    if spec["type"] in ("data", "coordinator-key") and spec["name"].endswith("Key"):
        return range(1)  # DELIBERATE: record keys, whose only version is called 0 here
    return range(first, last + 1)


def specified_layout(spec: dict[str, Any], version: int) -> tuple[Column, ...]:
    structs = {struct["name"]: struct for struct in spec.get("commonStructs", [])}
    if valid_versions(spec) == range(1):
        version = Versions.parse(spec["validVersions"]).last
    return tuple(_specified(spec["fields"], structs, version))


def _specified(fields: list[Any], structs: dict[str, Any], version: int) -> Iterator[Column]:
    for field in fields:
        exists = field.get("versions", field.get("taggedVersions"))
        if version not in Versions.parse(exists):
            continue
        is_array = field["type"].startswith("[]")
        kind = field["type"].removeprefix("[]")
        tagged = "tag" in field and version in Versions.parse(field["taggedVersions"])
        nested: tuple[Column, ...] = ()
        if kind[0].isupper():
            parts = field.get("fields") or structs[kind]["fields"]
            nested, kind = tuple(_specified(parts, structs, version)), "struct"
        nullable = version in Versions.parse(field.get("nullableVersions", "none"))
        default = _specified_default(field, kind, is_array)
        yield Column(
            snake_case(field["name"]),
            kind,
            is_array,
            nullable,
            field["tag"] if tagged else None,
            default,
            nested,
        )


def _specified_default(field: dict[str, Any], kind: str, is_array: bool) -> Any:
    default = field.get("default")
    if default == "null":
        return None
    if is_array:
        return []
    if kind == "struct":
        return "struct of defaults"
    if default in (None, ""):
        return IMPLICIT_DEFAULTS.get(kind, 0)
    if kind == "bool":
        return str(default).lower() == "true"
    return default if kind == "string" else float(default) if kind == "float64" else int(str(default), 0)


def declared_layout(cls: type, version: int) -> tuple[Column, ...]:
    return tuple(_declared(cls, version))


def _declared(cls: type, version: int) -> Iterator[Column]:
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        nested: tuple[Column, ...] = ()
        kind = "struct"
        if isinstance(field.type, Primitive):
            kind = field.type.name
        else:
            nested = declared_layout(field.type, version)
        yield Column(
            field.name,
            kind,
            field.is_array,
            field.is_nullable_in(version),
            field.tag if field.is_tagged_in(version) else None,
            field.default,
            nested,
        )


def snake_case(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def differences(cls: type, spec: dict[str, Any]) -> list[str]:
    """Every difference between a table and a specification, at every version both know."""
    found = []
    info = info_of(cls)
    flexible = Versions.parse(spec.get("flexibleVersions", "none"))
    for version in valid_versions(spec):
        if version not in info.versions:
            found.append(f"{cls.__name__} lacks v{version}")
            continue
        where = f"{cls.__name__} v{version}"
        if (version in flexible) != (version in info.flexible):
            found.append(f"{where}: flexible in the specification: {version in flexible}")
        is_record = spec["type"] not in ("request", "response", "header")
        found += _compare(where, specified_layout(spec, version), declared_layout(cls, version), is_record)
    return found


def _compare(
    where: str, specified: tuple[Column, ...], declared: tuple[Column, ...], is_record: bool
) -> Iterator[str]:
    renamed = RENAMED_FIELDS.get(where.split(" ")[0], {})
    names, ours = [renamed.get(c.name, c.name) for c in specified], [c.name for c in declared]
    if is_record and len(names) < len(ours) and all(c.tag is not None for c in declared[len(names) :]):
        ours = ours[: len(names)]  # DELIBERATE: later tagged fields
    if names != ours:
        yield f"{where}: fields {names} specified, {ours} declared"
        return
    for theirs, mine in zip(specified, declared[: len(names)], strict=True):
        here = f"{where}.{mine.name}"
        if (theirs.type, theirs.is_array, theirs.nullable) != (mine.type, mine.is_array, mine.nullable):
            yield f"{here}: {theirs[1:4]} specified, {mine[1:4]} declared"
        if theirs.tag != mine.tag:
            yield f"{here}: tag {theirs.tag} specified, {mine.tag} declared"
        if not _same_default(theirs, mine):
            yield f"{here}: default {theirs.default!r} specified, {mine.default!r} declared"
        yield from _compare(here, theirs.fields, mine.fields, is_record)


def _same_default(specified: Column, declared: Column) -> bool:
    if declared.default is REQUIRED:
        return True  # asking for a value is stricter than any default
    if specified.default == "struct of defaults":
        return declared.default is None and declared.tag is not None  # DELIBERATE: absent tagged struct
    return bool(specified.default == declared.default)
