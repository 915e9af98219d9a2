"""Which broker of a cluster this is: configured, remembered, or given out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from controller.embedded import EmbeddedTree
from kbroker.cluster import broker_id_of
from kbroker.config import ConfigError
from kbroker.configuration.layers import Configuration
from kbroker.data_directories import WrongCluster
from storage.checkpoints import MetaProperties, write_meta_properties
from storage.files import Disk

TREE = EmbeddedTree.open(None, now_ms=lambda: 0)


def run(test: Coroutine[Any, Any, int]) -> int:
    return asyncio.run(test)


async def id_with(*directories: Path, tree: EmbeddedTree = TREE, **properties: object) -> int:
    settings = {name.replace("_", "."): str(value) for name, value in properties.items()}
    if directories:
        settings["log.dirs"] = ",".join(map(str, directories))
    store = tree.connect(asyncio.get_running_loop().call_soon)
    return await broker_id_of(Configuration(settings).broker, store)


def directory(place: Path, broker_id: int | None) -> Path:
    place.mkdir()
    if broker_id is not None:
        write_meta_properties(Disk(durable=False), str(place), MetaProperties(0, "cluster", broker_id))
    return place


def test_a_configured_id_is_taken(tmp_path: Path) -> None:
    assert run(id_with(tmp_path, broker_id=7)) == 7


def test_ids_that_are_given_out_are_all_different_and_above_the_reserved_ones(tmp_path: Path) -> None:
    first, second = run(id_with(tmp_path)), run(id_with(tmp_path, reserved_broker_max_id=1000))
    assert 1000 < first < second


def test_what_the_data_directories_say_is_remembered(tmp_path: Path) -> None:
    one, other, new = (
        directory(tmp_path / "one", 1234),
        directory(tmp_path / "other", 1234),
        directory(tmp_path / "new", None),
    )
    assert run(id_with(new, one, other)) == 1234


def test_directories_of_different_brokers_are_refused(tmp_path: Path) -> None:
    one, other = directory(tmp_path / "one", 1001), directory(tmp_path / "other", 1002)
    with pytest.raises(WrongCluster, match="different brokers"):
        run(id_with(one, other))


def test_an_id_that_may_be_given_out_cannot_be_configured(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reserved\.broker\.max\.id"):
        run(id_with(tmp_path, broker_id=1001))
    assert run(id_with(tmp_path, broker_id=1001, broker_id_generation_enable="false")) == 1001


def test_without_an_id_and_without_generation_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"broker\.id"):
        run(id_with(tmp_path, broker_id_generation_enable="false"))
