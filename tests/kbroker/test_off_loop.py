"""Long work in slices: it takes turns, and its outcome is told once."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from kbroker.off_loop import SLICE_BYTES, OffLoop


class OneThread:
    """Threads and event loop in one: what is submitted waits until it is told to run."""

    def __init__(self) -> None:
        self.submitted: list[Callable[[], object]] = []
        self.off_loop = OffLoop(self.submitted.append, lambda call: call())

    def run_all(self) -> int:
        slices = 0
        while self.submitted:
            self.submitted.pop(0)()
            slices += 1
        return slices


def of(name: str, slices: int, told: list[str]) -> Generator[int, None, str]:
    for number in range(slices):
        told.append(f"{name}{number}")
        yield SLICE_BYTES
    return name


def test_work_takes_turns() -> None:
    machine, told, outcomes = OneThread(), list[str](), list[object]()
    machine.off_loop.run(of("a", 3, told), outcomes.append)
    machine.off_loop.run(of("b", 1, told), outcomes.append)
    assert len(machine.submitted) == 1
    machine.run_all()
    assert told == ["a0", "b0", "a1", "a2"]
    assert outcomes == ["b", "a"]
    assert not machine.off_loop.is_running


def test_clients_take_turns_however_much_they_have_brought() -> None:
    machine, told, outcomes = OneThread(), list[str](), list[object]()
    for name in "abc":
        machine.off_loop.run(of(name, 2, told), outcomes.append, "one")
    machine.off_loop.run(of("x", 3, told), outcomes.append, "other")
    machine.run_all()
    assert told == ["a0", "b0", "x0", "c0", "x1", "a1", "x2", "b1", "c1"]
    assert outcomes == ["x", "a", "b", "c"]


def test_small_steps_share_a_slice() -> None:
    def many() -> Generator[int, None, int]:
        for _ in range(100):
            yield SLICE_BYTES // 4
        return 100

    machine, outcomes = OneThread(), list[object]()
    machine.off_loop.run(many(), outcomes.append)
    assert machine.run_all() == 26
    assert outcomes == [100]


def test_an_exception_is_an_outcome() -> None:
    def failing() -> Generator[int]:
        yield 1
        raise ValueError("why")

    machine, outcomes = OneThread(), list[object]()
    machine.off_loop.run(failing(), outcomes.append)
    machine.off_loop.run(of("b", 0, []), outcomes.append)
    machine.run_all()
    assert str(outcomes[0]) == "why"
    assert outcomes[1] == "b"


def test_after_stop_one_slice_is_the_last() -> None:
    machine, told, outcomes = OneThread(), list[str](), list[object]()
    machine.off_loop.run(of("a", 2, told), outcomes.append)
    machine.off_loop.run(of("b", 2, told), outcomes.append)
    machine.off_loop.stop()
    assert machine.off_loop.is_running
    assert machine.run_all() == 1
    assert (told, outcomes, machine.off_loop.is_running) == (["a0"], [], False)


def test_work_for_which_there_is_no_thread_is_told_so_and_the_next_one_may_have_better_luck() -> None:
    submitted, outcomes = list[Callable[[], object]](), list[object]()

    def submit(call: Callable[[], object]) -> None:
        if not outcomes:
            raise RuntimeError("can't start new thread")
        submitted.append(call)

    off_loop = OffLoop(submit, lambda call: call())
    off_loop.run(of("a", 1, []), outcomes.append)
    assert [str(one) for one in outcomes] == ["can't start new thread"]
    off_loop.run(of("b", 0, []), outcomes.append)
    submitted.pop()()
    assert outcomes[1:] == ["b"]


def test_a_slice_whose_end_could_not_be_told_for_want_of_memory_holds_up_nothing() -> None:
    submitted, outcomes = list[Callable[[], object]](), list[object]()
    has_memory = False

    def call(function: Callable[[], object]) -> None:
        if not has_memory:
            raise MemoryError
        function()

    off_loop = OffLoop(submitted.append, call)
    off_loop.run(of("a", 0, []), outcomes.append)
    off_loop.run(of("b", 0, []), outcomes.append)
    with pytest.raises(MemoryError):
        submitted.pop()()
    has_memory = True
    off_loop.tick()
    assert outcomes == ["a"]
    submitted.pop()()
    assert outcomes == ["a", "b"]
    assert not off_loop.is_running
