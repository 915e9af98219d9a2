"""The threads of a broker, where the machine gives none or too few."""

from __future__ import annotations

import concurrent.futures
import threading

import pytest

from kbroker.threads import Threads

WAIT_S = 30


def starting(monkeypatch: pytest.MonkeyPatch, at_most: int) -> list[threading.Thread]:
    """So many threads can be started, and no more."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_or_fail(thread: threading.Thread) -> None:
        if len(started) >= at_most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    return started


def test_what_was_refused_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller has told everyone that it was not done."""
    threads = Threads(2, "test")
    ran: list[str] = []
    with monkeypatch.context() as patched:
        starting(patched, 0)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.submit(lambda: ran.append("refused"))
    threads.submit(lambda: ran.append("taken")).result(WAIT_S)
    assert ran == ["taken"]
    assert threads.stop(WAIT_S)


def test_fewer_threads_do_it_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    started = starting(monkeypatch, 1)
    threads = Threads(4, "test")
    assert [threads.submit(lambda n=n: n).result(WAIT_S) for n in range(5)] == list(range(5))  # type: ignore[misc]
    assert len(started) == 1
    assert threads.stop(WAIT_S)


def test_all_threads_are_there_from_the_first_piece_of_work_on(monkeypatch: pytest.MonkeyPatch) -> None:
    started = starting(monkeypatch, 9)
    threads = Threads(3, "test")
    assert started == []
    threads.submit(lambda: None).result(WAIT_S)
    assert len(started) == 3
    assert threads.stop(WAIT_S)


def test_an_error_is_told_to_who_waits_and_the_thread_goes_on() -> None:
    threads = Threads(1, "test")

    def fails() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        threads.submit(fails).result(WAIT_S)
    assert threads.submit(lambda: 1).result(WAIT_S) == 1
    assert threads.stop(WAIT_S)


def test_a_thread_outlives_an_outcome_that_there_is_no_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Future(concurrent.futures.Future[int]):
        def set_result(self, result: int) -> None:
            if result == 0:
                raise MemoryError
            super().set_result(result)

    monkeypatch.setattr("kbroker.threads.Future", Future)
    threads = Threads(1, "test")
    threads.submit(lambda: 0)
    assert threads.submit(lambda: 1).result(WAIT_S) == 1
    assert threads.stop(WAIT_S)


def test_a_thread_that_hangs_is_not_waited_for() -> None:
    threads = Threads(2, "test")
    released = threading.Event()
    future = threads.submit(lambda: released.wait(WAIT_S))
    assert not threads.stop(0)
    released.set()
    assert future.result(WAIT_S)


def test_several_threads_that_hang_are_not_waited_for_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Threads(4, "test")
    released = threading.Event()
    futures = [threads.submit(lambda: released.wait(WAIT_S)) for _ in range(4)]
    waited: list[float] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "join", lambda thread, timeout: waited.append(timeout))
        assert not threads.stop(20)
    assert sum(waited) == 20
    released.set()
    assert all(future.result(WAIT_S) for future in futures)
