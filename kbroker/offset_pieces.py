"""Requests about the offsets of very many partitions, put to their group in pieces.

A coordinator decides what it is asked in one go. So what names more than `MOST_PARTITIONS` is asked piece by
piece, in order, while other requests are served. Each partition has its own outcome, as ever: where a group
changes meanwhile, later ones may be refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, TypeVar

from kbroker.context import Parked

MOST_PARTITIONS = 500

T = TypeVar("T")


def in_pieces(topics: Iterable[T], partitions: str) -> list[list[T]]:
    """The topics in lists that have so many partitions together; `partitions` is the field that has them."""
    pieces: list[list[T]] = []
    room = 0
    for topic in topics:
        all_of_it: Sequence[Any] = getattr(topic, partitions)
        begin = 0
        while begin < max(len(all_of_it), 1):  # a topic without any counts as well
            if not room:
                pieces.append([])
                room = MOST_PARTITIONS
            some = all_of_it[begin : begin + room]
            piece = copy(topic)
            setattr(piece, partitions, some)
            pieces[-1].append(piece)
            begin += room
            room -= max(len(some), 1)
    return pieces


class Gathered:
    """Several answers that make one, when all of them are there."""

    def __init__(self) -> None:
        self.parked = Parked()
        self.answers: list[object] = []
        self._pending = 1

    def expect(self, answer: Parked) -> None:
        place = len(self.answers)
        self.answers.append(None)
        self._pending += 1
        answer.when_done(lambda outcome: self._told(place, outcome), for_reply=self.parked)

    def _told(self, place: int, outcome: object) -> None:
        self.answers[place] = outcome
        self._one_done()

    def is_complete(self) -> None:
        """No more are expected."""
        self._one_done()

    def _one_done(self) -> None:
        self._pending -= 1
        if not self._pending:
            self.parked.complete(self.answers)
