"""Long work in slices: time passed in, and a loop of our own."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import pytest

from kbroker.bugs import Bugs
from kbroker.slices import AT_ONCE, SLICE_S, Slices, Work

STEP_S = SLICE_S / 10


class World:
    """A loop and a clock that the work moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = STEP_S
        self.soon: deque[Callable[[], object]] = deque()
        self.bugs = Bugs()
        self.slices = Slices(lambda: self.now_s, self.soon.append, self.bugs)
        self.done: list[object] = []
        self.turns: list[list[str]] = [[]]
        """What was worked on, by turn of the loop."""

    def work(self, name: str, steps: int, outcome: object = None) -> Work:
        for _ in range(steps):
            self.now_s += self.step_s
            self.turns[-1].append(name)
            yield
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or name

    def take(
        self, name: str, steps: int, outcome: object = None, *, whose: str = "", is_end: bool = False
    ) -> None:
        self.slices.take(self.work(name, steps, outcome), self.done.append, whose=whose, is_end=is_end)

    def turn(self) -> None:
        self.turns.append([])
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def run(self) -> None:
        while self.soon:
            self.turn()


@pytest.fixture
def world() -> World:
    return World()


def test_short_work_is_done_at_once(world: World) -> None:
    world.take("a", 3)
    assert world.done == ["a"]
    assert not world.soon


def test_no_turn_of_the_loop_lasts_longer_than_a_slice(world: World) -> None:
    for name in "abc":
        world.take(name, 1000)
    world.run()
    assert sorted(map(str, world.done)) == ["a", "b", "c"]
    first, *others = map(len, world.turns)
    assert first <= 11 + 2 * 2
    assert max(others) <= 11


def test_works_take_turns(world: World) -> None:
    world.take("a", 100)
    world.take("b", 15)
    world.run()
    assert world.done == ["b", "a"]


def test_small_work_is_done_at_once_while_large_work_goes_on(world: World) -> None:
    world.take("large", 1000)
    world.step_s = STEP_S / 100
    world.take("small", 50)
    assert world.done == ["small"]


def test_only_some_works_go_on(world: World) -> None:
    """The others have built little yet. They come in order."""
    for number in range(2 * AT_ONCE):
        world.take(str(number), 100)
    for _ in range(30):
        world.turn()
    steps = Counter(name for turn in world.turns for name in turn)
    assert {name for name, number in steps.items() if number > 2} == set(map(str, range(AT_ONCE)))
    world.run()
    assert len(world.done) == 2 * AT_ONCE
    assert {str(one) for one in world.done[:AT_ONCE]} == {str(number) for number in range(AT_ONCE)}


def test_what_was_decoded_is_handled_and_answered_before_more_is_decoded(world: World) -> None:
    """What a work has built is held until what follows from it is over."""
    built: set[str] = set()
    most_built = 0

    def then(name: str, *stages: int) -> None:
        nonlocal most_built
        most_built = max(most_built, len(built))
        if not stages:
            built.remove(name)
            world.done.append(name)
            return

        def told(outcome: object) -> None:
            built.add(name)
            then(name, *stages[1:])

        world.slices.take(world.work(name, stages[0]), told)

    for number in range(5 * AT_ONCE):
        then(str(number), 100, 5, 100)
    world.run()
    assert len(world.done) == 5 * AT_ONCE
    assert most_built <= AT_ONCE


def test_what_had_to_be_waited_for_is_ended_before_more_is_begun(world: World) -> None:
    """Such as the reply to a request that a controller has decided on."""
    for number in range(4 * AT_ONCE):
        world.take(str(number), 100)
    world.take("reply", 100, is_end=True)
    world.run()
    assert world.done.index("reply") <= AT_ONCE


def test_clients_take_turns_however_much_they_have_asked(world: World) -> None:
    for number in range(8 * AT_ONCE):
        world.take(str(number), 100, whose="demanding")
    for name in ("a", "b"):
        world.take(name, 100, whose="modest")
    world.run()
    assert world.done.index("a") <= 2 * AT_ONCE
    assert world.done.index("b") <= 2 * AT_ONCE
    assert [one for one in world.done if one not in ("a", "b")] == [str(one) for one in range(8 * AT_ONCE)]


def test_an_exception_is_an_outcome_and_ends_no_other_work(world: World) -> None:
    error = ValueError("bad")
    world.take("a", 100, error)
    world.take("b", 100)
    world.run()
    assert world.done == [error, "b"]


def test_somebody_who_is_told_and_fails_ends_no_other_work(world: World) -> None:
    def fail(outcome: object) -> None:
        raise LookupError("a bug")

    world.slices.take(world.work("a", 100), fail)
    world.take("b", 100)
    world.run()
    assert world.done == ["b"]
    assert world.bugs.count == 1


def test_work_that_nobody_wants_any_more_is_dropped(world: World) -> None:
    wanted = True
    for name in "abcdefg":
        world.slices.take(world.work(name, 100), world.done.append, lambda: wanted)
    world.turn()
    wanted = False
    worked = sum(map(len, world.turns))
    world.run()
    assert not world.done
    assert sum(map(len, world.turns)) == worked
