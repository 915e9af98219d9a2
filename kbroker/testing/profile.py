"""What a broker for tests does differently from one that keeps people's data.

Whatever is not here has Kafka's default. `docs/testing.md` tells why each is as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TEST_PROFILE: Mapping[str, str] = {
    "kbroker.flush": "never",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}

OUR_BUSINESS = ("listeners", "log.dirs", "log.dir")
"""Keys that say where a broker is; `Broker` has arguments for that."""


def settings(config: Mapping[str, object]) -> dict[str, str]:
    """The profile, and over it what a test asks for; values may be numbers and booleans."""
    for key in OUR_BUSINESS:
        if key in config:
            raise ValueError(f"{key} is for the broker itself to choose: see Broker(port=..., data=...)")
    if config:
        _refuse_unknown(config)
    return {**TEST_PROFILE, **{key: text_of(value) for key, value in config.items()}}


def _refuse_unknown(config: Iterable[str]) -> None:
    """A test that sets what nobody knows does not test what it seems to."""
    from kbroker.configuration.layers import unknown_keys

    for name, hint in unknown_keys(config):
        raise ValueError(f"a broker has no key {name}{hint}")


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
