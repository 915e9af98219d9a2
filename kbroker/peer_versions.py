"""In which version a request goes to another broker: the highest that both know, of those that can say it.

The other broker is a kbroker or an Apache Kafka of its own age, and tells by ApiVersions what it serves.
Kafka closes the connection for any other version. Below `LOWEST` a request of ours would lose its meaning: it
names topics by their ids, say. A broker that serves no more cannot be asked, and is too old for this cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from wire.api import ApiKey, api
from wire.api.api_versions import ApiVersionsResponse
from wire.errors import ErrorCode
from wire.schema import Versions

Served = Mapping[int, Versions]
"""What a broker serves, by API."""

LOWEST: Mapping[int, int] = {
    ApiKey.FETCH: 13,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.LEADER_AND_ISR: 5,
    ApiKey.STOP_REPLICA: 3,
    ApiKey.UPDATE_METADATA: 7,
    ApiKey.CONTROLLED_SHUTDOWN: 1,
    ApiKey.ALTER_PARTITION: 2,
    ApiKey.ADD_PARTITIONS_TO_TXN: 4,
}


class TooOld(Exception):
    """The other broker does not know what it would have to be asked."""


def served_by(response: ApiVersionsResponse) -> Served:
    if response.error_code != ErrorCode.NONE:
        raise TooOld(f"it answers ApiVersions with error {response.error_code}")
    return {one.api_key: Versions(one.min_version, one.max_version) for one in response.api_keys}


def chosen_version(key: int, version: int, served: Served) -> int:
    """At most `version`; TooOld where there is none."""
    lowest = min(LOWEST.get(key, 0), version)
    theirs = served.get(key)
    if theirs is None:
        raise TooOld(f"it does not serve {api(key).name}")
    if min(version, theirs.last) < max(lowest, theirs.first):
        raise TooOld(f"of {api(key).name} it serves {theirs}, and we speak {Versions(lowest, version)}")
    return min(version, theirs.last)
