"""Decoding and encoding in slices give what they give in one go, and stop at too many elements."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest

from tests.wire.random_messages import ALL_MESSAGES, at_version, random_message, versions_of
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from wire.codec import decode, encode, slicing_decoder, slicing_encoder
from wire.decoding import SLICE
from wire.errors import TooManyElements, WireError
from wire.primitives import Buffer

PLENTY = 1 << 20


def driven(work: Generator[None, None, Any]) -> tuple[Any, int]:
    """The outcome, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_slices_give_the_same(cls: type) -> None:
    rng = random.Random(cls.__name__)
    for version in versions_of(cls):
        message = at_version(random_message(rng, cls, version), version)
        data = encode(message, version)
        parts: list[Buffer] = []
        driven(slicing_encoder(cls, version)(message, parts))
        assert b"".join(parts) == data
        (decoded, position), _ = driven(slicing_decoder(cls, version)(data, 0, PLENTY))
        assert decoded == decode(cls, data, version)
        assert position == len(data)


def names(number: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"t{index}") for index in range(number)])


def test_a_long_array_pauses_again_and_again() -> None:
    message = names(10 * SLICE)
    data = encode(message, 12)
    assert driven(slicing_decoder(MetadataRequest, 12)(data, 0, PLENTY))[1] >= 9
    assert driven(slicing_encoder(MetadataRequest, 12)(message, []))[1] >= 9


def test_the_elements_of_all_arrays_count_together() -> None:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(10)))
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic] * 3)
    data = encode(OffsetFetchRequest(groups=[group]), 8)
    decoding = slicing_decoder(OffsetFetchRequest, 8)
    driven(decoding(data, 0, 1 + 3 + 30))
    with pytest.raises(TooManyElements, match="more than 33 elements"):
        driven(decoding(data, 0, 33))


def test_too_many_elements_are_noticed_before_one_is_made() -> None:
    work = slicing_decoder(MetadataRequest, 12)(encode(names(10 * SLICE), 12), 0, 9 * SLICE)
    with pytest.raises(TooManyElements):
        next(work)


def test_what_is_cut_off_is_found_in_slices_as_well() -> None:
    data = encode(names(3 * SLICE), 12)
    with pytest.raises(WireError, match=r"MetadataRequest v12: topics"):
        driven(slicing_decoder(MetadataRequest, 12)(data[:-100], 0, PLENTY))
