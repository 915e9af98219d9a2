"""Directories and programs that look like a PySpark and a Java, from outside."""

from __future__ import annotations

from pathlib import Path


def fake_java(directory: Path, version: str) -> Path:
    """Says that it is this version; otherwise repeats its arguments."""
    return script(
        directory,
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'for argument do echo "$argument"; done\n',
    )


def fake_ivy(directory: Path, jars: Path, seen: Path) -> Path:
    """A Java that does as Ivy does: `jars` go where they are to be, what it was given into `seen`."""
    seen.mkdir()
    return script(
        directory,
        'if [ "$1" = -version ]; then echo \'openjdk version "17"\' >&2; exit; fi\n'
        f'printf "%s\\n" "$@" >"{seen}/arguments"\n'
        "while [ $# -gt 0 ]; do\n"
        f'  case $1 in -ivy|-settings) cp "$2" "{seen}/${{1#-}}" ;;\n'
        f'  -retrieve) cp "{jars}"/*.jar "${{2%/*}}/" ;; esac\n'
        "  shift\n"
        "done\n"
        "echo what ivy said\n",
    )


def script(directory: Path, text: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n" + text)
    java.chmod(0o755)
    return java


def fake_pyspark(directory: Path, version: str = "3.5.7", scala: str = "2.12") -> Path:
    """A package that is found where `directory` is on the path."""
    package = directory / "pyspark"
    jars = package / "jars"
    jars.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("spark-sql", "spark-sql-api", "spark-sql-kafka-0-10"):
        (jars / f"{name}_{scala}-{version}.jar").touch()
    (jars / "ivy-2.5.1.jar").touch()
    return package
