"""The long fuzz run: `make fuzz SECONDS=600`. Guided by coverage where atheris is installed, else random.

The first byte of an input chooses the decoder, the second the version; the rest is the frame. Whatever comes
out but WireError (or InvalidBatch, where batches are validated) is a finding: the input is printed and the
run ends with status 1. What atheris found interesting stays in .cache/fuzz; inputs worth keeping belong
into `tests/wire/`, as tests of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["wire"]) if atheris else contextlib.nullcontext():
    from wire.codec import decoder, encode
    from wire.errors import KafkaError, WireError
    from wire.record_validation import validate_produced, validate_records
    from wire.records import Record, batch_headers, build_batch, records

from tests.wire.random_messages import ALL_MESSAGES, random_message, versions_of
from tests.wire.test_fuzz import mutate

LIMIT = 1 << 20
CORPUS = Path(__file__).parents[1] / ".cache" / "fuzz"
BATCHES = len(ALL_MESSAGES)


def run_one(data: bytes) -> None:
    if len(data) < 2:
        return
    choice, frame = data[0] % (BATCHES + 1), data[2:]
    try:
        if choice == BATCHES:
            read_batches(frame)
        else:
            cls = ALL_MESSAGES[choice]
            versions = versions_of(cls)
            instrumented_decoder(cls, versions[data[1] % len(versions)])(frame)
    except (WireError, KafkaError):
        return


@cache
def instrumented_decoder(cls: type, version: int) -> Callable[[bytes], Any]:
    """Decoders are compiled at run time, where atheris does not look by itself."""
    function: Callable[[bytes], Any] = decoder(cls, version)
    return atheris.instrument_func(function) if atheris else function


def read_batches(frame: bytes) -> None:
    for position, header in batch_headers(frame):
        list(records(frame, position, header, limit=LIMIT))
    validate_records(frame, validate_produced(frame), limit=LIMIT)


def seeds(rng: random.Random) -> list[bytes]:
    """One valid input for every decoder and version, and some batches."""
    found = [bytes((BATCHES, 0)) + build_batch([Record(0, 1, b"key", b"value", ())])]
    for choice, cls in enumerate(ALL_MESSAGES):
        for index, version in enumerate(versions_of(cls)):
            found.append(bytes((choice, index)) + encode(random_message(rng, cls, version), version))
    return found


def run_random(seconds: float, seed: int) -> int:
    rng = random.Random(seed)
    corpus, rounds, end = seeds(rng), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        seed_input = rng.choice(corpus)
        data = seed_input[:2] + mutate(rng, seed_input[2:])
        try:
            run_one(data)
        except BaseException:
            print(f"seed {seed}, input {data.hex()}", file=sys.stderr)
            raise
        rounds += 1
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    if not atheris:
        print(f"random mutations (atheris is not installed), seed {options.seed}")
        print(f"{run_random(options.seconds, options.seed)} inputs, nothing but the errors that are meant")
        return
    CORPUS.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds(random.Random(options.seed))):
        (CORPUS / f"seed-{number}").write_bytes(data)
    limits = [f"-max_total_time={options.seconds}", f"-seed={options.seed % (1 << 31)}", "-max_len=4096"]
    atheris.Setup([sys.argv[0], *limits, str(CORPUS)], run_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
