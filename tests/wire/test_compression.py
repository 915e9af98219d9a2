"""The codecs: what they read and write, and that no input makes them produce more than they may."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wire.compression import XERIAL_MAGIC, Codec, CompressionError, compress, compressor, decompress
from wire.errors import WireError

MIB = 1 << 20
REAL = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b'{"user": %d, "page": "/article/%d"}\n' % (n * 7919 % 10007, n) for n in range(6000))


# -- what goes in comes out


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 200))
def test_data_survives(codec: Codec, data: bytes, repeat: int) -> None:
    data *= repeat
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 3 * MIB])
def test_sizes_around_blocks_and_steps_survive(codec: Codec, size: int) -> None:
    noise = random.Random(size).randbytes(size)
    assert decompress(codec, compress(codec, noise), size) == noise
    assert decompress(codec, compress(codec, bytes(size)), size) == bytes(size)


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_will_do(codec: Codec, buffer: Callable[[bytes], bytearray]) -> None:
    compressed = compress(codec, buffer(TEXT))
    assert decompress(codec, buffer(compressed), len(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (9, 12)), (Codec.ZSTD, (1, 19))]
)
def test_a_higher_level_makes_it_smaller(codec: Codec, levels: tuple[int, int]) -> None:
    low, high = (compress(codec, TEXT, level) for level in levels)
    assert len(high) < len(low)
    assert decompress(codec, high, len(TEXT)) == TEXT


def test_kafkas_default_level_of_lz4_is_its_fast_compressor() -> None:
    assert compress(Codec.LZ4, TEXT, 9) == compress(Codec.LZ4, TEXT)


@pytest.mark.parametrize("level", [1, 2, 3, 8, 10])
def test_any_other_level_of_lz4_is_the_slow_compressor(level: int) -> None:
    """Also the lowest: the library's own numbers mean something else."""
    assert len(compress(Codec.LZ4, TEXT, level)) < len(compress(Codec.LZ4, TEXT))
    stream = compressor(Codec.LZ4, level)
    assert len(stream.compress(TEXT) + stream.flush()) < len(compress(Codec.LZ4, TEXT))


# -- formats of the wild


@pytest.mark.parametrize("codec", REAL)
def test_frames_may_follow_one_another(codec: Codec) -> None:
    several = compress(codec, TEXT) + compress(codec, b"") + compress(codec, b"tail")
    assert decompress(codec, several, len(TEXT) + 4) == TEXT + b"tail"


def test_gzip_reads_what_others_write_and_others_read_ours() -> None:
    assert decompress(Codec.GZIP, gzip.compress(TEXT), len(TEXT)) == TEXT
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT


def test_snappy_without_framing_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


def test_snappy_is_written_in_framed_blocks_of_32_kib() -> None:
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed[:16] == XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
    size = int.from_bytes(framed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + size])) == TEXT[: 32 * 1024]


def test_snappy_versions_in_the_wrong_byte_order_are_ignored() -> None:
    framed = compress(Codec.SNAPPY, TEXT)
    assert decompress(Codec.SNAPPY, XERIAL_MAGIC + b"\1\0\0\0\1\0\0\0" + framed[16:], len(TEXT)) == TEXT


def test_lz4_is_written_as_java_reads_it_in_independent_blocks_without_a_size() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert (info["block_linked"], info["content_size"], info["block_size"]) == (False, 0, 64 * 1024)


@pytest.mark.parametrize("content_checksum", [True, False])
def test_lz4_with_size_and_checksums_is_read(content_checksum: bool) -> None:
    frame = lz4.frame.compress(TEXT, store_size=True, content_checksum=content_checksum, block_checksum=True)
    assert decompress(Codec.LZ4, frame, len(TEXT)) == TEXT


def test_zstd_of_a_streaming_producer_has_no_size_and_is_read() -> None:
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    frame = stream.compress(TEXT) + stream.flush()
    assert zstandard.get_frame_parameters(frame).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert decompress(Codec.ZSTD, frame + frame, 2 * len(TEXT)) == TEXT * 2


def test_zstd_skippable_frames_are_skipped() -> None:
    skippable = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    assert decompress(Codec.ZSTD, skippable + compress(Codec.ZSTD, TEXT) + skippable, len(TEXT)) == TEXT


# -- what is refused


