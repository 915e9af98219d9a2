"""Looking at every record of a batch without making an object of any, as Kafka does with each Produce.

A walk is given the record data piece by piece, as it is decompressed, and keeps no more of it than one
incomplete record. It reads every length, timestamp delta, offset delta and count, and passes over keys and
values.

Rules:
- Whatever does not add up is a WireError that names the record: lengths that lead out of a record, varints
  that are too long, negative numbers of headers, header keys that are null, too few or too many records.
- Offset deltas count up from 0. Whether keys and timestamps will do is for a judge to say, who is shown all
  of them; without one, a walk tells only whether there are null keys, and the largest timestamp delta.
- One record takes Python 0.4 µs. Records of equal layout are checked many at a time (`wire.record_runs`).
- A record of more than `LARGE_BYTES` is passed over as it comes, and never held as a whole.
- Headers are bounded in number: they take two bytes each, and compress to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wire.compression import Buffer, CompressionError, decompressed
from wire.errors import WireError
from wire.record_batch import HEADER_SIZE, BatchHeader
from wire.record_runs import Run, run_from, uneven_run_from
from wire.steps import Steps
from wire.zigzag import INT_SIZE, LONG_SIZE, longer, undone

LARGE_BYTES = 256 * 1024
MOST_HEADERS = 1_000_000
"""Of all records of a batch together."""

PATIENCE = 2
"""Twice as many records are read one by one before it is tried again to check some together; then more."""
REACH, REACH_GROWS = 64, 16
"""So many records are looked at together at first, then more, so that little is looked at in vain."""
ANY_SIZE = -1
"""Of the record before, where the next ones may be a run whatever theirs is."""

Judge = Callable[[int, int, int, bool], object]
"""Shown the index of each record, its timestamp delta, its offset delta, and whether its key is null."""


class TooManyHeaders(WireError):
    """More than this walk may look at."""


FAR_BACK = 1 << 63
"""As zigzag, which is -(1 << 62): the difference to the present may not fit into 64 bits."""


class OutOfOrder(WireError):
    """An offset delta is not the index of its record, or a timestamp delta leads far beyond all time."""


class RecordWalk:
    """Where a walk has come to, and what it has found."""

    __slots__ = (
        "_headers_left",
        "_judge",
        "_largest",
        "_least_negative",
        "_patience",
        "_reach",
        "_uneven_from",
        "count",
        "has_null_key",
        "index",
    )

    def __init__(self, count: int, most_headers: int = MOST_HEADERS, judge: Judge | None = None) -> None:
        """`count` records are declared."""
        self.count = count
        self._headers_left = most_headers
        self._judge = judge
        self.index = 0
        """Of the next record."""
        self._largest = -1
        self._least_negative = 1 << 64
        """Timestamp deltas as zigzag: even ones are positive; -1 if there was none of them."""
        self.has_null_key = False
        self._uneven_from = 0
        """From which record on it may be tried to check records of different sizes together."""
        self._patience = PATIENCE
        self._reach = REACH

    @property
    def largest_timestamp_delta(self) -> int:
        """Of all records so far; there was one at least."""
        return undone(self._largest if self._largest >= 0 else self._least_negative)

    def take(self, data: bytes) -> int:  # noqa: C901 -- every record passes here, and calls cost too much
        """Look at the whole records that `data` begins with; where the rest begins."""
        count, end, judge, index = self.count, len(data), self._judge, self.index
        position, start, last_size, null_key = 0, 0, ANY_SIZE, False
        try:
            while index < count:
                start, stop = position, -1
                size, position = data[position], position + 1
                if size >= 0x80:
                    size, position = longer(size, data, position, INT_SIZE)
                if size & 1:
                    raise WireError("its length is negative")
                stop = position + (size >> 1)
                if stop > end:
                    position = start
                    break
                is_even = last_size in (size, ANY_SIZE) and stop < end and data[stop] == data[start]
                if (is_even or index >= self._uneven_from) and judge is None:
                    if run := self._run(data, start, stop, index, is_even=is_even):
                        index, position, last_size = index + run.length, run.end, ANY_SIZE
                        continue
                    size = 0
                last_size = size
                delta = data[position + 1]
                position += 2
                if delta >= 0x80:
                    delta, position = longer(delta, data, position, LONG_SIZE)
                if delta > self._largest:
                    self._note(delta)
                offset, position = data[position], position + 1
                if offset >= 0x80:
                    offset, position = longer(offset, data, position, INT_SIZE)
                key, position = data[position], position + 1
                if key >= 0x80:
                    key, position = longer(key, data, position, INT_SIZE)
                if key & 1:
                    null_key = True
                else:
                    position += key >> 1
                if judge is not None or offset != index + index:
                    self._look(index, delta, offset, key)
                size, position = data[position], position + 1
                if size >= 0x80:
                    size, position = longer(size, data, position, INT_SIZE)
                if not size & 1:
                    position += size >> 1
                position = self._headers(data, position, stop) if data[position] else position + 1
                if position != stop:
                    raise WireError(f"its fields end {position - stop} bytes after it does")
                index += 1
        except IndexError:
            if stop >= 0 or end - start >= INT_SIZE:
                raise self._error(index, "the data ends within it") from None
            position = start  # within the length of the next record
        except WireError as error:
            raise self._error(index, error) from None
        self.index, self.has_null_key = index, self.has_null_key or null_key
        return position

    def _run(self, data: bytes, start: int, stop: int, index: int, *, is_even: bool) -> Run | None:
        """The records from `start` on that could be checked together."""
        run, most = None, min(self.count - index, self._reach)
        if is_even:
            run = run_from(data, start, stop, index, min(most, (len(data) - start) // (stop - start)))
        if run is None and index >= self._uneven_from:
            run = uneven_run_from(data, start, stop, index, most)
            self._patience = 2 * self._patience if run is None else PATIENCE
            self._uneven_from = index + (self._patience if run is None else run.length)
        self._reach = REACH if run is None or run.length < most else REACH_GROWS * self._reach
        if run is None:
            return None
        self._largest = max(self._largest, run.largest)
        self.has_null_key = self.has_null_key or run.has_null_key
        self._count_headers(run.headers)
        return run

    def _note(self, delta: int) -> None:
        if not delta & 1:
            self._largest = delta
        elif delta < self._least_negative:
            self._least_negative = delta
        if delta & 1 and delta > FAR_BACK and self._judge is None:
            raise OutOfOrder(f"its timestamp delta is {undone(delta)}")

    def _look(self, index: int, delta: int, offset: int, key: int) -> None:
        """At a record that is out of order, or is to be judged."""
        if self._judge is not None:
            self._judge(index, undone(delta), undone(offset), key & 1 == 1)
        elif offset != 2 * index:
            raise OutOfOrder(f"its offset delta is {undone(offset)}")

    def _headers(self, data: bytes, position: int, stop: int) -> int:
        """Where the headers of a record end."""
        count, position = data[position], position + 1
        if count >= 0x80:
            count, position = longer(count, data, position, INT_SIZE)
        if count & 1:
            raise WireError("its number of headers is negative")
        self._count_headers(count >> 1)
        for _ in range(count >> 1):
            size, position = data[position], position + 1
            if size >= 0x80:
                size, position = longer(size, data, position, INT_SIZE)
            if size & 1:
                raise WireError("the key of a header is null")
            position += size >> 1
            size, position = data[position], position + 1
            if size >= 0x80:
                size, position = longer(size, data, position, INT_SIZE)
            if not size & 1:
                position += size >> 1
            if position > stop:
                break
        return position

    def _count_headers(self, number: int) -> None:
        self._headers_left -= number
        if self._headers_left < 0:
            raise TooManyHeaders("there are too many headers")

    def take_large(self, data: bytes, pieces: Iterator[bytes]) -> Steps[bytes]:
        """Look at the record that `data` is the beginning of; what comes after it in the last piece."""
        stream = _Stream(data, pieces)
        try:
            size = yield from stream.varint(INT_SIZE)
            stop = stream.position + (size >> 1)
            yield from stream.skip(1)
            delta = yield from stream.varint(LONG_SIZE)
            offset = yield from stream.varint(INT_SIZE)
            key = yield from stream.skip_sized()
            if delta > self._largest:
                self._note(delta)
            self.has_null_key = self.has_null_key or key & 1 == 1
            self._look(self.index, delta, offset, key)
            yield from stream.skip_sized()
            headers = yield from stream.varint(INT_SIZE)
            if headers & 1:
                raise WireError("its number of headers is negative")
            self._count_headers(headers >> 1)
            for _ in range(headers >> 1):
                if (yield from stream.skip_sized()) & 1:
                    raise WireError("the key of a header is null")
                yield from stream.skip_sized()
            if stream.position != stop:
                raise WireError(f"its fields end {stream.position - stop} bytes after it does")
        except CompressionError:
            raise
        except WireError as error:
            raise self._error(self.index, error) from None
        self.index += 1
        return stream.rest

    def finish(self, rest: bytes) -> None:
        """There is no more than `rest`."""
        if self.index < self.count:
            raise self._error(self.index, "the data ends within it")
        if rest:
            raise WireError(f"{len(rest)} bytes or more follow the last one of {self.count} records")

    def _error(self, index: int, reason: object) -> WireError:
        kind = type(reason) if isinstance(reason, (TooManyHeaders, OutOfOrder)) else WireError
        return kind(f"record {index} of {self.count}: {reason}")


def lone_record_lacks_key(data: bytes) -> bool | None:
    """For the usual record that is alone in its batch; None for any that has to be looked at closely."""
    size, position, end = data[0], 1, len(data)
    if size >= 0x80:
        size, position = longer(size, data, position, INT_SIZE)
    if size & 1 or position + (size >> 1) != end:
        return None
    time, offset, key = data[position + 1 : position + 4]
    if time or offset or key >= 0x80:
        return None
    position += 4 if key & 1 else 4 + (key >> 1)
    size, position = data[position], position + 1
    if size >= 0x80:
        size, position = longer(size, data, position, INT_SIZE)
    if not size & 1:
        position += size >> 1
    return None if data[position] or position + 1 != end else key & 1 == 1


class _Stream:
    """Record data of which only the last piece is held."""

    def __init__(self, data: bytes, pieces: Iterator[bytes]) -> None:
        self._data, self._pieces = data, pieces
        self._at = self._before = 0

    @property
    def position(self) -> int:
        return self._before + self._at

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]

    def varint(self, most: int) -> Steps[int]:
        """As zigzag."""
        while True:
            try:
                first = self._data[self._at]
                if first < 0x80:
                    self._at += 1
                    return first
                number, self._at = longer(first, self._data, self._at + 1, most)
                return number
            except IndexError:
                yield from self._more(keep=len(self._data) - self._at)

    def skip(self, size: int) -> Steps[None]:
        while size > (there := len(self._data) - self._at):
            size -= there
            yield from self._more(keep=0)
        self._at += size

    def skip_sized(self) -> Steps[int]:
        """Pass over a key or value; its size, as zigzag."""
        size = yield from self.varint(INT_SIZE)
        if not size & 1:
            yield from self.skip(size >> 1)
        return size

    def _more(self, *, keep: int) -> Steps[None]:
        """The next piece, after what is to be kept of this one."""
        kept = self._data[len(self._data) - keep :]
        piece = next(filter(None, self._pieces), b"")
        if not piece:
            raise WireError("the data ends within it")
        yield len(piece)
        self._before += len(self._data) - keep
        self._data, self._at = kept + piece, 0


def record_pieces(batch: Buffer, header: BatchHeader, limit: int) -> Iterator[bytes]:
    """The record data of a batch, decompressed as it is asked for."""
    return decompressed(header.codec, memoryview(batch)[HEADER_SIZE : header.size], limit)


def walked(walk: RecordWalk, pieces: Iterator[bytes]) -> Steps[None]:
    """Take the walk over all pieces; the size of each is yielded before it is looked at."""
    rest = b""
    for piece in pieces:
        yield len(piece)
        data = rest + piece if rest else piece
        rest = data[walk.take(data) :]
        while len(rest) > LARGE_BYTES and walk.index < walk.count:
            data = yield from walk.take_large(rest, pieces)
            rest = data[walk.take(data) :]
    walk.finish(rest)