def test_an_error_of_compression_is_an_error_of_the_wire() -> None:
    assert issubclass(CompressionError, WireError)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named(codec: int) -> None:
    """Conformance 25."""
    with pytest.raises(CompressionError, match=f"codec {codec}"):
        decompress(codec, b"data", 100)


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(CompressionError, match="bytes"):
        decompress(codec, compressed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("data", [b"x", TEXT[:500], bytes(300_000)], ids=["byte", "text", "zeros"])
def test_data_that_ends_early_is_refused_wherever_it_ends(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    for end in range(len(compressed)):
        with pytest.raises(CompressionError):
            decompress(codec, compressed[:end], len(data))


def test_snappy_that_ends_early_is_refused_unless_it_ends_with_a_block() -> None:
    data = random.Random(1).randbytes(40_000)
    framed = compress(Codec.SNAPPY, data)
    first_block_ends = 20 + int.from_bytes(framed[16:20], "big")
    for end in range(len(framed)):
        if end in (16, first_block_ends):
            assert len(decompress(Codec.SNAPPY, framed[:end], len(data))) in (0, 32 * 1024)
        else:
            with pytest.raises(CompressionError):
                decompress(Codec.SNAPPY, framed[:end], len(data))


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("junk", [b"\0", b"junk", bytes(100)])
def test_bytes_after_the_last_frame_are_refused(codec: Codec, junk: bytes) -> None:
    if codec is Codec.SNAPPY:
        junk = b"\0\0\1\0" + junk  # as a block of 256 bytes that are not there
    with pytest.raises(CompressionError):
        decompress(codec, compress(codec, TEXT) + junk, MIB)


@pytest.mark.parametrize("codec", REAL)
def test_no_data_is_no_frame(codec: Codec) -> None:
    with pytest.raises(CompressionError):
        decompress(codec, b"", 100)


@pytest.mark.parametrize("codec", REAL)
def test_a_frame_of_another_codec_is_refused(codec: Codec) -> None:
    for other in REAL:
        if other is not codec:
            with pytest.raises(CompressionError):
                decompress(codec, compress(other, TEXT), MIB)


def with_window(window_log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(TEXT) + stream.flush()


def test_zstd_with_the_largest_window_of_any_level_is_read_and_no_larger_one() -> None:
    assert zstandard.ZstdCompressionParameters.from_level(22).window_log == 27
    assert decompress(Codec.ZSTD, with_window(27), len(TEXT)) == TEXT
    with pytest.raises(CompressionError, match="window of 268435456 bytes"):
        decompress(Codec.ZSTD, with_window(28), len(TEXT))


def test_snappy_cannot_claim_more_than_its_bytes_can_hold() -> None:
    claims_10_mib = b"\x80\x80\x80\x05" + b"\0a" * 100
    with pytest.raises(CompressionError, match="cannot hold"):
        decompress(Codec.SNAPPY, claims_10_mib, 100 * MIB)


def test_snappy_at_its_densest_is_read() -> None:
    data = bytes(16 * MIB)
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert len(data) > 20 * len(raw)
    assert decompress(Codec.SNAPPY, raw, len(data)) == data


@pytest.mark.parametrize("codec", REAL)
def test_damaged_data_raises_nothing_else_and_stays_within_the_limit(codec: Codec) -> None:
    chance = random.Random(codec)
    whole = compress(codec, TEXT[:20_000])
    for _ in range(1500):
        damaged = bytearray(whole[: chance.choice((len(whole), 200, 60))])
        for _ in range(chance.choice((1, 1, 4))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with suppress(CompressionError):
            assert len(decompress(codec, damaged, 30_000)) <= 30_000


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=300))
def test_random_data_raises_nothing_else(codec: Codec, data: bytes) -> None:
    magic = compress(codec, b"x")[: len(data) % 16]
    for candidate in (data, magic + data):
        with suppress(CompressionError):
            assert len(decompress(codec, candidate, 1000)) <= 1000


# -- bombs


def zstd_bomb(chunk: bytes, times: int) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join(stream.compress(chunk) for _ in range(times)) + stream.flush()


def gzip_bomb(chunk: bytes, times: int) -> bytes:
    stream = zlib.compressobj(1, wbits=31)
    return b"".join(stream.compress(chunk) for _ in range(times)) + stream.flush()


def lz4_bomb(chunk: bytes, times: int) -> bytes:
    with lz4.frame.LZ4FrameCompressor() as stream:
        whole: bytes = (
            stream.begin() + b"".join(stream.compress(chunk) for _ in range(times)) + stream.flush()
        )
        return whole


def framed_snappy_bomb(chunk: bytes, times: int) -> bytes:
    framed = compress(Codec.SNAPPY, chunk)
    return framed + framed[16:] * (times - 1)


def raw_snappy_bomb(chunk: bytes, times: int) -> bytes:
    return bytes(cramjam.snappy.compress_raw(chunk * times))


PEAK_OF_REFUSAL = """
import pathlib, re, sys
from wire.compression import Codec, CompressionError, compress, decompress

def peak_kib():
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

codec, bomb, limit = Codec[sys.argv[1]], pathlib.Path(sys.argv[2]).read_bytes(), 1 << 20
decompress(codec, compress(codec, bytes(limit)), limit)
before = peak_kib()
try:
    decompress(codec, bomb, limit)
except CompressionError as error:
    print(peak_kib() - before, error)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see the peak of memory")
@pytest.mark.parametrize("bomb", [zstd_bomb, gzip_bomb, lz4_bomb, framed_snappy_bomb, raw_snappy_bomb])
def test_200_mib_of_zeros_are_refused_at_1_mib_in_little_memory(
    tmp_path: Path, bomb: Callable[[bytes, int], bytes]
) -> None:
    """Conformance 97: what Kafka would unpack in full."""
    data = bomb(bytes(MIB), 200)
    if bomb is zstd_bomb:
        assert len(data) < 8 * 1024
    (tmp_path / "bomb").write_bytes(data)
    codec = bomb.__name__.removesuffix("_bomb").split("_")[-1].upper()
    done = subprocess.run(
        [sys.executable, "-c", PEAK_OF_REFUSAL, codec, str(tmp_path / "bomb")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    peak_kib, error = done.stdout.split(maxsplit=1)
    assert "allowed" in error
    assert int(peak_kib) < 4 * 1024


# -- imports


def test_no_library_is_loaded_before_it_is_needed() -> None:
    script = (
        "import sys, wire.records, wire.record_validation;"
        "print([name for name in ('zstandard', 'lz4', 'cramjam', 'crc32c') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
